"""Transformer encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from envs.validation import check_positive_integers, check_probability
from ram.attention import AttentionOutput, MultiHeadAttention, Score, Select, causal_mask, padding_mask
from ram.attention.positions import Positions, SinusoidalPositions
from ram.attention.scores import ScaledDot
from ram.attention.selection import Soft
from ram.sequence.interfaces import Decoder, DecoderOutput, DecoderSizes, Encoder, EncoderOutput, Memory, smallest_limit

KeysValues = tuple[Tensor, Tensor]


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection (Vaswani et al. 2017).

    The input of each is normalized, not its output, so that no warm-up of the learning rate is needed (Xiong et al.
    2020).

    Args:
        self_attention: of queries, keys and values of one width.
        hidden_size: width of the hidden layer of the network.
        dropout: dropout probability of each residual branch.
    """

    def __init__(self, self_attention: MultiHeadAttention, hidden_size: int, dropout: float) -> None:
        super().__init__()
        size = self_attention.query.in_features
        self.self_attention = self_attention
        self.self_attention_norm, self.network_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.network = nn.Sequential(nn.Linear(size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, size))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, inputs: Tensor, mask: Tensor | None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """Applies the layer to inputs (B, Q, D) that follow the keys and values ``past``.

        Returns:
            Outputs (B, Q, D), the keys and values up to the last input, and the log-probabilities (B, Q) of hard
            choices.
        """
        outputs, present, log_prob = self.attend_to_self(inputs, mask, past)
        return self.transform(outputs), present, log_prob

    def attend_to_self(
        self, inputs: Tensor, mask: Tensor | None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """Like :meth:`forward`, without the network."""
        normalized = self.self_attention_norm(inputs)
        keys, values = self.self_attention.project(normalized, normalized)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=1), torch.cat([past[1], values], dim=1)
        step = torch.arange(keys.shape[1] - inputs.shape[1], keys.shape[1], device=inputs.device)
        attended = self.self_attention.attend(normalized, keys, values, mask, step, False)
        return inputs + self.dropout(attended.context), (keys, values), attended.log_prob

    def transform(self, inputs: Tensor) -> Tensor:
        """Applies the network and its residual connection."""
        return inputs + self.dropout(self.network(self.network_norm(inputs)))


class TransformerStack(nn.Module):
    """Base class of a stack of layers, with a projection of the inputs, their positions and a last normalization."""

    layers: Any
    output_size: int

    def build_stack(
        self, input_size: int, positions: Callable[[int], Positions], dropout: float, layers: Iterable[TransformerLayer]
    ) -> None:
        """Creates the modules of width ``output_size``; ``layers`` is an iterator that creates them in turn."""
        size = self.output_size
        self.projection = nn.Identity() if input_size == size else nn.Linear(input_size, size, bias=False)
        self.positions = positions(size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(layers)
        self.max_length = smallest_limit(self.positions.max_length, self.layers[0].self_attention.score.max_length)
        self.norm = nn.LayerNorm(size)

    def embed(self, inputs: Tensor, state: Any) -> tuple[Tensor, list[KeysValues | None], int]:
        """Returns the inputs of the first layer (B, N, size), the state of every layer, and the length it covers."""
        past = state or [None] * len(self.layers)
        offset = 0 if past[0] is None else past[0][0].shape[1]
        return self.dropout(self.positions(self.projection(inputs), offset)), past, offset


class TransformerEncoder(TransformerStack, Encoder):
    """Layers of self-attention (Vaswani et al. 2017, section 3.1).

    Args:
        input_size: width of the inputs.
        size: width of the layers; inputs of another width are projected to it.
        num_layers: number of layers.
        num_heads: number of heads, a divisor of ``size``.
        hidden_size: width of the hidden layers of the networks; None for four times ``size``.
        dropout: dropout probability of the embeddings and of the residual branches.
        causal: mask later positions.
        positions: builds the positional encoding from the width.
        score: builds the score of a head from the widths of queries and keys.
        select: builds the selection from the width of a query.
        attention_dropout: probability of dropping an attention weight in training.
    """

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
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden_size = 4 * size if hidden_size is None else hidden_size
        check_positive_integers(
            "encoder", size=size, num_layers=num_layers, num_heads=num_heads, hidden_size=hidden_size
        )
        check_probability("encoder.dropout", dropout)
        check_probability("encoder.attention_dropout", attention_dropout)
        self.output_size, self.causal = size, causal
        layers = (
            TransformerLayer(
                MultiHeadAttention(size, num_heads=num_heads, score=score, select=select, dropout=attention_dropout),
                hidden_size,
                dropout,
            )
            for _ in range(num_layers)
        )
        self.build_stack(input_size, positions, dropout, layers)

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        hidden, past, offset = self.embed(inputs, state)
        length = inputs.shape[1]
        mask = (
            causal_mask(offset + length, length, device=inputs.device) if self.causal else padding_mask(lengths, length)
        )
        new_state, log_probs = [], []
        for layer, keys_values in zip(self.layers, past, strict=True):
            hidden, present, log_prob = layer(hidden, mask, keys_values)
            new_state.append(present)
            log_probs.append(log_prob)
        return EncoderOutput(self.norm(hidden), new_state, _sum_log_probs(log_probs))


class TransformerDecoderLayer(TransformerLayer):
    """A Transformer layer with cross-attention between self-attention and network.

    Args:
        self_attention: over the target.
        cross_attention: over the source.
        hidden_size: width of the hidden layer of the network.
        dropout: dropout probability of each residual branch.
    """

    def __init__(
        self, self_attention: MultiHeadAttention, cross_attention: MultiHeadAttention, hidden_size: int, dropout: float
    ) -> None:
        super().__init__(self_attention, hidden_size, dropout)
        self.cross_attention = cross_attention
        self.cross_attention_norm = nn.LayerNorm(self_attention.query.in_features)

    def decode(
        self,
        inputs: Tensor,
        mask: Tensor,
        past: KeysValues | None,
        source: KeysValues,
        memory: Memory,
        need_weights: bool,
    ) -> tuple[Tensor, KeysValues, AttentionOutput]:
        """Applies the layer to inputs (B, T, D) that follow the keys and values ``past``.

        Returns:
            Outputs (B, T, D), the keys and values up to the last input, and the output of the cross-attention over the
            projected keys and values ``source``.
        """
        hidden, present, _ = self.attend_to_self(inputs, mask, past)
        end = present[0].shape[1]
        step = torch.arange(end - hidden.shape[1], end, device=hidden.device)
        query = self.cross_attention_norm(hidden)
        attended = self.cross_attention.attend(query, *source, memory.mask, step, need_weights)
        return self.transform(hidden + self.dropout(attended.context)), present, attended


class TransformerDecoder(TransformerStack, Decoder):
    """Layers of self-attention, cross-attention and a network (Vaswani et al. 2017, section 3.1).

    Args:
        sizes: widths of the inputs.
        size: width of the layers; embeddings of another width are projected to it.
        num_layers: number of layers.
        num_heads: number of heads, a divisor of ``size``.
        hidden_size: width of the hidden layers of the networks; None for four times ``size``.
        dropout: dropout probability of the embeddings and of the residual branches.
        positions: builds the positional encoding from the width.
        score: builds the score of a head from the widths of queries and keys, for self- and cross-attention.
        select: builds the selection of the cross-attention from the width of a query.
        attention_dropout: probability of dropping an attention weight in training, in self- and cross-attention.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        hidden_size: int | None = None,
        dropout: float = 0.1,
        positions: Callable[[int], Positions] = SinusoidalPositions,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Soft,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(sizes)
        hidden_size = 4 * size if hidden_size is None else hidden_size
        check_positive_integers(
            "decoder", size=size, num_layers=num_layers, num_heads=num_heads, hidden_size=hidden_size
        )
        check_probability("decoder.dropout", dropout)
        check_probability("decoder.attention_dropout", attention_dropout)
        self.output_size = size
        options: Any = {"num_heads": num_heads, "score": score, "dropout": attention_dropout}
        layers = (
            TransformerDecoderLayer(
                MultiHeadAttention(size, **options),
                MultiHeadAttention(size, sizes.states, select=select, **options),
                hidden_size,
                dropout,
            )
            for _ in range(num_layers)
        )
        self.build_stack(sizes.inputs, positions, dropout, layers)
        self.max_source_length = self.layers[0].cross_attention.score.max_length

    def prepare(self, memory: Memory) -> Memory:
        states = memory.states
        return replace(memory, prepared=[layer.cross_attention.project(states, states) for layer in self.layers])

    def forward(
        self,
        inputs: Tensor,
        memory: Memory,
        state: Any = None,
        need_weights: bool = False,
        lengths: Tensor | None = None,
    ) -> DecoderOutput:
        hidden, past, offset = self.embed(inputs, state)
        mask = causal_mask(offset + inputs.shape[1], inputs.shape[1], device=inputs.device)
        new_state, log_probs, weights = [], [], None
        for layer, keys_values, source in zip(self.layers, past, memory.prepared, strict=True):
            needed = need_weights and layer is self.layers[-1]
            hidden, present, attended = layer.decode(hidden, mask, keys_values, source, memory, needed)
            new_state.append(present)
            log_probs.append(attended.log_prob)
            weights = None if attended.weights is None else attended.weights.mean(1)
        return DecoderOutput(self.norm(hidden), new_state, weights, _sum_log_probs(log_probs))


def _sum_log_probs(log_probs: Iterable[Tensor | None]) -> Tensor | None:
    """Adds log-probabilities; None where all are None."""
    given = [log_prob for log_prob in log_probs if log_prob is not None]
    return torch.stack(given).sum(0) if given else None
