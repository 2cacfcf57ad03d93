"""Base class of generated corpora of aligned pairs."""

from __future__ import annotations

import random
from abc import abstractmethod
from dataclasses import dataclass

from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, PairCorpus, Tokens


@dataclass(frozen=True)
class GeneratedPairs(PairCorpus):
    """Base class of corpora that generate pairs of texts with alignments.

    Attributes:
        size: number of training pairs; validation has 500, test 1,000.
        seed: of the generated data; independent of the training seed.
    """

    size: int = 10000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_integers("corpus", size=self.size)

    def load(self, split: Split) -> Examples:
        check_split(split)
        rng = random.Random(f"{self.seed} {split}")
        count = {"validation": 500, "test": 1000}.get(split, self.size)
        texts, targets, alignments = zip(*(self.draw(rng, split) for _ in range(count)), strict=True)
        return Examples(texts, targets, alignments=alignments)

    @abstractmethod
    def draw(self, rng: random.Random, split: Split) -> tuple[Tokens, Tokens, tuple[int, ...]]:
        """Draws a text of a split, its target, and for every target token the index of its text token, or -1."""
