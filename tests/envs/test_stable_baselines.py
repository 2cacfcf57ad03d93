"""The adapter to Stable-Baselines3, and training with Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from envs import (
    FlattenAction,
    GlimpseEnv,
    GlimpseSensor,
    GlimpseVectorEnv,
    GridAction,
    InputError,
    VectorFlattenAction,
    VectorGridAction,
)
from envs.images import ImageSet
from envs.images.glyphs import Glyphs

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")
pytest.importorskip("sb3_contrib", reason="the extra sb3 is not installed")

from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from envs.stable_baselines import GlimpseVecEnv
from tests.envs.helpers import OPTIONS, Values, assert_same


def discrete(env: gymnasium.Env) -> gymnasium.Env:
    return FlattenAction(GridAction(env, 3, 3))


def batch(num_envs: int = 4, **options: Any) -> GlimpseVecEnv:
    options = {"autoreset_mode": "SameStep"} | OPTIONS | options
    env = GlimpseVectorEnv(num_envs=num_envs, **options)
    return GlimpseVecEnv(VectorFlattenAction(VectorGridAction(env, 3, 3)))


# The adapter.


@pytest.mark.parametrize("options", [{}, {"stop": True}, {"num_glimpses": 1}], ids=str)
def test_the_adapter_equals_dummy_vec_env_of_single_environments(options: Values) -> None:
    ours = batch(**options)
    reference = DummyVecEnv([lambda: discrete(GlimpseEnv(**OPTIONS | options))] * 4)
    assert ours.observation_space == reference.observation_space
    assert ours.action_space == reference.action_space
    for env in (ours, reference):
        env.seed(3)
    assert_same(ours.reset(), reference.reset())
    assert_same(dict(enumerate(ours.reset_infos)), dict(enumerate(reference.reset_infos)))
    ours.action_space.seed(0)
    ended = 0
    for _ in range(9):
        action = np.stack([ours.action_space.sample() for _ in range(4)])
        (observation, reward, done, infos), expected = ours.step(action), reference.step(action)
        assert_same(observation, expected[0])
        assert_same(reward, expected[1])
        assert_same(done, expected[2])
        for row in range(4):
            assert_same({"TimeLimit.truncated": False} | infos[row], expected[3][row])
        assert_same(dict(enumerate(ours.reset_infos)), dict(enumerate(reference.reset_infos)))
        ended += int(done.sum())
    assert ended >= 12


def test_returned_observations_are_never_modified() -> None:
    env = batch()
    first = env.reset()
    kept = {name: value.copy() for name, value in first.items()}
    for _ in range(4):
        env.step(np.zeros((4, 2), np.int64))
    assert_same(first, kept)


def test_vec_monitor_records_reward_and_length() -> None:
    env = VecMonitor(batch())
    env.reset()
    labels = [info["label"] for info in env.unwrapped.reset_infos]
    for _ in range(3):
        *_, infos = env.step(np.stack([np.zeros(4, np.int64), labels], axis=1))
    assert [(info["episode"]["r"], info["episode"]["l"]) for info in infos] == [(1, 3)] * 4


def test_seed_and_options_apply_to_one_reset() -> None:
    env = batch()
    env.seed(5)
    first = env.reset()
    second = env.reset()
    env.seed(5)
    assert_same(env.reset(), first)
    assert not np.array_equal(first["location"], second["location"])
    env.set_options({"location": [0.5, -0.5]})
    assert env.reset()["location"].tolist() == [[0.5, -0.5]] * 4
    env.set_options([{"index": index} for index in (4, 3, 2, 1)])
    env.reset()
    assert [info["index"] for info in env.reset_infos] == [4, 3, 2, 1]
    env.reset()
    assert [info["index"] for info in env.reset_infos] != [4, 3, 2, 1]


def test_test_scenes_do_not_depend_on_the_batch() -> None:
    locations = []
    for order in ([3, 5], [5, 3]):
        env = batch(2, split="test")
        env.seed(0)
        env.set_options([{"index": index} for index in order])
        locations.append(env.reset()["location"])
    np.testing.assert_array_equal(locations[0], locations[1][::-1])


def test_the_rows_share_one_environment() -> None:
    env = batch()
    assert env.get_attr("num_glimpses") == [3] * 4
    assert env.get_attr("num_glimpses", [0, 2]) == [3, 3]
    assert env.get_attr("single_action_space", 1) == [gymnasium.spaces.MultiDiscrete([9, 3])]
    assert env.env_method("render", indices=[0, 1]) == [None, None]  # there is no render mode
    env.set_attr("render_mode", None)
    assert not env.has_attr("color")
    assert env.env_is_wrapped(gymnasium.Wrapper) == [False] * 4
    env.close()


def test_render_tiles_the_pictures_of_all_rows() -> None:
    env = batch(render_mode="rgb_array")
    env.reset()
    (height, width, _), (tiled_height, tiled_width, channels) = env.get_images()[0].shape, env.render().shape
    assert (tiled_height, tiled_width, channels) == (2 * height, 2 * width, 3)
    assert batch().get_images() == [None] * 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: batch(autoreset_mode="NextStep"), "needs an environment with output='numpy' and autoreset_mode='Same"),
        (lambda: batch(output="torch"), "needs an environment with output='numpy' and autoreset_mode='SameStep'"),
        (
            lambda: GlimpseVecEnv(gymnasium.make_vec("CartPole-v1", 2)),
            "GlimpseVecEnv takes a GlimpseVectorEnv, possibly wrapped, not CartPoleVectorEnv",
        ),
    ],
)
def test_other_environments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# The checker and the algorithms of Stable-Baselines3.


@pytest.mark.filterwarnings("ignore:Your observation patches has an unconventional shape")  # the policy flattens it
def test_the_environment_passes_the_checker_of_stable_baselines3() -> None:
    check_env(discrete(GlimpseEnv(**OPTIONS, render_mode="rgb_array")))


def gymnasium_vec_env(num_envs: int, **options: Any) -> VecEnv:
    return make_vec_env("envs:ram/Glimpse-v0", num_envs, env_kwargs=options, wrapper_class=discrete)


def adapter_vec_env(num_envs: int, **options: Any) -> VecEnv:
    return VecMonitor(batch(num_envs, **options))


def learner(algorithm: type[BaseAlgorithm], env: VecEnv, steps: int, **options: Any) -> BaseAlgorithm:
    settings: Values = {
        "n_steps": steps // env.num_envs,
        "batch_size": 128,
        "learning_rate": 2e-3,
        "gamma": 1.0,
        "ent_coef": 0.01,
        "stats_window_size": 1000,
        "seed": 0,
        "device": "cpu",
    }
    if algorithm is RecurrentPPO:
        return RecurrentPPO("MultiInputLstmPolicy", env, policy_kwargs={"lstm_hidden_size": 32}, **settings | options)
    return PPO("MultiInputPolicy", env, **settings | options)


def accuracy(model: BaseAlgorithm) -> float:
    """The accuracy of the last 1,000 episodes."""
    assert model.ep_info_buffer is not None
    rewards = [episode["r"] for episode in model.ep_info_buffer]
    assert len(rewards) == 1000
    return float(np.mean(rewards))


BARS = ImageSet(torch.eye(10).repeat_interleave(10, 1).view(10, 1, 10, 10), torch.arange(10), tuple("0123456789"))
"""Ten classes of one image each: in class c row c is white."""


@pytest.mark.parametrize(("make", "num_envs"), [(gymnasium_vec_env, 8), (adapter_vec_env, 64)])
@pytest.mark.parametrize("algorithm", [PPO, RecurrentPPO])
def test_training_on_ten_bars_exceeds_50_percent_accuracy(
    algorithm: type[BaseAlgorithm], make: Any, num_envs: int
) -> None:
    env = make(num_envs, images=BARS, sensor=GlimpseSensor(10), num_glimpses=1, first_location="center")
    model = learner(algorithm, env, steps=256, n_epochs=4, learning_rate=5e-3)
    model.learn(1536)
    assert accuracy(model) > 0.5
    if make is adapter_vec_env:
        mean, _ = evaluate_policy(model, env, n_eval_episodes=100, warn=False)
        assert mean > 0.5


PLAIN = Glyphs(size=16, num_train=2000, height=(0.8, 0.8), rotation=0, shear=0, stretch=0, elastic=0, noise=0)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "num_envs"), [(gymnasium_vec_env, 16), (adapter_vec_env, 64)])
@pytest.mark.parametrize(("algorithm", "steps"), [(PPO, 40_960), (RecurrentPPO, 20_480)])
def test_training_on_digits_exceeds_twice_chance(
    algorithm: type[BaseAlgorithm], steps: int, make: Any, num_envs: int
) -> None:
    env = make(num_envs, images=PLAIN, sensor=GlimpseSensor(16), num_glimpses=2, first_location="center")
    model = learner(algorithm, env, steps=1024, n_epochs=8)
    model.learn(steps)
    print(f"{algorithm.__name__} {make.__name__}: {accuracy(model):.3f}")
    assert accuracy(model) >= 0.1 + 0.1, "chance is one in ten"
