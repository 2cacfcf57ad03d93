"""TorchRL reads the glimpse environments: its own check of their specs, and rollouts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from envs import Flat, GlimpseSensor, Grid, RelativeMoves, TransformAction
from envs.images import ImageSet

pytest.importorskip("torchrl", reason="the extra torchrl is not installed")

from tensordict.nn import TensorDictModule
from torchrl.envs import EnvBase, GymEnv, GymWrapper, RenameTransform, TransformedEnv, check_env_specs

PICTURES = torch.randint(256, (11, 1, 7, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
IMAGES = ImageSet(PICTURES, torch.arange(11) % 3, ("red", "green", "blue"))
OPTIONS: dict[str, Any] = {"images": IMAGES, "sensor": GlimpseSensor(3, 2), "num_glimpses": 3}


def env(*transforms: Any, **options: Any) -> gymnasium.Env:
    made = gymnasium.make("envs:ram/Glimpse-v0", **OPTIONS | options)
    for transform in transforms:
        made = TransformAction(made, transform)
    return made


def apart(env: EnvBase) -> EnvBase:
    """TorchRL keeps observation and action in one dict; here both have a location."""
    return TransformedEnv(env, RenameTransform(["location"], ["gaze"]))


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize("transforms", [(), (Grid(),), (RelativeMoves(),), (Flat(),), (Grid(), Flat())], ids=str)
def test_torchrl_finds_no_fault(transforms: tuple[Any, ...], categorical: bool) -> None:
    check_env_specs(apart(GymWrapper(env(*transforms), categorical_action_encoding=categorical)))


def test_torchrl_finds_no_fault_when_it_makes_the_environment_itself() -> None:
    check_env_specs(apart(GymEnv("ram/Glimpse-v0", categorical_action_encoding=True, **OPTIONS)))
    check_env_specs(apart(GymEnv("ram/Catch-v0", categorical_action_encoding=True)))


def test_a_rollout_is_the_episode_that_gymnasium_plays() -> None:
    cells = [4, 0, 8]
    policy = TensorDictModule(
        lambda step: (torch.tensor(cells)[step], torch.ones_like(step)), ["step"], ["location", "answer"]
    )
    theirs = apart(GymWrapper(env(Grid(3, 3)), categorical_action_encoding=True))
    theirs.set_seed(3)
    rollout = theirs.rollout(10, policy)
    assert rollout.batch_size == (3,)
    assert rollout["location"].tolist() == cells
    assert rollout["next", "done"].flatten().tolist() == [False, False, True]

    ours = env(Grid(3, 3))
    ours.reset(seed=3)  # set_seed resets, and the rollout resets again
    observation, _ = ours.reset()
    for step, cell in enumerate(cells):
        np.testing.assert_array_equal(rollout["patches"][step], observation["patches"])
        np.testing.assert_array_equal(rollout["gaze"][step], observation["location"])
        observation, reward, *_ = ours.step({"location": cell, "answer": 1})
        np.testing.assert_array_equal(rollout["next", "patches"][step], observation["patches"])
        assert rollout["next", "reward"][step].item() == reward


def test_a_rollout_goes_on_with_the_next_episode() -> None:
    theirs = GymWrapper(env(Grid(), Flat()), categorical_action_encoding=True)
    rollout = theirs.rollout(7, break_when_any_done=False)
    assert rollout["next", "done"].flatten().tolist() == [False, False, True] * 2 + [False]
    assert rollout["step"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert rollout["action"].shape == (7, 2)
