"""Other action spaces, and Gymnasium's own wrappers, around single and batched glimpse environments."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv, VectorEnv
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
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import (
    CatchEnv,
    Flat,
    GlimpseEnv,
    GlimpseSensor,
    GlimpseVectorEnv,
    Grid,
    InputError,
    RelativeMoves,
    TransformAction,
    VectorTransformAction,
)
from envs.images import ImageSet

Values = dict[str, Any]

PICTURES = torch.randint(256, (11, 1, 7, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
IMAGES = ImageSet(PICTURES, torch.arange(11) % 3, ("red", "green", "blue"))
OPTIONS: Values = {"images": IMAGES, "sensor": GlimpseSensor(3, 2), "num_glimpses": 3}


def single_env(*transforms: Any, **options: Any) -> gymnasium.Env:
    env: gymnasium.Env = GlimpseEnv(**OPTIONS | options)
    for transform in transforms:
        env = TransformAction(env, transform)
    return env


def vector_env(*transforms: Any, **options: Any) -> VectorEnv:
    env: VectorEnv = GlimpseVectorEnv(**OPTIONS | {"num_envs": 4} | options)
    for transform in transforms:
        env = VectorTransformAction(env, transform)
    return env


def location(env: VectorEnv, action: Any) -> list[list[float]]:
    """Where an action moves the gazes."""
    return env.step(action)[0]["location"].tolist()


STARTS = {"location": [[0.0, 0.0], [0.5, -0.5], [0.9, 0.9], [-1.0, 1.0]]}
ANSWERS = np.zeros(4, np.int64)


# Relative moves.


def test_a_relative_move_adds_to_the_location() -> None:
    env = vector_env(RelativeMoves(0.25))
    env.reset(seed=0, options=STARTS)
    move = np.array([[0.25, -0.125], [0, 0], [-0.25, 0.25], [-0.25, 0.0]], np.float32)
    expected = [[0.25, -0.125], [0.5, -0.5], [np.float32(0.9) - np.float32(0.25), 1.0], [-1.0, 1.0]]
    np.testing.assert_array_equal(location(env, {"location": move, "answer": ANSWERS}), expected)
    expected = [[0.5, -0.25], [0.5, -0.5], [np.float32(0.65) - np.float32(0.25), 1.0], [-1.0, 1.0]]
    np.testing.assert_allclose(location(env, {"location": move, "answer": ANSWERS}), expected, rtol=1e-6)


def test_a_longer_move_is_shortened_one_axis_at_a_time() -> None:
    env = vector_env(RelativeMoves(0.25))
    env.reset(seed=0, options=STARTS)
    move = np.array([[3.0, -0.125]] * 4, np.float32)
    assert location(env, {"location": move, "answer": ANSWERS})[:2] == [[0.25, -0.125], [0.75, -0.625]]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_relative_move_starts_from_the_new_episode_s_location(mode: str) -> None:
    env = vector_env(RelativeMoves(0.25), num_glimpses=2, autoreset_mode=mode)
    action = {"location": np.full((4, 2), 0.25, np.float32), "answer": ANSWERS}
    observation, _ = env.reset(seed=0)
    moved = 0
    for _ in range(6):
        before, observation = observation, env.step(action)[0]
        if (observation["step"] == before["step"] + 1).all():
            np.testing.assert_array_equal(observation["location"], (before["location"] + np.float32(0.25)).clip(-1, 1))
            moved += 1
    assert moved == {"NextStep": 2, "SameStep": 3}[mode]


# A grid of places.


def test_cells_are_numbered_row_by_row_and_lead_to_their_centres() -> None:
    centres = []
    for cell in range(6):
        env = vector_env(Grid(rows=2, columns=3))
        env.reset(seed=0)
        places = location(env, {"location": np.full(4, cell), "answer": ANSWERS})
        assert places == [places[0]] * 4
        centres += [places[0]]
    third = float(np.float32(2 / 3))
    expected = [[-third, -0.5], [0, -0.5], [third, -0.5], [-third, 0.5], [0, 0.5], [third, 0.5]]
    np.testing.assert_allclose(centres, expected, rtol=0, atol=1e-7)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_the_centres_of_any_grid_part_the_image_evenly(rows: int, columns: int, data: st.DataObject) -> None:
    grid = Grid(rows, columns)
    env = vector_env(grid)
    assert env.single_action_space["location"] == spaces.Discrete(rows * columns)
    env.reset(seed=0)
    cells = data.draw(st.lists(st.integers(0, rows * columns - 1), min_size=4, max_size=4))
    for cell, (x, y) in zip(cells, location(env, {"location": cells, "answer": ANSWERS}), strict=True):
        row, column = divmod(cell, columns)
        assert (x + 1) / 2 * columns == pytest.approx(column + 0.5, abs=1e-5)
        assert (y + 1) / 2 * rows == pytest.approx(row + 0.5, abs=1e-5)


# Flat actions.


def test_flat_numbers_are_a_place_a_class_and_a_flag() -> None:
    assert vector_env(Grid(2, 3), Flat()).single_action_space == spaces.MultiDiscrete([6, 3])
    assert vector_env(Grid(2, 3), Flat(), stop=True).single_action_space == spaces.MultiDiscrete([6, 3, 2])
    env = vector_env(Grid(2, 3), Flat(), stop=True)
    _, info = env.reset(seed=0)
    wrong = (info["label"] + 1) % 3
    action = np.stack([[5, 4, 3, 1], np.where([True, True, False, True], info["label"], wrong), [0, 1, 1, 0]], axis=1)
    observation, reward, ended, *_ = env.step(action)
    assert ended.tolist() == [False, True, True, False]
    assert reward.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(observation["location"][[0, 3]], [[2 / 3, 0.5], [0, -0.5]], atol=1e-7)


def test_flat_scores_name_the_class_that_scores_highest() -> None:
    env = vector_env(Flat(), num_glimpses=2)
    space = env.single_action_space
    assert space == spaces.Box(-1, 1, (5,), np.float32)
    _, info = env.reset(seed=0)
    scores = np.full((4, 3), -0.5, np.float32)
    scores[np.arange(4), (info["label"] + [0, 0, 1, 2]) % 3] = 0.25
    places = np.array([[0.5, -0.25], [1, -1], [2, 0.0], [0, 0.0]], np.float32)
    action = np.concatenate([places, scores], axis=1)
    assert location(env, action) == [[0.5, -0.25], [1, -1], [1, 0], [0, 0]]
    assert env.step(action)[1].tolist() == [1, 1, 0, 0]


def test_flat_arrays_keep_their_bounds() -> None:
    space = vector_env(Flat(), answer="log_probs", stop=True).single_action_space
    assert isinstance(space, spaces.Box)
    assert space.low.tolist() == [-1, -1, -np.inf, -np.inf, -np.inf, -1, -1]
    assert space.high.tolist() == [1, 1, 0, 0, 0, 1, 1]


def test_flat_relative_moves() -> None:
    env = vector_env(RelativeMoves(0.25), Flat())
    assert isinstance(space := env.single_action_space, spaces.Box)
    assert space.high.tolist() == [0.25, 0.25, 1, 1, 1]
    env.reset(seed=0, options=STARTS)
    action = np.tile(np.array([0.125, 0.0, 1, 0, 0], np.float32), (4, 1))
    assert location(env, action)[:2] == [[0.125, 0], [0.625, -0.5]]


def test_flat_actions_of_catch() -> None:
    env = TransformAction(TransformAction(CatchEnv(), Grid(4, 4)), Flat())
    assert env.action_space == spaces.MultiDiscrete([16, 3])
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[0]["step"] == 1


# One as many, numpy as torch.

TRANSFORMS = [(RelativeMoves(),), (Grid(),), (Flat(),), (Grid(3, 4), Flat()), (RelativeMoves(0.1), Flat())]


def describe(transforms: tuple[Any, ...]) -> str:
    return "-".join(type(transform).__name__ for transform in transforms)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("transforms", TRANSFORMS, ids=describe)
def test_gymnasium_finds_no_fault(transforms: tuple[Any, ...]) -> None:
    env = gymnasium.make("envs:ram/Glimpse-v0", render_mode="rgb_array", **OPTIONS)
    for transform in transforms:
        env = TransformAction(env, transform)
    check_env(env)


@pytest.mark.parametrize("transforms", TRANSFORMS, ids=describe)
@pytest.mark.parametrize("options", [{}, {"answer": "log_probs", "stop": True}], ids=["label", "log_probs and stop"])
def test_a_batch_does_as_single_environments_do(transforms: tuple[Any, ...], options: Values) -> None:
    ours = vector_env(*transforms, **options)
    reference = SyncVectorEnv([lambda: single_env(*transforms, **options)] * 4)
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


@pytest.mark.parametrize("transforms", TRANSFORMS, ids=describe)
def test_tensors_act_as_arrays_do(transforms: tuple[Any, ...]) -> None:
    arrays, tensors = vector_env(*transforms), vector_env(*transforms, output="torch")
    arrays.reset(seed=0)
    tensors.reset(seed=0)
    action = arrays.action_space.sample()
    same = {name: torch.as_tensor(value) for name, value in action.items()} if isinstance(action, dict) else None
    left = arrays.step(action)[0]
    right = tensors.step(torch.as_tensor(action) if same is None else same)[0]
    assert isinstance(right["patches"], torch.Tensor)
    np.testing.assert_array_equal(left["patches"], right["patches"])


def test_an_environment_can_be_made_again_from_its_specification() -> None:
    made = gymnasium.make("envs:ram/Glimpse-v0", **OPTIONS)
    first = TransformAction(TransformAction(made, RelativeMoves(0.25)), Flat())
    first.reset(seed=0, options={"location": [1.0, 1.0]})
    assert first.spec is not None
    second = gymnasium.make(first.spec)
    assert second.action_space == first.action_space
    second.reset(seed=0, options={"location": [0.0, 0.0]})
    # Its moves start from its own gaze.
    action = np.array([0.125, 0.25, 1, 0, 0], np.float32)
    assert second.step(action)[0]["location"].tolist() == [0.125, 0.25]


def test_wrappers_can_be_named_when_single_environments_are_gathered() -> None:
    wrappers = [lambda env: TransformAction(env, Grid()), lambda env: TransformAction(env, Flat())]
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", 3, "sync", wrappers=wrappers, **OPTIONS)
    assert env.single_action_space == spaces.MultiDiscrete([25, 3])
    env.reset(seed=0)
    env.step(env.action_space.sample())


def test_transforms_can_be_sent_to_other_processes() -> None:
    for transform in (RelativeMoves(0.3), Grid(2, 7), Flat()):
        assert pickle.loads(pickle.dumps(transform)) == transform


# What a user may get wrong.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RelativeMoves(0), r"max_step must lie in \(0, 2\], got 0"),
        (lambda: RelativeMoves(float("nan")), r"max_step must lie in \(0, 2\], got nan"),
        (lambda: Grid(0, 3), "rows and columns must be at least 1, got 0 and 3"),
        (lambda: vector_env(Grid(), Grid()), r"Grid: actions must have a location \(x, y\)"),
        (lambda: vector_env(Flat(), RelativeMoves()), r"RelativeMoves: actions must have a location \(x, y\)"),
        (lambda: single_env(Flat(), Flat()), "Flat: actions must be a dict of parts"),
        (lambda: TransformAction(gymnasium.make("CartPole-v1"), Flat()), "Flat: actions must be a dict of parts"),
        (
            lambda: VectorTransformAction(SyncVectorEnv([single_env]), Grid()),
            "Only glimpse environments can be given other actions, not SyncVectorEnv",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


FLAT = np.zeros((4, 5), np.float32)


@pytest.mark.parametrize(
    ("transforms", "action", "message"),
    [
        ((RelativeMoves(),), {"location": np.zeros((4, 3)), "answer": ANSWERS}, r"location must be \(4, 2\)"),
        ((RelativeMoves(),), {"location": np.zeros(2), "answer": ANSWERS}, r"location must be \(4, 2\)"),
        ((RelativeMoves(),), {"location": np.full((4, 2), np.nan), "answer": ANSWERS}, "location must be finite"),
        ((RelativeMoves(),), {"location": np.zeros((4, 2), int), "answer": ANSWERS}, "floating point numbers"),
        ((RelativeMoves(),), {"location": np.zeros((4, 2))}, "An action is a dict of answer and location"),
        ((RelativeMoves(),), {"location": np.zeros((4, 2)), "answer": [[1], [1, 2]]}, "must be an array of numbers"),
        ((RelativeMoves(),), 3, "An action is a dict of answer and location, got int"),
        ((Grid(2, 3),), {"location": np.full(4, 6), "answer": ANSWERS}, r"location must lie in 0 \.\. 5"),
        ((Grid(2, 3),), {"location": np.full(4, -1), "answer": ANSWERS}, r"location must lie in 0 \.\. 5"),
        ((Grid(2, 3),), {"location": np.zeros(4), "answer": ANSWERS}, r"location must be \(4,\) integers"),
        ((Grid(2, 3),), {"location": np.zeros((4, 2)), "answer": ANSWERS}, r"location must be \(4,\) integers"),
        ((Flat(),), FLAT[:3], r"action must be \(4, 5\) floating point numbers, got \(3, 5\)"),
        ((Flat(),), FLAT[:, :4], r"action must be \(4, 5\) floating point numbers, got \(4, 4\)"),
        ((Flat(),), FLAT.astype(int), r"action must be \(4, 5\) floating point numbers, got \(4, 5\) int64"),
        ((Flat(),), FLAT * np.nan, "action must not be NaN"),
        ((Flat(),), FLAT + np.inf, "location must be finite"),
        ((Flat(),), {"location": np.zeros((4, 2)), "answer": ANSWERS}, "action must be an array of numbers"),
        ((Grid(2, 3), Flat()), np.zeros((4, 3), int), r"action must be \(4, 2\) integers, got \(4, 3\) int64"),
        ((Grid(2, 3), Flat()), np.zeros((4, 2)), r"action's location must be \(4,\) integers, got \(4,\) float64"),
        ((Grid(2, 3), Flat()), np.full((4, 2), 3), r"action's answer must lie in 0 \.\. 2"),
    ],
)
def test_wrong_actions_are_refused(transforms: tuple[Any, ...], action: Any, message: str) -> None:
    env = vector_env(*transforms)
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(action)


@pytest.mark.parametrize(
    ("transforms", "action", "message"),
    [
        ((RelativeMoves(),), {"location": [np.nan, 0.0], "answer": 0}, "location must be finite"),
        ((Grid(),), {"location": 25, "answer": 0}, r"location must lie in 0 \.\. 24"),
        ((Grid(), Flat()), [3], r"action must be \(1, 2\) integers"),
        ((Flat(),), np.zeros(5), None),
        ((Flat(),), None, "action must be an array of numbers"),
    ],
)
def test_the_single_environment_refuses_them_too(transforms: Any, action: Any, message: str | None) -> None:
    env = single_env(*transforms)
    env.reset(seed=0)
    if message is None:
        env.step(action)
    else:
        with pytest.raises(InputError, match=message):
            env.step(action)


@pytest.mark.parametrize("transforms", [(RelativeMoves(),), (RelativeMoves(), Flat())], ids=describe)
@pytest.mark.parametrize("make", [single_env, vector_env])
def test_a_relative_move_before_the_first_reset_is_refused(make: Any, transforms: tuple[Any, ...]) -> None:
    env = make(*transforms)
    with pytest.raises(InputError, match="Call reset before asking for the location or stepping"):
        env.step(env.action_space.sample())


# Gymnasium's own wrappers, around the environment and around ours.


def test_episode_statistics() -> None:
    env = RecordEpisodeStatistics(single_env(Grid(), Flat()))
    _, info = env.reset(seed=0)
    for _ in range(3):
        *_, ended, _, info = env.step(np.array([0, info["label"]]))
    assert ended
    assert (info["episode"]["r"], info["episode"]["l"]) == (1, 3)


def test_episode_statistics_of_a_batch() -> None:
    env = vector_wrappers.RecordEpisodeStatistics(vector_env(Grid(), Flat()))
    _, info = env.reset(seed=0)
    right = np.stack([ANSWERS, info["label"]], axis=1)
    for _ in range(3):
        *_, info = env.step(right)
    assert info["episode"]["r"].tolist() == [1] * 4
    assert info["episode"]["l"].tolist() == [3] * 4


def test_a_time_limit_truncates() -> None:
    env = TimeLimit(single_env(Grid(), Flat(), num_glimpses=5), max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(np.array([0, 0]))[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_pictures_of_an_episode_are_collected() -> None:
    env = RenderCollection(single_env(Grid(), Flat(), render_mode="rgb_array"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    pictures = env.render()
    assert len(pictures) == 4 and not np.array_equal(pictures[0], pictures[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_videos_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("moviepy", reason="the extra video is not installed")
    env = RecordVideo(single_env(Grid(), Flat(), render_mode="rgb_array"), str(tmp_path / "videos"), lambda _: True)
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()
    (video,) = tmp_path.rglob("*.mp4")
    assert video.stat().st_size > 500


def test_observations_are_filtered_and_flattened() -> None:
    env = FlattenObservation(FilterObservation(single_env(), ["patches", "location"]))
    flat, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2 * 3 * 3 + 2,) and flat in env.observation_space
    looked = single_env().reset(seed=0)[0]
    np.testing.assert_array_equal(np.sort(flat), np.sort(np.append(looked["patches"], looked["location"])))


def test_flattened_observations_hold_the_step_as_flags() -> None:
    env = FlattenObservation(single_env())
    flat, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2 + 2 * 3 * 3 + 3,) and flat[-3:].tolist() == [1, 0, 0]


def test_observations_of_a_batch_are_flattened() -> None:
    env = vector_wrappers.FlattenObservation(vector_env())
    flat, _ = env.reset(seed=0)
    assert flat.shape == (4, 2 + 2 * 3 * 3 + 3)
    for row in range(4):
        alone = FlattenObservation(single_env()).reset(seed=row)[0]
        np.testing.assert_array_equal(flat[row], alone)


def test_observations_are_transformed() -> None:
    env = single_env()
    space = env.observation_space["patches"]
    patches = TransformObservation(env, lambda observation: observation["patches"], space)
    assert patches.reset(seed=0)[0] in space


def test_observations_of_a_batch_are_transformed() -> None:
    env = vector_env()
    space = env.single_observation_space["patches"]
    patches = vector_wrappers.TransformObservation(
        env, lambda observation: observation["patches"], single_observation_space=space
    )
    patches.reset(seed=0)
    assert patches.step(env.action_space.sample())[0].shape == (4, 2, 1, 3, 3)


def test_numpy_output_is_turned_into_tensors() -> None:
    pytest.importorskip("array_api_compat", reason="gymnasium's extra array-api is not installed")
    ours = vector_env(Grid(), Flat())
    env = vector_wrappers.NumpyToTorch(vector_env(Grid(), Flat()))
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["patches"], ours.reset(seed=0)[0]["patches"])
    action = torch.tensor([[3, 0], [4, 1], [5, 2], [6, 0]])
    for _ in range(4):
        observation, reward, ended, _, info = env.step(action)
        expected, paid, *_ = ours.step(action.numpy())
        assert isinstance(observation["patches"], torch.Tensor) and isinstance(info["label"], torch.Tensor)
        np.testing.assert_array_equal(observation["patches"], expected["patches"])
        np.testing.assert_array_equal(reward, paid)
    assert ended.dtype == torch.bool


def test_torch_output_is_turned_into_arrays() -> None:
    pytest.importorskip("array_api_compat", reason="gymnasium's extra array-api is not installed")
    ours = vector_env()
    env = vector_wrappers.ArrayConversion(vector_env(output="torch"), env_xp=torch, target_xp=np)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["patches"], ours.reset(seed=0)[0]["patches"])
    ours.action_space.seed(0)
    for _ in range(4):
        action = ours.action_space.sample()
        observation, reward, *_ = env.step(action)
        expected, paid, *_ = ours.step(action)
        assert isinstance(observation["patches"], np.ndarray) and isinstance(reward, np.ndarray)
        np.testing.assert_array_equal(observation["patches"], expected["patches"])
        np.testing.assert_array_equal(reward, paid)
