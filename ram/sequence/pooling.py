"""Pooling: one vector for a sequence of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from envs.validation import check_choice, check_probability
from ram.attention import Attention, AttentionOutput, FixedAttention, Score, Select, padding_mask
from ram.attention.scores import Dot, General
from ram.attention.selection import Soft


def sum_over_time(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Returns the sums (B, D) of vectors (B, N, D) up to the end of each row."""
    return vectors.masked_fill(~padding_mask(lengths, vectors.shape[1]).mT, 0).sum(1)


def mean_over_time(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Returns the means (B, D) of vectors (B, N, D) up to the end of each row."""
    return sum_over_time(vectors, lengths) / lengths[:, None]


class Pooling(nn.Module):
    """Base class of poolings: (B, N, size) -> (B, output_size).

    Args:
        size: width of the vectors.
        num_directions: 2 where the second half of the vectors is computed backwards from the end, else 1.
    """

    output_size: int

    def __init__(self, size: int, num_directions: int = 1) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        """Returns ``context`` (B, output_size), with the weights and log-probabilities of an attention.

        Args:
            vectors: (B, N, size).
            lengths: (B,) int64, in [1, N].
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")


class SumPooling(Pooling):
    """The sum of the vectors, or their mean.

    Args:
        size: width of the vectors.
        num_directions: ignored.
        mean: divide by the number of vectors.
    """

    def __init__(self, size: int, num_directions: int = 1, mean: bool = False) -> None:
        super().__init__(size)
        self.mean = mean

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        return AttentionOutput(mean_over_time(vectors, lengths) if self.mean else sum_over_time(vectors, lengths))


class LastState(Pooling):
    """The last vector of the forward direction, and the first of the backward direction."""

    def __init__(self, size: int, num_directions: int = 1) -> None:
        super().__init__(size)
        self.forward_size = size // num_directions

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        last = vectors[torch.arange(len(vectors), device=vectors.device), lengths - 1]
        return AttentionOutput(torch.cat([last[:, : self.forward_size], vectors[:, 0, self.forward_size :]], dim=1))


class AttentionPooling(Pooling):
    """Attention with learned queries, the same for every sequence.

    With the score Dot and the selection Unnormalized, the weight of a vector does not depend on the other vectors.

    Args:
        size: width of the vectors.
        num_directions: ignored.
        num_queries: number of queries; their contexts are concatenated.
        score: builds the score from the widths of queries and keys.
        select: builds the selection from the width of a query.
        attention_dropout: probability of dropping an attention weight in training.
    """

    def __init__(
        self,
        size: int,
        num_directions: int = 1,
        num_queries: int = 1,
        score: Callable[[int, int], Score] = Dot,
        select: Callable[[int], Select] = Soft,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(size)
        check_probability("pooling.attention_dropout", attention_dropout)
        self.attention = FixedAttention(size, score, select, num_queries, attention_dropout)
        self.output_size = num_queries * size

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        return self.attention(vectors, vectors, padding_mask(lengths, vectors.shape[1]), need_weights=True)


class ContextualAttentionPooling(Pooling):
    """Attention whose query is computed from the sequence: the mean of its vectors, or the last one.

    Args:
        size: width of the vectors.
        num_directions: see :class:`Pooling`; used by the query "last".
        query: "mean" or "last".
        score: builds the score from the widths of queries and keys.
        select: builds the selection from the width of a query.
        attention_dropout: probability of dropping an attention weight in training.
    """

    def __init__(
        self,
        size: int,
        num_directions: int = 1,
        query: Literal["mean", "last"] = "mean",
        score: Callable[[int, int], Score] = General,
        select: Callable[[int], Select] = Soft,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(size)
        check_choice("pooling.query", query, ("mean", "last"))
        check_probability("pooling.attention_dropout", attention_dropout)
        self.query = SumPooling(size, mean=True) if query == "mean" else LastState(size, num_directions)
        self.attention = Attention(score(size, size), select(size), attention_dropout)

    def forward(self, vectors: Tensor, lengths: Tensor) -> AttentionOutput:
        query = self.query(vectors, lengths).context[:, None]  # (B, 1, size)
        mask = padding_mask(lengths, vectors.shape[1])
        attended = self.attention(query, vectors, vectors, mask, need_weights=True)
        return AttentionOutput(attended.context[:, 0], attended.weights, attended.log_prob)
