"""Transitions: which rewards suit which environments, and the errors about missing fields."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.rewards import MissingField, Reward, Transition
from envs.rewards.answers import CorrectAnswer, EarlyAnswer
from envs.rewards.log_probs import InformationGain, LogProbGain, NegativeCrossEntropy
from envs.rewards.targets import BoxOverlap, HitTarget, TargetDistance
from envs.rewards.weighted_sum import WeightedSum
from ram.config import build, check, config_folder
from tests.envs.rewards.helpers import TARGETS, UnlabeledScenes, assert_pays, flags, sample_action, vector_env

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_reward"


@pytest.mark.parametrize(
    ("reward", "options"),
    [
        (CorrectAnswer(), {}),
        (EarlyAnswer(), {"stop": True}),
        (LogProbGain(), {"answer": "log_probs"}),
        (NegativeCrossEntropy(), {"answer": "log_probs", "glimpses_per_answer": 1}),
        (InformationGain(), {"answer": "log_probs"}),
        (HitTarget(), {"images": TARGETS}),
        (HitTarget(), {"images": TARGETS, "answer": None}),
        (TargetDistance(), {"images": TARGETS}),
        (BoxOverlap(), {"images": TARGETS, "answer": "box"}),
        (WeightedSum({"a": CorrectAnswer(), "b": TargetDistance()}), {"images": TARGETS}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_every_reward_works_in_an_environment_that_suits_it(reward: Reward, options: dict[str, Any]) -> None:
    env = vector_env(reward, **options)
    env.reset(seed=0)
    rewards = [env.step(sample_action(env, step))[1] for step in range(7)]
    assert all(each.shape == (4,) and each.dtype == np.float32 for each in rewards)
    assert np.isfinite(rewards).all()
    assert np.ptp(rewards) > 0, "all rewards are equal"


@pytest.mark.parametrize(
    ("reward", "options", "field"),
    [
        (CorrectAnswer(), {"answer": None}, "answer"),
        (EarlyAnswer(), {"answer": None}, "answer"),
        (CorrectAnswer(), {"images": TARGETS, "answer": "box"}, "answer is a box, not a class: set env.answer=label"),
        (LogProbGain(), {}, "log_probs"),
        (NegativeCrossEntropy(), {}, "log_probs"),
        (InformationGain(), {}, "previous_log_probs"),
        (HitTarget(), {}, "target"),
        (TargetDistance(), {}, "target"),
        (BoxOverlap(), {}, "target"),
        (BoxOverlap(), {"images": TARGETS}, "answer is a class, not a box: set env.answer=box"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict | str) else "",
)
def test_a_reward_that_does_not_suit_the_environment_is_refused_on_construction(
    reward: Reward, options: dict[str, Any], field: str
) -> None:
    message = rf"{type(reward).__name__} does not fit this environment: transition\.{field}"
    with pytest.raises(InputError, match=message) as refusal:
        vector_env(reward, **options)
    assert isinstance(refusal.value.__cause__, MissingField)


@dataclass(frozen=True)
class FieldReader:
    """Reads one field and returns zeros."""

    field: str

    def __call__(self, transition: Transition) -> Tensor:
        getattr(transition, self.field)
        return torch.zeros_like(transition.location[:, 0])


REMEDIES = [
    ("log_probs", {}, "set env.answer=log_probs"),
    ("previous_log_probs", {}, "set env.answer=log_probs"),
    ("answer", {"answer": None}, "set env.answer=label"),
    ("label", {"answer": None, "images": UnlabeledScenes()}, "choose scenes with labels, such as scenes=none"),
    ("target", {}, "choose scenes with a target object, such as scenes=locate"),
    ("goal", {}, "choose scenes with a goal class, such as scenes=search"),
    ("caught", {}, "choose scenes=catch"),
    ("flavor", {}, "choose other scenes, or another reward"),
]


@pytest.mark.parametrize(("field", "options", "remedy"), REMEDIES, ids=[remedy[0] for remedy in REMEDIES])
def test_the_error_of_a_missing_field_names_a_remedy(field: str, options: dict[str, Any], remedy: str) -> None:
    message = f"FieldReader does not fit this environment: transition.{field} is not available here ({remedy}); "
    with pytest.raises(InputError, match="^" + re.escape(message)):
        vector_env(FieldReader(field), **options)


@pytest.mark.parametrize(
    ("field", "answer"), [("log_probs", "log_probs"), ("previous_log_probs", "log_probs"), ("answer", "label")]
)
def test_the_recommended_answer_provides_the_field(field: str, answer: str) -> None:
    env = vector_env(FieldReader(field), answer=answer)
    env.reset(seed=0)
    assert env.step(sample_action(env, 0))[1].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("field", "scenes"), [("label", "none"), ("target", "locate"), ("goal", "search"), ("caught", "catch")]
)
def test_the_recommended_scenes_provide_the_field(field: str, scenes: str) -> None:
    options = ["images=glyphs", "images.num_train=20", "images.num_test=4", f"scenes={scenes}"]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", options)
    test = build(config.scenes).load("test")
    zero = torch.zeros(1, dtype=torch.int64)
    assert field in test.draw(zero, RowRandom(zero, zero)).annotations


def test_a_summand_that_does_not_suit_the_environment_is_named() -> None:
    reward = WeightedSum({"correct": CorrectAnswer(), "distance": TargetDistance()})
    message = (
        r"WeightedSum does not fit this environment: in reward\.rewards\.distance, transition\.target is not available"
    )
    with pytest.raises(InputError, match=message):
        vector_env(reward)


def test_the_example_of_a_custom_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setitem(sys.modules, "my_rewards", sys)  # restores sys.modules afterwards
    del sys.modules["my_rewards"]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", ["hydra.searchpath=[file://.]", "reward=my_reward", "reward.cost=0.2"])
    check(config)
    reward = build(config.reward)
    assert type(reward).__name__ == "MyReward"
    transition = Transition(
        answer=torch.tensor([1, 1, 0]),
        label=torch.tensor([1, 1, 1]),
        due=flags(1, 0, 1),
        location=torch.tensor([[0.3, 0.4], [0.0, 0.0], [0.5, 0.0]]),
        previous_location=torch.tensor([[0.0, 0.0], [0.6, 0.8], [0.5, 0.0]]),
    )
    assert_pays(reward, transition, [0.9, -0.2, 0])
