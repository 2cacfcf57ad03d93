"""ImageSet, resolve_source and hold_out: validation, batches and splits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, glyphs, resolve_source
from envs.random import RowRandom
from envs.splits import hold_out


def rows(count: int) -> RowRandom:
    return RowRandom(torch.arange(count), torch.zeros(count, dtype=torch.int64))


def image_set(images: Tensor | None = None, labels: list[int] | None = None) -> ImageSet:
    images = torch.zeros(3, 1, 2, 2) if images is None else images
    return ImageSet(images, torch.tensor([0, 1, 2] if labels is None else labels), ("a", "b", "c"))


# Batches.


def test_uint8_images_are_scaled_to_zero_to_one() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    scene = image_set(images).draw(torch.tensor([2, 0, 1, 1]), rows(4))
    assert scene.images is images  # nothing is copied before the pixels are read
    drawn = scene.pixels()
    assert drawn.dtype == torch.float32
    assert drawn.shape == (4, 1, 1, 1)
    torch.testing.assert_close(drawn.flatten(), torch.tensor([1, 0, 0.2, 0.2]))


def test_float_images_are_returned_unchanged() -> None:
    images = torch.rand(3, 2, 4, 5)
    assert torch.equal(image_set(images).draw(torch.tensor([1, 0]), rows(2)).pixels(), images[[1, 0]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_writing_into_a_batch_does_not_change_the_set(dtype: torch.dtype) -> None:
    images = torch.ones(3, 1, 2, 2).to(dtype)
    image_set(images).draw(torch.arange(3), rows(3)).pixels().zero_()
    assert images.all()


def test_the_augmentation_receives_the_random_numbers_of_the_batch() -> None:
    seen = []

    @dataclass(frozen=True)
    class Darker:
        def __call__(self, images: Tensor, random: RowRandom) -> Tensor:
            seen.append(random)
            return images / 2

    augmented = ImageSet(torch.ones(3, 1, 2, 2), torch.arange(3), ("a", "b", "c"), Darker())
    random = rows(2)
    assert torch.equal(augmented.draw(torch.tensor([0, 2]), random).images, torch.full((2, 1, 2, 2), 0.5))
    assert seen == [random]


# Sources.


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_image_set_is_the_same_for_every_split(split: str) -> None:
    images = image_set(torch.rand(3, 1, 2, 2))
    loaded = images.load(split)  # type: ignore[arg-type]
    assert torch.equal(loaded.images, images.images)
    assert torch.equal(loaded.labels, images.labels)
    assert loaded.classes == images.classes


def test_a_set_refuses_an_unknown_split() -> None:
    with pytest.raises(InputError, match="split must be one of train, validation, test, got 'dev'"):
        image_set().load("dev")  # type: ignore[arg-type]


def test_a_source_resolves_to_itself() -> None:
    source = image_set()
    assert resolve_source(source) is source


def test_a_name_resolves_to_the_source_of_its_module() -> None:
    assert resolve_source("glyphs") == glyphs.Glyphs()


@pytest.mark.parametrize("name", ["nosuch", "augmentation", ""])
def test_a_name_without_a_source_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"images='{name}' names no image source"):
        resolve_source(name)


# Validation.


def test_the_length_is_the_number_of_images() -> None:
    assert len(image_set()) == 3


@pytest.mark.parametrize("labels", [[0, 1, 3], [-1, 0, 1]])
def test_labels_outside_the_classes_are_refused(labels: list[int]) -> None:
    lowest, highest = min(labels), max(labels)
    with pytest.raises(InputError, match=rf"Labels must be in 0 \.\. 2 .*range from {lowest} to {highest}"):
        image_set(labels=labels)


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2, 0], [[[0]], [[1]], [[2]]]])
def test_labels_that_do_not_match_the_images_are_refused(labels: list[int]) -> None:
    with pytest.raises(InputError, match="There are 3 images, but labels of shape"):
        image_set(labels=labels)


@pytest.mark.parametrize("shape", [(3, 2, 2), (0, 1, 2, 2), (3, 1, 1, 2, 2)])
def test_images_must_have_four_dimensions_and_not_be_empty(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"Images must be \(N, C, H, W\)"):
        image_set(torch.zeros(shape))


# Holding out.

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=80)
seeds = st.integers(0, 2**30)


@settings(deadline=None)
@given(label_lists, st.floats(0.01, 0.99), seeds)
def test_held_out_and_kept_indices_are_disjoint_and_complete(labels: list[int], share: float, seed: int) -> None:
    kept, held_out = hold_out(torch.tensor(labels), share, seed)
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(len(labels)))


@settings(deadline=None)
@given(label_lists, st.floats(0.01, 0.99), seeds)
def test_indices_are_ascending(labels: list[int], share: float, seed: int) -> None:
    for part in hold_out(torch.tensor(labels), share, seed):
        assert part.dtype == torch.int64
        assert part.tolist() == sorted(part.tolist())


@settings(deadline=None)
@given(label_lists, st.floats(0.01, 0.5), seeds)
def test_the_share_of_every_class_is_held_out(labels: list[int], share: float, seed: int) -> None:
    _, held_out = hold_out(torch.tensor(labels), share, seed)
    given_by = torch.tensor(labels)[held_out].tolist()
    for label in set(labels):
        count = labels.count(label)
        expected = share * count
        assert given_by.count(label) == (1 if expected < 1 < count else round(expected))


@settings(deadline=None)
@given(label_lists, st.floats(0.01, 0.5), seeds)
def test_an_image_of_every_class_is_kept(labels: list[int], share: float, seed: int) -> None:
    kept, _ = hold_out(torch.tensor(labels), share, seed)
    assert {labels[number] for number in kept.tolist()} == set(labels)


@settings(deadline=None, max_examples=30)
@given(label_lists, seeds, seeds)
def test_hold_out_is_a_pure_function(labels: list[int], seed: int, other: int) -> None:
    torch.manual_seed(other)
    first, second = (hold_out(torch.tensor(labels), 0.3, seed) for _ in range(2))
    assert all(torch.equal(*parts) for parts in zip(first, second, strict=True))


def test_another_seed_holds_out_other_images() -> None:
    labels = torch.zeros(100, dtype=torch.int64)
    assert not torch.equal(hold_out(labels, 0.3, seed=0)[1], hold_out(labels, 0.3, seed=1)[1])


def test_held_out_images_are_spread_over_the_data_set() -> None:
    _, held_out = hold_out(torch.zeros(1000, dtype=torch.int64), 0.1)
    assert len(held_out) == 100
    assert 400 < held_out.float().mean() < 600  # 500 within three and a half standard deviations
