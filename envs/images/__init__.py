"""Where images come from: a source describes a data set, ``load`` turns a split of it into tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.scene import UNASKED, Scene, SceneSet

Split = Literal["train", "validation", "test"]

_loaded: WeakValueDictionary[Any, SceneSet] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One split of a data set, held as tensors on one device; as a source, it is each of its splits.

    Attributes:
        images: (N, C, H, W), uint8 in [0, 255] or float32 in [0, 1].
        labels: (N,) int64, each in 0 .. len(classes) - 1; or (N, A), as :class:`envs.scene.Scene` has them.
        classes: the name of every class.
        augmentation: called as ``augmentation(images, random)`` on each batch drawn, or None.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or len(self.images) == 0:
            raise InputError(f"Images must be (N, C, H, W) with N of at least 1, got shape {tuple(self.images.shape)}.")
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise InputError(f"Images must be uint8 or float32, got {str(self.images.dtype).removeprefix('torch.')}.")
        if self.labels.ndim not in (1, 2) or len(self.labels) != len(self.images):
            raise InputError(f"There are {len(self.images)} images, but labels of shape {tuple(self.labels.shape)}.")
        asked = self.labels if self.labels.ndim == 1 else self.labels[self.labels != UNASKED]
        lowest, highest = int(asked.min()), int(asked.max())
        if lowest < 0 or highest >= len(self.classes):
            raise InputError(
                f"Labels must lie in 0 .. {len(self.classes) - 1} for {len(self.classes)} classes, "
                f"but they reach from {lowest} to {highest}."
            )

    def __len__(self) -> int:
        return len(self.images)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """The same images on a device, whatever the split."""
        check_split(split)
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """The images of the given numbers, augmented if the set says so, with the fact ``label`` (B,).

        Args:
            index: (B,) int64.
            random: B rows, from which the augmentation draws.
        """
        images = self.images[index]
        if images.dtype == torch.uint8:
            images = images.float() / 255
        return Scene(self.augmentation(images, random) if self.augmentation else images, {"label": self.labels[index]})


class ImageSource(Protocol):
    """Describes a data set; building one touches neither disk nor network."""

    def load(self, split: Split, device: torch.device | str = "cpu") -> SceneSet:
        """Reads or makes one split. Raises :class:`InputError` where the user's files do not serve."""
        ...


def resolve_source(images: str | ImageSource) -> ImageSource:
    """The source itself, or for a name such as ``"glyphs"`` the ``Source`` of ``envs.images.glyphs``."""
    if not isinstance(images, str):
        if isinstance(images, type) or not hasattr(images, "load"):
            raise InputError(f"images={images!r} is no image source, nor the name of one.")
        return images
    try:
        module = importlib.import_module(f"envs.images.{images}")
        source: ImageSource = module.Source()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"images={images!r} names no image source: there is no Source in envs.images.{images}."
        ) from error
    except TypeError as error:
        raise InputError(f"images={images!r} needs options: give envs.images.{images}.Source(...) itself.") from error
    return source


def load_split(source: ImageSource, split: Split, device: torch.device | str) -> SceneSet:
    """Loads a split, or shares the tensors of whoever holds the same one."""
    key = (source, split, str(device))
    scenes = _loaded.get(key)
    if scenes is None:
        scenes = _loaded[key] = source.load(split, device)
    return scenes


def check_split(split: str) -> None:
    """Refuses anything but the three splits."""
    if split not in get_args(Split):
        raise InputError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")


def hold_out(labels: Tensor, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Parts a data set in two, class by class, the same way at every call.

    Args:
        labels: (N,) int64.
        share: of every class to hold out, in (0, 1); of a class that has two images, at least one and not all.
        seed: of the permutation.

    Returns:
        The kept and the held-out numbers, each ascending, int64.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = order[labels.cpu()[order] == label]
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out[members[:count]] = True
    return (~held_out).nonzero().flatten(), held_out.nonzero().flatten()


def choose(split: Split, labels: Tensor, shares: Mapping[Split, float], group: str = "images") -> Tensor:
    """Which images a split has when others are held out of the same data, class by class.

    Args:
        split: whose images are asked for; one that has no share is what the others leave.
        labels: (N,) int64, of all images.
        shares: the share of all images that each split takes.
        group: where a configuration sets the shares.

    Returns:
        Ascending numbers, int64.
    """
    left, left_share = torch.arange(len(labels)), 1.0
    chosen = None
    for name, share in shares.items():
        kept, held_out = hold_out(labels[left], share / left_share)
        if name == split:
            chosen = left[held_out]
        left, left_share = left[kept], left_share - share
    chosen = left if chosen is None else chosen
    if len(chosen) == 0:
        raise InputError(
            f"The {split} split would be empty: {len(labels)} examples are too few to part by "
            f"{' and '.join(f'{group}.{name}_share={share}' for name, share in shares.items())}."
        )
    return chosen


def check_shares(validation_share: float, test_share: float, group: str = "images") -> None:
    """Refuses shares outside (0, 1), or that leave nothing to train on."""
    for name, share in [("validation_share", validation_share), ("test_share", test_share)]:
        if not 0 < share < 1:
            raise InputError(f"{group}.{name} must lie between 0 and 1, got {share}.")
    if validation_share + test_share >= 1:
        raise InputError(
            f"{group}.validation_share ({validation_share}) and {group}.test_share ({test_share}) must leave something "
            "to train on: their sum must be below 1."
        )
