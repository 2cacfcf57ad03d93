"""Images, environments, actions and rewards that the tests of the environments share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs.images import ImageSet
from envs.random import RowRandom
from envs.rewards import Transition
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.vector_env import GlimpseVectorEnv

Values = dict[str, Any]

SENSOR = GlimpseSensor(3, 2)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


def image_set(count: int = 11, **options: Any) -> ImageSet:
    """Random images of 7 x 9 pixels with the labels 0, 1, 2, 0, 1, ..."""
    images = torch.randint(256, (count, 1, 7, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 3, ("red", "green", "blue"), **options)


IMAGES = image_set()
OPTIONS: Values = {"images": IMAGES, "sensor": SENSOR, "num_glimpses": 3}


def flicker(images: Tensor, random: RowRandom) -> Tensor:
    """An augmentation that darkens every image by a random factor."""
    return images * random.uniform("flicker", 1, 1, 1)


@dataclass(frozen=True)
class TransitionCode:
    """A reward that encodes the fields of the transition in one number."""

    def __call__(self, transition: Transition) -> Tensor:
        whole = transition.answer + 10 * transition.label + 100 * transition.step + 1000 * transition.last
        return whole + 0.1 * transition.location.sum(1) + 0.01 * transition.previous_location.sum(1)


@dataclass(frozen=True)
class ConstantReward:
    """A reward of 1 in every row."""

    def __call__(self, transition: Transition) -> Tensor:
        return torch.ones(len(transition.label), device=transition.label.device)


def vector_env(**options: Any) -> GlimpseVectorEnv:
    return GlimpseVectorEnv(**OPTIONS | {"num_envs": 4} | options)


def single_env(**options: Any) -> GlimpseEnv:
    return GlimpseEnv(**OPTIONS | options)


def actions(count: int, seed: int = 0) -> Values:
    """Random locations, some of them outside the image, and random answers."""
    generator = np.random.default_rng(seed)
    location = generator.uniform(-1.3, 1.3, (count, 2)).astype(np.float32)
    return {"location": location, "answer": generator.integers(3, size=count)}


def row(values: Values, number: int) -> Values:
    """One row of an observation or info, without the masks of vector infos."""
    return {name: value[number] for name, value in values.items() if not name.startswith("_")}


def assert_same(left: Any, right: Any) -> None:
    """Asserts that two arrays, or nested dicts of arrays, are equal."""
    if isinstance(right, dict):
        assert left.keys() == right.keys()
        for name in right:
            assert_same(left[name], right[name])
    else:
        np.testing.assert_array_equal(left, right)
