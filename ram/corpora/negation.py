"""Positive and negative sentences, half of them negated: neither the adjective nor the negation decides alone."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from envs.errors import InputError
from envs.splits import Split, check_split
from ram.corpora import Corpus, Examples, Tokens

_GOOD = ("good", "great", "fine", "lovely", "brilliant", "charming", "funny", "wonderful", "clever", "moving")
_BAD = ("bad", "awful", "dull", "boring", "poor", "dreadful", "silly", "terrible", "weak", "stale")
_NEGATIONS = ("not", "never", "hardly")
_SUBJECTS = ("the film", "the plot", "the music", "her part", "the acting", "this story", "the ending", "every scene")
_VERBS = ("is", "was", "seems", "looked")
_DEGREES = ("", "really", "very", "that", "all that")
_ENDINGS = ("", "to me", "at all", "this time", "i think", "as a whole")


@dataclass(frozen=True)
class Negation(Corpus):
    """Positive and negative adjectives, with and without negation; each combination is a quarter of the sentences.

    The splits share no sentence, and no pair of a negation and an adjective in validation or test occurs in training.

    Attributes:
        size: number of training sentences, 16 to 16,000; the other splits have a quarter of it.
        seed: of the generated data; independent of the training seed.
    """

    size: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 16000:
            raise InputError(f"corpus.size must be in 16 .. 16000, got {self.size}.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        rng = random.Random(f"{self.seed} {split}")
        size = self.size if split == "train" else self.size // 4
        texts: list[Tokens] = []
        targets: list[str] = []
        while len(texts) < size:
            good, negated = bool(len(texts) % 2), bool(len(texts) // 2 % 2)
            sentence = _sentence(rng, rng.choice(_GOOD if good else _BAD), negated, split)
            if _split_of(sentence) == split:
                texts.append(tuple(sentence.split()))
                targets.append("positive" if good != negated else "negative")
        return Examples(tuple(texts), tuple(targets))


def _sentence(rng: random.Random, word: str, negated: bool, split: Split) -> str:
    parts = [rng.choice(_SUBJECTS), rng.choice(_VERBS)]
    if negated:
        kept_from_training = _NEGATIONS[(_GOOD if word in _GOOD else _BAD).index(word) % len(_NEGATIONS)]
        others = [each for each in _NEGATIONS if each != kept_from_training]
        parts.append(rng.choice(others) if split == "train" else kept_from_training)
    return " ".join(" ".join([*parts, rng.choice(_DEGREES), word, rng.choice(_ENDINGS)]).split())


def _split_of(sentence: str) -> Split:
    parts: tuple[Split, ...] = ("train", "train", "validation", "test")
    return parts[zlib.crc32(sentence.encode()) % len(parts)]
