"""Fashion-MNIST: 28 x 28 grey pictures of clothes (Xiao, Rasul and Vollgraf 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchvision.datasets import FashionMNIST

from envs.images import mnist


@dataclass(frozen=True)
class Source(mnist.Source):
    """MNIST's format and sizes: 60,000 pictures to train and validate on, 10,000 to test."""

    dataset: ClassVar[Any] = FashionMNIST
    classes: ClassVar[tuple[str, ...]] = tuple(FashionMNIST.classes)
    md5: ClassVar[Mapping[str, str | None]] = dict.fromkeys(mnist.Source.md5)  # published for the archives alone
