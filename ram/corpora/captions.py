"""Images and what is said of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split
from ram.corpora import Tokens


@dataclass(frozen=True, eq=False)
class Captions:
    """N images, with one caption or more of each.

    Attributes:
        images: (N, C, H, W) uint8.
        captions: N times some captions, none of them empty.
        boxes: (N, M, 4) float, of the M objects that an image has at most: left, top, right and bottom pixel; None
            where that is not known.
        facts: N times what the corpus judges captions by; None where it does not.
    """

    images: Tensor
    captions: tuple[tuple[Tokens, ...], ...]
    boxes: Tensor | None = None
    annotations: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8 or not len(self.images):
            raise InputError(f"Images of captions must be (N, C, H, W) uint8, got shape {tuple(self.images.shape)}.")
        for field in fields(self)[1:]:
            values = getattr(self, field.name)
            if values is not None and len(values) != len(self):
                raise InputError(f"There are {len(self)} images, but {len(values)} {field.name}.")
        for number, some in enumerate(self.captions):
            if not some or not all(some):
                raise InputError(f"Image {number} has no caption, or an empty one: leave it out.")

    def __len__(self) -> int:
        return len(self.images)

    def choose(self, numbers: Sequence[int]) -> Captions:
        """The images of the given numbers, in their order."""

        def some(values: Any) -> Any:
            if values is None or isinstance(values, Tensor):
                return None if values is None else values[list(numbers)]
            return tuple(values[number] for number in numbers)

        return Captions(*(some(getattr(self, field.name)) for field in fields(self)))


class CaptionCorpus(Protocol):
    """Describes images with captions; building one touches neither disk nor network.

    One that knows the ``facts`` has ``judge(said, facts)`` too, which tells shares of N captions in percent, "right"
    among them; and ``named(caption, facts)``, which tells for every word the numbers of the boxes it may name.
    """

    def load(self, split: Split) -> Captions:
        """Reads or makes one split. Raises :class:`InputError` where the user's files do not serve."""
        ...

    def tokenize(self, text: str) -> Tokens:
        """The words of a caption that somebody types, as the corpus would have them."""
        ...

    def detokenize(self, words: Sequence[str]) -> str:
        """A caption as it is written."""
        ...
