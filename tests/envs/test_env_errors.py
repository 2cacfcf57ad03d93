"""Wrong options and actions are refused with a message that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from envs.errors import InputError
from envs.images.glyphs import Glyphs
from envs.rewards.answers import CorrectAnswer
from envs.sensor import GlimpseSensor
from tests.envs.helpers import (
    Values,
    actions,
    assert_same,
    single_env,
    vector_env,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": None}, r"env\.num_envs must be a whole number of at least 1, got None"),
        ({"num_glimpses": True}, r"env\.num_glimpses must be a whole number of at least 1, got True"),
        ({"sensor": None}, r"env\.sensor must be a sensor, such as envs\.GlimpseSensor\(\), got None"),
        ({"num_envs": 0}, r"env\.num_envs must be a whole number of at least 1, got 0"),
        ({"num_glimpses": 0}, r"env\.num_glimpses must be a whole number of at least 1"),
        ({"rollouts_per_image": -1}, r"env\.rollouts_per_image must be a whole number of at least 1"),
        ({"num_envs": 4.0}, r"env\.num_envs must be a whole number of at least 1, got 4\.0"),
        ({"num_glimpses": "6"}, r"env\.num_glimpses must be a whole number of at least 1, got '6'"),
        ({"num_glimpses": 10**9}, r"env\.num_glimpses must be at most 10000, got 1000000000"),
        ({"num_glimpses": 2.5}, r"env\.num_glimpses must be a whole number of at least 1, got 2\.5"),
        ({"sensor": "retina"}, r"env\.sensor='retina' is not a name of a sensor, such as retina_8x2 or log_polar"),
        ({"sensor": "retina_0x2"}, r"sensor\.patch_size must be"),
        ({"sensor": GlimpseSensor}, r"env\.sensor must be a sensor, .*, got <class 'envs\.sensor\.GlimpseSensor'>"),
        ({"rollouts_per_image": 3}, r"env\.num_envs \(4\) must be a multiple of env\.rollouts_per_image \(3\)"),
        ({"rollouts_per_image": 2}, "needs autoreset_mode=AutoresetMode.DISABLED"),
        ({"first_location": "middle"}, r"env\.first_location must be one of random, center, got 'middle'"),
        ({"output": "jax"}, r"env\.output must be one of numpy, torch"),
        ({"render_mode": "human"}, r"env\.render_mode must be one of None, rgb_array"),
        ({"autoreset_mode": "Sometimes"}, r"env\.autoreset_mode must be one of NextStep, SameStep, Disabled"),
        ({"split": "dev"}, "split must be one of train, validation, test, got 'dev'"),
        ({"images": "nosuch"}, "images='nosuch' names no image source"),
        ({"images": None}, "images=None is neither an image source"),
        ({"images": Glyphs}, r"images=<class 'envs\.images\.glyphs\.Glyphs'> is neither an image source"),
        (
            {"reward": "correct_answer"},
            "must be an instance that can be called .*, got 'correct_answer'",
        ),
        ({"reward": CorrectAnswer}, r"must be an instance .*, got <class '.*CorrectAnswer'>"),
    ],
)
def test_invalid_options_are_refused(options: Values, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vector_env(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"location": np.full((4, 2), np.nan)}, "location must be finite"),
        ({"location": np.full((4, 2), -np.inf, np.float32)}, "location must be finite"),
        ({"location": np.zeros((4, 3))}, r"location must be \(4, 2\) .*, got \(4, 3\) float64"),
        ({"location": np.zeros((3, 2))}, r"location must be \(4, 2\) .*, got \(3, 2\) float64"),
        ({"location": np.zeros(2)}, r"location must be \(4, 2\)"),
        ({"location": np.zeros((4, 2), int)}, r"location must be .* floating point numbers, got \(4, 2\) int64"),
        ({"location": "left"}, "location must be an array of numbers"),
        ({"location": None}, "location must be an array of numbers"),
        ({"location": [[0.0], [0.0, 1.0]]}, "location must be an array of numbers"),
        ({"answer": np.zeros(3, int)}, r"action\['answer'\] must be \(4,\) integers, got \(3,\) int64"),
        ({"answer": np.zeros((4, 1), int)}, r"action\['answer'\] must be \(4,\) integers, got \(4, 1\) int64"),
        ({"answer": np.zeros(4)}, r"action\['answer'\] must be \(4,\) integers, got \(4,\) float64"),
        ({"answer": np.zeros(4, bool)}, r"action\['answer'\] must be \(4,\) integers, got \(4,\) bool"),
        ({"answer": np.zeros(4, complex)}, r"action\['answer'\] must be \(4,\) integers, got \(4,\) complex128"),
        ({"answer": np.array([0, 1, 2, 3])}, r"action\['answer'\] must be in 0 \.\. 2"),
        ({"answer": np.array([0, 1, 2, -1])}, r"action\['answer'\] must be in 0 \.\. 2"),
        ({"stop": np.zeros(4, bool)}, r"An action must be a dict of answer and location, got \['answer', .*'stop'\]"),
    ],
)
def test_invalid_actions_are_refused(change: Values, message: str) -> None:
    env = vector_env()
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(actions(4) | change)


@pytest.mark.parametrize("missing", ["location", "answer"])
def test_an_action_with_a_missing_key_is_refused(missing: str) -> None:
    env = vector_env()
    env.reset(seed=0)
    action = actions(4)
    del action[missing]
    with pytest.raises(InputError, match="An action must be a dict of answer and location"):
        env.step(action)


@pytest.mark.parametrize("make", [vector_env, single_env])
def test_an_action_that_is_not_a_dict_is_refused(make: Callable[[], Any]) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(InputError, match="An action must be a dict of answer and location, got int"):
        env.step(3)


def test_a_refused_action_changes_nothing() -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(InputError):
        env.step(actions(4) | {"answer": np.zeros(3, int)})
    assert_same(env.step(actions(4))[0], other.step(actions(4))[0])


@pytest.mark.parametrize("make", [vector_env, single_env])
def test_a_step_before_the_first_reset_is_refused(make: Callable[[], Any]) -> None:
    env = make()
    with pytest.raises(InputError, match="Call reset before step"):
        env.step(env.action_space.sample())


def test_the_location_before_the_first_reset_is_an_error() -> None:
    env = vector_env(output="torch")
    with pytest.raises(InputError, match="Call reset before reading the location"):
        _ = env.location
    observation, _ = env.reset(seed=0)
    assert torch.equal(env.location, observation["location"])
