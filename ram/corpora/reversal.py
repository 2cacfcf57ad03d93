"""Random letter sequences to reverse."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, Tokens, assign_split

_HELD_OUT = {"validation": 500, "test": 1000}


@dataclass(frozen=True)
class Reversal:
    """Letter sequences of uniformly distributed length and their reversals; the splits share no sequence.

    Attributes:
        max_length: largest number of letters.
        test_max_length: the same for the test split, to measure length generalization; None for ``max_length``.
        size: number of training sequences; validation has 500, test 1,000.
        seed: of the generated data; independent of the training seed.
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
        rng = random.Random(f"{self.seed} {split}")
        longest = self.test_max_length if split == "test" and self.test_max_length else self.max_length
        texts: list[Tokens] = []
        for _ in range(_HELD_OUT.get(split, self.size)):
            length = rng.randint(1, longest)
            while assign_split(letters := "".join(rng.choices(ascii_lowercase, k=length))) != split:
                pass  # every split has sequences of every length
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
