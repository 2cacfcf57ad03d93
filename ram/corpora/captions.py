"""Images with captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split
from ram.corpora import PairCorpus, SplitData, Tokens


@dataclass(frozen=True, eq=False)
class Captions(SplitData):
    """N images, with one caption or more each.

    Attributes:
        images: (N, C, H, W) uint8.
        captions: N tuples of non-empty captions.
        boxes: (N, M, 4) float, the boxes of up to M objects as left, top, right and bottom pixel; None without boxes.
        annotations: N descriptions of an image that the corpus evaluates captions with; None if it does not.
    """

    images: Tensor
    captions: tuple[tuple[Tokens, ...], ...]
    boxes: Tensor | None = None
    annotations: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8 or not len(self.images):
            raise InputError(f"Images of captions must be (N, C, H, W) uint8, got shape {tuple(self.images.shape)}.")
        super().__post_init__()
        for index, captions in enumerate(self.captions):
            if not captions or not all(captions):
                raise InputError(f"Image {index} has no caption, or an empty one: leave it out.")


class CaptionCorpus(PairCorpus, Protocol):
    """Describes images with captions; constructing one touches neither disk nor network.

    A corpus with ``annotations`` also has ``evaluate(captions, annotations)``, which returns shares of N captions in
    percent, among them "correct", and ``mentioned_objects(caption, annotation)``, which returns for every word the
    indices of the boxes it may refer to.
    """

    def load(self, split: Split) -> Captions:
        """Reads or generates one split. Raises :class:`InputError` for invalid user files."""
        ...
