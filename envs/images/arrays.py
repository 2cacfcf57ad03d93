"""Images given as arrays, in Python or in an ``.npz`` file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.splits import Split, check_shares, check_split, choose

Array = Tensor | np.ndarray
_SUFFIXES: dict[Split, str] = {"train": "", "validation": "_validation", "test": "_test"}
_NAMES = [f"{kind}{suffix}" for suffix in _SUFFIXES.values() for kind in ("images", "labels")]


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """Arrays of images and labels; a file holds them under the names they have here.

    Images are (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats in [0, 1]. The channel axis of the last two is
    told by its size: 1 or 3 before any other, then the smaller, then the second axis. Labels are (N,) integers.
    Without a validation or a test part, a share of ``images`` is held out, class by class and the same way at every
    call. Two sources are equal only if they are the same object.

    Attributes:
        images: of the training split, and of those held out from it.
        labels: of ``images``.
        images_validation: of the validation split.
        labels_validation: of ``images_validation``.
        images_test: of the test split.
        labels_test: of ``images_test``.
        classes: their names; 0, 1, 2 ... up to the highest label by default.
        path: an ``.npz`` file, as ``numpy.savez`` writes it, instead of the arrays.
        validation_share: of every class, held out for validation; in (0, 1).
        test_share: of every class, held out for the test; in (0, 1).
        augmentation: changes the batches of the training split; see :class:`ImageSet`.
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
    augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == all(getattr(self, name) is None for name in _NAMES):
            raise InputError("Give either images.path, an .npz file, or images and labels as arrays.")
        check_shares(self.validation_share, self.test_share)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """One split as (N, C, H, W) on the device, uint8 or float32 as it was given.

        Raises:
            InputError: the file cannot be read, or an array is missing or not as described above.
        """
        check_split(split)
        arrays = self._arrays()
        parts = {
            name: self._part(arrays, suffix)
            for name, suffix in _SUFFIXES.items()
            if name == "train" or {f"images{suffix}", f"labels{suffix}"} & set(arrays)
        }
        if len(shapes := {tuple(images.shape[1:]) for images, _ in parts.values()}) > 1:
            raise InputError(
                f"{self._named('images')} must be of the same (C, H, W) in all splits, "
                f"got {' and '.join(map(str, sorted(shapes)))}."
            )
        classes = self._classes(arrays, torch.cat([labels for _, labels in parts.values()]))

        images, labels = parts.get(split, parts["train"])
        if split not in parts or split == "train":
            shares: dict[Split, float] = {"test": self.test_share, "validation": self.validation_share}
            numbers = choose(split, labels, {name: share for name, share in shares.items() if name not in parts})
            images, labels = images[numbers], labels[numbers]
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.contiguous().to(device), labels.to(device), classes, augmentation)

    def _named(self, name: str) -> str:
        """How a sentence names an array."""
        return name if self.path is None else f"The array {name} of images.path={self.path}"

    def _arrays(self) -> Mapping[str, Any]:
        """The arrays that are given, by name."""
        given = {name: getattr(self, name) for name in [*_NAMES, "classes"] if getattr(self, name) is not None}
        if self.path is None:
            return given
        try:
            with Path(self.path).expanduser().open("rb") as stream, NpzFile(stream) as file:
                stored = dict(file)
        except Exception as error:  # damaged bytes make the reader raise anything at all
            raise InputError(
                f"images.path={self.path} cannot be read as an .npz file ({error}): write one with numpy.savez."
            ) from error
        if unknown := set(stored) - {*_NAMES, "classes"}:
            raise InputError(
                f"images.path={self.path} has the unknown arrays {', '.join(sorted(unknown))}: "
                f"there may be {', '.join(_NAMES)} and classes."
            )
        return stored | given

    def _part(self, arrays: Mapping[str, Any], suffix: str) -> tuple[Tensor, Tensor]:
        """Checked images (N, C, H, W) and labels (N,) int64 of one split."""
        for name in (f"images{suffix}", f"labels{suffix}"):
            if name not in arrays:
                raise InputError(f"{self._named(name)} is missing; there are {', '.join(sorted(arrays)) or 'none'}.")
        images = _images(arrays[f"images{suffix}"], self._named(f"images{suffix}"))
        labels = _tensor(arrays[f"labels{suffix}"], self._named(f"labels{suffix}"))
        whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
        if labels.shape != (len(images),) or not whole:
            raise InputError(
                f"{self._named(f'labels{suffix}')} must be ({len(images)},) integers, got {_kind(labels)}."
            )
        return images, labels.long().cpu()

    def _classes(self, arrays: Mapping[str, Any], labels: Tensor) -> tuple[str, ...]:
        """The names of the classes, once it is sure that every label of any split has one."""
        lowest, highest = int(labels.min()), int(labels.max())
        # Unnamed classes are as many as the labels tell, but more of them than images would be a slip.
        names = np.asarray(arrays.get("classes", range(min(highest + 1, len(labels))))).ravel()
        if lowest < 0 or highest >= len(names):
            raise InputError(
                f"{self._named('labels')} must number {len(names)} classes from 0, but in all splits together reach "
                f"from {lowest} to {highest}: number them anew, or name all classes."
            )
        return tuple(names.astype(str).tolist())


def _images(value: Any, name: str) -> Tensor:
    """Any array of images -> (N, C, H, W) uint8, or float32 in [0, 1]."""
    images = _tensor(value, name)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or images.numel() == 0:
        raise InputError(f"{name} must be (N, H, W), (N, H, W, C) or (N, C, H, W), not empty, got {_kind(images)}.")
    channels = min((1, 3), key=lambda axis: (images.shape[axis] not in (1, 3), images.shape[axis]))
    images = images.movedim(channels, 1)
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise InputError(f"{name} must be uint8, or floating point in [0, 1], got {_kind(images)}.")
    lowest, highest = float(images.min()), float(images.max())
    if not (lowest >= 0 and highest <= 1):  # so that NaN is refused too
        raise InputError(
            f"{name} must lie in [0, 1] without NaN where it is floating point, but reaches from {lowest:g} to "
            f"{highest:g}: divide by the highest possible value, or give uint8."
        )
    return images.float()


def _tensor(value: Any, name: str) -> Tensor:
    """Shares the memory of whatever torch can, and copies the rest."""
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array = np.asarray(value)
        return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers ({error}).") from error


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
