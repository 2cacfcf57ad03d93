"""The arrays, tensors and pictures that the environments return."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs.errors import InputError
from tests.envs.helpers import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    TransitionCode,
    Values,
    actions,
    assert_same,
    single_env,
    vector_env,
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
def test_torch_output_equals_numpy_output(mode: AutoresetMode, device: str) -> None:
    plain = vector_env(reward=TransitionCode(), autoreset_mode=mode)
    tensors = vector_env(reward=TransitionCode(), autoreset_mode=mode, output="torch", device=device)

    def compare(value: Any, tensor: Any) -> None:
        assert isinstance(tensor, Tensor)
        assert tensor.device.type == device
        np.testing.assert_array_equal(value, tensor.cpu().numpy())

    def compare_all(values: Values, others: Values) -> None:
        assert {name for name in values if not name.startswith("_")} == others.keys()
        for name in others:
            compare(values[name], others[name])

    for values, others in zip(plain.reset(seed=2), tensors.reset(seed=2), strict=True):
        compare_all(values, others)
    for step in range(3 if mode is DISABLED else 7):
        action = actions(4, step)
        ours, theirs = plain.step(action), tensors.step({k: torch.as_tensor(v) for k, v in action.items()})
        compare_all(ours[0], theirs[0])
        compare_all(ours[4], theirs[4])
        for value, tensor in zip(ours[1:4], theirs[1:4], strict=True):
            compare(value, tensor)


def test_torch_output_has_the_final_observation_in_same_step_mode() -> None:
    env = vector_env(num_glimpses=2, output="torch", autoreset_mode=SAME_STEP)
    _, first_info = env.reset(seed=0)
    before, *_ = env.step(actions(4, 0))
    after, _, terminated, _, info = env.step(actions(4, 1))
    assert terminated.all() and info["_final_obs"].all() and info["_final_info"].all()
    assert all(torch.equal(info["final_obs"][name], before[name]) for name in before)
    assert torch.equal(info["final_info"]["index"], first_info["index"])
    assert not after["step"].any()


def leaves(value: Any) -> list[Any]:
    """All arrays and tensors in a result."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, np.ndarray | Tensor):
        return [value]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else []


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_returned_values_are_never_modified(mode: AutoresetMode, output: str) -> None:
    env = vector_env(autoreset_mode=mode, output=output)
    kept: list[tuple[Any, Any]] = []

    def keep(result: tuple[Any, ...]) -> None:
        kept.extend((leaf, leaf.copy() if output == "numpy" else leaf.clone()) for leaf in leaves(result))

    keep(env.reset(seed=0))
    for step in range(12):
        if step % 3 == 0:
            keep(env.reset(options={"reset_mask": [True, step % 2 == 0, False, False]}))
        if step % 6 == 5 or (mode is DISABLED and step % 2):
            keep(env.reset())
        keep(env.step(actions(4, step)))
    assert len(kept) > 100
    for leaf, copy in kept:
        np.testing.assert_array_equal(leaf, copy)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_writing_into_returned_arrays_changes_nothing(mode: AutoresetMode) -> None:
    modified, untouched = (vector_env(reward=TransitionCode(), autoreset_mode=mode) for _ in range(2))

    def overwrite(result: tuple[Any, ...]) -> None:
        for array in leaves(result):
            array[...] = 0 if array.dtype == bool else 1

    overwrite(modified.reset(seed=0))
    untouched.reset(seed=0)
    for step in range(9):
        left, right = modified.step(actions(4, step)), untouched.step(actions(4, step))
        for a, b in zip(leaves(left), leaves(right), strict=True):
            np.testing.assert_array_equal(a, b)
        overwrite(left)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_writing_into_options_and_actions_after_the_call_changes_nothing(make: Callable[[Any], Any]) -> None:
    modified, untouched = (vector_env(reward=TransitionCode(), autoreset_mode=DISABLED) for _ in range(2))

    def options() -> Values:
        plain = {"index": [0, 1, 2, 3], "episode": [0, 1, 2, 3], "location": [[0.5, 0.0]] * 4}
        return {name: make(value) for name, value in plain.items()}

    reset_options = options()
    modified.reset(seed=0, options=reset_options)
    untouched.reset(seed=0, options=options())
    for value in reset_options.values():
        value += 1
    for step in range(2):
        action = {name: make(value.tolist()) for name, value in actions(4, step).items()}
        left, right = modified.step(action), untouched.step(actions(4, step))
        for value in action.values():
            value[...] = 0
        assert_same(left[0], right[0])
        assert_same(left[4], right[4])
    assert_same(modified.reset()[0], untouched.reset()[0])


def test_actions_may_be_non_contiguous_and_read_only() -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    action = actions(4)
    flipped = {"location": np.ascontiguousarray(action["location"][:, ::-1])[:, ::-1], "answer": action["answer"]}
    flipped["answer"].setflags(write=False)
    assert_same(env.step(flipped)[0], other.step(actions(4))[0])


def test_outputs_require_no_gradient() -> None:
    env = vector_env(output="torch")
    env.reset(seed=0)
    action = {"location": torch.zeros(4, 2, requires_grad=True), "answer": torch.zeros(4, dtype=torch.long)}
    observation, reward, *_ = env.step(action)
    assert not any(value.requires_grad for value in [*observation.values(), reward])


def test_the_picture_changes_with_every_step() -> None:
    env = vector_env(render_mode="rgb_array", autoreset_mode=DISABLED)
    env.reset(seed=0)
    frames = [env.render()]
    for step in range(3):
        env.step(actions(4, step))
        frames.append(env.render())
    for number in range(4):
        of_row = [frame[number] for frame in frames if frame is not None]
        assert len(of_row) == 4
        assert all(picture.shape == of_row[0].shape and picture.dtype == np.uint8 for picture in of_row)
        assert all((a != b).any() for a, b in pairwise(of_row))


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_the_picture_after_an_autoreset_shows_the_new_episode(mode: AutoresetMode) -> None:
    env = vector_env(num_glimpses=1, render_mode="rgb_array", autoreset_mode=mode)
    env.reset(seed=0)
    for _ in range(1 if mode is SAME_STEP else 2):
        env.step(actions(4))
    fresh = vector_env(num_glimpses=1, render_mode="rgb_array")
    fresh.reset(seed=0, options={"episode": 1})
    pictures, expected = env.render(), fresh.render()
    assert pictures is not None and expected is not None
    np.testing.assert_array_equal(np.stack(pictures), np.stack(expected))


def test_the_single_environment_renders_its_row() -> None:
    single, env = single_env(render_mode="rgb_array"), vector_env(render_mode="rgb_array")
    single.reset(seed=2)
    env.reset(seed=0)
    picture, pictures = single.render(), env.render()
    assert picture is not None and pictures is not None
    np.testing.assert_array_equal(picture, pictures[2])


def test_nothing_is_recorded_without_a_render_mode() -> None:
    env = vector_env()
    env.reset(seed=0)
    env.step(actions(4))
    assert env.render() is None
    assert single_env().render() is None
    assert env._recorder is None
    assert not hasattr(env._shown, "images")


def test_rendering_before_the_first_reset_is_an_error() -> None:
    with pytest.raises(InputError, match="Call reset before render"):
        vector_env(render_mode="rgb_array").render()
