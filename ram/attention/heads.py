"""Attention: weighted means of values, with weights from the scores of their keys for a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive_integers, check_probability
from ram.attention.scores import ScaledDot, Score
from ram.attention.selection import Select, Soft
from ram.distributions import at_least_float32


@dataclass(frozen=True)
class AttentionOutput:
    """The output of an attention layer.

    Attributes:
        context: (B, Q, D), the weighted sum of the values; 0 for a query with no visible key.
        weights: (B, Q, N) before dropout, or (B, H, Q, N) with heads; None where the fused kernel computed the context.
        log_prob: (B, Q), the log-probability of a hard choice, summed over heads, with gradient; else None.
        patch_features: (B, Q, D'), h_g of the glimpses that the context was computed from; None without glimpses.
    """

    context: Tensor
    weights: Tensor | None = None
    log_prob: Tensor | None = None
    patch_features: Tensor | None = None


class Attention(nn.Module):
    """Attention with one head and no projections (Bahdanau et al. 2015; Vaswani et al. 2017, section 3.2).

    It is self-attention where queries, keys and values are the same sequence. A mask is True where a key is visible and
    broadcasts to (B, Q, N); weights are 0 where it is False. A query with no visible key has zero weights, a zero
    context and log-probability 0.

    Args:
        score: compares queries with keys.
        select: turns scores into weights.
        dropout: probability of dropping a weight in training, in [0, 1); the others are divided by 1 - ``dropout``.
    """

    def __init__(self, score: Score, select: Select, dropout: float = 0.0) -> None:
        super().__init__()
        check_probability("The dropout of attention", dropout)
        self.score, self.select, self.dropout = score, select, dropout
        self.query_size, self.key_size = score.query_size, score.key_size
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
        """Computes the context of every query.

        Args:
            query: (B, Q, Dq).
            keys: (B, N, Dk).
            values: (B, N, D).
            mask: bool, True where a key is visible; broadcasts to (B, Q, N). None shows all keys.
            step: (Q,) int64, the position of each query in its sequence; None for 0, 1, ...
            need_weights: return the weights even where a fused kernel could avoid computing them.

        Raises:
            InputError: if a shape does not fit.
        """
        fits = query.ndim == keys.ndim == 3 and query.shape[::2] == (len(keys), self.query_size)
        if not fits or keys.shape[2] != self.key_size or values.shape[:2] != keys.shape[:2]:
            raise InputError(
                f"Attention needs queries (B, Q, {self.query_size}), keys (B, N, {self.key_size}) and values "
                f"(B, N, D); got {tuple(query.shape)}, {tuple(keys.shape)} and {tuple(values.shape)}."
            )
        return self.attend(query, *self.project(keys, values), mask, step, need_weights)

    def project(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Prepares keys and values once for any number of calls of :meth:`attend`."""
        return self.score.prepare(keys), values

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, step: Tensor | None, need_weights: bool
    ) -> AttentionOutput:
        """Like :meth:`forward`, with keys and values from :meth:`project`."""
        output = self._attend(query, keys, values, mask, step, need_weights)
        if output.weights is not None:
            for record in self.records:
                record.append(output.weights.detach())
        return output

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, step: Tensor | None, need_weights: bool
    ) -> AttentionOutput:
        """Computes the output of :meth:`attend`, which records its weights."""
        if type(self.score) is ScaledDot and type(self.select) is Soft and not need_weights and not self.records:
            return AttentionOutput(self._fused_context(query, keys, values, mask))
        selected = self.select(at_least_float32(self.score.compare(query, keys)), mask, query, step)
        weights = F.dropout(selected.weights, self.dropout, self.training)
        return AttentionOutput(weights.to(values.dtype) @ values, selected.weights, selected.log_prob)

    def _fused_context(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Computes softmax attention with scaled dot products by PyTorch's fused kernel."""
        dropout = self.dropout if self.training else 0.0
        if mask is None:
            return F.scaled_dot_product_attention(query, keys, values, dropout_p=dropout)
        has_key = mask.any(-1, keepdim=True)
        # The kernel's output for a query without visible keys depends on the device.
        context = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask | ~has_key, dropout_p=dropout)
        return context.masked_fill(~has_key, 0)


class MultiHeadAttention(Attention):
    """Attention with H heads, each with its own projections (Vaswani et al. 2017, section 3.2.2).

    Args:
        query_size: width Dq of a query and of the context.
        key_size: width of the keys; None for ``query_size``.
        value_size: width of the values; None for ``key_size``.
        num_heads: H, a divisor of ``query_size``.
        score: builds the score, shared by all heads, from the widths of a head's query and key.
        select: builds the selection from the width of a head's query.
        dropout: probability of dropping a weight in training, in [0, 1).
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
        self.num_heads, self.query_size, self.key_size = num_heads, query_size, key_size
        self.query = nn.Linear(query_size, query_size, bias=False)
        self.key = nn.Linear(key_size, query_size, bias=False)
        self.value = nn.Linear(value_size, query_size, bias=False)
        self.out = nn.Linear(query_size, query_size, bias=False)

    def project(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Projects keys and values for all heads: (B, N, query_size) each."""
        return self.key(keys), self.value(values)

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, step: Tensor | None, need_weights: bool
    ) -> AttentionOutput:
        batch, heads = len(query), self.num_heads
        if mask is not None and mask.ndim == 3 and len(mask) > 1:
            mask = mask.repeat_interleave(heads, dim=0)
        query, keys, values = self._fold_heads(self.query(query)), self._fold_heads(keys), self._fold_heads(values)
        output = super()._attend(query, self.score.prepare(keys), values, mask, step, need_weights)
        context = output.context.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2)
        weights = None if output.weights is None else output.weights.unflatten(0, (batch, heads))
        log_prob = None if output.log_prob is None else output.log_prob.unflatten(0, (batch, heads)).sum(1)
        return AttentionOutput(self.out(context), weights, log_prob)

    def _fold_heads(self, vectors: Tensor) -> Tensor:
        """Moves the heads into the batch: (B, N, H * d) -> (B * H, N, d)."""
        return vectors.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)


class FixedAttention(nn.Module):
    """Attention whose queries are learned parameters, the same for every input.

    With the score Dot a query is a learned direction; with Additive it is the bias of a network with one hidden layer.
    The contexts of several queries are concatenated (Lin et al. 2017, section 2.1).

    Args:
        key_size: width Dk of the keys.
        score: builds the score from the widths of query and key.
        select: builds the selection from the width of a query.
        num_queries: number of learned queries.
        dropout: probability of dropping a weight in training, in [0, 1).
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
        check_positive_integers("FixedAttention", num_queries=num_queries)
        self.query = nn.Parameter(torch.randn(num_queries, key_size) / math.sqrt(key_size))
        self.attention = Attention(score(key_size, key_size), select(key_size), dropout)

    def forward(
        self, keys: Tensor, values: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> AttentionOutput:
        """Computes the concatenated contexts: (B, N, Dk), (B, N, D) -> ``context`` (B, num_queries * D)."""
        query = self.query.expand(len(keys), -1, -1)
        output = self.attention(query, keys, values, mask, need_weights=need_weights)
        log_prob = None if output.log_prob is None else output.log_prob.sum(1, keepdim=True)
        return AttentionOutput(output.context.flatten(1), output.weights, log_prob)


@contextmanager
def record_weights(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Records the weights of every attention layer in ``module``: one list of calls per layer, by the layer's name.

    For example, ``with record_weights(model) as weights: model(batch)``.
    """
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, Attention)}
    records: dict[str, list[Tensor]] = {name: [] for name in layers}
    for name, layer in layers.items():
        layer.records.append(records[name])
    try:
        yield records
    finally:
        for layer in layers.values():
            layer.records.pop()
