"""Images from arrays, passed in Python or stored in an ``.npz`` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from envs.errors import InputError
from envs.images import Augmentation, ImageSet
from envs.splits import Split, check_shares, check_split, split_indices
from envs.validation import parse_images, parse_integers, shape_and_dtype

Array = Tensor | np.ndarray
_SUFFIXES: dict[Split, str] = {"train": "", "validation": "_validation", "test": "_test"}
_NAMES = [f"{kind}{suffix}" for suffix in _SUFFIXES.values() for kind in ("images", "labels")]


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """Arrays of images and labels; a file stores them under the names of the attributes.

    Images are (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats in [0, 1]. Of the axes 1 and 3 the channel axis
    is the one of size 1 or 3, else the smaller one; in case of a tie it is axis 1. Labels are (N,) integers. A
    validation or test split that is not given is held out from ``images``, class by class and the same way at every
    call. Two sources are equal only if they are the same object.

    Attributes:
        images: images of the training split, and of the splits held out from it.
        labels: labels of ``images``.
        images_validation: images of the validation split.
        labels_validation: labels of ``images_validation``.
        images_test: images of the test split.
        labels_test: labels of ``images_test``.
        classes: class names; 0, 1, 2 ... up to the highest label by default.
        path: an ``.npz`` file as written by ``numpy.savez``, instead of the arrays.
        validation_share: the share of every class that is held out for validation, in (0, 1).
        test_share: the share of every class that is held out for the test, in (0, 1).
        augmentation: the augmentation of the training split; see :class:`ImageSet`.
    """

    images: Array | None = None
    labels: Array | None = None
    images_validation: Array | None = None
    labels_validation: Array | None = None
    images_test: Array | None = None
    labels_test: Array | None = None
    classes: Sequence[str] | None = None
    path: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == all(getattr(self, name) is None for name in _NAMES):
            raise InputError("Give either images.path, an .npz file, or images and labels as arrays.")
        check_shares(self.validation_share, self.test_share)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Loads one split as (N, C, H, W) on a device, uint8 or float32.

        Raises:
            InputError: the file cannot be read, or an array is missing or invalid.
        """
        check_split(split)
        arrays = self._given_arrays()
        parts = {
            name: self._split_arrays(arrays, suffix)
            for name, suffix in _SUFFIXES.items()
            if name == "train" or {f"images{suffix}", f"labels{suffix}"} & set(arrays)
        }
        if len(shapes := {tuple(images.shape[1:]) for images, _ in parts.values()}) > 1:
            raise InputError(
                f"{self._describe('images')} must be of the same (C, H, W) in all splits, "
                f"got {' and '.join(map(str, sorted(shapes)))}."
            )
        classes = self._class_names(arrays, torch.cat([labels for _, labels in parts.values()]))

        images, labels = parts.get(split, parts["train"])
        if split not in parts or split == "train":
            shares: dict[Split, float] = {"test": self.test_share, "validation": self.validation_share}
            indices = split_indices(split, labels, {name: share for name, share in shares.items() if name not in parts})
            images, labels = images[indices], labels[indices]
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.contiguous().to(device), labels.to(device), classes, augmentation)

    def _describe(self, name: str) -> str:
        """Returns the name of an array in error messages."""
        return name if self.path is None else f"The array {name} of images.path={self.path}"

    def _given_arrays(self) -> Mapping[str, Any]:
        """Returns the arrays that are given, by name."""
        given = {name: getattr(self, name) for name in [*_NAMES, "classes"] if getattr(self, name) is not None}
        if self.path is None:
            return given
        try:
            with Path(self.path).expanduser().open("rb") as stream, NpzFile(stream) as file:
                stored = dict(file)
        except Exception as error:  # damaged files raise exceptions of many types
            raise InputError(
                f"images.path={self.path} cannot be read as an .npz file ({error}): write one with numpy.savez."
            ) from error
        if unknown := set(stored) - {*_NAMES, "classes"}:
            raise InputError(
                f"images.path={self.path} has the unknown arrays {', '.join(sorted(unknown))}: "
                f"it may have {', '.join(_NAMES)} and classes."
            )
        return stored | given

    def _split_arrays(self, arrays: Mapping[str, Any], suffix: str) -> tuple[Tensor, Tensor]:
        """Returns the validated images (N, C, H, W) and labels (N,) int64 of one split."""
        for name in (f"images{suffix}", f"labels{suffix}"):
            if name not in arrays:
                raise InputError(
                    f"{self._describe(name)} is missing; there are {', '.join(sorted(arrays)) or 'no arrays'}."
                )
        images = _to_images(arrays[f"images{suffix}"], self._describe(f"images{suffix}"))
        name, labels = self._describe(f"labels{suffix}"), arrays[f"labels{suffix}"]
        return images, parse_integers(name, labels, len(images), None, torch.device("cpu"))

    def _class_names(self, arrays: Mapping[str, Any], labels: Tensor) -> tuple[str, ...]:
        """Returns the class names, after checking that every label of all splits has one."""
        lowest, highest = int(labels.min()), int(labels.max())
        # The highest label gives the number of unnamed classes; more classes than images are an error.
        names = np.asarray(arrays.get("classes", range(min(highest + 1, len(labels))))).ravel()
        if lowest < 0 or highest >= len(names):
            raise InputError(
                f"{self._describe('labels')} must be in 0 .. {len(names) - 1} for {len(names)} classes, but range from "
                f"{lowest} to {highest} over all splits: renumber them, or name all classes."
            )
        return tuple(names.astype(str).tolist())


def _to_images(value: Any, name: str) -> Tensor:
    """Converts an array of images to (N, C, H, W), uint8 or float32 in [0, 1]."""
    images = parse_images(name, value)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or images.numel() == 0:
        raise InputError(
            f"{name} must be (N, H, W), (N, H, W, C) or (N, C, H, W), not empty, got {shape_and_dtype(images)}."
        )
    channels = min((1, 3), key=lambda axis: (images.shape[axis] not in (1, 3), images.shape[axis]))
    return images.movedim(channels, 1)
