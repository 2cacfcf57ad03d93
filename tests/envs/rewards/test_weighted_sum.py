"""WeightedSum: its components, and how environments report them in info."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition
from envs.rewards.answers import CorrectAnswer, EarlyAnswer
from envs.rewards.log_probs import InformationGain
from envs.rewards.weighted_sum import WeightedSum
from envs.single_env import GlimpseEnv
from tests.envs.rewards.helpers import (
    ANSWERED,
    DISABLED,
    IMAGES,
    LN2,
    SENSOR,
    assert_pays,
    log_probabilities,
    sample_action,
    vector_env,
)


def test_weighted_sum_adds_its_components() -> None:
    reward = WeightedSum(
        {"correct": CorrectAnswer(), "early": EarlyAnswer(0.5), "gain": InformationGain()}, {"early": 2.0, "gain": -1}
    )
    step = Transition(
        **vars(ANSWERED),
        log_probs=log_probabilities((1, 0), (0.5, 0.5), (0.5, 0.5), (1, 0)),
        previous_log_probs=log_probabilities((0.5, 0.5), (0.5, 0.5), (1, 0), (1, 0)),
    )
    components = reward.components(step)
    assert list(components) == ["correct", "early", "gain"]
    expected = {"correct": [1.0, 0, 0, 0], "early": [1.0, -1, -1, -1], "gain": [-LN2, 0, LN2, 0]}
    for name, values in expected.items():
        torch.testing.assert_close(components[name], torch.tensor(values))
    assert_pays(reward, step, [2 - LN2, -1, -1 + LN2, -1])


def test_weights_are_one_by_default() -> None:
    assert_pays(WeightedSum({"a": CorrectAnswer(), "b": CorrectAnswer()}), ANSWERED, [2, 0, 0, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeightedSum({}), r"reward\.rewards must name at least one"),
        (
            lambda: WeightedSum({"a": CorrectAnswer()}, {"b": 1.0}),
            r"reward\.weights\.b matches no reward: there are a\.",
        ),
        (lambda: WeightedSum({"a": CorrectAnswer()}, {"a": math.nan}), r"reward\.weights\.a must be a finite number"),
        (lambda: WeightedSum({"a": CorrectAnswer()}, {"a": "much"}), r"reward\.weights\.a must .*, got 'much'"),  # type: ignore[dict-item]
    ],
)
def test_invalid_options_are_refused(make: Callable[[], WeightedSum], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# Components in info.


@dataclass(frozen=True)
class StepNumber:
    """The number of the action, from 1."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.step.float() + 1


SUM = WeightedSum({"steps": StepNumber(), "correct": CorrectAnswer()}, {"steps": 2.0})


def test_a_reward_without_components_adds_nothing_to_info() -> None:
    env = vector_env(CorrectAnswer())
    env.reset(seed=0)
    assert env.step(sample_action(env, 0))[4].keys() == {"index", "label", "_index", "_label"}


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_rows_whose_episode_has_ended_are_rewarded_zero(output: str) -> None:
    env = vector_env(SUM, stop=True, output=output, autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    assert not any("reward" in name for name in info)
    stops = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    rewards = []
    for stop in stops:
        action = {"location": torch.zeros(4, 2), "answer": torch.as_tensor(info["label"]), "stop": torch.tensor(stop)}
        _, reward, _, _, info = env.step(action)
        components = [info["reward/steps"], info["reward/correct"]]
        assert all(str(component.dtype).endswith("float32") and component.shape == (4,) for component in components)
        assert (components[0] + components[1]).tolist() == reward.tolist()
        rewards.append([component.tolist() for component in components])
    assert rewards == [[[2, 2, 2, 2], [0, 0, 1, 0]], [[4, 4, 0, 4], [1, 0, 0, 0]], [[0, 6, 0, 6], [0, 1, 0, 1]]]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_components_in_info_equal_those_of_gymnasium_over_single_environments(mode: AutoresetMode) -> None:
    options = {"images": IMAGES, "sensor": SENSOR, "num_glimpses": 3, "reward": SUM, "stop": True}
    env = vector_env(SUM, stop=True, autoreset_mode=mode)
    reference = SyncVectorEnv([lambda: GlimpseEnv(**options)] * 4, autoreset_mode=mode)
    env.reset(seed=3)
    reference.reset(seed=3)
    zeros = np.zeros(4)
    ended = 0
    for step in range(12):
        action = sample_action(env, step)
        result, expected_result = (each.step(action) for each in (env, reference))
        np.testing.assert_array_equal(result[1], expected_result[1])
        ended += int(result[2].sum())
        pairs = [(result[4], expected_result[4])]
        assert ("final_info" in result[4]) == ("final_info" in expected_result[4])
        if "final_info" in result[4]:
            pairs.append((result[4]["final_info"], expected_result[4]["final_info"]))
        for info, expected in pairs:
            for name in ("reward/steps", "reward/correct"):
                # Gymnasium omits a key that no row has.
                present = expected.get(f"_{name}", zeros.astype(bool))
                np.testing.assert_array_equal(info[f"_{name}"], present)
                np.testing.assert_array_equal(info[name][present], expected.get(name, zeros)[present])
    assert ended >= 12


def test_the_single_environment_reports_the_components_of_its_row() -> None:
    env = GlimpseEnv(images=IMAGES, sensor=SENSOR, num_glimpses=1, reward=SUM)
    _, info = env.reset(seed=0)
    *_, info = env.step({"location": np.zeros(2, np.float32), "answer": info["label"]})
    assert (info["reward/steps"], info["reward/correct"]) == (2, 1)


@dataclass(frozen=True)
class Constant:
    """Returns a given value."""

    result: Any

    def __call__(self, transition: Transition) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (1.0, "reward/mine must return a tensor, got float"),
        (torch.ones(4, 1), r"reward/mine must return \(4,\) float32 on cpu, got \(4, 1\) float32"),
        (torch.ones(3), r"reward/mine must return \(4,\) float32 on cpu, got \(3,\) float32"),
        (torch.ones(4).double(), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) float64"),
        (torch.full((4,), torch.nan), "reward/mine returned NaN"),
        ([1.0] * 4, "reward/mine must return a tensor, got list"),
        (None, "reward/mine must return a tensor, got NoneType"),
        (torch.ones(4, dtype=torch.int64), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) int64"),
        (torch.ones(4, dtype=torch.bool), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) bool"),
    ],
)
@pytest.mark.parametrize("weights", [None, {"mine": 2}, {"mine": 0.5}], ids=["unweighted", "twice", "half"])
def test_an_invalid_component_is_named_at_the_first_step(
    result: Any, message: str, weights: dict[str, float] | None
) -> None:
    env = vector_env(WeightedSum({"correct": CorrectAnswer(), "mine": Constant(result)}, weights))
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(sample_action(env, 0))
