"""The action wrappers: relative locations, grids and flat actions, on single and batched environments."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import (
    CatchEnv,
    FlattenAction,
    GridAction,
    InputError,
    RelativeLocation,
    VectorFlattenAction,
    VectorGridAction,
    VectorRelativeLocation,
)
from tests.envs import helpers
from tests.envs.helpers import OPTIONS, Values, assert_same

Wrapper = tuple[Any, Any, Values]
"""A wrapper, its vector version, and the arguments of both."""


def relative(max_step: float = 0.5) -> Wrapper:
    return RelativeLocation, VectorRelativeLocation, {"max_step": max_step}


def grid(rows: int = 7, columns: int = 7) -> Wrapper:
    return GridAction, VectorGridAction, {"rows": rows, "columns": columns}


def flatten() -> Wrapper:
    return FlattenAction, VectorFlattenAction, {}


def wrap(env: gymnasium.Env, *wrappers: Wrapper) -> gymnasium.Env:
    for single, _, arguments in wrappers:
        env = single(env, **arguments)
    return env


def single_env(*wrappers: Wrapper, **options: Any) -> gymnasium.Env:
    return wrap(helpers.single_env(**options), *wrappers)


def vector_env(*wrappers: Wrapper, **options: Any) -> VectorEnv:
    env: VectorEnv = helpers.vector_env(**options)
    for _, vector, arguments in wrappers:
        env = vector(env, **arguments)
    return env


def location(env: VectorEnv, action: Any) -> list[list[float]]:
    """Steps, and returns the new locations."""
    return env.step(action)[0]["location"].tolist()


FIRST_LOCATIONS = {"location": [[0.0, 0.0], [0.5, -0.5], [0.9, 0.9], [-1.0, 1.0]]}
ANSWERS = np.zeros(4, np.int64)


# Relative locations.


def test_a_relative_location_is_added_to_the_current_location() -> None:
    env = vector_env(relative(0.25))
    env.reset(seed=0, options=FIRST_LOCATIONS)
    move = np.array([[0.25, -0.125], [0, 0], [-0.25, 0.25], [-0.25, 0.0]], np.float32)
    expected = [[0.25, -0.125], [0.5, -0.5], [np.float32(0.9) - np.float32(0.25), 1.0], [-1.0, 1.0]]
    np.testing.assert_array_equal(location(env, {"location": move, "answer": ANSWERS}), expected)
    expected = [[0.5, -0.25], [0.5, -0.5], [np.float32(0.65) - np.float32(0.25), 1.0], [-1.0, 1.0]]
    np.testing.assert_allclose(location(env, {"location": move, "answer": ANSWERS}), expected, rtol=1e-6)


def test_longer_steps_are_clamped_per_axis() -> None:
    env = vector_env(relative(0.25))
    env.reset(seed=0, options=FIRST_LOCATIONS)
    move = np.array([[3.0, -0.125]] * 4, np.float32)
    assert location(env, {"location": move, "answer": ANSWERS})[:2] == [[0.25, -0.125], [0.75, -0.625]]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_first_step_after_an_autoreset_starts_from_the_new_location(mode: str) -> None:
    env = vector_env(relative(0.25), num_glimpses=2, autoreset_mode=mode)
    action = {"location": np.full((4, 2), 0.25, np.float32), "answer": ANSWERS}
    observation, _ = env.reset(seed=0)
    moved = 0
    for _ in range(6):
        before, observation = observation, env.step(action)[0]
        if (observation["step"] == before["step"] + 1).all():
            np.testing.assert_array_equal(observation["location"], (before["location"] + np.float32(0.25)).clip(-1, 1))
            moved += 1
    assert moved == {"NextStep": 2, "SameStep": 3}[mode]


# A grid of locations.


def test_cells_are_numbered_row_by_row_and_select_their_centers() -> None:
    centers = []
    for cell in range(6):
        env = vector_env(grid(rows=2, columns=3))
        env.reset(seed=0)
        locations = location(env, {"location": np.full(4, cell), "answer": ANSWERS})
        assert locations == [locations[0]] * 4
        centers += [locations[0]]
    third = float(np.float32(2 / 3))
    expected = [[-third, -0.5], [0, -0.5], [third, -0.5], [-third, 0.5], [0, 0.5], [third, 0.5]]
    np.testing.assert_allclose(centers, expected, rtol=0, atol=1e-7)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_the_centers_of_any_grid_are_evenly_spaced(rows: int, columns: int, data: st.DataObject) -> None:
    env = vector_env(grid(rows, columns))
    assert env.single_action_space["location"] == spaces.Discrete(rows * columns)
    env.reset(seed=0)
    cells = data.draw(st.lists(st.integers(0, rows * columns - 1), min_size=4, max_size=4))
    for cell, (x, y) in zip(cells, location(env, {"location": cells, "answer": ANSWERS}), strict=True):
        row, column = divmod(cell, columns)
        assert (x + 1) / 2 * columns == pytest.approx(column + 0.5, abs=1e-5)
        assert (y + 1) / 2 * rows == pytest.approx(row + 0.5, abs=1e-5)


# Flat actions.


def test_flat_discrete_actions_are_cell_class_and_stop() -> None:
    assert vector_env(grid(2, 3), flatten()).single_action_space == spaces.MultiDiscrete([6, 3])
    assert vector_env(grid(2, 3), flatten(), stop=True).single_action_space == spaces.MultiDiscrete([6, 3, 2])
    env = vector_env(grid(2, 3), flatten(), stop=True)
    _, info = env.reset(seed=0)
    wrong = (info["label"] + 1) % 3
    action = np.stack([[5, 4, 3, 1], np.where([True, True, False, True], info["label"], wrong), [0, 1, 1, 0]], axis=1)
    observation, reward, ended, *_ = env.step(action)
    assert ended.tolist() == [False, True, True, False]
    assert reward.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(observation["location"][[0, 3]], [[2 / 3, 0.5], [0, -0.5]], atol=1e-7)


def test_flat_scores_select_the_class_with_the_highest_score() -> None:
    env = vector_env(flatten(), num_glimpses=2)
    space = env.single_action_space
    assert space == spaces.Box(-1, 1, (5,), np.float32)
    _, info = env.reset(seed=0)
    scores = np.full((4, 3), -0.5, np.float32)
    scores[np.arange(4), (info["label"] + [0, 0, 1, 2]) % 3] = 0.25
    locations = np.array([[0.5, -0.25], [1, -1], [2, 0.0], [0, 0.0]], np.float32)
    action = np.concatenate([locations, scores], axis=1)
    assert location(env, action) == [[0.5, -0.25], [1, -1], [1, 0], [0, 0]]
    assert env.step(action)[1].tolist() == [1, 1, 0, 0]


def test_continuous_parts_keep_their_bounds_in_flat_actions() -> None:
    space = vector_env(flatten(), answer="log_probs", stop=True).single_action_space
    assert isinstance(space, spaces.Box)
    assert space.low.tolist() == [-1, -1, -np.inf, -np.inf, -np.inf, -1, -1]
    assert space.high.tolist() == [1, 1, 0, 0, 0, 1, 1]


def test_flat_relative_locations() -> None:
    env = vector_env(relative(0.25), flatten())
    assert isinstance(space := env.single_action_space, spaces.Box)
    assert space.high.tolist() == [0.25, 0.25, 1, 1, 1]
    env.reset(seed=0, options=FIRST_LOCATIONS)
    action = np.tile(np.array([0.125, 0.0, 1, 0, 0], np.float32), (4, 1))
    assert location(env, action)[:2] == [[0.125, 0], [0.625, -0.5]]


def test_flat_actions_of_catch() -> None:
    env = FlattenAction(GridAction(CatchEnv(), 4, 4))
    assert env.action_space == spaces.MultiDiscrete([16, 3])
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[0]["step"] == 1


# The single and the vector version, numpy and torch.

WRAPPERS = [(relative(),), (grid(),), (flatten(),), (grid(3, 4), flatten()), (relative(0.1), flatten())]


def wrapper_names(wrappers: tuple[Wrapper, ...]) -> str:
    return "-".join(single.__name__ for single, *_ in wrappers)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("wrappers", WRAPPERS, ids=wrapper_names)
def test_wrapped_environments_pass_the_checker_of_gymnasium(wrappers: tuple[Any, ...]) -> None:
    check_env(wrap(gymnasium.make("envs:ram/Glimpse-v0", render_mode="rgb_array", **OPTIONS), *wrappers))


@pytest.mark.parametrize("wrappers", WRAPPERS, ids=wrapper_names)
@pytest.mark.parametrize("options", [{}, {"answer": "log_probs", "stop": True}], ids=["label", "log_probs and stop"])
def test_vector_wrappers_equal_single_wrappers(wrappers: tuple[Any, ...], options: Values) -> None:
    ours = vector_env(*wrappers, **options)
    reference = SyncVectorEnv([lambda: single_env(*wrappers, **options)] * 4)
    assert ours.action_space == reference.action_space
    ours.action_space.seed(0)
    ours.reset(seed=3)
    reference.reset(seed=3)
    for _ in range(6):
        action = ours.action_space.sample()
        results = [env.step(action)[:4] for env in (ours, reference)]
        for name in ("patches", "location", "step"):
            np.testing.assert_array_equal(results[0][0][name], results[1][0][name])
        for part in (1, 2, 3):
            np.testing.assert_array_equal(results[0][part], results[1][part])


@pytest.mark.parametrize("wrappers", WRAPPERS, ids=wrapper_names)
def test_torch_actions_equal_numpy_actions(wrappers: tuple[Any, ...]) -> None:
    arrays, tensors = vector_env(*wrappers), vector_env(*wrappers, output="torch")
    arrays.reset(seed=0)
    tensors.reset(seed=0)
    action = arrays.action_space.sample()
    same = {name: torch.as_tensor(value) for name, value in action.items()} if isinstance(action, dict) else None
    left = arrays.step(action)[0]
    right = tensors.step(torch.as_tensor(action) if same is None else same)[0]
    assert isinstance(right["patches"], torch.Tensor)
    np.testing.assert_array_equal(left["patches"], right["patches"])


def test_an_environment_can_be_made_from_its_spec() -> None:
    made = gymnasium.make("envs:ram/Glimpse-v0", **OPTIONS)
    first = FlattenAction(RelativeLocation(made, max_step=0.25))
    first.reset(seed=0, options={"location": [1.0, 1.0]})
    assert first.spec is not None
    second = gymnasium.make(first.spec)
    assert second.action_space == first.action_space
    second.reset(seed=0, options={"location": [0.0, 0.0]})
    # Its steps start from its own location.
    action = np.array([0.125, 0.25, 1, 0, 0], np.float32)
    assert second.step(action)[0]["location"].tolist() == [0.125, 0.25]


def test_the_spec_records_the_size_of_the_grid() -> None:
    made = FlattenAction(GridAction(gymnasium.make("envs:ram/Glimpse-v0", **OPTIONS), rows=2, columns=5))
    assert made.spec is not None
    assert gymnasium.make(made.spec).action_space == spaces.MultiDiscrete([10, 3])


def test_make_vec_takes_the_single_wrappers() -> None:
    wrappers = [GridAction, FlattenAction]
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", 3, "sync", wrappers=wrappers, **OPTIONS)
    assert env.single_action_space == spaces.MultiDiscrete([49, 3])
    env.reset(seed=0)
    env.step(env.action_space.sample())


@pytest.mark.parametrize("wrappers", WRAPPERS, ids=wrapper_names)
def test_wrapped_environments_can_be_pickled(wrappers: tuple[Wrapper, ...]) -> None:
    env = single_env(*wrappers)
    copy = pickle.loads(pickle.dumps(env))
    assert copy.action_space == env.action_space
    assert_same(copy.reset(seed=0)[0], env.reset(seed=0)[0])
    action = env.action_space.sample()
    assert_same(copy.step(action)[0], env.step(action)[0])


def test_the_default_is_a_grid_of_7_by_7() -> None:
    assert GridAction(single_env()).action_space["location"] == spaces.Discrete(49)
    assert VectorGridAction(vector_env()).single_action_space["location"] == spaces.Discrete(49)


def test_the_default_is_a_step_of_a_quarter_of_the_image() -> None:
    step = spaces.Box(-0.5, 0.5, (2,), np.float32)
    assert RelativeLocation(single_env()).action_space["location"] == step
    assert VectorRelativeLocation(vector_env()).single_action_space["location"] == step


# Errors.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: single_env(relative(0)), r"max_step must be in \(0, 2\], got 0"),
        (lambda: vector_env(relative(float("nan"))), r"max_step must be in \(0, 2\], got nan"),
        (lambda: single_env(grid(0, 3)), "rows and columns must be at least 1, got 0 and 3"),
        (lambda: vector_env(grid(), grid()), r"GridAction: actions must have a location \(x, y\)"),
        (lambda: vector_env(flatten(), relative()), r"RelativeLocation: actions must have a location \(x, y\)"),
        (lambda: single_env(flatten(), flatten()), "FlattenAction: actions must be a dict of parts"),
        (lambda: FlattenAction(gymnasium.make("CartPole-v1")), "FlattenAction: actions must be a dict of parts"),
        (
            lambda: VectorGridAction(SyncVectorEnv([single_env])),
            "The action wrappers need a glimpse environment, not SyncVectorEnv",
        ),
    ],
)
def test_invalid_options_and_environments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


FLAT = np.zeros((4, 5), np.float32)


@pytest.mark.parametrize(
    ("wrappers", "action", "message"),
    [
        ((relative(),), {"location": np.zeros((4, 3)), "answer": ANSWERS}, r"location must be \(4, 2\)"),
        ((relative(),), {"location": np.zeros(2), "answer": ANSWERS}, r"location must be \(4, 2\)"),
        ((relative(),), {"location": np.full((4, 2), np.nan), "answer": ANSWERS}, "location must be finite"),
        ((relative(),), {"location": np.zeros((4, 2), int), "answer": ANSWERS}, "floating point numbers"),
        ((relative(),), {"location": np.zeros((4, 2))}, "An action must be a dict of answer and location"),
        ((relative(),), {"location": np.zeros((4, 2)), "answer": [[1], [1, 2]]}, "must be an array of numbers"),
        ((relative(),), 3, "An action must be a dict of answer and location, got int"),
        ((grid(2, 3),), {"location": np.full(4, 6), "answer": ANSWERS}, r"location must be in 0 \.\. 5"),
        ((grid(2, 3),), {"location": np.full(4, -1), "answer": ANSWERS}, r"location must be in 0 \.\. 5"),
        ((grid(2, 3),), {"location": np.zeros(4), "answer": ANSWERS}, r"location must be \(4,\) integers"),
        ((grid(2, 3),), {"location": np.zeros((4, 2)), "answer": ANSWERS}, r"location must be \(4,\) integers"),
        ((flatten(),), FLAT[:3], r"action must be \(4, 5\) floating point numbers, got \(3, 5\)"),
        ((flatten(),), FLAT[:, :4], r"action must be \(4, 5\) floating point numbers, got \(4, 4\)"),
        ((flatten(),), FLAT.astype(int), r"action must be \(4, 5\) floating point numbers, got \(4, 5\) int64"),
        ((flatten(),), FLAT * np.nan, "action must not be NaN"),
        ((flatten(),), FLAT + np.inf, "location must be finite"),
        ((flatten(),), {"location": np.zeros((4, 2)), "answer": ANSWERS}, "action must be an array of numbers"),
        ((grid(2, 3), flatten()), np.zeros((4, 3), int), r"action must be \(4, 2\) integers, got \(4, 3\) int64"),
        ((grid(2, 3), flatten()), np.zeros((4, 2)), r"action's location must be \(4,\) integers, got \(4,\) float64"),
        ((grid(2, 3), flatten()), np.full((4, 2), 3), r"action's answer must be in 0 \.\. 2"),
    ],
)
def test_invalid_actions_are_refused(wrappers: tuple[Any, ...], action: Any, message: str) -> None:
    env = vector_env(*wrappers)
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(action)


@pytest.mark.parametrize(
    ("wrappers", "action", "message"),
    [
        ((relative(),), {"location": [np.nan, 0.0], "answer": 0}, "location must be finite"),
        ((grid(),), {"location": 49, "answer": 0}, r"location must be in 0 \.\. 48"),
        ((grid(), flatten()), [3], r"action must be \(1, 2\) integers"),
        ((flatten(),), np.zeros(5), None),
        ((flatten(),), None, "action must be an array of numbers"),
    ],
)
def test_single_wrappers_refuse_invalid_actions(wrappers: Any, action: Any, message: str | None) -> None:
    env = single_env(*wrappers)
    env.reset(seed=0)
    if message is None:
        env.step(action)
    else:
        with pytest.raises(InputError, match=message):
            env.step(action)


@pytest.mark.parametrize("wrappers", [(relative(),), (relative(), flatten())], ids=wrapper_names)
@pytest.mark.parametrize("make", [single_env, vector_env])
def test_a_relative_location_before_the_first_reset_is_refused(make: Any, wrappers: tuple[Any, ...]) -> None:
    env = make(*wrappers)
    with pytest.raises(InputError, match="Call reset before reading the location or calling step"):
        env.step(env.action_space.sample())
