"""Fashion-MNIST: 28 x 28 grayscale images of clothes (Xiao, Rasul and Vollgraf 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torchvision import datasets

from envs.images.mnist import MNIST


@dataclass(frozen=True)
class FashionMNIST(MNIST):
    """60,000 training and validation images and 10,000 test images, in MNIST's file format."""

    dataset: ClassVar[Any] = datasets.FashionMNIST
    classes: ClassVar[tuple[str, ...]] = tuple(datasets.FashionMNIST.classes)
    md5: ClassVar[dict[str, str | None]] = dict.fromkeys(MNIST.md5)  # checksums are published for the archives only
