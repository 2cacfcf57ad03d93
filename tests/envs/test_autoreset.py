"""Autoreset equals that of Gymnasium around single environments, step for step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.images import arrays, canvas
from envs.rewards.answers import CorrectAnswer
from envs.rewards.targets import BoxOverlap, HitTarget
from envs.rewards.weighted_sum import WeightedSum
from envs.splits import IGNORE_INDEX
from envs.vector_env import GlimpseVectorEnv
from tests.envs.helpers import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    ConstantReward,
    TransitionCode,
    Values,
    actions,
    assert_same,
    flicker,
    image_set,
    row,
    single_env,
    vector_env,
)


@dataclass
class EnvPair:
    """A vector environment, and SyncVectorEnv of Gymnasium with as many single environments."""

    vector: GlimpseVectorEnv
    reference: SyncVectorEnv
    sample: Callable[[int, int], Values] = actions
    rewards: list[float] = field(default_factory=list)

    def reset(self, seed: int | None = None, mask: np.ndarray | None = None) -> None:
        results = [
            env.reset(seed=seed, options=None if mask is None else {"reset_mask": mask.copy()})
            for env in (self.vector, self.reference)
        ]
        assert_same(*(observation for observation, _ in results))
        assert results[0][1].keys() == results[1][1].keys()
        for name in ("index", "label"):
            masked = slice(None) if mask is None else mask
            if name in results[1][1]:
                np.testing.assert_array_equal(results[0][1][name][masked], results[1][1][name][masked])

    def step(self, seed: int) -> np.ndarray:
        action = self.sample(self.vector.num_envs, seed)
        results = [env.step(action) for env in (self.vector, self.reference)]
        for part in range(4):
            assert_same(*(result[part] for result in results))
        self.compare_info(results[0][4], results[1][4])
        self.rewards += results[0][1].tolist()
        ended: np.ndarray = results[0][2]
        return ended

    def compare_info(self, vector: Values, reference: Values) -> None:
        assert vector.keys() == reference.keys()
        for name, value in reference.items():
            if name.startswith("_"):
                assert_same(vector[name], value)
            elif name == "final_info":
                self.compare_info(vector[name], value)
            elif name == "final_obs":
                for left, right in zip(vector[name], value, strict=True):
                    assert (left is None) == (right is None)
                    if right is not None:
                        assert_same(left, right)
            else:
                present = reference[f"_{name}"]
                np.testing.assert_array_equal(vector[name][present], value[present], err_msg=name)


def env_pair(mode: AutoresetMode, sample: Callable[[int, int], Values] = actions, **options: Any) -> EnvPair:
    options = {"reward": TransitionCode(), "images": image_set(augmentation=flicker)} | options
    reference = SyncVectorEnv([lambda: single_env(**options)] * 4, autoreset_mode=mode)
    return EnvPair(vector_env(autoreset_mode=mode, **options), reference, sample)


@pytest.mark.parametrize("num_glimpses", [1, 2, 4])
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_autoreset_equals_sync_vector_env(mode: AutoresetMode, num_glimpses: int) -> None:
    both = env_pair(mode, num_glimpses=num_glimpses)
    both.reset(seed=7)
    ended = sum(int(both.step(step).sum()) for step in range(4 * num_glimpses + 4))
    assert ended >= 12


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_autoreset_equals_sync_vector_env_when_rows_end_at_different_steps(mode: AutoresetMode) -> None:
    both = env_pair(mode, num_glimpses=3)
    both.reset(seed=7)
    ended: set[int] = set()
    for step in range(14):
        if step in (1, 5):
            both.reset(mask=np.arange(4) % 3 == step % 3)
        ended.add(int(both.step(step).sum()))
    assert ended - {0, 4}, "the rows always ended at the same step"


def test_disabled_autoreset_equals_sync_vector_env() -> None:
    both = env_pair(DISABLED, num_glimpses=3)
    both.reset(seed=7)
    for episode in range(3):
        for step in range(3):
            ended = both.step(10 * episode + step)
        both.reset(mask=ended)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_seed_with_a_mask_applies_only_to_the_masked_rows(mode: AutoresetMode) -> None:
    both = env_pair(mode)
    both.reset(seed=7)
    both.step(0)
    both.reset(seed=100, mask=np.array([False, True, False, True]))
    both.step(1)
    both.reset(mask=np.ones(4, bool))


OBJECTS = arrays.Arrays(
    images=np.random.default_rng(0).integers(256, size=(60, 5, 6), dtype=np.uint8),
    labels=np.arange(60) % 3,
    augmentation=flicker,
)


def scenes(target_type: Any, num_objects: int | tuple[int, int]) -> canvas.Canvas:
    """Small objects among clutter on 8 x 20 pixels."""
    return canvas.Canvas(OBJECTS, (8, 20), num_objects, num_clutter=2, clutter_size=3, target_type=target_type)


SCENES: dict[str, Values] = {
    "sequence": {
        "images": scenes("sequence", (1, 3)),
        "reward": WeightedSum({"correct": CorrectAnswer(), "code": TransitionCode()}, {"code": 0.01}),
        "num_glimpses": 8,
        "glimpses_per_answer": 2,
    },
    "search": {
        "images": scenes("search", (2, 3)),
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


def action_sampler(kind: str) -> Callable[[int, int], Values]:
    """Returns a function that samples actions as :func:`actions` does, with the answers of a kind of scenes."""

    def sample(count: int, seed: int) -> Values:
        action, generator = actions(count, seed), np.random.default_rng(seed + 1000)
        if kind == "sequence":
            return action | {"answer": generator.integers(4, size=count)}
        if kind == "box":
            corners = np.sort(generator.uniform(-1, 1, (count, 2, 2)).astype(np.float32), axis=1)
            return action | {"answer": corners.reshape(count, 4)}
        return {"location": action["location"]}

    return sample


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_canvas_scenes_equal_sync_vector_env(mode: AutoresetMode, kind: str) -> None:
    both = env_pair(mode, action_sampler(kind), **SCENES[kind])
    both.reset(seed=7)
    ended: set[int] = set()
    for step in range(24):
        if step in (1, 6):
            both.reset(mask=np.arange(4) % 3 == step % 3)
        ended_rows = both.step(step)
        ended.add(int(ended_rows.sum()))
        if mode is DISABLED and ended_rows.any():
            both.reset(mask=ended_rows)
    assert ended - {0, 4}, "the rows always ended at the same step"
    assert len(set(both.rewards)) > 1, "all rewards were equal"


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("kind", SCENES)
def test_evaluation_scenes_do_not_depend_on_the_batch(kind: str, split: str) -> None:
    options, index = {**SCENES[kind], "split": split}, [2, 0, 5, 2]
    batch = vector_env(autoreset_mode=DISABLED, **options)
    singles = [single_env(**options) for _ in index]
    observed, info = batch.reset(seed=9, options={"index": index})
    shown = [env.reset(seed=9, options={"index": number}) for env, number in zip(singles, index, strict=True)]
    for number, (observation, single_info) in enumerate(shown):
        assert_same(row(observed, number), observation)
        assert_same(row(info, number), single_info)
    assert_same(row(observed, 0), row(observed, 3))
    if kind == "sequence":
        assert len(set((info["label"] != IGNORE_INDEX).sum(1).tolist())) > 1, "all scenes have equally many answers"

    over = np.zeros(4, bool)
    while not over.all():
        action = action_sampler(kind)(4, int(observed["step"].max()))
        observed, reward, terminated, truncated, info = batch.step(action)
        for number, env in enumerate(singles):
            if over[number]:  # it is frozen
                assert_same(row(observed, number), shown[number][0])
                assert (reward[number], terminated[number], truncated[number]) == (0, True, False)
                continue
            observation, *results, single_info = env.step(row(action, number))
            shown[number] = observation, single_info
            assert_same(row(observed, number), observation)
            assert [reward[number], terminated[number], truncated[number]] == results
            assert_same(row(info, number), single_info)
        over = terminated


def test_rewards_and_ends_at_a_next_step_autoreset() -> None:
    env = vector_env(num_envs=2, num_glimpses=1, reward=ConstantReward(), autoreset_mode=NEXT_STEP)
    env.reset(seed=0)
    results = [env.step(actions(2)) for _ in range(4)]
    assert [result[1].tolist() for result in results] == [[1, 1], [0, 0], [1, 1], [0, 0]]
    assert [result[2].tolist() for result in results] == [[True] * 2, [False] * 2, [True] * 2, [False] * 2]


@pytest.mark.parametrize("answer", range(3))
def test_next_step_autoreset_gives_no_reward_to_the_old_answer(answer: int) -> None:
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
def test_same_step_autoreset_rewards_the_answer_with_the_old_label(answer: int) -> None:
    env = vector_env(num_envs=8, num_glimpses=1, autoreset_mode=SAME_STEP)
    action = {**actions(8), "answer": np.full(8, answer)}
    _, info = env.reset(seed=0)
    for _ in range(3):
        label = info["label"]
        _, reward, _, _, info = env.step(action)
        np.testing.assert_array_equal(reward, label == answer)
        np.testing.assert_array_equal(info["final_info"]["label"], label)
