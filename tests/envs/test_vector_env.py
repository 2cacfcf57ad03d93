"""The glimpse environments: Gymnasium's rules, one row as a whole batch sees it, and what a user may get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorRecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, arrays, canvas
from envs.images.glyphs import Glyphs
from envs.random import RowRandom
from envs.rewards import Transition
from envs.rewards.box_overlap import BoxOverlap
from envs.rewards.correct_answer import CorrectAnswer
from envs.rewards.hit_target import HitTarget
from envs.rewards.weighted_sum import WeightedSum
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import IGNORE_INDEX
from envs.vector_env import GlimpseVectorEnv

Values = dict[str, Any]

GLYPHS = Glyphs(size=20, num_train=64, num_validation=32, num_test=32)
SENSOR = GlimpseSensor(3, 2)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def image_set(count: int = 11, **options: Any) -> ImageSet:
    """Random pictures of 7 x 9 pixels, labelled 0, 1, 2, 0, 1, ..."""
    images = torch.randint(256, (count, 1, 7, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 3, ("red", "green", "blue"), **options)


IMAGES = image_set()


def flicker(images: Tensor, random: RowRandom) -> Tensor:
    """An augmentation: every image darker by a random share."""
    return images * random.uniform("flicker", 1, 1, 1)


@dataclass(frozen=True)
class Telling:
    """A reward from which all that was judged can be told."""

    def __call__(self, transition: Transition) -> Tensor:
        whole = transition.answer + 10 * transition.label + 100 * transition.step + 1000 * transition.last
        return whole + 0.1 * transition.location.sum(1) + 0.01 * transition.previous_location.sum(1)


@dataclass(frozen=True)
class Constant:
    """Always 1, whatever the row."""

    def __call__(self, transition: Transition) -> Tensor:
        return torch.ones(len(transition.label), device=transition.label.device)


def vector_env(**options: Any) -> GlimpseVectorEnv:
    return GlimpseVectorEnv(**{"images": IMAGES, "sensor": SENSOR, "num_envs": 4, "num_glimpses": 3} | options)


def single_env(**options: Any) -> GlimpseEnv:
    return GlimpseEnv(**{"images": IMAGES, "sensor": SENSOR, "num_glimpses": 3} | options)


def actions(count: int, seed: int = 0) -> Values:
    """Somewhere, also beyond the border, and any answer."""
    generator = np.random.default_rng(seed)
    location = generator.uniform(-1.3, 1.3, (count, 2)).astype(np.float32)
    return {"location": location, "answer": generator.integers(3, size=count)}


def row(values: Values, number: int) -> Values:
    return {name: value[number] for name, value in values.items() if not name.startswith("_")}


def assert_same(left: Values, right: Values) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


# As Gymnasium wants it.


@pytest.mark.parametrize("images", [GLYPHS, IMAGES], ids=["glyphs", "image set"])
def test_gymnasium_finds_no_fault(images: Any) -> None:
    env = gymnasium.make("envs:ram/Glimpse-v0", images=images, sensor=SENSOR, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_make_builds_the_single_environment() -> None:
    env = gymnasium.make("envs:ram/Glimpse-v0", images=IMAGES, num_glimpses=2, render_mode="rgb_array")
    env.reset(seed=0)
    assert isinstance(env.unwrapped, GlimpseEnv)
    picture = env.render()
    assert isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2:] == (3,)
    ends = [env.step(env.action_space.sample())[2] for _ in range(2)]
    assert ends == [False, True]


def test_make_vec_builds_the_vector_environment() -> None:
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", num_envs=3, images=IMAGES, render_mode="rgb_array")
    env.reset(seed=0)
    assert isinstance(env.unwrapped, GlimpseVectorEnv)
    assert env.metadata["autoreset_mode"] is NEXT_STEP
    pictures = env.render()
    assert pictures is not None and len(pictures) == 3


def test_make_vec_can_gather_single_environments() -> None:
    env = gymnasium.make_vec("envs:ram/Glimpse-v0", 2, "sync", images=IMAGES, sensor=SENSOR)
    ours = vector_env(num_envs=2)
    assert_same(env.reset(seed=3)[0], ours.reset(seed=3)[0])


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_observations_lie_in_their_space(mode: AutoresetMode) -> None:
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


def test_the_single_environment_gives_plain_python_values() -> None:
    env = single_env()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert info.keys() == {"index", "label"}


def test_episode_statistics_of_the_single_environment() -> None:
    env = RecordEpisodeStatistics(single_env(reward=Constant()))
    env.reset(seed=0)
    for _ in range(3):
        *_, info = env.step(env.action_space.sample())
    assert (info["episode"]["r"], info["episode"]["l"]) == (3, 3)


def test_episode_statistics_of_the_vector_environment() -> None:
    env = VectorRecordEpisodeStatistics(vector_env(reward=Constant()))
    env.reset(seed=0)
    lengths = []
    for _ in range(8):
        *_, info = env.step(env.action_space.sample())
        if "episode" in info:
            lengths.append((info["episode"]["r"].tolist(), info["episode"]["l"].tolist()))
    assert lengths == [([3] * 4, [3] * 4)] * 2


def test_a_time_limit_truncates() -> None:
    env = TimeLimit(single_env(num_glimpses=5), max_episode_steps=2)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(2)]
    assert ends == [(False, False), (False, True)]


# Episodes.


def test_a_look_is_what_the_sensor_reads_at_the_location() -> None:
    env = vector_env()
    observation, info = env.reset(seed=0)
    prepared = SENSOR.prepare(IMAGES.images[info["index"]].float() / 255)
    for step in range(3):
        np.testing.assert_array_equal(
            observation["patches"], SENSOR(prepared, torch.from_numpy(observation["location"])).numpy()
        )
        assert observation["step"].tolist() == [step] * 4
        if step < 2:
            action = actions(4, step)
            observation, *_ = env.step(action)
            np.testing.assert_array_equal(observation["location"], action["location"].clip(-1, 1))


def test_info_names_the_image_and_its_class() -> None:
    env = vector_env()
    _, info = env.reset(seed=0, options={"index": [3, 0, 10, 4]})
    for _ in range(3):
        assert info["index"].tolist() == [3, 0, 10, 4]
        assert info["label"].tolist() == [0, 0, 1, 1]
        assert info["_index"].all() and info["_label"].all()
        *_, info = env.step(actions(4))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**40), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["train", "validation"]))
def test_the_same_seed_gives_the_same_episodes(seed: int, count: int, num_glimpses: int, split: str) -> None:
    left, right = (vector_env(num_envs=count, num_glimpses=num_glimpses, split=split) for _ in range(2))
    for a, b in [(left.reset(seed=seed), right.reset(seed=seed)), (left.reset(), right.reset())]:
        assert_same(a[0], b[0])
        assert_same(a[1], b[1])
    for step in range(2 * num_glimpses + 1):
        action = actions(count, step)
        for a, b in zip(left.step(action), right.step(action), strict=True):
            if isinstance(a, dict):
                assert_same(a, b)
            else:
                np.testing.assert_array_equal(a, b)


def test_other_seeds_give_other_episodes() -> None:
    env = vector_env()
    first, second = env.reset(seed=0)[0], env.reset(seed=4)[0]
    assert not (first["location"] == second["location"]).any()


def test_seeding_again_begins_again() -> None:
    env = vector_env()
    first, second, again = env.reset(seed=5)[0], env.reset()[0], env.reset(seed=5)[0]
    assert_same(first, again)
    assert not (first["location"] == second["location"]).any()


def test_an_environment_can_be_reset_without_a_seed() -> None:
    assert not (vector_env().reset()[0]["location"] == vector_env().reset()[0]["location"]).any()


def test_one_action_ends_an_episode_of_one_look() -> None:
    env = vector_env(num_glimpses=1, autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    _, reward, terminated, _, _ = env.step({**actions(4), "answer": info["label"]})
    assert reward.tolist() == [1] * 4
    assert terminated.all()


def test_only_the_last_answer_counts() -> None:
    env = vector_env(autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    right = {**actions(4), "answer": info["label"]}
    wrong = {**actions(4), "answer": (info["label"] + [0, 0, 1, 2]) % 3}
    rewards = [env.step(action)[1].tolist() for action in (right, right, wrong)]
    assert rewards == [[0] * 4, [0] * 4, [1, 1, 0, 0]]


def test_the_last_action_does_not_move_the_gaze() -> None:
    env = vector_env(reward=Telling(), autoreset_mode=DISABLED)
    env.reset(seed=0)
    env.step(actions(4, 0))
    before, *_ = env.step(actions(4, 1))
    last = {"location": np.zeros((4, 2), np.float32), "answer": np.zeros(4, np.int64)}
    after, reward, terminated, _, info = env.step(last)
    assert terminated.all()
    assert_same(before, after)
    expected = 10 * info["label"] + 1200 + 0.11 * before["location"].sum(1)
    np.testing.assert_allclose(reward, expected, rtol=1e-6)


# One row alone is the same row among others.


@dataclass
class Pair:
    """The vector environment and as many single ones under Gymnasium's own vector environment."""

    ours: GlimpseVectorEnv
    reference: SyncVectorEnv
    act: Callable[[int, int], Values] = actions
    paid: list[float] = field(default_factory=list)

    def reset(self, seed: int | None = None, mask: np.ndarray | None = None) -> None:
        results = [
            env.reset(seed=seed, options=None if mask is None else {"reset_mask": mask.copy()})
            for env in (self.ours, self.reference)
        ]
        self.compare([observation for observation, _ in results])
        assert results[0][1].keys() == results[1][1].keys()
        for name in ("index", "label"):
            of_rows = slice(None) if mask is None else mask
            if name in results[1][1]:
                np.testing.assert_array_equal(results[0][1][name][of_rows], results[1][1][name][of_rows])

    def step(self, seed: int) -> np.ndarray:
        action = self.act(self.ours.num_envs, seed)
        results = [env.step(action) for env in (self.ours, self.reference)]
        for part in range(4):
            self.compare([result[part] for result in results])
        self.compare_info(results[0][4], results[1][4])
        self.paid += results[0][1].tolist()
        ended: np.ndarray = results[0][2]
        return ended

    @staticmethod
    def compare(pair: list[Any]) -> None:
        if isinstance(pair[0], dict):
            assert_same(*pair)
        else:
            np.testing.assert_array_equal(*pair)

    def compare_info(self, ours: Values, reference: Values) -> None:
        assert ours.keys() == reference.keys()
        for name, value in reference.items():
            if name.startswith("_"):
                np.testing.assert_array_equal(ours[name], value, err_msg=name)
            elif name == "final_info":
                self.compare_info(ours[name], value)
            elif name == "final_obs":
                for mine, theirs in zip(ours[name], value, strict=True):
                    assert (mine is None) == (theirs is None)
                    if theirs is not None:
                        assert_same(mine, theirs)
            else:
                present = reference[f"_{name}"]
                np.testing.assert_array_equal(ours[name][present], value[present], err_msg=name)


def pair(mode: AutoresetMode, act: Callable[[int, int], Values] = actions, **options: Any) -> Pair:
    options = {"reward": Telling(), "images": image_set(augmentation=flicker)} | options
    reference = SyncVectorEnv([lambda: single_env(**options)] * 4, autoreset_mode=mode)
    return Pair(vector_env(autoreset_mode=mode, **options), reference, act)


@pytest.mark.parametrize("num_glimpses", [1, 2, 4])
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_autoreset_is_that_of_gymnasium_around_single_environments(mode: AutoresetMode, num_glimpses: int) -> None:
    both = pair(mode, num_glimpses=num_glimpses)
    both.reset(seed=7)
    ended = sum(int(both.step(step).sum()) for step in range(4 * num_glimpses + 4))
    assert ended >= 12


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_autoreset_of_rows_out_of_step_is_that_of_gymnasium(mode: AutoresetMode) -> None:
    both = pair(mode, num_glimpses=3)
    both.reset(seed=7)
    ended: set[int] = set()
    for step in range(14):
        if step in (1, 5):
            both.reset(mask=np.arange(4) % 3 == step % 3)
        ended.add(int(both.step(step).sum()))
    assert ended - {0, 4}, "the rows never ended apart"


def test_without_autoreset_rows_are_single_environments() -> None:
    both = pair(DISABLED, num_glimpses=3)
    both.reset(seed=7)
    for episode in range(3):
        for step in range(3):
            ended = both.step(10 * episode + step)
        both.reset(mask=ended)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_seed_reaches_only_the_rows_that_are_reset(mode: AutoresetMode) -> None:
    both = pair(mode)
    both.reset(seed=7)
    both.step(0)
    both.reset(seed=100, mask=np.array([False, True, False, True]))
    both.step(1)
    both.reset(mask=np.ones(4, bool))


# The same of scenes on a canvas, whatever they ask.


PIECES = arrays.Arrays(
    images=np.random.default_rng(0).integers(256, size=(60, 5, 6), dtype=np.uint8),
    labels=np.arange(60) % 3,
    augmentation=flicker,
)


def scenes(ask: Any, num_objects: int | tuple[int, int]) -> canvas.Canvas:
    """Small objects among clutter on 8 x 20 pixels."""
    return canvas.Canvas(PIECES, (8, 20), num_objects, num_clutter=2, clutter_size=3, ask=ask)


CANVASES: dict[str, Values] = {
    "read": {
        "images": scenes("read", (1, 3)),
        "reward": WeightedSum({"right": CorrectAnswer(), "told": Telling()}, {"told": 0.01}),
        "num_glimpses": 8,
        "glimpses_per_answer": 2,
    },
    "find": {
        "images": scenes("find", (2, 3)),
        "reward": HitTarget(),
        "num_glimpses": 4,
        "answer": None,
        "context_size": (3, 5),
    },
    "box": {
        "images": scenes("box", 1),
        "reward": BoxOverlap(),
        "num_glimpses": 3,
        "glimpses_per_answer": 2,
        "answer": "box",
    },
}


def answering(ask: str) -> Callable[[int, int], Values]:
    """Chooses as :func:`actions` does, with the answers that a scene asks for: a class or the end, none, or a box."""

    def act(count: int, seed: int) -> Values:
        action, generator = actions(count, seed), np.random.default_rng(seed + 1000)
        if ask == "read":
            return action | {"answer": generator.integers(4, size=count)}
        if ask == "box":
            corners = np.sort(generator.uniform(-1, 1, (count, 2, 2)).astype(np.float32), axis=1)
            return action | {"answer": corners.reshape(count, 4)}
        return {"location": action["location"]}

    return act


@pytest.mark.parametrize("ask", CANVASES)
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_row_of_scenes_is_a_single_environment_step_for_step(mode: AutoresetMode, ask: str) -> None:
    both = pair(mode, answering(ask), **CANVASES[ask])
    both.reset(seed=7)
    ended: set[int] = set()
    for step in range(24):
        if step in (1, 6):
            both.reset(mask=np.arange(4) % 3 == step % 3)
        over = both.step(step)
        ended.add(int(over.sum()))
        if mode is DISABLED and over.any():
            both.reset(mask=over)
    assert ended - {0, 4}, "the rows never ended apart"
    assert len(set(both.paid)) > 1, "all steps paid alike"


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("ask", CANVASES)
def test_a_scene_to_be_judged_by_is_played_among_others_as_alone(ask: str, split: str) -> None:
    options, index = {**CANVASES[ask], "split": split}, [2, 0, 5, 2]
    together = vector_env(autoreset_mode=DISABLED, **options)
    alone = [single_env(**options) for _ in index]
    seen, info = together.reset(seed=9, options={"index": index})
    shown = [env.reset(seed=9, options={"index": number}) for env, number in zip(alone, index, strict=True)]
    for number, (observation, told) in enumerate(shown):
        assert_same(row(seen, number), observation)
        assert_same(row(info, number), told)
    assert_same(row(seen, 0), row(seen, 3))
    if ask == "read":
        assert len(set((info["label"] != IGNORE_INDEX).sum(1).tolist())) > 1, "all scenes ask for as many answers"

    over = np.zeros(4, bool)
    while not over.all():
        action = answering(ask)(4, int(seen["step"].max()))
        seen, reward, terminated, truncated, info = together.step(action)
        for number, env in enumerate(alone):
            if over[number]:  # it stands still
                assert_same(row(seen, number), shown[number][0])
                assert (reward[number], terminated[number], truncated[number]) == (0, True, False)
                continue
            observation, *judged, told = env.step(row(action, number))
            shown[number] = observation, told
            assert_same(row(seen, number), observation)
            assert [reward[number], terminated[number], truncated[number]] == judged
            assert_same(row(info, number), told)
        over = terminated


def test_the_result_at_an_autoreset_by_hand() -> None:
    env = vector_env(num_envs=2, num_glimpses=1, reward=Constant(), autoreset_mode=NEXT_STEP)
    env.reset(seed=0)
    results = [env.step(actions(2)) for _ in range(4)]
    assert [result[1].tolist() for result in results] == [[1, 1], [0, 0], [1, 1], [0, 0]]
    assert [result[2].tolist() for result in results] == [[True] * 2, [False] * 2, [True] * 2, [False] * 2]


@pytest.mark.parametrize("answer", range(3))
def test_a_new_label_never_judges_an_old_answer_in_the_next_step(answer: int) -> None:
    env = vector_env(num_envs=8, num_glimpses=1, autoreset_mode=NEXT_STEP)
    action = {**actions(8), "answer": np.full(8, answer)}
    _, info = env.reset(seed=0)
    for _ in range(3):
        label = info["label"]
        _, reward, terminated, _, info = env.step(action)
        assert terminated.all()
        np.testing.assert_array_equal(reward, label == answer)
        _, reward, terminated, _, info = env.step(action)
        assert not terminated.any()
        assert not reward.any()


@pytest.mark.parametrize("answer", range(3))
def test_a_new_label_never_judges_an_old_answer_in_the_same_step(answer: int) -> None:
    env = vector_env(num_envs=8, num_glimpses=1, autoreset_mode=SAME_STEP)
    action = {**actions(8), "answer": np.full(8, answer)}
    _, info = env.reset(seed=0)
    for _ in range(3):
        label = info["label"]
        _, reward, _, _, info = env.step(action)
        np.testing.assert_array_equal(reward, label == answer)
        np.testing.assert_array_equal(info["final_info"]["label"], label)


# Rows that have ended, and resetting some.


def test_an_ended_row_freezes_until_all_have_ended() -> None:
    env = vector_env(num_glimpses=2, reward=Constant(), autoreset_mode=DISABLED)
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


def test_the_single_environment_refuses_a_step_after_its_end() -> None:
    env = single_env(num_glimpses=1)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(InputError, match="call reset"):
        env.step(env.action_space.sample())


def test_a_mask_resets_its_rows_and_no_other() -> None:
    env, undisturbed = (vector_env(reward=Telling(), autoreset_mode=DISABLED) for _ in range(2))
    for each in (env, undisturbed):
        each.reset(seed=0)
        each.step(actions(4, 0))
    mask = np.array([True, False, True, False])
    observation, info = env.reset(options={"reset_mask": mask})
    fresh = vector_env(autoreset_mode=DISABLED).reset(seed=0, options={"episode": 1})
    for number in np.flatnonzero(mask):
        assert_same(row(observation, number), row(fresh[0], number))
        assert_same(row(info, number), row(fresh[1], number))
    for step in (1, 2):
        disturbed, straight = env.step(actions(4, step)), undisturbed.step(actions(4, step))
        for number in np.flatnonzero(~mask):
            assert_same(row(disturbed[0], number), row(straight[0], number))
            assert disturbed[1][number] == straight[1][number]
            assert disturbed[2][number] == straight[2][number]


def test_a_mask_of_all_rows_is_a_whole_reset() -> None:
    masked, whole = vector_env(), vector_env()
    masked.reset(seed=0)
    whole.reset(seed=0)
    assert_same(masked.reset(options={"reset_mask": [True] * 4})[0], whole.reset()[0])


def test_a_mask_chooses_among_the_options_given_for_all_rows() -> None:
    env = vector_env()
    env.reset(seed=0, options={"index": [0, 1, 2, 3]})
    location = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    mask = [False, False, True, True]
    observation, info = env.reset(options={"reset_mask": mask, "index": [7, 8, 9, 10], "location": location})
    assert info["index"].tolist() == [0, 1, 9, 10]
    np.testing.assert_array_equal(observation["location"][2:], location[2:])
    assert not (observation["location"][:2] == location[:2]).any()


def test_the_rollouts_of_an_image_are_reset_together() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=2, autoreset_mode=DISABLED)
    env.reset(seed=0, options={"index": [0, 1, 2]})
    _, info = env.reset(options={"reset_mask": [False, False, True, True, False, False], "index": [5, 6, 7]})
    assert info["index"].tolist() == [0, 0, 6, 6, 2, 2]
    with pytest.raises(InputError, match="all rollouts of an image or none"):
        env.reset(options={"reset_mask": [True, False, False, False, False, False]})


def test_rollouts_after_a_masked_reset_see_their_image() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=2, autoreset_mode=DISABLED)
    env.reset(seed=0)
    observation, info = env.reset(options={"reset_mask": [False, False, True, True, True, True]})
    images = IMAGES.images[info["index"]].float() / 255
    expected = SENSOR(SENSOR.prepare(images), torch.from_numpy(observation["location"]))
    np.testing.assert_array_equal(observation["patches"], expected.numpy())


# Rollouts of one image.


def test_rollouts_of_an_image_are_adjacent_and_begin_apart() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=3, autoreset_mode=DISABLED)
    observation, info = env.reset(seed=0, options={"index": [4, 2]})
    assert info["index"].tolist() == [4, 4, 4, 2, 2, 2]
    assert info["label"].tolist() == [1, 1, 1, 2, 2, 2]
    assert len(np.unique(observation["location"], axis=0)) == 6


def test_rollouts_of_an_image_see_the_same_image() -> None:
    images = image_set(augmentation=flicker)
    env = vector_env(images=images, num_envs=6, rollouts_per_image=3, first_location="center", autoreset_mode=DISABLED)
    patches = env.reset(seed=0)[0]["patches"].reshape(2, 3, -1)
    assert (patches == patches[:, :1]).all()
    assert not (patches[0] == patches[1]).all()


# What the draws depend on.


@pytest.mark.parametrize("split", ["validation", "test"])
def test_scenes_of_an_evaluation_do_not_depend_on_the_batch(split: str) -> None:
    images = image_set(augmentation=flicker)
    whole, _ = vector_env(images=images, split=split, num_envs=5).reset(seed=3, options={"index": [0, 1, 2, 3, 4]})
    env = vector_env(images=images, split=split, num_envs=3)
    env.reset(seed=3)
    env.reset()
    part, _ = env.reset(options={"index": [4, 2, 2]})  # in other rows, and two episodes later
    for number, index in enumerate([4, 2, 2]):
        assert_same(row(part, number), row(whole, index))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_scenes_of_an_evaluation_depend_on_image_and_seed(split: str) -> None:
    env = vector_env(split=split)
    first, _ = env.reset(seed=3, options={"index": [0, 1, 2, 3]})
    other_images, _ = env.reset(options={"index": [4, 5, 6, 7]})
    other_seed, _ = env.reset(seed=4, options={"index": [0, 1, 2, 3]})
    assert len(np.unique(first["location"], axis=0)) == 4
    assert not (first["location"] == other_images["location"]).any()
    assert not (first["location"] == other_seed["location"]).any()


def test_training_draws_depend_on_the_rows_seed_and_the_episode() -> None:
    env = vector_env()
    first, info = env.reset(seed=3)
    for number in range(4):
        single, single_info = single_env().reset(seed=3 + number)
        assert_same(single, row(first, number))
        assert_same(single_info, row(info, number))
    assert not (env.reset()[0]["location"] == first["location"]).any()
    assert not (env.reset(options={"episode": 1000})[0]["location"] == first["location"]).any()
    assert_same(env.reset(options={"episode": 0})[0], first)


def test_training_draws_do_not_depend_on_the_image_shown() -> None:
    env = vector_env()
    first, _ = env.reset(seed=3, options={"index": [0, 1, 2, 3]})
    other, _ = env.reset(seed=3, options={"index": [7, 7, 7, 7]})
    np.testing.assert_array_equal(first["location"], other["location"])


def test_training_augmentation_depends_on_the_rows_seed_and_the_episode() -> None:
    white = ImageSet(torch.ones(9, 1, 4, 4), torch.zeros(9, dtype=torch.int64), ("white",), flicker)
    env = vector_env(images=white, sensor=GlimpseSensor(1))

    def brightness(seed: int, episode: int, *index: int) -> list[float]:
        observation, _ = env.reset(seed=seed, options={"episode": episode, "index": index})
        patches: np.ndarray = observation["patches"]
        return patches.flatten().tolist()

    first = brightness(3, 0, 0, 1, 2, 3)
    assert len(set(first)) == 4
    assert brightness(3, 0, 8, 8, 8, 8) == first  # whatever the image
    assert brightness(4, 0, 0, 1, 2, 3)[:3] == first[1:]
    assert not set(brightness(3, 1, 0, 1, 2, 3)) & set(first)


def test_one_seed_a_row() -> None:
    env = vector_env()
    observation, info = env.reset(seed=[8, 3, 8, 90])
    for number, seed in enumerate([8, 3, 8, 90]):
        single, single_info = single_env().reset(seed=seed)
        assert_same(single, row(observation, number))
        assert_same(single_info, row(info, number))


def test_every_image_is_shown_about_as_often() -> None:
    env = vector_env(num_envs=1100)
    counts = np.bincount(env.reset(seed=0)[1]["index"], minlength=11)
    assert counts.min() > 60 and counts.max() < 145  # 100, and four standard deviations


def test_first_locations_are_uniform() -> None:
    location = vector_env(num_envs=2000).reset(seed=0)[0]["location"]
    counts = np.histogram2d(*location.T, bins=4, range=[(-1, 1), (-1, 1)])[0]
    assert counts.min() > 80 and counts.max() < 170  # 125, and four standard deviations


def test_the_first_location_may_be_the_center() -> None:
    env = vector_env(first_location="center")
    assert not env.reset(seed=0)[0]["location"].any()
    assert not env.reset(options={"reset_mask": [True, False, True, False]})[0]["location"].any()


def test_the_options_choose_image_location_and_episode() -> None:
    env = single_env()
    wanted = np.array([0.25, -0.75], np.float32)
    observation, info = env.reset(seed=0, options={"index": 9, "location": wanted})
    assert info["index"] == 9
    np.testing.assert_array_equal(observation["location"], wanted)
    later = [env.reset(seed=0, options={"episode": 0})[0]] + [env.reset()[0] for _ in range(3)]
    assert_same(env.reset(options={"episode": 3})[0], later[3])


def test_episodes_may_be_given_row_by_row() -> None:
    env = vector_env()
    episodes = [env.reset(seed=0)[0]] + [env.reset()[0] for _ in range(3)]
    observation, _ = env.reset(options={"episode": [3, 0, 1, 1]})
    for number, episode in enumerate([3, 0, 1, 1]):
        assert_same(row(observation, number), row(episodes[episode], number))


def test_episodes_go_on_from_the_one_given() -> None:
    left, right = vector_env(), vector_env()
    left.reset(seed=0, options={"episode": 5})
    right.reset(seed=0)
    assert_same(left.reset()[0], right.reset(options={"episode": 6})[0])


def test_locations_are_clamped_to_the_image() -> None:
    env = vector_env(num_envs=2)
    observation, _ = env.reset(seed=0, options={"location": [[3.0, -0.5], [-1.1, 1e300]]})
    assert observation["location"].tolist() == [[1, -0.5], [-1, 1]]
    observation, *_ = env.step({"location": np.array([[0.5, -9], [1, 1.5]]), "answer": [0, 0]})
    assert observation["location"].tolist() == [[0.5, -1], [1, 1]]


# What is handed out.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
def test_torch_output_is_numpy_output_as_tensors(mode: AutoresetMode, device: str) -> None:
    plain = vector_env(reward=Telling(), autoreset_mode=mode)
    tensors = vector_env(reward=Telling(), autoreset_mode=mode, output="torch", device=device)

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


def test_torch_output_keeps_the_last_look_before_a_same_step_reset() -> None:
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
def test_what_was_handed_out_never_changes(mode: AutoresetMode, output: str) -> None:
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
def test_writing_into_an_array_handed_out_changes_nothing(mode: AutoresetMode) -> None:
    spoiled, clean = (vector_env(reward=Telling(), autoreset_mode=mode) for _ in range(2))

    def spoil(result: tuple[Any, ...]) -> None:
        for array in leaves(result):
            array[...] = 0 if array.dtype == bool else 1

    spoil(spoiled.reset(seed=0))
    clean.reset(seed=0)
    for step in range(9):
        left, right = spoiled.step(actions(4, step)), clean.step(actions(4, step))
        for a, b in zip(leaves(left), leaves(right), strict=True):
            np.testing.assert_array_equal(a, b)
        spoil(left)


@pytest.mark.parametrize("given_as", [np.array, torch.tensor])
def test_writing_into_what_was_handed_in_changes_nothing(given_as: Callable[[Any], Any]) -> None:
    spoiled, clean = (vector_env(reward=Telling(), autoreset_mode=DISABLED) for _ in range(2))

    def options() -> Values:
        plain = {"index": [0, 1, 2, 3], "episode": [0, 1, 2, 3], "location": [[0.5, 0.0]] * 4}
        return {name: given_as(value) for name, value in plain.items()}

    handed_in = options()
    spoiled.reset(seed=0, options=handed_in)
    clean.reset(seed=0, options=options())
    for value in handed_in.values():
        value += 1
    for step in range(2):
        action = {name: given_as(value.tolist()) for name, value in actions(4, step).items()}
        left, right = spoiled.step(action), clean.step(actions(4, step))
        for value in action.values():
            value[...] = 0
        assert_same(left[0], right[0])
        assert_same(left[4], right[4])
    assert_same(spoiled.reset()[0], clean.reset()[0])


def test_actions_may_be_views_and_read_only() -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    action = actions(4)
    flipped = {"location": np.ascontiguousarray(action["location"][:, ::-1])[:, ::-1], "answer": action["answer"]}
    flipped["answer"].setflags(write=False)
    assert_same(env.step(flipped)[0], other.step(actions(4))[0])


def test_no_gradient_flows_through_the_environment() -> None:
    env = vector_env(output="torch")
    env.reset(seed=0)
    action = {"location": torch.zeros(4, 2, requires_grad=True), "answer": torch.zeros(4, dtype=torch.long)}
    observation, reward, *_ = env.step(action)
    assert not any(value.requires_grad for value in [*observation.values(), reward])


def test_environments_of_one_source_share_its_images() -> None:
    first, second = vector_env(images=GLYPHS), vector_env(images=Glyphs(**vars(GLYPHS)))
    assert first.scenes is second.scenes
    assert vector_env(images=GLYPHS, split="test").scenes is not first.scenes


# Pictures.


def test_pictures_change_as_looks_are_added() -> None:
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
def test_the_picture_after_an_autoreset_is_that_of_the_new_episode(mode: AutoresetMode) -> None:
    env = vector_env(num_glimpses=1, render_mode="rgb_array", autoreset_mode=mode)
    env.reset(seed=0)
    for _ in range(1 if mode is SAME_STEP else 2):
        env.step(actions(4))
    fresh = vector_env(num_glimpses=1, render_mode="rgb_array")
    fresh.reset(seed=0, options={"episode": 1})
    pictures, expected = env.render(), fresh.render()
    assert pictures is not None and expected is not None
    np.testing.assert_array_equal(np.stack(pictures), np.stack(expected))


def test_the_picture_of_the_single_environment_is_that_of_its_row() -> None:
    single, env = single_env(render_mode="rgb_array"), vector_env(render_mode="rgb_array")
    single.reset(seed=2)
    env.reset(seed=0)
    picture, pictures = single.render(), env.render()
    assert picture is not None and pictures is not None
    np.testing.assert_array_equal(picture, pictures[2])


def test_what_is_not_asked_for_is_not_drawn() -> None:
    env = vector_env()
    env.reset(seed=0)
    env.step(actions(4))
    assert env.render() is None
    assert single_env().render() is None
    assert not {"_images", "_path", "_answer"} & vars(env).keys()


def test_a_picture_needs_a_first_reset() -> None:
    with pytest.raises(InputError, match="Call reset before render"):
        vector_env(render_mode="rgb_array").render()


# What a user may get wrong.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": None}, r"env\.num_envs must be a whole number of at least 1, got None"),
        ({"num_glimpses": True}, r"env\.num_glimpses must be a whole number of at least 1, got True"),
        ({"sensor": ""}, r"env\.sensor must be a sensor"),
        ({"num_envs": 0}, r"env\.num_envs must be a whole number of at least 1, got 0"),
        ({"num_glimpses": 0}, r"env\.num_glimpses must be a whole number of at least 1"),
        ({"rollouts_per_image": -1}, r"env\.rollouts_per_image must be a whole number of at least 1"),
        ({"num_envs": 4.0}, r"env\.num_envs must be a whole number of at least 1, got 4\.0"),
        ({"num_glimpses": "6"}, r"env\.num_glimpses must be a whole number of at least 1, got '6'"),
        ({"num_glimpses": 2.5}, r"env\.num_glimpses must be a whole number of at least 1, got 2\.5"),
        ({"sensor": "retina"}, r"env\.sensor must be a sensor, such as envs\.GlimpseSensor\(\), got 'retina'"),
        ({"sensor": GlimpseSensor}, r"env\.sensor must be a sensor, .*, got <class 'envs\.sensor\.GlimpseSensor'>"),
        ({"rollouts_per_image": 3}, r"env\.num_envs \(4\) must be a multiple of env\.rollouts_per_image \(3\)"),
        ({"rollouts_per_image": 2}, "needs autoreset_mode=AutoresetMode.DISABLED"),
        ({"first_location": "middle"}, r"env\.first_location must be one of random, center, got 'middle'"),
        ({"output": "jax"}, r"env\.output must be one of numpy, torch"),
        ({"render_mode": "human"}, r"env\.render_mode must be one of None, rgb_array"),
        ({"autoreset_mode": "Sometimes"}, r"env\.autoreset_mode must be one of NextStep, SameStep, Disabled"),
        ({"split": "dev"}, "split must be one of train, validation, test, got 'dev'"),
        ({"images": "nosuch"}, "images='nosuch' names no image source"),
        ({"images": None}, "images=None is no image source"),
        ({"images": Glyphs}, r"images=<class 'envs\.images\.glyphs\.Glyphs'> is no image source"),
        ({"reward": "correct_answer"}, "'correct_answer' is none: give an instance of one"),
        ({"reward": CorrectAnswer}, r"CorrectAnswer'> is none: give an instance of one"),
    ],
)
def test_wrong_options_are_refused(options: Values, message: str) -> None:
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
        ({"answer": np.array([0, 1, 2, 3])}, r"action\['answer'\] must lie in 0 \.\. 2"),
        ({"answer": np.array([0, 1, 2, -1])}, r"action\['answer'\] must lie in 0 \.\. 2"),
        ({"stop": np.zeros(4, bool)}, r"An action is a dict of answer and location, got \['answer', .*'stop'\]"),
    ],
)
def test_wrong_actions_are_refused(change: Values, message: str) -> None:
    env = vector_env()
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(actions(4) | change)


@pytest.mark.parametrize("missing", ["location", "answer"])
def test_an_action_without_one_of_its_parts_is_refused(missing: str) -> None:
    env = vector_env()
    env.reset(seed=0)
    action = actions(4)
    del action[missing]
    with pytest.raises(InputError, match="An action is a dict of answer and location"):
        env.step(action)


@pytest.mark.parametrize("make", [vector_env, single_env])
def test_an_action_that_is_no_dict_is_refused(make: Callable[[], Any]) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(InputError, match="An action is a dict of answer and location, got int"):
        env.step(3)


def test_a_refused_action_changes_nothing() -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(InputError):
        env.step(actions(4) | {"answer": np.zeros(3, int)})
    assert_same(env.step(actions(4))[0], other.step(actions(4))[0])


WRONG_RESET_OPTIONS = [
    ({"start": [0.0, 0.0]}, "reset knows the options index, location, episode and reset_mask, not start"),
    ({"index": [0, 1, 2]}, r"options\['index'\] must be \(4,\) integers, got \(3,\) int64"),
    ({"index": [0.0, 1.0, 2.0, 3.0]}, r"options\['index'\] must be \(4,\) integers, got \(4,\) float64"),
    ({"index": [True] * 4}, r"options\['index'\] must be \(4,\) integers, got \(4,\) bool"),
    ({"index": [0, 1, 2, 11]}, r"options\['index'\] must lie in 0 \.\. 10"),
    ({"index": [0, 1, 2, -1]}, r"options\['index'\] must lie in 0 \.\. 10"),
    ({"location": [[0.0, 0.0]] * 3}, r"location must be \(4, 2\)"),
    ({"location": [[0.0, np.nan]] * 4}, "location must be finite"),
    ({"episode": [0, 1]}, r"options\['episode'\] must be \(4,\) integers, got \(2,\) int64"),
    ({"episode": 1.5}, r"options\['episode'\] must be \(4,\) integers, got \(4,\) float64"),
    ({"episode": "first"}, r"options\['episode'\] must be an array of numbers"),
    ({"reset_mask": [True]}, r"options\['reset_mask'\] must be \(4,\) bool"),
    ({"reset_mask": [0, 1, 0, 1]}, r"options\['reset_mask'\] must be \(4,\) bool"),
    ({"reset_mask": [False] * 4}, r"options\['reset_mask'\] must be .* with at least one True"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_RESET_OPTIONS)
def test_wrong_reset_options_are_refused_and_change_nothing(options: Values, message: str) -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.reset(seed=9, options=options)
    assert_same(env.step(actions(4))[0], other.step(actions(4))[0])
    assert_same(env.reset()[0], other.reset()[0])


def test_the_single_environment_refuses_wrong_options_too() -> None:
    env = single_env()
    with pytest.raises(InputError, match=r"options\['index'\] must lie in 0 \.\. 10"):
        env.reset(seed=0, options={"index": 11})
    with pytest.raises(InputError, match="not start"):
        env.reset(seed=0, options={"start": 1})


def test_too_few_seeds_are_refused() -> None:
    with pytest.raises(InputError, match="reset needs one seed, or 4 for as many rows, got 2"):
        vector_env().reset(seed=[1, 2])


def test_the_first_reset_must_be_whole() -> None:
    env = vector_env()
    with pytest.raises(InputError, match="The first reset must be of all rows"):
        env.reset(seed=0, options={"reset_mask": [True, False, True, True]})
    with pytest.raises(InputError, match="Call reset before step"):
        env.step(actions(4))


@pytest.mark.parametrize("make", [vector_env, single_env])
def test_a_step_before_the_first_reset_is_refused(make: Callable[[], Any]) -> None:
    env = make()
    with pytest.raises(InputError, match="Call reset before step"):
        env.step(env.action_space.sample())


def test_before_the_first_reset_there_is_no_location() -> None:
    env = vector_env(output="torch")
    with pytest.raises(InputError, match="Call reset before asking for the location"):
        _ = env.location
    observation, _ = env.reset(seed=0)
    assert torch.equal(env.location, observation["location"])


@dataclass(frozen=True)
class MyReward:
    """Returns what it is told to."""

    result: Callable[[Transition], Any]

    def __call__(self, transition: Transition) -> Any:
        return self.result(transition)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda t: 1.0, "MyReward must return a tensor, got float"),
        (lambda t: np.ones(4, np.float32), "MyReward must return a tensor, got ndarray"),
        (lambda t: torch.ones(4, 1), r"MyReward must return \(4,\) float32 on cpu, got \(4, 1\) float32 on cpu"),
        (lambda t: torch.tensor(1.0), r"MyReward must return \(4,\) float32 on cpu, got \(\) float32"),
        (lambda t: t.answer == t.label, r"MyReward must return \(4,\) float32 on cpu, got \(4,\) bool"),
        (lambda t: torch.ones(4).double(), r"MyReward must return \(4,\) float32 on cpu, got \(4,\) float64"),
        (lambda t: torch.ones(4, device="meta"), r"MyReward must return .* on cpu, got \(4,\) float32 on meta"),
        (lambda t: torch.tensor([1, 1, 1, torch.nan]), "MyReward returned NaN"),
        (lambda t: torch.tensor([1, 1, -torch.inf, 1]), "MyReward returned NaN or infinity"),
    ],
)
def test_a_wrong_reward_is_named_at_the_first_step(result: Callable[[Transition], Any], message: str) -> None:
    env = vector_env(reward=MyReward(result))
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(actions(4))


@dataclass
class Script:
    """Pays what is written, one line for each step; and 0 when it is tried, before the first."""

    lines: list[list[float]]

    def __post_init__(self) -> None:
        self.lines = [[0.0] * 4, *self.lines]

    def __call__(self, transition: Transition) -> Tensor:
        return torch.tensor(self.lines.pop(0))


@dataclass
class ScriptOfParts(Script):
    """Tells its payment as that of a part."""

    def components(self, transition: Transition) -> dict[str, Tensor]:
        return {"mine": self(transition)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("script", "name"), [(Script, "Script"), (ScriptOfParts, "reward/mine")])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_reward_that_is_no_number_is_refused_in_whatever_episode(
    script: type[Script], name: str, value: float, steps: int
) -> None:
    right = [[1.0] * 4] * steps
    env = vector_env(reward=script([*right, [1.0, 1.0, value, 1.0]]), num_glimpses=2, autoreset_mode=SAME_STEP)
    env.reset(seed=0)
    assert [env.step(actions(4, step))[1].tolist() for step in range(steps)] == right
    with pytest.raises(InputError, match=f"^{name} returned NaN or infinity"):
        env.step(actions(4))


@pytest.mark.parametrize("script", [Script, ScriptOfParts])
def test_what_a_reward_returns_for_rows_that_have_ended_is_ignored(script: type[Script]) -> None:
    lines = [[1.0, 2.0, 3.0, 4.0], [np.nan, 2.0, np.inf, 4.0], [-np.inf, 2.0, np.nan, np.nan]]
    env = vector_env(reward=script(lines), stop=True, autoreset_mode=DISABLED)
    env.reset(seed=0)
    stops = [[True, False, True, False], [False, False, False, True], [False] * 4]
    paid = [env.step({**actions(4), "stop": stop})[1].tolist() for stop in stops]
    assert paid == [[1, 2, 3, 4], [0, 2, 0, 4], [0, 2, 0, 0]]


def test_a_row_that_begins_anew_is_paid_nothing_whatever_its_reward_returns() -> None:
    env = vector_env(reward=Script([[1.0] * 4, [np.nan] * 4, [1.0] * 4]), num_glimpses=1, autoreset_mode=NEXT_STEP)
    env.reset(seed=0)
    assert [env.step(actions(4))[1].tolist() for _ in range(3)] == [[1] * 4, [0] * 4, [1] * 4]


def towards_the_target(transition: Transition, worth: Any = None) -> Any:
    """A reward that is a plain function: what it is worth, or a look at what not every world has."""
    return transition.target if worth is None else worth


def test_a_reward_that_is_a_function_is_told_by_its_name() -> None:
    for reward in (towards_the_target, partial(towards_the_target, worth=None)):
        with pytest.raises(InputError, match=r"^towards_the_target does not fit this world: transition\.target"):
            vector_env(reward=reward)
    env = vector_env(reward=partial(towards_the_target, worth=0.5))
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"^towards_the_target must return a tensor, got float"):
        env.step(actions(4))


@dataclass(frozen=True)
class Composed(Constant):
    """Has ``components`` that are its own affair."""

    components: tuple[str, ...] = ("bricks", "mortar")


def test_components_that_cannot_be_called_are_no_parts_of_a_reward() -> None:
    env = vector_env(reward=Composed())
    env.reset(seed=0)
    _, reward, _, _, info = env.step(actions(4))
    assert reward.tolist() == [1] * 4
    assert not any("reward" in name for name in info)


def test_a_reward_sees_the_transition_as_documented() -> None:
    seen: list[Transition] = []

    def record(transition: Transition) -> Tensor:
        seen.append(transition)
        return torch.zeros(4)

    env = vector_env(reward=MyReward(record), num_glimpses=2)
    seen.clear()  # it was tried once when the environment was built
    before, info = env.reset(seed=0)
    after, *_ = env.step(actions(4, 0))
    env.step(actions(4, 1))
    first, last = seen
    np.testing.assert_array_equal(first.answer, actions(4, 0)["answer"])
    np.testing.assert_array_equal(first.label, info["label"])
    np.testing.assert_array_equal(first.previous_location, before["location"])
    np.testing.assert_array_equal(first.location, after["location"])
    np.testing.assert_array_equal(last.previous_location, after["location"])
    np.testing.assert_array_equal(last.location, after["location"])
    assert (first.step.tolist(), last.step.tolist()) == ([0] * 4, [1] * 4)
    assert (first.last.tolist(), last.last.tolist()) == ([False] * 4, [True] * 4)
