"""Encoders: the elements of a sequence, each in the light of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from envs.errors import InputError
from envs.validation import check_positive_integers, check_probability
from ram.attention import Attention, MultiHeadAttention, Score, Select, causal_mask, padding_mask
from ram.attention.positions import Positions, SinusoidalPositions
from ram.attention.scores import General, ScaledDot
from ram.attention.selection import Soft

Cell = Literal["rnn", "gru", "lstm"]


@dataclass(frozen=True)
class EncoderOutput:
    """A sequence read.

    Attributes:
        output: (B, N, output_size); anything after a row's end.
        state: what is remembered at the end of each row, with which an encoder that looks back alone goes on; its
            tensors hold a row a sequence.
        log_prob: (B, N), of hard choices made on the way, with gradient; None where there are none.
    """

    output: Tensor
    state: Any = None
    log_prob: Tensor | None = None


def masked_log_prob(log_prob: Tensor, lengths: Tensor) -> Tensor:
    """Of the choices (B, N) within each row, 0 after its end."""
    return torch.where(padding_mask(lengths, log_prob.shape[1])[:, 0], log_prob, 0)


class Encoder(nn.Module):
    """Reads vectors (B, N, input_size).

    Attributes:
        output_size: width of what it makes of each.
        directions: 2 where the second half of the width was read from the end, else 1.
        causal: whether an output depends on nothing after it, so that a sequence may be read in pieces.
        max_length: how many vectors there may be; None for any number.
    """

    output_size: int
    directions = 1
    causal = True
    max_length: int | None = None

    def forward(self, vectors: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        """Reads on.

        Args:
            vectors: (B, N, input_size).
            lengths: (B,) int64, from 1 to N, how many of each row count.
            state: of the same encoder after what came before, all rows of which had one length; None at the start.
        """
        raise TypeError(f"{type(self).__name__} does not say how it reads.")


class IdentityEncoder(Encoder):
    """Every vector as it is: no context.

    Args:
        input_size: width of the vectors.
    """

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    def forward(self, vectors: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        return EncoderOutput(vectors)


class RecurrentEncoder(Encoder):
    """A recurrent network, perhaps deep, perhaps in both directions.

    Args:
        input_size: width of the vectors.
        cell: "rnn" (Elman 1990, with tanh), "gru" (Cho et al. 2014) or "lstm" (Hochreiter and Schmidhuber 1997).
        size: of the state, in either direction.
        num_layers: how deep.
        bidirectional: read from the end too (Schuster and Paliwal 1997).
        dropout: share of what is dropped between layers in training.
    """

    def __init__(
        self,
        input_size: int,
        cell: Cell = "lstm",
        size: int = 128,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = build_recurrent("encoder", cell, input_size, size, num_layers, bidirectional, dropout)
        self.directions, self.causal = 1 + bidirectional, not bidirectional
        self.output_size = size * self.directions

    def forward(self, vectors: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, state = self.layers(packed, None if state is None else batch_first_state(state))
        whole, _ = pad_packed_sequence(output, batch_first=True, total_length=vectors.shape[1])
        return EncoderOutput(whole, batch_first_state(state))


class AttentiveRecurrentEncoder(Encoder):
    """A recurrent layer that reads again, before every step, what it has before it.

    h_t = cell([x_t; context_t], h_{t-1}), where the context is read with the query h_{t-1} from the vectors below, or
    from the layer's own past h_1 ... h_{t-1} (Cheng et al. 2016, section 3.1).

    Args:
        input_size: width of the vectors.
        over: "below" or "past".
        cell: "rnn", "gru" or "lstm".
        size: of the state.
        causal: of the vectors below, see only x_1 ... x_t; all of them otherwise.
        score: builds what compares the state with what is read.
        select: builds what turns the scores into weights.
    """

    def __init__(
        self,
        input_size: int,
        over: Literal["below", "past"] = "past",
        cell: Cell = "lstm",
        size: int = 128,
        causal: bool = True,
        score: Callable[[int, int], Score] = General,
        select: Callable[[int], Select] = Soft,
    ) -> None:
        super().__init__()
        cells: dict[str, Callable[[int, int], nn.Module]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
        check_recurrent("encoder", cell, size)
        if over not in ("below", "past"):
            raise InputError(f"encoder.over must be below or past, got {over!r}.")
        self.over, self.output_size, self.causal = over, size, causal or over == "past"
        self.memory_size = input_size if over == "below" else size
        self.attention = Attention(score(size, self.memory_size), select(size))
        self.max_length = self.attention.score.max_length
        self.cell: nn.Module = cells[cell](input_size + self.memory_size, size)
        self._states = 2 if cell == "lstm" else 1

    def forward(self, vectors: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        batch, number, _ = vectors.shape
        if state is None:
            nothing = vectors.new_zeros(batch, self.output_size)
            state = (nothing,) * self._states, vectors.new_zeros(batch, 0, self.memory_size)
        held, memory = state
        before, visible = memory.shape[1], None
        if not self.causal:
            memory, visible = vectors, padding_mask(lengths, number)
        outputs: list[Tensor] = []
        log_probs: list[Tensor] = []
        for place in range(number):
            present = vectors[:, place]
            if self.over == "below" and self.causal:
                memory = torch.cat([memory, present[:, None]], dim=1)
            stands = torch.tensor([before + place], device=vectors.device)
            read = self.attention(held[0][:, None], memory, memory, visible, stands)
            into = torch.cat([present, read.context[:, 0]], dim=1)
            new = self.cell(into, held) if self._states == 2 else (self.cell(into, held[0]),)
            outputs.append(new[0])
            log_probs += [] if read.log_prob is None else [read.log_prob[:, 0]]
            if self.over == "past":
                memory = torch.cat([memory, new[0][:, None]], dim=1)
            going_on = (place < lengths)[:, None]
            held = tuple(torch.where(going_on, after, before) for after, before in zip(new, held, strict=True))
        return EncoderOutput(torch.stack(outputs, 1), (held, memory), torch.stack(log_probs, 1) if log_probs else None)


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
        read = self.attention.read(normalised, keys, values, mask, stand)
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


def shortest(*limits: int | None) -> int | None:
    """The smallest of some limits, of which None is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def build_recurrent(
    owner: str,
    cell: Cell,
    input_size: int,
    size: int,
    num_layers: int,
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> nn.RNNBase:
    """Torch's recurrent layers, batch first; ``owner`` names the options in the errors raised."""
    check_recurrent(owner, cell, size, num_layers, dropout)
    cells: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
    between = dropout if num_layers > 1 else 0.0  # torch warns of dropout that has no place
    return cells[cell](input_size, size, num_layers, batch_first=True, bidirectional=bidirectional, dropout=between)


def check_recurrent(owner: str, cell: Cell, size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
    """Refuses options of a recurrent network; ``owner`` names them."""
    check_positive_integers(owner, size=size, num_layers=num_layers)
    if cell not in get_args(Cell):
        raise InputError(f"{owner}.cell must be one of {', '.join(get_args(Cell))}, got {cell!r}.")
    check_probability(f"{owner}.dropout", dropout)


def batch_first_state(state: Any) -> Any:
    """Torch's recurrent layers hold (layers, B, size), we hold (B, layers, size); from either to the other."""
    if isinstance(state, tuple):
        return tuple(each.transpose(0, 1).contiguous() for each in state)
    return state.transpose(0, 1).contiguous()
