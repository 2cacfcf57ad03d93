"""Context modules: what a recurrent decoder reads in the source at a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from envs.errors import InputError
from ram.attention import Attention, AttentionOutput, MultiHeadAttention, Score, Select
from ram.attention.scores import General
from ram.attention.selection import Soft
from ram.sequence.decoders import DecoderSizes, Memory
from ram.sequence.encoders import Encoder, masked_log_prob
from ram.sequence.pooling import LastState


class ContextModule(nn.Module):
    """Reads the source at one step of a decoder.

    Args:
        query_size: width of the decoder's state.
        widths: of what is in the memory.

    Attributes:
        context_size: width of what is read.
        max_source_length: how many words the source may have; None for any number.
    """

    context_size: int
    max_source_length: int | None = None

    def __init__(self, query_size: int, widths: DecoderSizes) -> None:
        super().__init__()

    def prepare(self, memory: Memory) -> Any:
        """Works out once what all queries share."""
        return None

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        """Reads.

        Args:
            query: (B, Q, query_size).
            memory: with what :meth:`prepare` told as ``prepared``.
            step: (Q,) int64, the place of each query in its own sequence.
        """
        raise TypeError(f"{type(self).__name__} does not say how it reads.")


class CrossAttention(ContextModule):
    """Attention over the source (Bahdanau et al. 2015; Luong et al. 2015).

    Args:
        query_size: width of the decoder's state.
        widths: of what is in the memory.
        over: "states" of the encoder, or the "vectors" of the words as they came.
        num_heads: how many read side by side, each through maps of its own; 1 reads without any map.
        score: builds what compares the state with what is read.
        select: builds what turns the scores into weights.
        gated: multiply what is read by a number in (0, 1) that the state tells (Xu et al. 2015, section 4.2.1).
    """

    def __init__(
        self,
        query_size: int,
        widths: DecoderSizes,
        over: Literal["states", "vectors"] = "states",
        num_heads: int = 1,
        score: Callable[[int, int], Score] = General,
        select: Callable[[int], Select] = Soft,
        gated: bool = False,
    ) -> None:
        super().__init__(query_size, widths)
        if over not in ("states", "vectors"):
            raise InputError(f"decoder.context.over must be states or vectors, got {over!r}.")
        self.over = over
        key_size = widths.states if over == "states" else widths.vectors
        self.attention: Attention
        if num_heads == 1:
            self.attention = Attention(score(query_size, key_size), select(query_size))
            self.context_size = key_size
        else:
            self.attention = MultiHeadAttention(query_size, key_size, num_heads=num_heads, score=score, select=select)
            self.context_size = query_size
        self.max_source_length = self.attention.score.max_length
        self.gate = nn.Linear(query_size, 1) if gated else None

    def prepare(self, memory: Memory) -> Any:
        keys = memory.states if self.over == "states" else memory.vectors
        return self.attention.project(keys, keys)

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        keys, values = memory.prepared
        read = self.attention.attend(query, keys, values, memory.mask, step, need_weights=True)
        if self.gate is not None:
            read = replace(read, context=read.context * self.gate(query).sigmoid())
        assert read.weights is not None
        return replace(read, weights=read.weights.mean(1)) if read.weights.ndim == 4 else read


class ReencodedContext(ContextModule):
    """The source read anew at every step by an encoder that knows the decoder's state.

    It is as costly as the product of both lengths, and what attention has replaced.

    Args:
        query_size: width of the decoder's state.
        widths: of what is in the memory.
        encoder: builds what reads, from the width of a word and the state together.
    """

    def __init__(self, query_size: int, widths: DecoderSizes, encoder: Callable[[int], Encoder]) -> None:
        super().__init__(query_size, widths)
        self.encoder = encoder(widths.vectors + query_size)
        self.last = LastState(self.encoder.output_size, self.encoder.directions)
        self.context_size, self.max_source_length = self.encoder.output_size, self.encoder.max_length

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        batch, queries, width = query.shape
        number = memory.vectors.shape[1]
        known = query[:, :, None].expand(batch, queries, number, width)
        words = memory.vectors[:, None].expand(batch, queries, number, -1)
        lengths = memory.lengths.repeat_interleave(queries)
        encoded = self.encoder(torch.cat([words, known], dim=-1).flatten(0, 1), lengths)
        context = self.last(encoded.output, lengths).context.view(batch, queries, -1)
        if encoded.log_prob is None:
            return AttentionOutput(context)
        return AttentionOutput(context, log_prob=masked_log_prob(encoded.log_prob, lengths).sum(1).view(batch, queries))
