"""What the data sets of torchvision share: download on first use, a check of the bytes, a held-out validation part."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchvision.datasets.utils import check_integrity

from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.splits import Split, check_split, hold_out


@dataclass(frozen=True)
class TorchvisionSource(ABC):
    """A data set as torchvision stores it under ``root``, and downloads it where files are missing.

    The validation split is a fixed part of the official training set, the test split the official test set.

    Attributes:
        root: the folder that holds the data.
        validation_share: of every class of the official training set, held out for validation; in (0, 1).
        augmentation: changes the batches of the training split; see :class:`ImageSet`.
    """

    root: str = "data"
    validation_share: float = 0.1
    augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None

    dataset: ClassVar[Any]  # torchvision's own class
    classes: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if not self.root:
            raise InputError(f"images.root must name the folder of the data, got {self.root!r}.")
        if not 0 < self.validation_share < 1:
            raise InputError(f"images.validation_share must lie between 0 and 1, got {self.validation_share}.")

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """One split as (N, C, H, W) uint8 on the device.

        Raises:
            InputError: the files are missing and cannot be downloaded, or they are damaged.
        """
        check_split(split)
        root, train = Path(self.root).expanduser(), split != "test"
        files = self.files(train)
        if not all((root / name).is_file() for name in files):
            self._download(root, train)
        for name, md5 in files.items():
            with reading(root / name):
                if not check_integrity(root / name, md5):
                    raise ValueError("its MD5 is not that of the published file")
        images, labels = self.read(root, train)
        if split != "test":
            kept, held_out = hold_out(labels, self.validation_share)
            chosen = kept if split == "train" else held_out
            images, labels = images[chosen], labels[chosen]
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.contiguous().to(device), labels.to(device), self.classes, augmentation)

    @abstractmethod
    def files(self, train: bool) -> Mapping[str, str | None]:
        """The files that are downloaded together: paths under root, each with its MD5 where one is known."""

    @abstractmethod
    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """The official training or test set, from files already checked: (N, C, H, W) uint8 and (N,) int64."""

    def open(self, root: Path, train: bool, download: bool = False) -> Any:
        """Torchvision's data set at a root, downloaded there if asked for."""
        return self.dataset(root, train=train, download=download)

    def _download(self, root: Path, train: bool) -> None:
        """Downloads into a folder of its own, so that an interruption or a second process leaves nothing half-made."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".download-", dir=root) as folder:
                self.open(Path(folder), train, download=True)
                for name in self.files(train):
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(folder, name), root / name)
        except Exception as error:  # of the network, the disk or the archive: torchvision lets any kind through
            raise InputError(
                f"{self.dataset.__name__} is not whole in images.root={self.root} and could not be downloaded there "
                f"({_one_line(error)}): check the network and that the folder can be written, or bring the files."
            ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Names the file where reading it fails; damaged bytes make the readers raise anything at all."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"{path} cannot be read ({_one_line(error)}): delete it to have it downloaded again."
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
