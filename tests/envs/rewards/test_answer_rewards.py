"""CorrectAnswer and EarlyAnswer: values worked out by hand, and episodes."""

from __future__ import annotations

import numpy as np
import pytest

from envs.errors import InputError
from envs.rewards import Transition
from envs.rewards.answers import CorrectAnswer, EarlyAnswer
from tests.envs.rewards.helpers import ANSWERED, DISABLED, INF, assert_pays, flags, vector_env


def test_correct_answer_rewards_correct_answers_that_are_due() -> None:
    assert_pays(CorrectAnswer(), ANSWERED, [1, 0, 0, 0])


def test_early_answer_subtracts_its_cost_at_every_step() -> None:
    assert_pays(EarlyAnswer(0.25), ANSWERED, [0.75, -0.25, -0.25, -0.25])
    assert_pays(EarlyAnswer(0), ANSWERED, [1, 0, 0, 0])


def test_early_answer_does_not_reward_answers_before_the_last_step() -> None:
    not_last = Transition(**vars(ANSWERED) | {"last": flags(0, 0, 0, 1)})
    assert_pays(CorrectAnswer(), not_last, [1, 0, 0, 0])
    assert_pays(EarlyAnswer(0.25), not_last, [-0.25] * 4)


@pytest.mark.parametrize(("cost", "message"), [(-0.1, r"of at least 0, got -0\.1"), (INF, "got inf")])
def test_an_invalid_cost_is_refused(cost: float, message: str) -> None:
    with pytest.raises(InputError, match=rf"reward\.cost must be a finite number .*{message}"):
        EarlyAnswer(cost)


@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_the_return_of_early_answer_decreases_with_every_glimpse_after_a_correct_answer(cost: float) -> None:
    env = vector_env(
        EarlyAnswer(cost), num_envs=4, num_glimpses=4, glimpses_per_answer=1, stop=True, autoreset_mode=DISABLED
    )
    _, info = env.reset(seed=0)
    rewards = []
    for step in range(4):  # row i stops after glimpse i; the last row does not stop
        stop = (np.arange(4) == step) & (step < 3)
        action = {"location": np.zeros((4, 2), np.float32), "answer": info["label"], "stop": stop}
        rewards.append(env.step(action)[1])
    assert np.sum(rewards, axis=0).tolist() == [1 - cost * glimpses for glimpses in (1, 2, 3, 4)]
