"""MNIST: 28 x 28 grayscale handwritten digits (LeCun, Bottou, Bengio and Haffner 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor
from torchvision import datasets
from torchvision.datasets.mnist import read_image_file, read_label_file

from envs.errors import InputError
from envs.images.torchvision_sets import TorchvisionSource, reading


@dataclass(frozen=True)
class MNIST(TorchvisionSource):
    """About 55,000 training, 5,000 validation and 10,000 test images: (N, 1, 28, 28)."""

    validation_share: float = 1 / 12

    dataset: ClassVar[Any] = datasets.MNIST
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    # torchvision verifies the archives when it downloads them, but not the extracted files.
    md5: ClassVar[dict[str, str | None]] = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }

    def files(self, train: bool) -> dict[str, str | None]:
        """Returns the four extracted files with their MD5."""
        return {f"{self.dataset.__name__}/raw/{name}": md5 for name, md5 in self.md5.items()}

    def read(self, root: Path, train: bool) -> tuple[Tensor, Tensor]:
        """Returns images (N, 1, 28, 28) uint8 and labels (N,) int64."""
        stem = root / self.dataset.__name__ / "raw" / ("train" if train else "t10k")
        image_file, label_file = Path(f"{stem}-images-idx3-ubyte"), Path(f"{stem}-labels-idx1-ubyte")
        with reading(image_file):
            images = read_image_file(str(image_file))
        with reading(label_file):
            labels = read_label_file(str(label_file))
        if len(images) != len(labels):
            raise InputError(
                f"{image_file} has {len(images)} images, but {label_file.name} has {len(labels)} labels: delete both "
                "files to download them again."
            )
        return images[:, None], labels
