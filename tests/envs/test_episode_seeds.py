"""What the random draws of the environments depend on: seed, episode and scene."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.images import ImageSet
from envs.sensor import GlimpseSensor
from tests.envs.helpers import (
    actions,
    assert_same,
    flicker,
    image_set,
    row,
    single_env,
    vector_env,
)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**40), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["train", "validation"]))
def test_equal_seeds_give_equal_episodes(seed: int, count: int, num_glimpses: int, split: str) -> None:
    left, right = (vector_env(num_envs=count, num_glimpses=num_glimpses, split=split) for _ in range(2))
    for a, b in [(left.reset(seed=seed), right.reset(seed=seed)), (left.reset(), right.reset())]:
        assert_same(a[0], b[0])
        assert_same(a[1], b[1])
    for step in range(2 * num_glimpses + 1):
        action = actions(count, step)
        for a, b in zip(left.step(action), right.step(action), strict=True):
            assert_same(a, b)


def test_different_seeds_give_different_episodes() -> None:
    env = vector_env()
    first, second = env.reset(seed=0)[0], env.reset(seed=4)[0]
    assert not (first["location"] == second["location"]).any()


def test_seeding_again_repeats_the_episodes() -> None:
    env = vector_env()
    first, second, again = env.reset(seed=5)[0], env.reset()[0], env.reset(seed=5)[0]
    assert_same(first, again)
    assert not (first["location"] == second["location"]).any()


def test_resets_without_a_seed_differ() -> None:
    assert not (vector_env().reset()[0]["location"] == vector_env().reset()[0]["location"]).any()


def test_reset_takes_one_seed_for_each_row() -> None:
    env = vector_env()
    observation, info = env.reset(seed=[8, 3, 8, 90])
    for number, seed in enumerate([8, 3, 8, 90]):
        single, single_info = single_env().reset(seed=seed)
        assert_same(single, row(observation, number))
        assert_same(single_info, row(info, number))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_draws_do_not_depend_on_row_and_episode(split: str) -> None:
    images = image_set(augmentation=flicker)
    whole, _ = vector_env(images=images, split=split, num_envs=5).reset(seed=3, options={"index": [0, 1, 2, 3, 4]})
    env = vector_env(images=images, split=split, num_envs=3)
    env.reset(seed=3)
    env.reset()
    part, _ = env.reset(options={"index": [4, 2, 2]})  # in other rows, and two episodes later
    for number, index in enumerate([4, 2, 2]):
        assert_same(row(part, number), row(whole, index))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_draws_depend_on_index_and_seed(split: str) -> None:
    env = vector_env(split=split)
    first, _ = env.reset(seed=3, options={"index": [0, 1, 2, 3]})
    other_images, _ = env.reset(options={"index": [4, 5, 6, 7]})
    other_seed, _ = env.reset(seed=4, options={"index": [0, 1, 2, 3]})
    assert len(np.unique(first["location"], axis=0)) == 4
    assert not (first["location"] == other_images["location"]).any()
    assert not (first["location"] == other_seed["location"]).any()


def test_training_draws_depend_on_row_seed_and_episode() -> None:
    env = vector_env()
    first, info = env.reset(seed=3)
    for number in range(4):
        single, single_info = single_env().reset(seed=3 + number)
        assert_same(single, row(first, number))
        assert_same(single_info, row(info, number))
    assert not (env.reset()[0]["location"] == first["location"]).any()
    assert not (env.reset(options={"episode": 1000})[0]["location"] == first["location"]).any()
    assert_same(env.reset(options={"episode": 0})[0], first)


def test_training_draws_do_not_depend_on_the_index() -> None:
    env = vector_env()
    first, _ = env.reset(seed=3, options={"index": [0, 1, 2, 3]})
    other, _ = env.reset(seed=3, options={"index": [7, 7, 7, 7]})
    np.testing.assert_array_equal(first["location"], other["location"])


def test_training_augmentation_depends_on_row_seed_and_episode() -> None:
    white = ImageSet(torch.ones(9, 1, 4, 4), torch.zeros(9, dtype=torch.int64), ("white",), flicker)
    env = vector_env(images=white, sensor=GlimpseSensor(1))

    def brightness(seed: int, episode: int, *index: int) -> list[float]:
        observation, _ = env.reset(seed=seed, options={"episode": episode, "index": index})
        patches: np.ndarray = observation["patches"]
        return patches.flatten().tolist()

    first = brightness(3, 0, 0, 1, 2, 3)
    assert len(set(first)) == 4
    assert brightness(3, 0, 8, 8, 8, 8) == first  # independent of the index
    assert brightness(4, 0, 0, 1, 2, 3)[:3] == first[1:]
    assert not set(brightness(3, 1, 0, 1, 2, 3)) & set(first)


def test_drawn_indices_are_uniform() -> None:
    env = vector_env(num_envs=1100)
    counts = np.bincount(env.reset(seed=0)[1]["index"], minlength=11)
    assert counts.min() > 60 and counts.max() < 145  # 100, and four standard deviations


def test_first_locations_are_uniform() -> None:
    location = vector_env(num_envs=2000).reset(seed=0)[0]["location"]
    counts = np.histogram2d(*location.T, bins=4, range=[(-1, 1), (-1, 1)])[0]
    assert counts.min() > 80 and counts.max() < 170  # 125, and four standard deviations


def test_first_location_center() -> None:
    env = vector_env(first_location="center")
    assert not env.reset(seed=0)[0]["location"].any()
    assert not env.reset(options={"reset_mask": [True, False, True, False]})[0]["location"].any()
