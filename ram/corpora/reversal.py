"""Random letter sequences to reverse."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from envs.splits import Split
from envs.validation import check_positive_integers
from ram.corpora import Tokens, assign_split
from ram.corpora.generated import GeneratedPairs


@dataclass(frozen=True)
class Reversal(GeneratedPairs):
    """Letter sequences of uniformly distributed length and their reversals; the splits share no sequence.

    Attributes:
        max_length: largest number of letters.
        test_max_length: the same for the test split, to measure length generalization; None for ``max_length``.
    """

    max_length: int = 10
    test_max_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive_integers("corpus", max_length=self.max_length, test_max_length=self.test_max_length)

    def draw(self, rng: random.Random, split: Split) -> tuple[Tokens, Tokens, tuple[int, ...]]:
        length = rng.randint(1, self.test_max_length if split == "test" and self.test_max_length else self.max_length)
        while assign_split(letters := "".join(rng.choices(ascii_lowercase, k=length))) != split:
            pass  # every split has sequences of every length
        return tuple(letters), tuple(reversed(letters)), tuple(reversed(range(length)))

    def tokenize(self, text: str) -> Tokens:
        return tuple("".join(text.lower().split()))

    def detokenize(self, words: Sequence[str]) -> str:
        return "".join(words)
