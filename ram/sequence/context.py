"""Context modules: they compute the context vector of a recurrent decoder from the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from envs.validation import check_choice, check_probability
from ram.attention import Attention, AttentionOutput, MultiHeadAttention, Score, Select
from ram.attention.scores import General
from ram.attention.selection import Soft
from ram.sequence.interfaces import DecoderSizes, Encoder, Memory, masked_log_prob
from ram.sequence.pooling import LastState


class ContextModule(nn.Module):
    """Base class of context modules.

    Args:
        query_size: width of the decoder state.
        sizes: widths of the memory.

    Attributes:
        context_size: width of the context.
        max_source_length: largest length of the source; None for any.
    """

    context_size: int
    max_source_length: int | None = None

    def __init__(self, query_size: int, sizes: DecoderSizes) -> None:
        super().__init__()

    def prepare(self, memory: Memory) -> Any:
        """Returns the computations that all queries share."""
        return None

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        """Computes the contexts (B, Q, context_size).

        Args:
            query: (B, Q, query_size).
            memory: with the result of :meth:`prepare` as ``prepared``.
            step: (Q,) int64, the position of each query in the target.
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")


class CrossAttention(ContextModule):
    """Attention over the source (Bahdanau et al. 2015; Luong et al. 2015).

    Args:
        query_size: width of the decoder state.
        sizes: widths of the memory.
        over: the encoder "states", or the embeddings of the source tokens, "vectors".
        num_heads: number of heads; one head has no projections.
        score: builds the score from the widths of queries and keys.
        select: builds the selection from the width of a query.
        gated: multiply the context by a gate in (0, 1) computed from the state (Xu et al. 2015, section 4.2.1).
        attention_dropout: probability of dropping an attention weight in training.
    """

    def __init__(
        self,
        query_size: int,
        sizes: DecoderSizes,
        over: Literal["states", "vectors"] = "states",
        num_heads: int = 1,
        score: Callable[[int, int], Score] = General,
        select: Callable[[int], Select] = Soft,
        gated: bool = False,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(query_size, sizes)
        check_choice("decoder.context.over", over, ("states", "vectors"))
        check_probability("decoder.context.attention_dropout", attention_dropout)
        self.over = over
        key_size = sizes.states if over == "states" else sizes.vectors
        self.attention: Attention
        if num_heads == 1:
            self.attention = Attention(score(query_size, key_size), select(query_size), attention_dropout)
            self.context_size = key_size
        else:
            self.attention = MultiHeadAttention(
                query_size, key_size, num_heads=num_heads, score=score, select=select, dropout=attention_dropout
            )
            self.context_size = query_size
        self.max_source_length = self.attention.score.max_length
        self.gate = nn.Linear(query_size, 1) if gated else None

    def prepare(self, memory: Memory) -> Any:
        keys = memory.states if self.over == "states" else memory.vectors
        return self.attention.project(keys, keys)

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        keys, values = memory.prepared
        attended = self.attention.attend(query, keys, values, memory.mask, step, need_weights=True)
        if self.gate is not None:
            attended = replace(attended, context=attended.context * self.gate(query).sigmoid())
        assert attended.weights is not None
        return replace(attended, weights=attended.weights.mean(1)) if attended.weights.ndim == 4 else attended


class ReencodedContext(ContextModule):
    """Encodes the source again for every query, with the query appended to every embedding.

    The cost is proportional to the product of the source and target lengths.

    Args:
        query_size: width of the decoder state.
        sizes: widths of the memory.
        encoder: builds the encoder from the width of an embedding and a query together.
    """

    def __init__(self, query_size: int, sizes: DecoderSizes, encoder: Callable[[int], Encoder]) -> None:
        super().__init__(query_size, sizes)
        self.encoder = encoder(sizes.vectors + query_size)
        self.last = LastState(self.encoder.output_size, self.encoder.num_directions)
        self.context_size, self.max_source_length = self.encoder.output_size, self.encoder.max_length

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        batch, queries, width = query.shape
        length = memory.vectors.shape[1]
        repeated = query[:, :, None].expand(batch, queries, length, width)
        vectors = memory.vectors[:, None].expand(batch, queries, length, -1)
        lengths = memory.lengths.repeat_interleave(queries)
        encoded = self.encoder(torch.cat([vectors, repeated], dim=-1).flatten(0, 1), lengths)  # (B * Q, N, D)
        context = self.last(encoded.output, lengths).context.view(batch, queries, -1)
        if encoded.log_prob is None:
            return AttentionOutput(context)
        return AttentionOutput(context, log_prob=masked_log_prob(encoded.log_prob, lengths).sum(1).view(batch, queries))
