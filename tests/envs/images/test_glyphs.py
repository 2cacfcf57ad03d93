"""The rendered digits: contents of the splits, determinism, and difficulty."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet
from envs.images.glyphs import FONTS, Glyphs
from envs.splits import Split

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TINY: dict[str, Any] = {"size": 16, "num_train": 30, "num_validation": 20, "num_test": 10}
UNDISTORTED: dict[str, Any] = {
    "height": (1, 1),
    **dict.fromkeys(["rotation", "shear", "stretch", "elastic", "noise"], 0),
    "boldness": (0, 0),
    "contrast": 1,
}


def font_file(name: str) -> Path:
    return Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")


def families(names: Iterable[str]) -> set[str]:
    return {FT2Font(str(font_file(name))).family_name for name in names}


def linear_error(train: ImageSet, test: ImageSet, penalty: float) -> float:
    """The error rate of ridge regression on all pixels, fitted in closed form."""

    def pixels(images: ImageSet) -> Tensor:
        flat = images.images.flatten(1).float() / 255
        return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)

    features = pixels(train)
    targets = F.one_hot(train.labels, len(train.classes)).float()
    weights = torch.linalg.solve(features.T @ features + penalty * torch.eye(features.shape[1]), features.T @ targets)
    return float(((pixels(test) @ weights).argmax(1) != test.labels).float().mean())


# Contents of a split.


@pytest.mark.parametrize(("split", "count"), [("train", 30), ("validation", 20), ("test", 10)])
def test_a_split_has_its_shape_dtype_and_size(split: Split, count: int) -> None:
    images = Glyphs(**TINY).load(split)
    assert images.images.shape == (count, 1, 16, 16) and images.images.dtype == torch.uint8
    assert images.labels.shape == (count,) and images.labels.dtype == torch.int64


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 50), st.integers(1, 4), st.sampled_from(SPLITS))
def test_any_image_size_and_split_size_is_possible(size: int, count: int, split: Split) -> None:
    images = Glyphs(size=size, num_train=count, num_validation=count, num_test=count).load(split)
    assert images.images.shape == (count, 1, size, size)


@pytest.mark.parametrize("split", SPLITS)
def test_all_ten_digits_occur(split: Split) -> None:
    images = Glyphs(size=8, num_train=300, num_validation=300, num_test=300).load(split)
    assert images.classes == tuple("0123456789")
    assert images.labels.bincount(minlength=10).min() > 10


def test_digits_are_brighter_than_the_background_by_the_contrast() -> None:
    images = Glyphs(num_train=200, noise=0, contrast=0.5).load("train").images.flatten(1).float() / 255
    assert (images.amax(1) - images.amin(1)).min() >= 0.5 - 1 / 255
    assert (images.median(1).values < images.amax(1) - 0.4).all()  # most pixels are background


def test_a_split_may_be_larger_than_a_chunk() -> None:
    images = Glyphs(size=4, num_train=4001).load("train")
    assert len(images) == 4001
    assert len(images.images[:2000].flatten(1).unique(dim=0)) > 1000


def test_only_the_training_split_is_augmented() -> None:
    source = Glyphs(**TINY, augmentation=lambda images, random: images)
    assert [source.load(split).augmentation is not None for split in SPLITS] == [True, False, False]


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(InputError, match="split must be one of train, validation, test, got 'dev'"):
        Glyphs().load("dev")  # type: ignore[arg-type]


# Independence of the splits.


def test_no_font_family_is_in_two_splits() -> None:
    by_split = [families(FONTS[split]) for split in SPLITS]
    assert all(by_split)
    assert not any(left & right for left, right in combinations(by_split, 2))


def test_every_font_has_ten_different_digits() -> None:
    for name in (name for names in FONTS.values() for name in names):
        font = FT2Font(str(font_file(name)))
        assert len({font.get_char_index(ord(digit)) for digit in "0123456789"} - {0}) == 10, name


def test_splits_and_seeds_have_different_labels() -> None:
    sources = [Glyphs(**TINY | {"num_test": 30, "num_validation": 30, "seed": seed}) for seed in range(3)]
    labels = [source.load(split).labels for source in sources for split in SPLITS]
    assert not any(torch.equal(left, right) for left, right in combinations(labels, 2))


# Determinism.


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_is_the_same_at_every_load(split: Split) -> None:
    first, second = Glyphs(**TINY).load(split), Glyphs(**TINY).load(split)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_another_seed_gives_other_images() -> None:
    first, second = Glyphs(**TINY).load("train"), Glyphs(**TINY, seed=1).load("train")
    assert not (first.images == second.images).flatten(1).all(1).any()


def test_the_global_generator_is_not_used() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = Glyphs(**TINY).load("train")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(Glyphs(**TINY).load("train").images, first.images)


# Difficulty.


def test_a_linear_classifier_recognizes_undistorted_digits_of_unseen_fonts() -> None:
    source = Glyphs(size=20, num_train=500, num_test=200, **UNDISTORTED)
    assert linear_error(source.load("train"), source.load("test"), penalty=10) < 0.25


def test_a_linear_classifier_fails_on_distorted_digits() -> None:
    source = Glyphs(num_train=3000, num_test=600)
    assert linear_error(source.load("train"), source.load("test"), penalty=100) >= 0.2


# Options.


def test_options_may_be_lists() -> None:
    source = Glyphs(**TINY, height=[0.4, 0.6], boldness=[0.0, 0.5])  # type: ignore[arg-type]
    same = Glyphs(**TINY, height=(0.4, 0.6), boldness=(0.0, 0.5))
    assert source == same and hash(source) == hash(same)
    assert torch.equal(source.load("test").images, same.load("test").images)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("size", "num_train", "num_validation", "num_test") for value in (0, -1)],
        *[(name, -0.1) for name in ("rotation", "shear", "stretch", "elastic", "noise")],
        *[("height", value) for value in ((0, 0.5), (0.6, 0.5), (0.5, 1.1))],
        ("boldness", (0.5, 0.4)),
        *[("shear", 90), ("stretch", 1), ("contrast", 0), ("contrast", 1.1)],
    ],
)
def test_invalid_options_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"images\.{name}"):
        Glyphs(**{name: value})
