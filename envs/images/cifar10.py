"""CIFAR-10: 32 x 32 color images of animals and vehicles (Krizhevsky 2009)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torchvision import datasets

from envs.images.torchvision_sets import TorchvisionSource, reading


@dataclass(frozen=True)
class CIFAR10(TorchvisionSource):
    """45,000 training, 5,000 validation and 10,000 test images: (N, 3, 32, 32)."""

    dataset: ClassVar[Any] = datasets.CIFAR10
    classes: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    def files(self, train: bool) -> dict[str, str | None]:
        """Returns the files of the archive, training and test batches and class names, with their MD5."""
        meta = datasets.CIFAR10.meta["filename"], datasets.CIFAR10.meta["md5"]
        return {
            f"{datasets.CIFAR10.base_folder}/{name}": md5
            for name, md5 in [*datasets.CIFAR10.train_list, *datasets.CIFAR10.test_list, meta]
        }

    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """Returns images (N, 3, 32, 32) uint8 and labels (N,) int64."""
        with reading(root / datasets.CIFAR10.base_folder), warnings.catch_warnings():
            # numpy 2.4.0 to 2.4.4 warns about the dtype format of these old pickles.
            warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
            data = self.open(root, train)
        return torch.from_numpy(data.data).permute(0, 3, 1, 2), torch.tensor(data.targets)
