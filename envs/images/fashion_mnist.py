"""Fashion-MNIST: 28 x 28 grey pictures of clothes (Xiao, Rasul and Vollgraf 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchvision import datasets

from envs.images.mnist import MNIST


@dataclass(frozen=True)
class FashionMNIST(MNIST):
    """MNIST's format and sizes: 60,000 pictures to train and validate on, 10,000 to test."""

    dataset: ClassVar[Any] = datasets.FashionMNIST
    classes: ClassVar[tuple[str, ...]] = tuple(datasets.FashionMNIST.classes)
    md5: ClassVar[Mapping[str, str | None]] = dict.fromkeys(MNIST.md5)  # published for the archives alone
