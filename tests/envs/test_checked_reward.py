"""Rewards are validated, and receive the transition that is documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition
from tests.envs.helpers import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    ConstantReward,
    actions,
    vector_env,
)


@dataclass(frozen=True)
class FunctionReward:
    """Returns the result of a function."""

    result: Callable[[Transition], Any]

    def __call__(self, transition: Transition) -> Any:
        return self.result(transition)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda t: 1.0, "FunctionReward must return a tensor, got float"),
        (lambda t: np.ones(4, np.float32), "FunctionReward must return a tensor, got ndarray"),
        (lambda t: torch.ones(4, 1), r"FunctionReward must return \(4,\) float32 on cpu, got \(4, 1\) float32 on cpu"),
        (lambda t: torch.tensor(1.0), r"FunctionReward must return \(4,\) float32 on cpu, got \(\) float32"),
        (lambda t: t.answer == t.label, r"FunctionReward must return \(4,\) float32 on cpu, got \(4,\) bool"),
        (lambda t: torch.ones(4).double(), r"FunctionReward must return \(4,\) float32 on cpu, got \(4,\) float64"),
        (lambda t: torch.ones(4, device="meta"), r"FunctionReward must return .* on cpu, got \(4,\) float32 on meta"),
        (lambda t: torch.tensor([1, 1, 1, torch.nan]), "FunctionReward returned NaN"),
        (lambda t: torch.tensor([1, 1, -torch.inf, 1]), "FunctionReward returned NaN or infinity"),
    ],
)
def test_an_invalid_reward_is_refused_at_the_first_step(result: Callable[[Transition], Any], message: str) -> None:
    env = vector_env(reward=FunctionReward(result))
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(actions(4))


@dataclass
class ScriptedReward:
    """Returns one list of rewards a step, after zeros for the trial when the environment is built."""

    lines: list[list[float]]

    def __post_init__(self) -> None:
        self.lines = [[0.0] * 4, *self.lines]

    def __call__(self, transition: Transition) -> Tensor:
        return torch.tensor(self.lines.pop(0))


@dataclass
class ScriptedComponents(ScriptedReward):
    """Returns the rewards as those of one component."""

    def components(self, transition: Transition) -> dict[str, Tensor]:
        return {"mine": self(transition)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("script", "name"), [(ScriptedReward, "ScriptedReward"), (ScriptedComponents, "reward/mine")])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_reward_that_is_not_finite_is_refused_in_any_episode(
    script: type[ScriptedReward], name: str, value: float, steps: int
) -> None:
    valid = [[1.0] * 4] * steps
    env = vector_env(reward=script([*valid, [1.0, 1.0, value, 1.0]]), num_glimpses=2, autoreset_mode=SAME_STEP)
    env.reset(seed=0)
    assert [env.step(actions(4, step))[1].tolist() for step in range(steps)] == valid
    with pytest.raises(InputError, match=f"^{name} returned NaN or infinity"):
        env.step(actions(4))


@pytest.mark.parametrize("script", [ScriptedReward, ScriptedComponents])
def test_rewards_of_ended_rows_are_ignored(script: type[ScriptedReward]) -> None:
    lines = [[1.0, 2.0, 3.0, 4.0], [np.nan, 2.0, np.inf, 4.0], [-np.inf, 2.0, np.nan, np.nan]]
    env = vector_env(reward=script(lines), stop=True, autoreset_mode=DISABLED)
    env.reset(seed=0)
    stops = [[True, False, True, False], [False, False, False, True], [False] * 4]
    rewards = [env.step({**actions(4), "stop": stop})[1].tolist() for stop in stops]
    assert rewards == [[1, 2, 3, 4], [0, 2, 0, 4], [0, 2, 0, 0]]


def test_the_reward_of_an_autoreset_row_is_zero() -> None:
    reward = ScriptedReward([[1.0] * 4, [np.nan] * 4, [1.0] * 4])
    env = vector_env(reward=reward, num_glimpses=1, autoreset_mode=NEXT_STEP)
    env.reset(seed=0)
    assert [env.step(actions(4))[1].tolist() for _ in range(3)] == [[1] * 4, [0] * 4, [1] * 4]


def target_reward(transition: Transition, value: Any = None) -> Any:
    """A reward that is a function: returns ``value``, or reads a field that not every environment has."""
    return transition.target if value is None else value


def test_messages_name_a_reward_that_is_a_function() -> None:
    for reward in (target_reward, partial(target_reward, value=None)):
        with pytest.raises(InputError, match=r"^target_reward does not fit this environment: transition\.target"):
            vector_env(reward=reward)
    env = vector_env(reward=partial(target_reward, value=0.5))
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"^target_reward must return a tensor, got float"):
        env.step(actions(4))


@dataclass(frozen=True)
class AttributeReward(ConstantReward):
    """Has an attribute ``components`` that is not a method."""

    components: tuple[str, ...] = ("a", "b")


def test_a_components_attribute_that_is_not_a_method_is_ignored() -> None:
    env = vector_env(reward=AttributeReward())
    env.reset(seed=0)
    _, reward, _, _, info = env.step(actions(4))
    assert reward.tolist() == [1] * 4
    assert not any("reward" in name for name in info)


def test_the_reward_receives_the_documented_transition() -> None:
    transitions: list[Transition] = []

    def record(transition: Transition) -> Tensor:
        transitions.append(transition)
        return torch.zeros(4)

    env = vector_env(reward=FunctionReward(record), num_glimpses=2)
    transitions.clear()  # the reward was tried once when the environment was built
    before, info = env.reset(seed=0)
    after, *_ = env.step(actions(4, 0))
    env.step(actions(4, 1))
    first, last = transitions
    np.testing.assert_array_equal(first.answer, actions(4, 0)["answer"])
    np.testing.assert_array_equal(first.label, info["label"])
    np.testing.assert_array_equal(first.previous_location, before["location"])
    np.testing.assert_array_equal(first.location, after["location"])
    np.testing.assert_array_equal(last.previous_location, after["location"])
    np.testing.assert_array_equal(last.location, after["location"])
    assert (first.step.tolist(), last.step.tolist()) == ([0] * 4, [1] * 4)
    assert (first.last.tolist(), last.last.tolist()) == ([False] * 4, [True] * 4)
