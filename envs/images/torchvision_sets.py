"""Base class of the torchvision data sets: download on first use, verification, held-out validation split."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchvision.datasets.utils import check_integrity

from envs.errors import InputError
from envs.images import Augmentation, ImageSet
from envs.splits import Split, check_split, split_indices


@dataclass(frozen=True)
class TorchvisionSource(ABC):
    """Base class of the sources of torchvision's data sets, stored under ``root`` as torchvision does.

    Missing files are downloaded. The validation split is a fixed part of the official training set; the test split is
    the official test set.

    Attributes:
        root: the folder of the data.
        validation_share: the share of every class of the official training set that is held out, in (0, 1).
        augmentation: the augmentation of the training split; see :class:`ImageSet`.
    """

    root: str = "data"
    validation_share: float = 0.1
    augmentation: Augmentation | None = None

    dataset: ClassVar[Any]  # torchvision's class
    classes: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if not self.root:
            raise InputError(f"images.root must name the folder of the data, got {self.root!r}.")
        if not 0 < self.validation_share < 1:
            raise InputError(f"images.validation_share must be between 0 and 1, got {self.validation_share}.")

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Loads one split as (N, C, H, W) uint8 on a device.

        Raises:
            InputError: files are missing and cannot be downloaded, or they are damaged.
        """
        check_split(split)
        root, train = Path(self.root).expanduser(), split != "test"
        files = self.files(train)
        if not all((root / name).is_file() for name in files):
            self._download(root, train)
        for name, md5 in files.items():
            with reading(root / name):
                if not check_integrity(root / name, md5):
                    raise ValueError("its MD5 differs from that of the published file")
        images, labels = self.read(root, train)
        if split != "test":
            chosen = split_indices(split, labels, {"validation": self.validation_share})
            images, labels = images[chosen], labels[chosen]
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.contiguous().to(device), labels.to(device), self.classes, augmentation)

    @abstractmethod
    def files(self, train: bool) -> dict[str, str | None]:
        """Returns the files that are downloaded together: paths under root, each with its MD5 or None."""

    @abstractmethod
    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """Reads the official training or test set from verified files: images (N, C, H, W) uint8, labels (N,) int64."""

    def open(self, root: Path, train: bool, download: bool = False) -> Any:
        """Opens torchvision's data set under a root, after downloading it if ``download`` is true."""
        return self.dataset(root, train=train, download=download)

    def _download(self, root: Path, train: bool) -> None:
        """Downloads into a temporary folder, so that an interruption or a second process leaves no partial files."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".download-", dir=root) as folder:
                self.open(Path(folder), train, download=True)
                for name in self.files(train):
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(folder, name), root / name)
        except Exception as error:  # torchvision raises exceptions of many types
            raise InputError(
                f"{self.dataset.__name__} is incomplete in images.root={self.root} and could not be downloaded there "
                f"({_one_line(error)}): check the network and the folder's permissions, or copy the files there."
            ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns any exception in the block into an :class:`InputError` that names the file."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{path} cannot be read ({_one_line(error)}): delete it to download it again.") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
