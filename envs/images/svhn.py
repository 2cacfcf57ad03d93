"""SVHN: 32 x 32 colour pictures of house numbers, the middle digit to be read (Netzer et al. 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchvision import datasets

from envs.images.torchvision_sets import TorchvisionSource, reading


@dataclass(frozen=True)
class SVHN(TorchvisionSource):
    """73,257 digits to train and validate on, 26,032 to test: (N, 3, 32, 32). The 531,131 easy extra ones stay out."""

    dataset: ClassVar[Any] = datasets.SVHN
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def files(self, train: bool) -> Mapping[str, str | None]:
        """One file a part."""
        _, name, md5 = datasets.SVHN.split_list["train" if train else "test"]
        return {name: md5}

    def open(self, root: Path, train: bool, download: bool = False) -> Any:
        """Torchvision's data set at a root."""
        return datasets.SVHN(root, split="train" if train else "test", download=download)

    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """(N, 3, 32, 32) uint8 and (N,) int64."""
        (name,) = self.files(train)
        with reading(root / name):
            data = self.open(root, train)
        return torch.from_numpy(data.data), torch.from_numpy(data.labels)
