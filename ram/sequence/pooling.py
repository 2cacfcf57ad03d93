"""Readers: one vector for a whole sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from envs.errors import InputError
from ram.attention import Attention, AttentionOutput, FixedAttention, Score, Select, padding_mask
from ram.attention.scores import Dot, General
from ram.attention.selection import Soft


def total(vectors: Tensor, lengths: Tensor) -> Tensor:
    """The sum of the vectors (B, N, D) that count: (B, D)."""
    return vectors.masked_fill(~padding_mask(lengths, vectors.shape[1]).mT, 0).sum(1)


def mean(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Their mean: (B, D)."""
    return total(vectors, lengths) / lengths[:, None]


class Pooling(nn.Module):
    """Reads what an encoder has made of a sequence: (B, N, size) -> (B, output_size).

    Args:
        size: width of the vectors.
        directions: 2 where the second half of the width was read from the end, else 1.
    """

    output_size: int

    def __init__(self, size: int, directions: int = 1) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        """``context`` (B, output_size), and what else an attention tells of its reading.

        Args:
            vectors: (B, N, size).
            lengths: (B,) int64, from 1 to N, how many of each row count.
        """
        raise TypeError(f"{type(self).__name__} does not say how it reads.")


class SumPooling(Pooling):
    """The sum of all vectors, or their mean.

    Args:
        size: width of the vectors.
        directions: of no use here.
        mean: divide by how many they are.
    """

    def __init__(self, size: int, directions: int = 1, mean: bool = False) -> None:
        super().__init__(size)
        self.mean = mean

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        return AttentionOutput(mean(vectors, lengths) if self.mean else total(vectors, lengths))


class LastState(Pooling):
    """The last vector; of the half that was read from the end, the first."""

    def __init__(self, size: int, directions: int = 1) -> None:
        super().__init__(size)
        self.forwards = size // directions

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        last = vectors[torch.arange(len(vectors), device=vectors.device), lengths - 1]
        return AttentionOutput(torch.cat([last[:, : self.forwards], vectors[:, 0, self.forwards :]], dim=1))


class AttentionPooling(Pooling):
    """Attention with learned queries, the same for every sequence.

    With the score Dot and the selection Unnormalised every vector has a weight of its own, whatever stands beside it.

    Args:
        size: width of the vectors.
        directions: of no use here.
        num_queries: how many read in parallel; what they read is concatenated.
        score: builds what compares queries with vectors.
        select: builds what turns the scores into weights.
    """

    def __init__(
        self,
        size: int,
        directions: int = 1,
        num_queries: int = 1,
        score: Callable[[int, int], Score] = Dot,
        select: Callable[[int], Select] = Soft,
    ) -> None:
        super().__init__(size)
        self.attention = FixedAttention(size, score, select, num_queries)
        self.output_size = num_queries * size

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        return self.attention(vectors, vectors, padding_mask(lengths, vectors.shape[1]), need_weights=True)


class ContextualAttentionPooling(Pooling):
    """Attention whose query depends on the sequence: on the mean of its vectors, or on the last one.

    Args:
        size: width of the vectors.
        directions: of no use here.
        query: "mean" or "last".
        score: builds what compares the query with the vectors.
        select: builds what turns the scores into weights.
    """

    def __init__(
        self,
        size: int,
        directions: int = 1,
        query: Literal["mean", "last"] = "mean",
        score: Callable[[int, int], Score] = General,
        select: Callable[[int], Select] = Soft,
    ) -> None:
        super().__init__(size)
        if query not in ("mean", "last"):
            raise InputError(f"pooling.query must be mean or last, got {query!r}.")
        self.query = SumPooling(size, mean=True) if query == "mean" else LastState(size, directions)
        self.attention = Attention(score(size, size), select(size))

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        query = self.query(vectors, lengths).context[:, None]
        mask = padding_mask(lengths, vectors.shape[1])
        read = self.attention(query, vectors, vectors, mask, need_weights=True)
        return AttentionOutput(read.context[:, 0], read.weights, read.log_prob)
