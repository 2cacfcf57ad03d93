"""Corpora of texts and captions: a corpus describes a data set, ``load`` returns one split as tokenized examples."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self

import regex
import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split
from ram.corpora.spacing import SPACED, detokenize, mark_spaces

Tokens = tuple[str, ...]

_TOKEN = regex.compile(  # \p{M}: combining accents and vowels; punctuation between digits belongs to the number
    r"[\w\p{M}]+(?:(?:['-]|(?<=\d)[.,:](?=\d))[\w\p{M}]+)*|[^\w\s\x1c-\x1f]"
)


class SplitData:
    """Base class of the examples of one split: a dataclass whose fields have one value per example, or are None."""

    def __post_init__(self) -> None:
        first, *others = fields(self)  # type: ignore[arg-type]
        for each in others:
            values = getattr(self, each.name)
            if values is not None and len(values) != len(self):
                raise InputError(f"There are {len(self)} {first.name}, but {len(values)} {each.name}.")

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def select(self, indices: Sequence[int]) -> Self:
        """Returns the examples at the given indices, in that order."""

        def rows(values: Any) -> Any:
            if isinstance(values, Tensor):
                return values[list(indices)]
            return None if values is None else tuple(values[index] for index in indices)

        return type(self)(*(rows(getattr(self, each.name)) for each in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Examples(SplitData):
    """N tokenized texts with their targets.

    Attributes:
        texts: N texts of at least one token.
        targets: N class labels; or N token tuples, such as one tag per word or a translation; None without targets.
        references: N tuples of one or more correct outputs as written text, which predictions are compared with; None
            to compare with the targets.
        alignments: N tuples with, for every target token, the index of the text token it is aligned to, or -1; None
            without alignments.
        lines: N descriptions of the file and line of a text, such as "a.txt, line 3"; None for generated texts.
    """

    texts: tuple[Tokens, ...]
    targets: tuple[str, ...] | tuple[Tokens, ...] | None = None
    references: tuple[tuple[str, ...], ...] | None = None
    alignments: tuple[tuple[int, ...], ...] | None = None
    lines: tuple[str, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError("There are no texts: a split of a corpus needs at least one.")
        if () in self.texts:
            raise InputError(f"Text {self.texts.index(())} of a corpus has no words: leave it out.")
        super().__post_init__()

    def describe_location(self, index: int, split: Split) -> str:
        """Returns where a text is from, as a phrase for error messages."""
        return f"in the {split} split" if self.lines is None else f"in {self.lines[index]},"


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


class Corpus(Protocol):
    """Describes a corpus; constructing one touches neither disk nor network."""

    def load(self, split: Split) -> SplitData:
        """Reads or generates one split. Raises :class:`InputError` for invalid user files."""

    def tokenize(self, text: str) -> Tokens:
        """Splits user input into tokens like those of the corpus; by default lowercased words and punctuation."""
        return tokenize(text)


class PairCorpus(Corpus, Protocol):
    """Describes a corpus whose outputs are texts: the targets are token tuples."""

    def detokenize(self, words: Sequence[str]) -> str:
        """Joins target tokens into written text; by default words and punctuation, see :mod:`ram.corpora.spacing`."""
        return detokenize(words)


class CaptionCorpus(PairCorpus, Protocol):
    """Describes images with captions; constructing one touches neither disk nor network.

    A corpus with ``annotations`` also has ``evaluate(captions, annotations)``, which returns shares of N captions in
    percent, among them "correct", and ``mentioned_objects(caption, annotation)``, which returns for every word the
    indices of the boxes it may refer to.
    """

    def load(self, split: Split) -> Captions:
        """Reads or generates one split. Raises :class:`InputError` for invalid user files."""


def assign_split(content: str, validation: int = 10) -> Split:
    """Assigns content to a split by its checksum; ``validation`` and 10 for test are percentages of all contents."""
    percentile = zlib.crc32(content.encode()) % 100
    return "validation" if percentile < validation else "test" if percentile < validation + 10 else "train"


def tokenize(text: str, lower: bool = True) -> Tokens:
    """Splits a text into words, with inner apostrophes and hyphens, and single punctuation marks; see normalize."""
    return tuple(_TOKEN.findall(normalize(text, lower)))


def tokenize_reversibly(text: str, lower: bool = True) -> Tokens:
    """Splits a text as :func:`tokenize` does, and marks unusual spaces so that :func:`detokenize` restores it.

    White space is restored as one space, and none at the beginning and the end.
    """
    return mark_spaces(tokenize(text, lower), normalize(text, lower))


def tokenize_letters(text: str, lower: bool = True) -> Tokens:
    """Splits a text into its letters, signs and spaces, which are the token "␣"; see normalize."""
    return tuple(SPACED if letter == " " else letter for letter in " ".join(normalize(text, lower).split()))


def detokenize_letters(letters: Sequence[str]) -> str:
    """Joins what :func:`tokenize_letters` has split."""
    return "".join(letters).replace(SPACED, " ")


def normalize(text: str, lower: bool = True) -> str:
    """Returns a text in Unicode normal form C with straight apostrophes, lowercased on request."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    return text.lower() if lower else text
