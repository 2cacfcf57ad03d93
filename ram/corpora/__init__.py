"""Where texts come from: a source describes a corpus, ``load`` turns a split of it into words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Protocol

from envs.errors import InputError
from envs.images import Split

Words = tuple[str, ...]

_TOKEN = re.compile(r"[\w\u0300-\u036f]+(?:['-][\w\u0300-\u036f]+)*|[^\w\s]")  # with the accents that stand alone


@dataclass(frozen=True)
class Examples:
    """N texts, and what is to be said of each.

    Attributes:
        texts: N of one word at least.
        targets: N labels, one a text; or N tuples, such as one tag a word; or None, where the text is all.
    """

    texts: tuple[Words, ...]
    targets: tuple[str, ...] | tuple[Words, ...] | None = None

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError("There are no texts: a split of a corpus needs at least one.")
        for number, text in enumerate(self.texts):
            if not text:
                raise InputError(f"Text {number} of a corpus has no words: leave it out.")
        if self.targets is not None and len(self.targets) != len(self.texts):
            raise InputError(f"There are {len(self.texts)} texts, but {len(self.targets)} targets.")

    def __len__(self) -> int:
        return len(self.texts)

    def choose(self, numbers: list[int]) -> Examples:
        """The examples of the given numbers, in their order."""
        targets = self.targets
        return Examples(
            tuple(self.texts[number] for number in numbers),
            None if targets is None else tuple(targets[number] for number in numbers),  # type: ignore[arg-type]
        )


class Corpus(Protocol):
    """Describes a corpus; building one touches neither disk nor network."""

    def load(self, split: Split) -> Examples:
        """Reads or makes one split. Raises :class:`InputError` where the user's files do not serve."""
        ...

    def tokenize(self, text: str) -> Words:
        """The words of a text that somebody types, as the corpus would have them."""
        ...


def tokenize(text: str, lower: bool = True) -> Words:
    """Words, with the apostrophes and hyphens within them, and single signs; each letter and its accents are one."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    return tuple(_TOKEN.findall(text.lower() if lower else text))
