"""Two languages: the words or pieces that sources and targets are made of, and sources as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from ram.corpora import Examples, Tokens
from ram.corpora.batches import pad
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import Vocabulary, learned


@dataclass(frozen=True)
class SourceBatch:
    """B sources as numbers.

    Attributes:
        numbers: (B, N) int64.
        lengths: (B,) int64, how many of each row count.
        copies: (B, N) int64, the number of each word among the words of targets; None where none is copied.
        unknown: B times the words that have a number of their own for this row alone, after those of all others.
    """

    numbers: Tensor
    lengths: Tensor
    copies: Tensor | None
    unknown: tuple[Tokens, ...]


class VocabularyPair:
    """The words of sources and of targets.

    Args:
        source: of sources.
        target: of targets; the same object where both are shared.
    """

    def __init__(self, source: Vocabulary | Subwords, target: Vocabulary | Subwords) -> None:
        self.source, self.target = source, target

    @property
    def shared(self) -> bool:
        """Whether both are the same."""
        return self.source is self.target

    @property
    def of_words(self) -> bool:
        """Whether both are made of words rather than of pieces."""
        return not isinstance(self.source, Subwords) and not isinstance(self.target, Subwords)

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs."""
        source = None if self.shared else self.source.state()
        return {"source": source, "target": self.target.state()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> VocabularyPair:
        """The languages whose state that was."""

        def read(known: Any) -> Vocabulary | Subwords:
            return Subwords(known) if isinstance(known, bytes) else Vocabulary(known)

        source, target = state["source"], read(state["target"])
        return cls(target if source is None else read(source), target)

    @classmethod
    def of(
        cls, train: Examples, min_count: int = 1, subwords: int | None = None, shared: bool = False
    ) -> VocabularyPair:
        """The words of the training split that come up ``min_count`` times, or so many pieces of them.

        Raises:
            InputError: the corpus has no targets of words, or not enough words or pieces.
        """
        sides: list[tuple[Tokens, ...]] = [train.texts, targets_of(train)]
        if shared:
            sides = [sides[0] + sides[1]]
        if subwords is not None:
            known: list[Any] = [Subwords.of(side, subwords) for side in sides]
        else:
            known = [learned(side, min_count) for side in sides]
        return cls(known[0], known[-1])

    def sizes(self) -> dict[str, Any]:
        """What a network must know of them."""
        return {"source_size": len(self.source), "target_size": len(self.target), "shared": self.shared}

    def read(self, texts: Sequence[Tokens], device: torch.device, copying: bool) -> SourceBatch:
        """The numbers of B texts; ``copying`` gives every unknown word a number of its own."""
        numbers, lengths = self.source.numbers(texts, device)
        if not copying:
            return SourceBatch(numbers, lengths, None, ((),) * len(texts))
        unknown = tuple(self.target.unknown(text) for text in texts)
        copies = [self.target.encode(text, more) for text, more in zip(texts, unknown, strict=True)]
        return SourceBatch(numbers, lengths, pad(copies, device)[0], unknown)


def targets_of(examples: Examples) -> tuple[Tokens, ...]:
    """The words that are to be said. Raises :class:`InputError` where the corpus asks for something else."""
    if examples.targets is None or isinstance(examples.targets[0], str):
        raise InputError("task=translate needs a corpus of pairs of texts, such as corpus=reversal.")
    return examples.targets
