"""Two files of a user's own whose lines go together: texts in the one, what becomes of them in the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from envs.errors import InputError
from envs.splits import Split, check_shares, check_split, choose
from ram.corpora import Examples, Tokens, detokenize, normalised, tokenize
from ram.corpora.files import read_lines


@dataclass(frozen=True)
class ParallelFiles:
    """Pairs of lines, in UTF-8. A pair of which either line holds no sign is passed over.

    Attributes:
        source: the file of the texts; gzipped if its name ends in .gz, like all.
        target: the file of what becomes of them.
        validation_source: of a pair of files to choose by; None, with the next, holds out a share of the first pair.
        validation_target: its other file.
        test_source: of a pair of files to test on; None, with the next, holds out a share of the first pair.
        test_target: its other file.
        validation_share: held out for validation, in (0, 1).
        test_share: held out to test on, in (0, 1).
        lower: do not tell capital letters from small ones.
    """

    source: str
    target: str
    validation_source: str | None = None
    validation_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    lower: bool = True

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share, "corpus")
        for split in ("validation", "test"):
            if (getattr(self, f"{split}_source") is None) != (getattr(self, f"{split}_target") is None):
                raise InputError(f"corpus.{split}_source and corpus.{split}_target go together: give both or neither.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        if split == "validation" and self.validation_source and self.validation_target:
            return read_pairs(Path(self.validation_source), Path(self.validation_target), self.lower)
        if split == "test" and self.test_source and self.test_target:
            return read_pairs(Path(self.test_source), Path(self.test_target), self.lower)
        shares: dict[Split, float] = {}
        if self.test_source is None:
            shares["test"] = self.test_share
        if self.validation_source is None:
            shares["validation"] = self.validation_share
        every = read_pairs(Path(self.source), Path(self.target), self.lower)
        return every.choose(choose(split, torch.zeros(len(every), dtype=torch.int64), shares, "corpus").tolist())

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text, self.lower)

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)


def read_pairs(source: Path, target: Path, lower: bool) -> Examples:
    """The pairs of two files, what is written in the second as the reference.

    Raises:
        InputError: as :func:`read_both`, or where there is no pair of lines with words.
    """
    pairs = []
    for number, (text, said) in enumerate(read_both(source, target), start=1):
        words, told = tokenize(text, lower), tokenize(said, lower)
        if words and told:
            pairs.append((words, told, (normalised(said.strip(), lower),), f"{source}, line {number}"))
    if not pairs:
        raise InputError(f"{source} and {target} hold no pair of lines: every line needs a word or a sign.")
    texts, targets, references, lines = zip(*pairs, strict=True)
    return Examples(texts, targets, references, lines=lines)


def read_both(source: Path, target: Path) -> list[tuple[str, str]]:
    """The lines of two files side by side.

    Raises:
        InputError: naming the files whose numbers of lines differ, or the line that cannot be decoded.
    """
    texts, targets = read_lines(source.expanduser()), read_lines(target.expanduser())
    if len(texts) != len(targets):
        raise InputError(
            f"{source} has {len(texts)} lines and {target} {len(targets)}: line by line they must go together."
        )
    return list(zip(texts, targets, strict=True))
