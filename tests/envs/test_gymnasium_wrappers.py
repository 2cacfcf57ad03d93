"""Wrappers of Gymnasium around single and batched glimpse environments, with and without flat actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import (
    FilterObservation,
    FlattenObservation,
    RecordEpisodeStatistics,
    RecordVideo,
    RenderCollection,
    TimeLimit,
    TransformObservation,
)
from gymnasium.wrappers import vector as vector_wrappers

from envs import FlattenAction, GridAction, VectorFlattenAction, VectorGridAction
from tests.envs.helpers import single_env, vector_env


def flat_env(**options: Any) -> gymnasium.Env:
    return FlattenAction(GridAction(single_env(**options)))


def flat_vector_env(**options: Any) -> VectorEnv:
    return VectorFlattenAction(VectorGridAction(vector_env(**options)))


def test_episode_statistics() -> None:
    env = RecordEpisodeStatistics(flat_env())
    _, info = env.reset(seed=0)
    for _ in range(3):
        *_, ended, _, info = env.step(np.array([0, info["label"]]))
    assert ended
    assert (info["episode"]["r"], info["episode"]["l"]) == (1, 3)


def test_vector_episode_statistics() -> None:
    env = vector_wrappers.RecordEpisodeStatistics(flat_vector_env())
    _, info = env.reset(seed=0)
    correct = np.stack([np.zeros(4, np.int64), info["label"]], axis=1)
    for _ in range(3):
        *_, info = env.step(correct)
    assert info["episode"]["r"].tolist() == [1] * 4
    assert info["episode"]["l"].tolist() == [3] * 4


def test_time_limit_truncates_the_episode() -> None:
    env = TimeLimit(flat_env(num_glimpses=5), max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(np.array([0, 0]))[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_render_collection_holds_every_frame() -> None:
    env = RenderCollection(flat_env(render_mode="rgb_array"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    pictures = env.render()
    assert len(pictures) == 4 and not np.array_equal(pictures[0], pictures[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_record_video_writes_a_video(tmp_path: Path) -> None:
    pytest.importorskip("moviepy", reason="the extra video is not installed")
    env = RecordVideo(flat_env(render_mode="rgb_array"), str(tmp_path / "videos"), lambda _: True)
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()
    (video,) = tmp_path.rglob("*.mp4")
    assert video.stat().st_size > 500


def test_filtered_observations_can_be_flattened() -> None:
    env = FlattenObservation(FilterObservation(single_env(), ["patches", "location"]))
    flat, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2 * 3 * 3 + 2,) and flat in env.observation_space
    expected = single_env().reset(seed=0)[0]
    np.testing.assert_array_equal(np.sort(flat), np.sort(np.append(expected["patches"], expected["location"])))


def test_flattened_observations_hold_the_step_one_hot() -> None:
    env = FlattenObservation(single_env())
    flat, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2 + 2 * 3 * 3 + 3,) and flat[-3:].tolist() == [1, 0, 0]


def test_vector_observations_can_be_flattened() -> None:
    env = vector_wrappers.FlattenObservation(vector_env())
    flat, _ = env.reset(seed=0)
    assert flat.shape == (4, 2 + 2 * 3 * 3 + 3)
    for row in range(4):
        single = FlattenObservation(single_env()).reset(seed=row)[0]
        np.testing.assert_array_equal(flat[row], single)


def test_transform_observation() -> None:
    env = single_env()
    space = env.observation_space["patches"]
    patches = TransformObservation(env, lambda observation: observation["patches"], space)
    assert patches.reset(seed=0)[0] in space


def test_vector_transform_observation() -> None:
    env = vector_env()
    space = env.single_observation_space["patches"]
    patches = vector_wrappers.TransformObservation(
        env, lambda observation: observation["patches"], single_observation_space=space
    )
    patches.reset(seed=0)
    assert patches.step(env.action_space.sample())[0].shape == (4, 2, 1, 3, 3)


def test_numpy_to_torch_returns_tensors() -> None:
    pytest.importorskip("array_api_compat", reason="gymnasium's extra array-api is not installed")
    reference = flat_vector_env()
    env = vector_wrappers.NumpyToTorch(flat_vector_env())
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["patches"], reference.reset(seed=0)[0]["patches"])
    action = torch.tensor([[3, 0], [4, 1], [5, 2], [6, 0]])
    for _ in range(4):
        observation, reward, ended, _, info = env.step(action)
        expected, expected_reward, *_ = reference.step(action.numpy())
        assert isinstance(observation["patches"], torch.Tensor) and isinstance(info["label"], torch.Tensor)
        np.testing.assert_array_equal(observation["patches"], expected["patches"])
        np.testing.assert_array_equal(reward, expected_reward)
    assert ended.dtype == torch.bool


def test_array_conversion_returns_arrays_for_torch_output() -> None:
    pytest.importorskip("array_api_compat", reason="gymnasium's extra array-api is not installed")
    reference = vector_env()
    env = vector_wrappers.ArrayConversion(vector_env(output="torch"), env_xp=torch, target_xp=np)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["patches"], reference.reset(seed=0)[0]["patches"])
    reference.action_space.seed(0)
    for _ in range(4):
        action = reference.action_space.sample()
        observation, reward, *_ = env.step(action)
        expected, expected_reward, *_ = reference.step(action)
        assert isinstance(observation["patches"], np.ndarray) and isinstance(reward, np.ndarray)
        np.testing.assert_array_equal(observation["patches"], expected["patches"])
        np.testing.assert_array_equal(reward, expected_reward)
