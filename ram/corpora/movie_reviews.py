"""MR: 10,662 positive and negative sentences of film reviews (Pang and Lee 2005), in ten folds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from envs.errors import InputError
from envs.splits import Split, check_split, hold_out
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.files import fetch_file, read_lines

_URL = "https://raw.githubusercontent.com/yoonkim/CNN_sentence/master/"
_FILES = {
    "negative": ("rt-polarity.neg", "4ace77d558c3714723843f1d65b60c01e3417b208180f0728808d76ad0eeeaca"),
    "positive": ("rt-polarity.pos", "2da124ec187a9d5a29c9f04e91c540e02baed5af8868f550a26bd6fd4dbf8bf0"),
}
_FOLDS = 10


@dataclass(frozen=True)
class MovieReviews(Corpus):
    """One fold of tenfold cross-validation: a tenth of each class is the test split.

    Attributes:
        root: folder of ``rt-polarity.neg`` and ``rt-polarity.pos``; downloaded if missing.
        fold: index of the test fold, in 0 .. 9.
        validation_share: share of the other nine folds held out for validation, in (0, 1).
    """

    root: str = "data/sentiment"
    fold: int = 0
    validation_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.fold < _FOLDS:
            raise InputError(f"corpus.fold must be in 0 .. {_FOLDS - 1}, got {self.fold}.")
        if not 0 < self.validation_share < 1:
            raise InputError(f"corpus.validation_share must be between 0 and 1, got {self.validation_share}.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        rows: list[tuple[Tokens, str]] = []
        folds = []
        for seed, (target, (name, sha256)) in enumerate(_FILES.items()):
            lines = read_lines(fetch_file(self.root, name, _URL + name, sha256), "cp1252")
            rows += [(tuple(line.split()), target) for line in lines]
            folds.append(torch.randperm(len(lines), generator=torch.Generator().manual_seed(seed)) % _FOLDS)
        texts, targets = zip(*rows, strict=True)
        fold, labels = torch.cat(folds), torch.tensor([target == "positive" for target in targets]).long()
        indices = (fold == self.fold).nonzero().flatten()
        if split != "test":
            rest = (fold != self.fold).nonzero().flatten()
            kept, held_out = hold_out(labels[rest], self.validation_share)
            indices = rest[kept if split == "train" else held_out]
        return Examples(texts, targets).select(indices.tolist())
