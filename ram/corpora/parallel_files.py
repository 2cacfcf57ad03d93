"""Sequence pairs of a user's files: sources in one file, targets on the same lines of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from envs.errors import InputError
from envs.splits import Split, check_shares, check_split, split_indices
from envs.validation import check_choice
from ram.corpora import (
    Examples,
    PairCorpus,
    Tokens,
    detokenize_letters,
    normalize,
    tokenize_letters,
    tokenize_reversibly,
)
from ram.corpora.files import check_encoding, read_lines
from ram.corpora.spacing import detokenize

_HELD_OUT: tuple[Split, ...] = ("test", "validation")


@dataclass(frozen=True)
class ParallelFiles(PairCorpus):
    """Pairs of lines of text files, gzipped if a name ends in .gz; skips pairs with a blank line.

    Attributes:
        source: file of the training sources.
        target: file of the training targets.
        validation_source: file of the validation sources; None, with validation_target, holds out a share of training.
        validation_target: file of the validation targets.
        test_source: file of the test sources; None, with test_target, holds out a share of training.
        test_target: file of the test targets.
        validation_share: share held out for validation, in (0, 1).
        test_share: share held out for test, in (0, 1).
        lower: lowercase the texts.
        unit: of a token: "words", with punctuation marks, or "letters", for languages written without spaces.
        encoding: of the files, such as "utf-8", "latin-1" or "shift_jis".
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
    unit: Literal["words", "letters"] = "words"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share, "corpus")
        check_choice("corpus.unit", self.unit, ("words", "letters"))
        check_encoding(self.encoding)
        for split in _HELD_OUT:
            if (getattr(self, f"{split}_source") is None) != (getattr(self, f"{split}_target") is None):
                raise InputError(f"corpus.{split}_source and corpus.{split}_target go together: give both or neither.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        if split != "train" and getattr(self, f"{split}_source") is not None:
            source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
            return read_pairs(Path(source), Path(target), self.tokenize, self.lower, self.encoding)
        shares = {each: getattr(self, f"{each}_share") for each in _HELD_OUT if getattr(self, f"{each}_source") is None}
        pairs = read_pairs(Path(self.source), Path(self.target), self.tokenize, self.lower, self.encoding)
        return pairs.select(split_indices(split, torch.zeros(len(pairs), dtype=torch.int64), shares, "corpus").tolist())

    def tokenize(self, text: str) -> Tokens:
        return (tokenize_letters if self.unit == "letters" else tokenize_reversibly)(text, self.lower)

    def detokenize(self, words: Sequence[str]) -> str:
        return (detokenize_letters if self.unit == "letters" else detokenize)(words)


def read_pairs(
    source: Path, target: Path, tokenize: Callable[[str], Tokens], lower: bool, encoding: str = "utf-8"
) -> Examples:
    """Reads the pairs of two files; the lines of the second are the references, lowercased on request.

    Raises:
        InputError: as :func:`read_parallel_lines`, or if no pair of lines has text.
    """
    pairs = []
    for number, (source_line, target_line) in enumerate(read_parallel_lines(source, target, encoding), start=1):
        source_tokens, target_tokens = tokenize(source_line), tokenize(target_line)
        if source_tokens and target_tokens:
            reference = normalize(target_line.strip(), lower)
            pairs.append((source_tokens, target_tokens, (reference,), f"{source}, line {number}"))
    if not pairs:
        raise InputError(f"{source} and {target} have no pair of lines with text.")
    texts, targets, references, lines = zip(*pairs, strict=True)
    return Examples(texts, targets, references, lines=lines)


def read_parallel_lines(source: Path, target: Path, encoding: str = "utf-8") -> list[tuple[str, str]]:
    """Reads the lines of two files in pairs.

    Raises:
        InputError: if the numbers of lines differ, or a line cannot be decoded.
    """
    texts, targets = read_lines(source.expanduser(), encoding), read_lines(target.expanduser(), encoding)
    if len(texts) != len(targets):
        raise InputError(
            f"{source} has {len(texts)} lines and {target} has {len(targets)}: they must have equally many lines."
        )
    return list(zip(texts, targets, strict=True))
