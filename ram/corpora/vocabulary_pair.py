"""Source and target vocabularies of a sequence-to-sequence task, and encoded sources."""

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
from ram.corpora.vocabulary import Vocabulary, build_vocabulary


@dataclass(frozen=True)
class SourceBatch:
    """B encoded sources.

    Attributes:
        token_ids: (B, N) int64, in the source vocabulary.
        lengths: (B,) int64, number of tokens without padding.
        copy_ids: (B, N) int64, the same tokens in the target vocabulary; None without a copy mechanism.
        unknown: B tuples of words out of the target vocabulary, whose copy ids follow its last id in their row only.
    """

    token_ids: Tensor
    lengths: Tensor
    copy_ids: Tensor | None
    unknown: tuple[Tokens, ...]


class VocabularyPair:
    """Source and target vocabulary.

    Args:
        source: vocabulary of sources.
        target: vocabulary of targets; the same object if both are shared.
    """

    def __init__(self, source: Vocabulary | Subwords, target: Vocabulary | Subwords) -> None:
        self.source, self.target = source, target

    @property
    def shared(self) -> bool:
        """Whether source and target share one vocabulary."""
        return self.source is self.target

    @property
    def word_level(self) -> bool:
        """Whether the tokens of both sides are words, not subwords."""
        return not isinstance(self.source, Subwords) and not isinstance(self.target, Subwords)

    def state(self) -> dict[str, Any]:
        """Returns the argument of :meth:`restore`."""
        source = None if self.shared else self.source.state()
        return {"source": source, "target": self.target.state()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> VocabularyPair:
        """Rebuilds the pair from its :meth:`state`."""

        def build(saved: Any) -> Vocabulary | Subwords:
            return Subwords(saved) if isinstance(saved, bytes) else Vocabulary(saved)

        source, target = state["source"], build(state["target"])
        return cls(target if source is None else build(source), target)

    @classmethod
    def from_examples(
        cls, train: Examples, min_count: int = 1, subwords: int | None = None, shared: bool = False
    ) -> VocabularyPair:
        """Builds both vocabularies from the training split.

        Args:
            train: the training split.
            min_count: minimum number of occurrences of a word.
            subwords: number of byte-pair subwords to learn per vocabulary; None for words.
            shared: build one vocabulary of sources and targets.

        Raises:
            InputError: if the targets are not token tuples, or the texts have too few words or subwords.
        """
        sources, targets = train.texts, target_tokens(train)
        vocabularies: list[Any] = [
            build_vocabulary(side, min_count) if subwords is None else Subwords.train(side, subwords)
            for side in ([sources + targets] if shared else [sources, targets])
        ]
        return cls(vocabularies[0], vocabularies[-1])

    def sizes(self) -> dict[str, Any]:
        """Returns the arguments of a model that depend on the vocabularies."""
        return {"source_size": len(self.source), "target_size": len(self.target), "shared": self.shared}

    def source_batch(self, texts: Sequence[Tokens], device: torch.device, copying: bool) -> SourceBatch:
        """Encodes B sources; ``copying`` adds copy ids, with an id of its own for every unknown word."""
        token_ids, lengths = self.source.encode_batch(texts, device)
        if not copying:
            return SourceBatch(token_ids, lengths, None, ((),) * len(texts))
        unknown = tuple(self.target.unknown(text) for text in texts)
        copy_ids = [self.target.encode(text, extra) for text, extra in zip(texts, unknown, strict=True)]
        return SourceBatch(token_ids, lengths, pad(copy_ids, device)[0], unknown)


def target_tokens(examples: Examples) -> tuple[Tokens, ...]:
    """Returns the targets as token tuples. Raises :class:`InputError` for a corpus without sequence pairs."""
    if examples.targets is None or isinstance(examples.targets[0], str):
        raise InputError("task=translate needs a corpus of pairs of texts, such as corpus=reversal.")
    return examples.targets
