"""A vocabulary: the number of every word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from envs.errors import InputError
from ram.corpora.batches import pad

PADDING, UNKNOWN, START, END = range(4)
SPECIAL = ("<padding>", "<unknown>", "<start>", "<end>")


class Vocabulary:
    """Words and their numbers, from 0; the first four stand for padding, unknown words, start and end.

    Args:
        words: each once, the special ones not among them.

    Attributes:
        known: those words.
        words: all, the special ones too.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.known = tuple(words)
        self.words = (*SPECIAL, *words)
        self._number = {word: number for number, word in enumerate(self.words)}
        if len(self._number) < len(self.words):
            raise InputError("A vocabulary holds every word once.")

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]], min_count: int = 1) -> Vocabulary:
        """All words that come up at least ``min_count`` times, the commonest first."""
        counts = Counter(word for text in texts for word in text if word not in SPECIAL)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in ordered if counts[word] >= min_count])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: Iterable[str], unknown: Sequence[str] = ()) -> list[int]:
        """The number of every word; of words in ``unknown`` those that follow the last, and 1 of any other."""
        more = {word: len(self) + place for place, word in enumerate(unknown)}
        return [self._number.get(word, more.get(word, UNKNOWN)) for word in text]

    def unknown(self, text: Iterable[str]) -> tuple[str, ...]:
        """The words of a text that have no number, each once."""
        return tuple(dict.fromkeys(word for word in text if word not in self._number))

    def numbers(self, texts: Sequence[Sequence[str]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Those of B texts, (B, N) int64, filled up at the end, and their lengths (B,)."""
        return pad([self.encode(text) for text in texts], device)

    def decode(self, numbers: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """The word of every number; the numbers that follow the last are those of ``unknown``."""
        words = (*self.words, *unknown)
        return [words[number] for number in numbers]

    def names(self, numbers: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """What every number stands for; here, as :meth:`decode`."""
        return self.decode(numbers, unknown)

    def places(self, numbers: Sequence[int]) -> list[int]:
        """Which word of a text each of its numbers is part of."""
        return list(range(len(numbers)))

    def state(self) -> list[str]:
        """What the constructor needs to make it again."""
        return list(self.known)


def learned(texts: Iterable[Sequence[str]], min_count: int) -> Vocabulary:
    """The vocabulary of a training split. Raises :class:`InputError` where no word comes up as often."""
    vocabulary = Vocabulary.of(texts, min_count)
    if not vocabulary.known:
        raise InputError(f"No word comes up as often as task.min_count={min_count}: lower it.")
    return vocabulary
