"""Recurrent encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from envs.errors import InputError
from envs.validation import check_positive_integers, check_probability
from ram.attention import Attention, AttentionOutput, Score, Select, padding_mask
from ram.attention.scores import General
from ram.attention.selection import Soft
from ram.sequence.context import ContextModule
from ram.sequence.decoders import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.encoders import Encoder, EncoderOutput

Cell = Literal["rnn", "gru", "lstm"]
Bridge = Literal["state", "network", "first", "every", "none"]


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


class RecurrentDecoder(Decoder):
    """A recurrent network, to which the source is handed over as one vector, and which may read in it at every step.

    Args:
        widths: of what it is given.
        cell: "rnn", "gru" or "lstm".
        size: of the state.
        num_layers: how deep.
        bridge: how the summary of the source reaches it: as the initial "state" of every layer, which is as wide (the
            cell of an LSTM begins empty); as that state through a "network" of one tanh layer (Cho et al. 2014,
            appendix A.1.1); as the "first" input, before any word (Vinyals et al. 2015); beside "every" input (Cho et
            al. 2014, section 2.2); or not at all, "none".
        context: builds what reads the source at each step; None for the summary alone.
        attend: "before" a step with the state it starts from, so that the step takes in what was read (Bahdanau et al.
            2015, appendix A.2.2); or "after" it with the state it ends in (Luong et al. 2015, section 3).
        input_feeding: where the source is read after the step, let the next step take in what came out of this one (Luong et al.
            2015, section 3.3).
        dropout: share of what a layer says to the next that is dropped in training.
    """

    def __init__(
        self,
        widths: DecoderSizes,
        cell: Cell = "lstm",
        size: int = 128,
        num_layers: int = 1,
        bridge: Bridge = "state",
        context: Callable[[int, DecoderSizes], ContextModule] | None = None,
        attend: Literal["before", "after"] = "after",
        input_feeding: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(widths)
        if bridge not in get_args(Bridge):
            raise InputError(f"decoder.bridge must be one of {', '.join(get_args(Bridge))}, got {bridge!r}.")
        if attend not in ("before", "after"):
            raise InputError(f"decoder.attend must be before or after, got {attend!r}.")
        if bridge == "state" and widths.summary != size:
            raise InputError(
                f"decoder.bridge=state needs decoder.size ({size}) to be the width of the encoding "
                f"({widths.summary}): set decoder.size={widths.summary}, or decoder.bridge=network."
            )
        check_recurrent("decoder", cell, size, num_layers, dropout)
        self.bridge, self.size, self.num_layers, self.output_size = bridge, size, num_layers, size
        self.context = None if context is None else context(size, widths)
        self.max_source_length = None if self.context is None else self.context.max_source_length
        self.before, self.input_feeding = attend == "before", input_feeding and attend == "after"
        beside = widths.summary if bridge == "every" else 0
        if self.context is not None:
            beside += self.context.context_size if self.before else size if input_feeding else 0
            self.out = nn.Linear(self.context.context_size + size, size, bias=False)
            # torch's own beginning lets so little of what is read through that words are learnt three times as late.
            nn.init.xavier_uniform_(self.out.weight, nn.init.calculate_gain("tanh"))
        self.layers = build_recurrent("decoder", cell, widths.inputs + beside, size, num_layers, dropout=dropout)
        self.into: nn.Module = nn.Identity()
        if bridge == "network":
            self.into = nn.Sequential(nn.Linear(widths.summary, num_layers * size), nn.Tanh())
        elif bridge == "first":
            self.into = nn.Linear(widths.summary, widths.inputs + beside)

    def prepare(self, memory: Memory) -> Memory:
        return memory if self.context is None else replace(memory, prepared=self.context.prepare(memory))

    def forward(self, vectors: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        held, fed, place = self._begin(memory) if state is None else state
        if self.bridge == "every":
            vectors = torch.cat([vectors, memory.summary[:, None].expand(-1, vectors.shape[1], -1)], dim=-1)
        number = vectors.shape[1]
        if self.context is None or not (
            self.before or self.input_feeding
        ):  # no step waits for what the one before has read
            output, held = self._advance(vectors, held)
            read = None if self.context is None else self._read(output, memory, place)
            if read is not None:
                output = self._combine(read, output)
            return self._decoded(output, [] if read is None else [read], (held, fed, place + number))
        outputs, reads = [], []
        for step in range(number):
            present = vectors[:, step : step + 1]
            if self.before:
                read = self._read(_top(held), memory, place + step)
                output, held = self._advance(torch.cat([present, read.context], dim=-1), held)
            else:
                output, held = self._advance(torch.cat([present, fed], dim=-1), held)
                read = self._read(output, memory, place + step)
            fed = self._combine(read, output)
            outputs.append(fed)
            reads.append(read)
        return self._decoded(torch.cat(outputs, dim=1), reads, (held, fed, place + number))

    def _begin(self, memory: Memory) -> tuple[Any, Tensor, int]:
        """What is held, fed and counted before the first word."""
        batch = len(memory.summary)
        nothing = memory.summary.new_zeros(batch, self.num_layers, self.size)
        if self.bridge == "state":
            nothing = memory.summary[:, None].expand(-1, self.num_layers, -1)
        elif self.bridge == "network":
            nothing = self.into(memory.summary).view(batch, self.num_layers, self.size)
        held: Any = (nothing, torch.zeros_like(nothing)) if isinstance(self.layers, nn.LSTM) else nothing
        if self.bridge == "first":
            _, held = self._advance(self.into(memory.summary)[:, None], held)
        return held, memory.summary.new_zeros(batch, 1, self.size), 0

    def _advance(self, vectors: Tensor, held: Any) -> tuple[Tensor, Any]:
        output, held = self.layers(vectors, batch_first_state(held))
        return output, batch_first_state(held)

    def _read(self, query: Tensor, memory: Memory, place: int) -> AttentionOutput:
        assert self.context is not None
        return self.context(query, memory, torch.arange(place, place + query.shape[1], device=query.device))

    def _combine(self, read: AttentionOutput, output: Tensor) -> Tensor:
        """tanh(W [context; state]) (Luong et al. 2015, equation 5)."""
        return torch.tanh(self.out(torch.cat([read.context, output], dim=-1)))

    def _decoded(self, output: Tensor, reads: list[AttentionOutput], state: Any) -> DecoderOutput:
        weights = [read.weights for read in reads if read.weights is not None]
        log_probs = [read.log_prob for read in reads if read.log_prob is not None]
        return DecoderOutput(
            output,
            state,
            torch.cat(weights, dim=1) if weights else None,
            torch.cat(log_probs, dim=1) if log_probs else None,
        )


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


def _top(held: Any) -> Tensor:
    """What the last layer holds: (B, 1, size)."""
    return (held[0] if isinstance(held, tuple) else held)[:, -1:]
