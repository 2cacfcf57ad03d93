"""Steps of an episode: observations, infos, rewards, and rows that have ended."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envs import GlimpseVectorEnv
from envs.errors import InputError
from envs.images.canvas import Canvas
from envs.images.glyphs import Glyphs
from envs.random import EpisodeSeeds
from tests.envs.helpers import (
    DISABLED,
    IMAGES,
    SENSOR,
    ConstantReward,
    TransitionCode,
    actions,
    assert_same,
    row,
    single_env,
    vector_env,
)

GLYPHS = Glyphs(size=20, num_train=64, num_validation=32, num_test=32)


def test_patches_are_those_of_the_sensor_at_the_location() -> None:
    env = vector_env()
    observation, info = env.reset(seed=0)
    images = IMAGES.images[info["index"]]
    for step in range(3):
        np.testing.assert_array_equal(
            observation["patches"], SENSOR(images, torch.from_numpy(observation["location"])).numpy()
        )
        assert observation["step"].tolist() == [step] * 4
        if step < 2:
            action = actions(4, step)
            observation, *_ = env.step(action)
            np.testing.assert_array_equal(observation["location"], action["location"].clip(-1, 1))


def test_info_holds_index_and_label_of_every_row() -> None:
    env = vector_env()
    _, info = env.reset(seed=0, options={"index": [3, 0, 10, 4]})
    for _ in range(3):
        assert info["index"].tolist() == [3, 0, 10, 4]
        assert info["label"].tolist() == [0, 0, 1, 1]
        assert info["_index"].all() and info["_label"].all()
        *_, info = env.step(actions(4))


def test_info_holds_the_box_of_the_target() -> None:
    canvas = Canvas(GLYPHS, size=(40, 60))
    for output in ("numpy", "torch"):
        env = GlimpseVectorEnv(canvas, num_envs=3, num_glimpses=2, split="test", output=output)
        _, info = env.reset(seed=0, options={"index": [3, 0, 1]})
        index = torch.tensor([3, 0, 1])
        scene = env.scenes.draw(index, EpisodeSeeds(0, 3, "test", torch.device("cpu")).by_scene(None, index))
        np.testing.assert_array_equal(np.asarray(info["target"]), scene.annotations["target"].numpy())
        *_, info = env.step(env.action_space.sample())
        np.testing.assert_array_equal(np.asarray(info["target"]), scene.annotations["target"].numpy())


def test_locations_are_clamped() -> None:
    env = vector_env(num_envs=2)
    observation, _ = env.reset(seed=0, options={"location": [[3.0, -0.5], [-1.1, 1e300]]})
    assert observation["location"].tolist() == [[1, -0.5], [-1, 1]]
    observation, *_ = env.step({"location": np.array([[0.5, -9], [1, 1.5]]), "answer": [0, 0]})
    assert observation["location"].tolist() == [[0.5, -1], [1, 1]]


def test_an_episode_of_one_glimpse_ends_with_the_first_action() -> None:
    env = vector_env(num_glimpses=1, autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    _, reward, terminated, _, _ = env.step({**actions(4), "answer": info["label"]})
    assert reward.tolist() == [1] * 4
    assert terminated.all()


def test_only_the_last_answer_is_rewarded() -> None:
    env = vector_env(autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    correct = {**actions(4), "answer": info["label"]}
    wrong = {**actions(4), "answer": (info["label"] + [0, 0, 1, 2]) % 3}
    rewards = [env.step(action)[1].tolist() for action in (correct, correct, wrong)]
    assert rewards == [[0] * 4, [0] * 4, [1, 1, 0, 0]]


def test_the_last_action_does_not_move_the_location() -> None:
    env = vector_env(reward=TransitionCode(), autoreset_mode=DISABLED)
    env.reset(seed=0)
    env.step(actions(4, 0))
    before, *_ = env.step(actions(4, 1))
    last = {"location": np.zeros((4, 2), np.float32), "answer": np.zeros(4, np.int64)}
    after, reward, terminated, _, info = env.step(last)
    assert terminated.all()
    assert_same(before, after)
    expected = 10 * info["label"] + 1200 + 0.11 * before["location"].sum(1)
    np.testing.assert_allclose(reward, expected, rtol=1e-6)


def test_an_ended_row_freezes_until_all_rows_have_ended() -> None:
    env = vector_env(num_glimpses=2, reward=ConstantReward(), autoreset_mode=DISABLED)
    env.reset(seed=0)
    env.step(actions(4, 0))
    mask = np.array([False, True, True, False])
    env.reset(options={"reset_mask": mask})
    before, _, terminated, _, info = env.step(actions(4, 1))
    np.testing.assert_array_equal(terminated, ~mask)
    after, reward, terminated, _, after_info = env.step(actions(4, 2))
    np.testing.assert_array_equal(reward, mask)
    assert terminated.all()
    assert_same(row(before, 0), row(after, 0))
    assert_same(row(info, 0), row(after_info, 0))
    with pytest.raises(InputError, match="Every row has ended: call reset"):
        env.step(actions(4, 3))


def test_a_step_after_the_end_of_the_single_environment_is_an_error() -> None:
    env = single_env(num_glimpses=1)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(InputError, match="call reset"):
        env.step(env.action_space.sample())


def test_environments_with_equal_sources_share_the_images() -> None:
    first, second = vector_env(images=GLYPHS), vector_env(images=Glyphs(**vars(GLYPHS)))
    assert first.scenes is second.scenes
    assert vector_env(images=GLYPHS, split="test").scenes is not first.scenes
