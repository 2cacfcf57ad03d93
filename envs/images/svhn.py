"""SVHN: 32 x 32 color images of house numbers, labeled with the central digit (Netzer et al. 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchvision import datasets

from envs.images.torchvision_sets import TorchvisionSource, reading


@dataclass(frozen=True)
class SVHN(TorchvisionSource):
    """73,257 training and validation and 26,032 test images: (N, 3, 32, 32). The split ``extra`` is not used."""

    dataset: ClassVar[Any] = datasets.SVHN
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def files(self, train: bool) -> dict[str, str | None]:
        """Returns the file of the training or test set with its MD5."""
        _, name, md5 = datasets.SVHN.split_list["train" if train else "test"]
        return {name: md5}

    def open(self, root: Path, train: bool, download: bool = False) -> Any:
        """Opens torchvision's data set under a root."""
        return datasets.SVHN(root, split="train" if train else "test", download=download)

    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """Returns images (N, 3, 32, 32) uint8 and labels (N,) int64."""
        (name,) = self.files(train)
        with reading(root / name):
            data = self.open(root, train)
        return torch.from_numpy(data.data), torch.from_numpy(data.labels)
