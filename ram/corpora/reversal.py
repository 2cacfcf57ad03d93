"""Letters to be said backwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, Tokens, split_of

_HELD_OUT = {"validation": 500, "test": 1000}


@dataclass(frozen=True)
class Reversal:
    """Random letters, every length as often; no sequence of a split comes up in another.

    Attributes:
        max_length: of a sequence, at least 1.
        test_max_length: of one of the test split, to see whether what was learnt holds beyond; None for ``max_length``.
        size: of the training split; validation has 500 sequences, test 1,000.
        seed: of all.
    """

    max_length: int = 10
    test_max_length: int | None = None
    size: int = 10000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_integers(
            "corpus", max_length=self.max_length, test_max_length=self.test_max_length, size=self.size
        )

    def load(self, split: Split) -> Examples:
        check_split(split)
        chance = random.Random(f"{self.seed} {split}")
        longest = self.test_max_length if split == "test" and self.test_max_length else self.max_length
        texts: list[Tokens] = []
        for _ in range(_HELD_OUT.get(split, self.size)):
            length = chance.randint(1, longest)
            while split_of(letters := "".join(chance.choices(ascii_lowercase, k=length))) != split:
                pass  # of every length there are some in each split
            texts.append(tuple(letters))
        return Examples(
            tuple(texts),
            tuple(text[::-1] for text in texts),
            alignments=tuple(tuple(reversed(range(len(text)))) for text in texts),
        )

    def tokenize(self, text: str) -> Tokens:
        return tuple("".join(text.lower().split()))

    def detokenize(self, words: Sequence[str]) -> str:
        return "".join(words)
