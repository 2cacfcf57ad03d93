"""Image sources: a source describes a data set, and its ``load`` returns a split of it as tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.scene import Scene, SceneSet
from envs.splits import IGNORE_INDEX, Split, check_split

Augmentation = Callable[[Tensor, RowRandom], Tensor]
"""A random transform ``augmentation(images, random)`` of a batch of images."""

_loaded: WeakValueDictionary[Any, SceneSet] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One split of a data set as tensors on one device. Used as a source, it is every split.

    Attributes:
        images: (N, C, H, W), uint8 in [0, 255] or float32 in [0, 1].
        labels: (N,) int64, each in 0 .. len(classes) - 1; or (N, A) for A answers, padded with ``IGNORE_INDEX``.
        classes: the names of the classes.
        augmentation: called as ``augmentation(images, random)`` on every batch that is drawn, or None.
        names: the names of the images, such as those of their files; none by default.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    augmentation: Augmentation | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or len(self.images) == 0:
            raise InputError(f"Images must be (N, C, H, W) with N of at least 1, got shape {tuple(self.images.shape)}.")
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise InputError(f"Images must be uint8 or float32, got {str(self.images.dtype).removeprefix('torch.')}.")
        if self.labels.ndim not in (1, 2) or len(self.labels) != len(self.images):
            raise InputError(f"There are {len(self.images)} images, but labels of shape {tuple(self.labels.shape)}.")
        valid = self.labels if self.labels.ndim == 1 else self.labels[self.labels != IGNORE_INDEX]
        lowest, highest = int(valid.min()), int(valid.max())
        if lowest < 0 or highest >= len(self.classes):
            raise InputError(
                f"Labels must be in 0 .. {len(self.classes) - 1} for {len(self.classes)} classes, but they range from "
                f"{lowest} to {highest}."
            )

    def __len__(self) -> int:
        return len(self.images)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Returns the same images for every split, on a device."""
        check_split(split)
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """Returns the images of a batch, augmented if the set has an augmentation, with the annotation ``label``.

        Args:
            index: (B,) int64, indices of images.
            random: random numbers of B rows, for the augmentation.
        """
        scene = Scene(self.images, {"label": self.labels.index_select(0, index)}, index)
        return Scene(self.augmentation(scene.pixels(), random), scene.annotations) if self.augmentation else scene


class ImageSource(Protocol):
    """A data set. Constructing a source reads neither disk nor network; ``load`` does.

    A source is hashable, such as a frozen dataclass: environments with equal sources share a loaded split.
    """

    def load(self, split: Split, device: torch.device | str = "cpu") -> SceneSet:
        """Loads or generates one split. Raises :class:`InputError` if the user's files are missing or invalid."""


def resolve_source(images: str | ImageSource) -> ImageSource:
    """Returns a source unchanged; for a name such as ``"glyphs"`` builds the one class of ``envs.images.glyphs``."""
    if not isinstance(images, str):
        if isinstance(images, type) or not hasattr(images, "load"):
            raise InputError(f"images={images!r} is neither an image source nor the name of one.")
        return images
    try:
        module = importlib.import_module(f"envs.images.{images}")
        (defined,) = (
            member
            for member in vars(module).values()
            if isinstance(member, type) and member.__module__ == module.__name__ and hasattr(member, "load")
        )
    except (ImportError, ValueError) as error:
        raise InputError(f"images={images!r} names no image source: envs.images.{images} defines none.") from error
    try:
        return defined()
    except TypeError as error:
        raise InputError(
            f"images={images!r} needs options: pass an instance of envs.images.{images}.{defined.__name__} instead."
        ) from error


def load_split(source: ImageSource, split: Split, device: torch.device | str) -> SceneSet:
    """Loads a split, or returns the one in memory if an equal source has loaded it and it is still in use."""
    key = (source, split, str(device))
    if (scenes := _loaded.get(key)) is None:
        scenes = _loaded[key] = source.load(split, device)
    return scenes
