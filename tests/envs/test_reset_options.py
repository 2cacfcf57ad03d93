"""The options of reset, masked resets, and the rollouts of one image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envs.errors import InputError
from tests.envs.helpers import (
    DISABLED,
    IMAGES,
    SENSOR,
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


def test_options_set_index_location_and_episode() -> None:
    env = single_env()
    wanted = np.array([0.25, -0.75], np.float32)
    observation, info = env.reset(seed=0, options={"index": 9, "location": wanted})
    assert info["index"] == 9
    np.testing.assert_array_equal(observation["location"], wanted)
    later = [env.reset(seed=0, options={"episode": 0})[0]] + [env.reset()[0] for _ in range(3)]
    assert_same(env.reset(options={"episode": 3})[0], later[3])


def test_episode_option_may_differ_between_rows() -> None:
    env = vector_env()
    episodes = [env.reset(seed=0)[0]] + [env.reset()[0] for _ in range(3)]
    observation, _ = env.reset(options={"episode": [3, 0, 1, 1]})
    for number, episode in enumerate([3, 0, 1, 1]):
        assert_same(row(observation, number), row(episodes[episode], number))


def test_the_next_reset_continues_from_the_given_episode() -> None:
    left, right = vector_env(), vector_env()
    left.reset(seed=0, options={"episode": 5})
    right.reset(seed=0)
    assert_same(left.reset()[0], right.reset(options={"episode": 6})[0])


def test_a_masked_reset_does_not_change_the_other_rows() -> None:
    env, reference = (vector_env(reward=TransitionCode(), autoreset_mode=DISABLED) for _ in range(2))
    for each in (env, reference):
        each.reset(seed=0)
        each.step(actions(4, 0))
    mask = np.array([True, False, True, False])
    observation, info = env.reset(options={"reset_mask": mask})
    fresh = vector_env(autoreset_mode=DISABLED).reset(seed=0, options={"episode": 1})
    for number in np.flatnonzero(mask):
        assert_same(row(observation, number), row(fresh[0], number))
        assert_same(row(info, number), row(fresh[1], number))
    for step in (1, 2):
        ours, theirs = env.step(actions(4, step)), reference.step(actions(4, step))
        for number in np.flatnonzero(~mask):
            assert_same(row(ours[0], number), row(theirs[0], number))
            assert ours[1][number] == theirs[1][number]
            assert ours[2][number] == theirs[2][number]


def test_a_mask_of_all_rows_equals_a_full_reset() -> None:
    masked, whole = vector_env(), vector_env()
    masked.reset(seed=0)
    whole.reset(seed=0)
    assert_same(masked.reset(options={"reset_mask": [True] * 4})[0], whole.reset()[0])


def test_a_mask_selects_rows_of_the_other_options() -> None:
    env = vector_env()
    env.reset(seed=0, options={"index": [0, 1, 2, 3]})
    location = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    mask = [False, False, True, True]
    observation, info = env.reset(options={"reset_mask": mask, "index": [7, 8, 9, 10], "location": location})
    assert info["index"].tolist() == [0, 1, 9, 10]
    np.testing.assert_array_equal(observation["location"][2:], location[2:])
    assert not (observation["location"][:2] == location[:2]).any()


def test_a_mask_must_cover_all_rollouts_of_an_image() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=2, autoreset_mode=DISABLED)
    env.reset(seed=0, options={"index": [0, 1, 2]})
    _, info = env.reset(options={"reset_mask": [False, False, True, True, False, False], "index": [5, 6, 7]})
    assert info["index"].tolist() == [0, 0, 6, 6, 2, 2]
    with pytest.raises(InputError, match="all rollouts of an image or none"):
        env.reset(options={"reset_mask": [True, False, False, False, False, False]})


def test_rollouts_show_their_image_after_a_masked_reset() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=2, autoreset_mode=DISABLED)
    env.reset(seed=0)
    observation, info = env.reset(options={"reset_mask": [False, False, True, True, True, True]})
    expected = SENSOR(IMAGES.images[info["index"]], torch.from_numpy(observation["location"]))
    np.testing.assert_array_equal(observation["patches"], expected.numpy())


def test_rollouts_of_an_image_are_adjacent_with_different_first_locations() -> None:
    env = vector_env(num_envs=6, rollouts_per_image=3, autoreset_mode=DISABLED)
    observation, info = env.reset(seed=0, options={"index": [4, 2]})
    assert info["index"].tolist() == [4, 4, 4, 2, 2, 2]
    assert info["label"].tolist() == [1, 1, 1, 2, 2, 2]
    assert len(np.unique(observation["location"], axis=0)) == 6


def test_rollouts_of_an_image_share_its_augmentation() -> None:
    images = image_set(augmentation=flicker)
    env = vector_env(images=images, num_envs=6, rollouts_per_image=3, first_location="center", autoreset_mode=DISABLED)
    patches = env.reset(seed=0)[0]["patches"].reshape(2, 3, -1)
    assert (patches == patches[:, :1]).all()
    assert not (patches[0] == patches[1]).all()


WRONG_RESET_OPTIONS = [
    ({"start": [0.0, 0.0]}, "The options of reset are index, location, episode, reset_mask, not start"),
    ({"index": [0, 1, 2]}, r"options\['index'\] must be \(4,\) integers, got \(3,\) int64"),
    ({"index": [0.0, 1.0, 2.0, 3.0]}, r"options\['index'\] must be \(4,\) integers, got \(4,\) float64"),
    ({"index": [True] * 4}, r"options\['index'\] must be \(4,\) integers, got \(4,\) bool"),
    ({"index": [0, 1, 2, 11]}, r"options\['index'\] must be in 0 \.\. 10"),
    ({"index": [0, 1, 2, -1]}, r"options\['index'\] must be in 0 \.\. 10"),
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
def test_invalid_reset_options_are_refused_and_change_nothing(options: Values, message: str) -> None:
    env, other = vector_env(), vector_env()
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.reset(seed=9, options=options)
    assert_same(env.step(actions(4))[0], other.step(actions(4))[0])
    assert_same(env.reset()[0], other.reset()[0])


def test_the_single_environment_refuses_invalid_reset_options() -> None:
    env = single_env()
    with pytest.raises(InputError, match=r"options\['index'\] must be in 0 \.\. 10"):
        env.reset(seed=0, options={"index": 11})
    with pytest.raises(InputError, match="not start"):
        env.reset(seed=0, options={"start": 1})


def test_a_wrong_number_of_seeds_is_refused() -> None:
    with pytest.raises(InputError, match="reset needs one seed, or 4 seeds for 4 rows, got 2"):
        vector_env().reset(seed=[1, 2])


def test_the_first_reset_must_be_of_all_rows() -> None:
    env = vector_env()
    with pytest.raises(InputError, match="The first reset must be of all rows"):
        env.reset(seed=0, options={"reset_mask": [True, False, True, True]})
    with pytest.raises(InputError, match="Call reset before step"):
        env.step(actions(4))
