"""Helpers of the reward tests: assertions, small scenes and environments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs.images import ImageSet
from envs.random import RowRandom
from envs.rewards import Reward, Transition
from envs.scene import Scene
from envs.sensor import GlimpseSensor
from envs.splits import IGNORE_INDEX, Split
from envs.vector_env import GlimpseVectorEnv

SENSOR = GlimpseSensor(3)
DISABLED = AutoresetMode.DISABLED
INF = math.inf
LN2 = math.log(2)

IMAGES = ImageSet(torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3, tuple("abc"))
BOX = (-0.5, -0.5, 0.5, 0.5)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def log_probabilities(*rows: tuple[float, ...]) -> Tensor:
    """The logarithms of probabilities; 0 gives -inf."""
    return torch.tensor(rows).log()


def assert_pays(reward: Reward, transition: Transition, expected: list[float]) -> None:
    value = reward(transition)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float32), rtol=1e-6, atol=1e-6)


ANSWERED = Transition(
    answer=torch.tensor([2, 2, 1, 0]),
    label=torch.tensor([2, 2, 2, IGNORE_INDEX]),
    due=flags(1, 0, 1, 0),
    last=flags(1, 0, 1, 1),
)


@dataclass(frozen=True)
class TargetScenes:
    """Blank images with a label and the box of a target."""

    classes: tuple[str, ...] = ("a", "b")

    def __len__(self) -> int:
        return 5

    def load(self, split: Split, device: torch.device | str = "cpu") -> TargetScenes:
        return self

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        target = torch.tensor([BOX]).expand(len(index), 4)
        return Scene(torch.zeros(len(index), 1, 6, 6), {"label": index % 2, "target": target})


@dataclass(frozen=True)
class UnlabeledScenes(TargetScenes):
    """Blank images with the box of a target, without labels."""

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        scene = super().draw(index, random)
        return Scene(scene.images, {"target": scene.annotations["target"]}, scene.index)


TARGETS = TargetScenes()


def vector_env(reward: Reward, **options: Any) -> GlimpseVectorEnv:
    defaults = {"images": IMAGES, "sensor": SENSOR, "num_envs": 4, "num_glimpses": 3}
    return GlimpseVectorEnv(**{**defaults, "reward": reward, **options})


def sample_action(env: GlimpseVectorEnv, seed: int) -> dict[str, Any]:
    env.action_space.seed(seed)
    return env.action_space.sample()


def episode_rewards(reward: Reward, log_probs: Tensor, **options: Any) -> list[float]:
    """The rewards of an episode whose answers are the log-probabilities (T, B, K), step by step: T * B in turn."""
    count = log_probs.shape[1]
    env = vector_env(
        reward, answer="log_probs", num_envs=count, num_glimpses=len(log_probs), autoreset_mode=DISABLED, **options
    )
    env.reset(seed=0)
    location = np.zeros((count, 2), np.float32)
    results = [env.step({"location": location, "answer": answer.numpy()}) for answer in log_probs]
    assert [result[2].all() for result in results] == [False] * (len(log_probs) - 1) + [True]
    return [float(value) for result in results for value in result[1]]
