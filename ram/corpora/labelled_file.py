"""Labelled texts of a user's file: a label, a tab and a text on every line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from envs.errors import InputError
from envs.splits import Split, check_shares, check_split, split_indices
from ram.corpora import Corpus, Examples, Tokens, tokenize
from ram.corpora.files import check_encoding, read_lines


@dataclass(frozen=True)
class LabelledFile(Corpus):
    """Labelled texts in one file, or in one per split; gzipped if the name ends in .gz; blank lines are skipped.

    Attributes:
        path: file of the training split.
        validation_path: file of the validation split; None holds out a share of ``path``.
        test_path: file of the test split; None holds out a share of ``path``.
        validation_share: share of every class held out for validation, in (0, 1).
        test_share: share of every class held out for test, in (0, 1).
        lower: lowercase the texts.
        encoding: of the files, such as "utf-8", "latin-1" or "shift_jis".
    """

    path: str
    validation_path: str | None = None
    test_path: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    lower: bool = True
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share, "corpus")
        check_encoding(self.encoding)

    def load(self, split: Split) -> Examples:
        check_split(split)
        train = self._read(self.path)
        classes = sorted(set(map(str, train.targets or ())))
        paths: dict[Split, str | None] = {"test": self.test_path, "validation": self.validation_path}
        path = paths.get(split)
        if path is not None:
            return self._read(path, classes)
        shares = {name: getattr(self, f"{name}_share") for name, path in paths.items() if path is None}
        labels = torch.tensor([classes.index(str(target)) for target in train.targets or ()])
        return train.select(split_indices(split, labels, shares, "corpus").tolist())

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text, self.lower)

    def _read(self, path: str, classes: Sequence[str] | None = None) -> Examples:
        rows = []
        for number, line in enumerate(read_lines(Path(path).expanduser(), self.encoding), start=1):
            if not line.strip():
                continue
            label, tab, text = line.partition("\t")
            label, words = label.strip(), self.tokenize(text)
            if not (tab and label and words):
                raise InputError(f"{path}, line {number}: expected a label, a tab and a text, got {line[:40]!r}.")
            if classes is not None and label not in classes:
                raise InputError(f"{path}, line {number}: {label!r} is not a label of {self.path}.")
            rows.append((words, label, f"{path}, line {number}"))
        if not rows:
            raise InputError(f"{path} is empty: write a label, a tab and a text on every line.")
        texts, labels, lines = zip(*rows, strict=True)
        return Examples(texts, labels, lines=lines)
