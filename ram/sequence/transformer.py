"""Transformer encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from envs.validation import check_positive_integers, check_probability
from ram.attention import AttentionOutput, MultiHeadAttention, Score, Select, causal_mask, padding_mask
from ram.attention.positions import Positions, SinusoidalPositions
from ram.attention.scores import ScaledDot
from ram.attention.selection import Soft
from ram.sequence.decoders import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.encoders import Encoder, EncoderOutput, shortest


class TransformerLayer(nn.Module):
    """Self-attention and a network for every element, both beside a residual connection (Vaswani et al. 2017).

    Each normalises what it reads, rather than what comes out, and so trains without a warm-up (Xiong et al. 2020).

    Args:
        attention: of queries, keys and values of one width.
        hidden_size: width of the network's hidden layer.
        dropout: share of what either adds that is dropped in training.
    """

    def __init__(self, attention: MultiHeadAttention, hidden_size: int, dropout: float) -> None:
        super().__init__()
        size = attention.query.in_features
        self.attention = attention
        self.attention_norm, self.network_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.network = nn.Sequential(nn.Linear(size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, size))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, vectors: Tensor, mask: Tensor | None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """(B, Q, D), seen by itself and by ``past``, the keys and values before it.

        Returns:
            (B, Q, D), all keys and values so far, and the log-probabilities (B, Q) of hard choices.
        """
        vectors, known, log_prob = self.attend(vectors, mask, past)
        return self.transform(vectors), known, log_prob

    def attend(
        self, vectors: Tensor, mask: Tensor | None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """The first half: as :meth:`forward`, without the network."""
        normalised = self.attention_norm(vectors)
        keys, values = self.attention.project(normalised, normalised)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=1), torch.cat([past[1], values], dim=1)
        stand = torch.arange(keys.shape[1] - vectors.shape[1], keys.shape[1], device=vectors.device)
        read = self.attention.attend(normalised, keys, values, mask, stand)
        return vectors + self.dropout(read.context), (keys, values), read.log_prob

    def transform(self, vectors: Tensor) -> Tensor:
        """The second half: the network, for every element alone."""
        return vectors + self.dropout(self.network(self.network_norm(vectors)))


class TransformerEncoder(Encoder):
    """Layers of self-attention (Vaswani et al. 2017, section 3.1).

    Args:
        input_size: width of the vectors.
        size: width of every layer; vectors of another are mapped to it.
        num_layers: how deep.
        num_heads: H, which divides ``size``.
        hidden_size: width of the networks' hidden layers; None for four times ``size``.
        dropout: share of what layers add that is dropped in training.
        causal: let no element see what comes after it.
        positions: builds what tells places apart from the width.
        score: builds what compares queries with keys in a head.
        select: builds what turns the scores into weights.
    """

    layers: Any

    def __init__(
        self,
        input_size: int,
        size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        hidden_size: int | None = None,
        dropout: float = 0.1,
        causal: bool = False,
        positions: Callable[[int], Positions] = SinusoidalPositions,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Soft,
    ) -> None:
        super().__init__()
        hidden_size = 4 * size if hidden_size is None else hidden_size
        check_positive_integers(
            "encoder", size=size, num_layers=num_layers, num_heads=num_heads, hidden_size=hidden_size
        )
        check_probability("encoder.dropout", dropout)
        self.output_size, self.causal = size, causal
        self.into: nn.Module = nn.Identity() if input_size == size else nn.Linear(input_size, size, bias=False)
        self.positions = positions(size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(
                MultiHeadAttention(size, num_heads=num_heads, score=score, select=select), hidden_size, dropout
            )
            for _ in range(num_layers)
        )
        self.max_length = shortest(self.positions.max_length, self.layers[0].attention.score.max_length)
        self.norm = nn.LayerNorm(size)

    def forward(self, vectors: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        past = state or [None] * len(self.layers)
        before = 0 if past[0] is None else past[0][0].shape[1]
        number = vectors.shape[1]
        if self.causal:
            mask = causal_mask(before + number, number, device=vectors.device)
        else:
            mask = padding_mask(lengths, number)
        hidden = self.dropout(self.positions(self.into(vectors), before))
        states, log_prob = [], None
        for layer, known in zip(self.layers, past, strict=True):
            hidden, new, chosen = layer(hidden, mask, known)
            states.append(new)
            if chosen is not None:
                log_prob = chosen if log_prob is None else log_prob + chosen
        return EncoderOutput(self.norm(hidden), states, log_prob)


class TransformerDecoderLayer(TransformerLayer):
    """A layer that also reads the source, between its self-attention and its network.

    Args:
        attention: among the words said.
        source: over the source.
        hidden_size: width of the network's hidden layer.
        dropout: share of what each adds that is dropped in training.
    """

    def __init__(
        self, attention: MultiHeadAttention, source: MultiHeadAttention, hidden_size: int, dropout: float
    ) -> None:
        super().__init__(attention, hidden_size, dropout)
        self.source, self.source_norm = source, nn.LayerNorm(attention.query.in_features)

    def decode(
        self,
        vectors: Tensor,
        mask: Tensor,
        past: tuple[Tensor, Tensor] | None,
        prepared: tuple[Tensor, Tensor],
        memory: Memory,
        need_weights: bool,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], AttentionOutput]:
        """(B, T, D) and what it said before -> (B, T, D), what it has said so far, and what it has read."""
        vectors, known, _ = self.attend(vectors, mask, past)
        step = torch.arange(known[0].shape[1] - vectors.shape[1], known[0].shape[1], device=vectors.device)
        read = self.source.attend(self.source_norm(vectors), *prepared, memory.mask, step, need_weights)
        return self.transform(vectors + self.dropout(read.context)), known, read


class TransformerDecoder(Decoder):
    """Layers of self-attention, attention over the source and a network (Vaswani et al. 2017, section 3.1).

    Args:
        widths: of what it is given.
        size: width of every layer; words of another are mapped to it.
        num_layers: how deep.
        num_heads: H, which divides ``size``.
        hidden_size: width of the networks' hidden layers; None for four times ``size``.
        dropout: share of what layers add that is dropped in training.
        positions: builds what tells places apart from the width.
        score: builds what compares queries with keys in a head, of the words said and of the source alike.
        select: builds what turns the scores over the source into weights.
    """

    layers: Any

    def __init__(
        self,
        widths: DecoderSizes,
        size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        hidden_size: int | None = None,
        dropout: float = 0.1,
        positions: Callable[[int], Positions] = SinusoidalPositions,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Soft,
    ) -> None:
        super().__init__(widths)
        hidden_size = 4 * size if hidden_size is None else hidden_size
        check_positive_integers(
            "decoder", size=size, num_layers=num_layers, num_heads=num_heads, hidden_size=hidden_size
        )
        check_probability("decoder.dropout", dropout)
        self.output_size = size
        self.into: nn.Module = nn.Identity() if widths.inputs == size else nn.Linear(widths.inputs, size, bias=False)
        self.positions = positions(size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerDecoderLayer(
                MultiHeadAttention(size, num_heads=num_heads, score=score),
                MultiHeadAttention(size, widths.states, num_heads=num_heads, score=score, select=select),
                hidden_size,
                dropout,
            )
            for _ in range(num_layers)
        )
        self.max_length = shortest(self.positions.max_length, self.layers[0].attention.score.max_length)
        self.max_source_length = self.layers[0].source.score.max_length
        self.norm = nn.LayerNorm(size)

    def prepare(self, memory: Memory) -> Memory:
        return replace(memory, prepared=[layer.source.project(memory.states, memory.states) for layer in self.layers])

    def forward(self, vectors: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        past = [None] * len(self.layers) if state is None else state
        before, number = 0 if past[0] is None else past[0][0].shape[1], vectors.shape[1]
        mask = causal_mask(before + number, number, device=vectors.device)
        hidden = self.dropout(self.positions(self.into(vectors), before))
        states, log_probs, weights = [], [], None
        for layer, known, prepared in zip(self.layers, past, memory.prepared, strict=True):
            telling = need_weights and layer is self.layers[-1]
            hidden, new, read = layer.decode(hidden, mask, known, prepared, memory, telling)
            states.append(new)
            log_probs += [] if read.log_prob is None else [read.log_prob]
            weights = None if read.weights is None else read.weights.mean(1)
        return DecoderOutput(self.norm(hidden), states, weights, torch.stack(log_probs).sum(0) if log_probs else None)
