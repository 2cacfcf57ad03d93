"""Reading: a mean of values, weighted by how well their keys answer a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_probability
from ram.attention.scores import ScaledDot, Score
from ram.attention.selection import Select, Soft


@dataclass(frozen=True)
class AttentionOutput:
    """What was read.

    Attributes:
        context: (B, Q, D), the weighted sum of the values; zeros where nothing is visible.
        weights: (B, Q, N), or with heads (B, H, Q, N); None where they were neither needed nor asked for.
        log_prob: (B, Q), of a hard choice, with gradient; that of all heads together.
    """

    context: Tensor
    weights: Tensor | None = None
    log_prob: Tensor | None = None


class Attention(nn.Module):
    """Reads values by how well their keys answer each query (Bahdanau et al. 2015; Vaswani et al. 2017, section 3.2).

    Self-attention is attention whose queries, keys and values are one and the same sequence.

    Args:
        score: compares queries with keys.
        select: turns the scores into weights.
        dropout: share of the weights that is dropped in training.
    """

    def __init__(self, score: Score, select: Select, dropout: float = 0.0) -> None:
        super().__init__()
        check_probability("The dropout of attention", dropout)
        self.score, self.select, self.dropout = score, select, dropout
        self.records: list[list[Tensor]] = []

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        step: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Reads.

        Args:
            query: (B, Q, Dq).
            keys: (B, N, Dk).
            values: (B, N, D).
            mask: bool, True where a key is visible; it broadcasts to (B, Q, N). None shows all.
            step: (Q,) int64, the place of each query in its own sequence; None for 0, 1, ...
            need_weights: tell the weights, where a faster way could do without.
        """
        return self.read(query, *self.project(keys, values), mask, step, need_weights)

    def project(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What all queries share of the work, on keys and on values: done once where queries come one by one."""
        return self.score.prepare(keys), values

    def read(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        step: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """As :meth:`forward`, of keys and values that :meth:`project` has seen."""
        return self._kept(self._weigh(query, keys, values, mask, step, need_weights))

    def _weigh(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, step: Tensor | None, need_weights: bool
    ) -> AttentionOutput:
        if type(self.score) is ScaledDot and type(self.select) is Soft and not need_weights and not self.records:
            return AttentionOutput(self._fused(query, keys, values, mask))
        selection = self.select(self.score.compare(query, keys), mask, query, step)
        weights = F.dropout(selection.weights, self.dropout, self.training)
        return AttentionOutput(weights @ values, selection.weights, selection.log_prob)

    def _fused(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """The plain softmax of scaled dot products, by torch's own kernel."""
        dropout = self.dropout if self.training else 0.0
        if mask is None:
            return F.scaled_dot_product_attention(query, keys, values, dropout_p=dropout)
        seen = mask.any(-1, keepdim=True)
        # What the kernel says of a row that sees nothing depends on the device.
        context = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask | ~seen, dropout_p=dropout)
        return context.masked_fill(~seen, 0)

    def _kept(self, read: AttentionOutput) -> AttentionOutput:
        if read.weights is not None:
            for record in self.records:
                record.append(read.weights.detach())
        return read


class MultiHeadAttention(Attention):
    """Several readings side by side, each through maps of its own (Vaswani et al. 2017, section 3.2.2).

    Args:
        query_size: width Dq of a query, and of what is read.
        key_size: width of the keys; None for ``query_size``.
        value_size: width of the values; None for ``key_size``.
        num_heads: H, which divides ``query_size``.
        score: builds what compares queries with keys from the width of a head, twice; shared by all heads.
        select: builds what turns the scores into weights from the width of a query.
        dropout: share of the weights that is dropped in training.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int | None = None,
        value_size: int | None = None,
        num_heads: int = 4,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Soft,
        dropout: float = 0.0,
    ) -> None:
        if num_heads < 1 or query_size % num_heads:
            raise InputError(f"num_heads must divide the width of a query, {query_size}; got {num_heads}.")
        head_size = query_size // num_heads
        super().__init__(score(head_size, head_size), select(head_size), dropout)
        key_size = query_size if key_size is None else key_size
        value_size = key_size if value_size is None else value_size
        self.num_heads = num_heads
        self.query = nn.Linear(query_size, query_size, bias=False)
        self.key = nn.Linear(key_size, query_size, bias=False)
        self.value = nn.Linear(value_size, query_size, bias=False)
        self.out = nn.Linear(query_size, query_size, bias=False)

    def project(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values as the heads see them, (B, N, query_size) each."""
        return self.key(keys), self.value(values)

    def read(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        step: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        batch, heads = len(query), self.num_heads
        folded = mask
        if mask is not None and mask.ndim == 3 and len(mask) > 1:
            folded = mask.repeat_interleave(heads, dim=0)
        query, keys, values = self._fold(self.query(query)), self._fold(keys), self._fold(values)
        read = self._weigh(query, self.score.prepare(keys), values, folded, step, need_weights)
        context = read.context.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2)
        weights = None if read.weights is None else read.weights.unflatten(0, (batch, heads))
        log_prob = None if read.log_prob is None else read.log_prob.unflatten(0, (batch, heads)).sum(1)
        return self._kept(AttentionOutput(self.out(context), weights, log_prob))

    def _fold(self, vectors: Tensor) -> Tensor:
        """(B, N, H * d) -> (B * H, N, d)."""
        return vectors.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)


class FixedAttention(nn.Module):
    """Attention whose queries are learned and the same for every input: what matters here in general.

    With the score Dot it is a learned direction, with Additive a network of one hidden layer. What several queries read
    is concatenated (Lin et al. 2017, section 2.1).

    Args:
        key_size: width Dk of the keys.
        score: builds what compares queries with keys from their widths.
        select: builds what turns the scores into weights from the width of a query.
        num_queries: how many read in parallel.
        dropout: share of the weights that is dropped in training.
    """

    def __init__(
        self,
        key_size: int,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Soft,
        num_queries: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_queries < 1:
            raise InputError(f"num_queries must be at least 1, got {num_queries}.")
        self.query = nn.Parameter(torch.randn(num_queries, key_size) / math.sqrt(key_size))
        self.attention = Attention(score(key_size, key_size), select(key_size), dropout)

    @property
    def num_queries(self) -> int:
        """How many read in parallel; ``context`` is as many times as wide as a value."""
        return len(self.query)

    def forward(
        self, keys: Tensor, values: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> AttentionOutput:
        """(B, N, Dk) and (B, N, D) -> ``context`` (B, num_queries * D)."""
        query = self.query.expand(len(keys), -1, -1)
        read = self.attention(query, keys, values, mask, need_weights=need_weights)
        log_prob = None if read.log_prob is None else read.log_prob.sum(1, keepdim=True)
        return AttentionOutput(read.context.flatten(1), read.weights, log_prob)


@contextmanager
def record_weights(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Keeps what every attention in ``module`` weighs, by the attention's name and call by call.

    For example, with ``record_weights(model) as weights: model(batch)``.
    """
    inside = {name: each for name, each in module.named_modules() if isinstance(each, Attention)}
    records: dict[str, list[Tensor]] = {name: [] for name in inside}
    for name, each in inside.items():
        each.records.append(records[name])
    try:
        yield records
    finally:
        for each in inside.values():
            each.records.pop()
