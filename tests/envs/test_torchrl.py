"""The glimpse environments in TorchRL: the check of their specs, and rollouts."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from envs import FlattenAction, GridAction, RelativeLocation
from tests.envs.helpers import OPTIONS

pytest.importorskip("torchrl", reason="the extra torchrl is not installed")

from tensordict.nn import TensorDictModule
from torchrl.envs import EnvBase, GymEnv, GymWrapper, RenameTransform, TransformedEnv, check_env_specs

GRID = partial(GridAction, rows=3, columns=3)


def make_env(*wrappers: Any) -> gymnasium.Env:
    env = gymnasium.make("envs:ram/Glimpse-v0", **OPTIONS)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def rename_location(env: EnvBase) -> EnvBase:
    """Renames the observed location: TorchRL keeps observation and action, which has a location too, in one dict."""
    return TransformedEnv(env, RenameTransform(["location"], ["observed_location"]))


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize(
    "wrappers", [(), (GridAction,), (RelativeLocation,), (FlattenAction,), (GridAction, FlattenAction)], ids=str
)
def test_environments_pass_the_spec_check_of_torchrl(wrappers: tuple[Any, ...], categorical: bool) -> None:
    check_env_specs(rename_location(GymWrapper(make_env(*wrappers), categorical_action_encoding=categorical)))


def test_environments_made_by_torchrl_pass_the_spec_check() -> None:
    check_env_specs(rename_location(GymEnv("ram/Glimpse-v0", categorical_action_encoding=True, **OPTIONS)))
    check_env_specs(rename_location(GymEnv("ram/Catch-v0", categorical_action_encoding=True)))


def test_a_rollout_equals_the_episode_of_gymnasium() -> None:
    cells = [4, 0, 8]
    policy = TensorDictModule(
        lambda step: (torch.tensor(cells)[step], torch.ones_like(step)), ["step"], ["location", "answer"]
    )
    wrapped = rename_location(GymWrapper(make_env(GRID), categorical_action_encoding=True))
    wrapped.set_seed(3)
    rollout = wrapped.rollout(10, policy)
    assert rollout.batch_size == (3,)
    assert rollout["location"].tolist() == cells
    assert rollout["next", "done"].flatten().tolist() == [False, False, True]

    ours = make_env(GRID)
    ours.reset(seed=3)  # set_seed resets, and the rollout resets again
    observation, _ = ours.reset()
    for step, cell in enumerate(cells):
        np.testing.assert_array_equal(rollout["patches"][step], observation["patches"])
        np.testing.assert_array_equal(rollout["observed_location"][step], observation["location"])
        observation, reward, *_ = ours.step({"location": cell, "answer": 1})
        np.testing.assert_array_equal(rollout["next", "patches"][step], observation["patches"])
        assert rollout["next", "reward"][step].item() == reward


def test_a_rollout_continues_with_the_next_episode() -> None:
    wrapped = GymWrapper(make_env(GridAction, FlattenAction), categorical_action_encoding=True)
    rollout = wrapped.rollout(7, break_when_any_done=False)
    assert rollout["next", "done"].flatten().tolist() == [False, False, True] * 2 + [False]
    assert rollout["step"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert rollout["action"].shape == (7, 2)
