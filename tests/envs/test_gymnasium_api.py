"""The glimpse environments follow the interface of Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorRecordEpisodeStatistics

from envs.images.glyphs import Glyphs
from envs.single_env import GlimpseEnv
from envs.vector_env import GlimpseVectorEnv
from tests.envs.helpers import (
    IMAGES,
    NEXT_STEP,
    SAME_STEP,
    SENSOR,
    ConstantReward,
    assert_same,
    row,
    single_env,
    vector_env,
)

GLYPHS = Glyphs(size=20, num_train=64, num_validation=32, num_test=32)


@pytest.mark.parametrize("images", [GLYPHS, IMAGES], ids=["glyphs", "image set"])
def test_the_single_environment_passes_the_checker_of_gymnasium(images: Any) -> None:
    env = gymnasium.make("envs:ram/Glimpse-v0", images=images, sensor=SENSOR, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_make_returns_the_single_environment() -> None:
    env = gymnasium.make("envs:ram/Glimpse-v0", images=IMAGES, num_glimpses=2, render_mode="rgb_array")
    env.reset(seed=0)
    assert isinstance(env.unwrapped, GlimpseEnv)
    picture = env.render()
    assert isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2:] == (3,)
    ends = [env.step(env.action_space.sample())[2] for _ in range(2)]
    assert ends == [False, True]


def test_make_vec_returns_the_vector_environment() -> None:
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", num_envs=3, images=IMAGES, render_mode="rgb_array")
    env.reset(seed=0)
    assert isinstance(env.unwrapped, GlimpseVectorEnv)
    assert env.metadata["autoreset_mode"] is NEXT_STEP
    pictures = env.render()
    assert pictures is not None and len(pictures) == 3


def test_sync_vector_env_of_single_environments_returns_the_same_observations() -> None:
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", 2, "sync", images=IMAGES, sensor=SENSOR)
    ours = vector_env(num_envs=2)
    assert_same(env.reset(seed=3)[0], ours.reset(seed=3)[0])


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_observations_are_in_the_observation_space(mode: AutoresetMode) -> None:
    env = vector_env(autoreset_mode=mode)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(8):
        assert observation in env.observation_space
        assert row(observation, 1) in env.single_observation_space
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert reward.shape == terminated.shape == truncated.shape == (4,)
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
        assert not truncated.any()


def test_the_single_environment_returns_python_scalars() -> None:
    env = single_env()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert info.keys() == {"index", "label"}


def test_episode_statistics_of_the_single_environment() -> None:
    env = RecordEpisodeStatistics(single_env(reward=ConstantReward()))
    env.reset(seed=0)
    for _ in range(3):
        *_, info = env.step(env.action_space.sample())
    assert (info["episode"]["r"], info["episode"]["l"]) == (3, 3)


def test_episode_statistics_of_the_vector_environment() -> None:
    env = VectorRecordEpisodeStatistics(vector_env(reward=ConstantReward()))
    env.reset(seed=0)
    lengths = []
    for _ in range(8):
        *_, info = env.step(env.action_space.sample())
        if "episode" in info:
            lengths.append((info["episode"]["r"].tolist(), info["episode"]["l"].tolist()))
    assert lengths == [([3] * 4, [3] * 4)] * 2


def test_time_limit_truncates_the_episode() -> None:
    env = TimeLimit(single_env(num_glimpses=5), max_episode_steps=2)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(2)]
    assert ends == [(False, False), (False, True)]
