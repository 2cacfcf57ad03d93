"""A user's own file: on every line a label, a tab and a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from envs.errors import InputError
from envs.splits import Split, check_shares, check_split, choose
from ram.corpora import Examples, Tokens, tokenize
from ram.corpora.files import read_lines


@dataclass(frozen=True)
class LabelledFile:
    """Texts with labels, in one file or one for every split. Lines without any sign are passed over.

    Attributes:
        path: of the file in UTF-8.
        validation_path: of one to choose by; None holds out a share of ``path``.
        test_path: of one to test on; None holds out a share of ``path``.
        validation_share: of every class, held out for validation; in (0, 1).
        test_share: of every class, held out to test on; in (0, 1).
        lower: do not tell capital letters from small ones.
    """

    path: str
    validation_path: str | None = None
    test_path: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    lower: bool = True

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share, "corpus")

    def load(self, split: Split) -> Examples:
        check_split(split)
        every = self._read(self.path)
        own: dict[Split, str | None] = {"validation": self.validation_path, "test": self.test_path}
        path = own.get(split)
        if path is not None:
            return self._read(path, known=frozenset(map(str, every.targets or ())))
        shares: dict[Split, float] = {"test": self.test_share, "validation": self.validation_share}
        shares = {name: share for name, share in shares.items() if own[name] is None}
        targets = list(map(str, every.targets or ()))
        number = {name: position for position, name in enumerate(sorted(set(targets)))}
        labels = torch.tensor([number[target] for target in targets])
        return every.choose(choose(split, labels, shares, "corpus").tolist())

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text, self.lower)

    def _read(self, path: str, known: frozenset[str] | None = None) -> Examples:
        texts, labels, lines = [], [], []
        for number, line in enumerate(read_lines(Path(path).expanduser()), start=1):
            if not line.strip():
                continue
            label, tab, text = line.partition("\t")
            label, words = label.strip(), self.tokenize(text)
            if not (tab and label and words):
                raise InputError(f"{path}, line {number}: there must be a label, a tab and a text, got {line[:40]!r}.")
            if known is not None and label not in known:
                raise InputError(f"{path}, line {number}: {label!r} is no label of {self.path}.")
            texts.append(words)
            labels.append(label)
            lines.append(f"{path}, line {number}")
        if not texts:
            raise InputError(f"{path} is empty: write a label, a tab and a text on every line.")
        return Examples(tuple(texts), tuple(labels), lines=tuple(lines))
