"""Where texts come from: a source describes a corpus, ``load`` turns a split of it into words."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import regex

from envs.errors import InputError
from envs.splits import Split

Tokens = tuple[str, ...]

_TOKEN = regex.compile(  # \p{M}: accents and vowels; within numbers signs stand too
    r"[\w\p{M}]+(?:(?:['-]|(?<=\d)[.,:](?=\d))[\w\p{M}]+)*|[^\w\s\x1c-\x1f]"
)
_BEFORE = regex.compile(r" ([,.;:!?)\]}%…])")  # no space before these, nor after those
_AFTER = regex.compile(r"([(\[{]) ")
_QUOTED = regex.compile(r'(?<!\S)" ([^"]+) "(?![^\s,.;:!?)])')


@dataclass(frozen=True)
class Examples:
    """N texts, and what is to be said of each.

    Attributes:
        texts: N of one word at least.
        targets: N labels, one a text; or N tuples, such as one tag a word or the words of a translation; or None, where
            the text is all.
        references: N times one or more right targets as they are written, which what is said is compared with; None for
            the targets alone.
        alignments: N times, for every word of the target, the place of the word of the text that it stands for, or -1;
            None where that is not known.
        lines: N times the file and the line that a text is from, such as "a.txt, line 3"; None where it is from none.
    """

    texts: tuple[Tokens, ...]
    targets: tuple[str, ...] | tuple[Tokens, ...] | None = None
    references: tuple[tuple[str, ...], ...] | None = None
    alignments: tuple[tuple[int, ...], ...] | None = None
    lines: tuple[str, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError("There are no texts: a split of a corpus needs at least one.")
        for number, text in enumerate(self.texts):
            if not text:
                raise InputError(f"Text {number} of a corpus has no words: leave it out.")
        for name in ("targets", "references", "alignments", "lines"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.texts):
                raise InputError(f"There are {len(self.texts)} texts, but {len(values)} {name}.")

    def __len__(self) -> int:
        return len(self.texts)

    def choose(self, numbers: Sequence[int]) -> Examples:
        """The examples of the given numbers, in their order."""

        def some(values: Any) -> Any:
            return None if values is None else tuple(values[number] for number in numbers)

        return Examples(*(some(getattr(self, each.name)) for each in fields(self)))

    def where(self, number: int, split: Split) -> str:
        """Where a text stands, for what is said of it."""
        return f"in the {split} split" if self.lines is None else f"in {self.lines[number]},"


class Corpus(Protocol):
    """Describes a corpus; building one touches neither disk nor network."""

    def load(self, split: Split) -> Examples:
        """Reads or makes one split. Raises :class:`InputError` where the user's files do not serve."""
        ...

    def tokenize(self, text: str) -> Tokens:
        """The words of a text that somebody types, as the corpus would have them."""
        ...


class PairCorpus(Corpus, Protocol):
    """Describes texts and what becomes of each: targets are their words."""

    def detokenize(self, words: Sequence[str]) -> str:
        """The words of a target as they are written."""
        ...


def split_of(content: str, validation: int = 10, test: int = 10) -> Split:
    """Which split some content belongs to, whoever asks: so many percent of all contents to validation and to test."""
    place = zlib.crc32(content.encode()) % 100
    return "validation" if place < validation else "test" if place < validation + test else "train"


def tokenize(text: str, lower: bool = True) -> Tokens:
    """Words, with the apostrophes and hyphens within them, and single signs; each letter and its accents are one."""
    return tuple(_TOKEN.findall(normalised(text, lower)))


def normalised(text: str, lower: bool = True) -> str:
    """A text, whose letters and accents are one, with one kind of apostrophe, perhaps in small letters."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    return text.lower() if lower else text


def detokenize(words: Sequence[str]) -> str:
    """A sentence of words and signs, written as usual."""
    return _AFTER.sub(r"\1", _BEFORE.sub(r"\1", _QUOTED.sub(r'"\1"', " ".join(words))))
