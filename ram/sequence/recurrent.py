"""Recurrent encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_choice, check_positive_integers, check_probability
from ram.attention import Attention, AttentionOutput, Score, Select, padding_mask
from ram.attention.scores import General
from ram.attention.selection import Soft
from ram.initialization import initialize_recurrent
from ram.sequence.context import ContextModule
from ram.sequence.interfaces import Decoder, DecoderOutput, DecoderSizes, Encoder, EncoderOutput, Memory
from ram.sequence.segments import run_recurrent

Cell = Literal["rnn", "gru", "lstm"]
Bridge = Literal["state", "network", "first", "every", "none"]
LAYERS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS: dict[str, Callable[[int, int], nn.RNNCellBase]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


class RecurrentEncoder(Encoder):
    """A recurrent network of one or more layers, in one direction or both.

    Args:
        input_size: width of the inputs.
        cell: "rnn" (Elman 1990, with tanh), "gru" (Cho et al. 2014) or "lstm" (Hochreiter and Schmidhuber 1997).
        size: width of the state in each direction.
        num_layers: number of layers.
        bidirectional: add a network that runs backwards from the end (Schuster and Paliwal 1997).
        dropout: dropout probability between layers.
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
        check_recurrent("encoder", cell, size, num_layers, dropout)
        between = dropout if num_layers > 1 else 0.0  # PyTorch warns of dropout with one layer
        self.layers = LAYERS[cell](
            input_size, size, num_layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )
        initialize_recurrent(self.layers)
        self.num_directions, self.causal = 1 + bidirectional, not bidirectional
        self.output_size = size * self.num_directions

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        state = None if state is None else swap_batch_and_layers(state)
        output, state = run_recurrent(self.layers, inputs, lengths, state)
        return EncoderOutput(output, swap_batch_and_layers(state))


class AttentiveRecurrentEncoder(Encoder):
    """A recurrent layer with attention before every step.

    h_t = cell([x_t; context_t], h_{t-1}), where h_{t-1} is the query of the context. Keys and values are the inputs of
    the layer, or its own past states h_1 ... h_{t-1} (Cheng et al. 2016, section 3.1).

    Args:
        input_size: width of the inputs.
        over: attend "below" to the inputs, or to the "past" states.
        cell: "rnn", "gru" or "lstm".
        size: width of the state.
        causal: with over="below", attend to x_1 ... x_t only, not to all inputs.
        score: builds the score from the widths of queries and keys.
        select: builds the selection from the width of a query.
        attention_dropout: probability of dropping an attention weight in training.
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
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_recurrent("encoder", cell, size)
        check_probability("encoder.attention_dropout", attention_dropout)
        check_choice("encoder.over", over, ("below", "past"))
        self.over, self.output_size, self.causal = over, size, causal or over == "past"
        self.memory_size = input_size if over == "below" else size
        self.attention = Attention(score(size, self.memory_size), select(size), attention_dropout)
        self.max_length = self.attention.score.max_length
        self.cell = CELLS[cell](input_size + self.memory_size, size)
        initialize_recurrent(self.cell)
        self.is_lstm = cell == "lstm"

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        length = inputs.shape[1]
        hidden, memory = self._initial_state(inputs) if state is None else state
        offset, mask = memory.shape[1], None
        if not self.causal:
            memory, mask = inputs, padding_mask(lengths, length)
        outputs: list[Tensor] = []
        log_probs: list[Tensor] = []
        for position in range(length):
            current = inputs[:, position]  # (B, input_size)
            if self.over == "below" and self.causal:
                memory = torch.cat([memory, current[:, None]], dim=1)
            step = torch.tensor([offset + position], device=inputs.device)
            attended = self.attention(hidden[0][:, None], memory, memory, mask, step)
            cell_input = torch.cat([current, attended.context[:, 0]], dim=1)
            new = self.cell(cell_input, hidden) if self.is_lstm else (self.cell(cell_input, hidden[0]),)
            outputs.append(new[0])
            log_probs += [] if attended.log_prob is None else [attended.log_prob[:, 0]]
            if self.over == "past":
                memory = torch.cat([memory, new[0][:, None]], dim=1)
            active = (position < lengths)[:, None]
            hidden = tuple(torch.where(active, after, before) for after, before in zip(new, hidden, strict=True))
        log_prob = torch.stack(log_probs, 1) if log_probs else None
        return EncoderOutput(torch.stack(outputs, 1), (hidden, memory), log_prob)

    def _initial_state(self, inputs: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Returns a zero hidden state (and cell state, of an LSTM) and an empty memory (B, 0, memory_size)."""
        zeros = inputs.new_zeros(len(inputs), self.output_size)
        return (zeros,) * (1 + self.is_lstm), inputs.new_zeros(len(inputs), 0, self.memory_size)


class RecurrentDecoder(Decoder):
    """A recurrent network with a source vector and, optionally, a context vector at every step.

    Args:
        sizes: widths of the inputs.
        cell: "rnn", "gru" or "lstm".
        size: width of the state.
        num_layers: number of layers.
        bridge: how the summary of the source enters: as the initial "state" of every layer, of equal width (the cell
            state of an LSTM starts at zero); as that state through a "network" of one tanh layer (Cho et al. 2014,
            appendix A.1.1); as the "first" input, before the tokens (Vinyals et al. 2015); appended to "every" input
            (Cho et al. 2014, section 2.2); or "none".
        context: builds the context module from the width of the state and ``sizes``; None for no context vector.
        attend: compute the context "before" a step from the previous state, as an input of the step (Bahdanau et al.
            2015, appendix A.2.2), or "after" it from the new state (Luong et al. 2015, section 3).
        input_feeding: with attend="after", append the output to the input of the next step (Luong et al. 2015, section
            3.3).
        dropout: dropout probability between layers.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        cell: Cell = "lstm",
        size: int = 128,
        num_layers: int = 1,
        bridge: Bridge = "network",
        context: Callable[[int, DecoderSizes], ContextModule] | None = None,
        attend: Literal["before", "after"] = "after",
        input_feeding: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(sizes)
        check_choice("decoder.bridge", bridge, get_args(Bridge))
        check_choice("decoder.attend", attend, ("before", "after"))
        if bridge == "state" and sizes.summary != size:
            raise InputError(
                f"decoder.bridge=state needs decoder.size ({size}) to equal the width of the encoding "
                f"({sizes.summary}): set decoder.size={sizes.summary}, or decoder.bridge=network."
            )
        check_recurrent("decoder", cell, size, num_layers, dropout)
        self.bridge, self.size, self.num_layers, self.output_size = bridge, size, num_layers, size
        self.context = None if context is None else context(size, sizes)
        self.max_source_length = None if self.context is None else self.context.max_source_length
        self.attends_before, self.input_feeding = attend == "before", input_feeding and attend == "after"
        extra = sizes.summary if bridge == "every" else 0
        if self.context is not None:
            extra += self.context.context_size if self.attends_before else size if input_feeding else 0
            self.out = nn.Linear(self.context.context_size + size, size, bias=False)
            # PyTorch's default initialization passes so little of the context that training takes three times as long.
            nn.init.xavier_uniform_(self.out.weight, nn.init.calculate_gain("tanh"))
        between = dropout if num_layers > 1 else 0.0
        self.layers = LAYERS[cell](sizes.inputs + extra, size, num_layers, batch_first=True, dropout=between)
        self.bridge_layer: nn.Module = nn.Identity()
        if bridge == "network":
            self.bridge_layer = nn.Sequential(nn.Linear(sizes.summary, num_layers * size), nn.Tanh())
        elif bridge == "first":
            self.bridge_layer = nn.Linear(sizes.summary, sizes.inputs + extra)

    def prepare(self, memory: Memory) -> Memory:
        return memory if self.context is None else replace(memory, prepared=self.context.prepare(memory))

    def forward(
        self,
        inputs: Tensor,
        memory: Memory,
        state: Any = None,
        need_weights: bool = False,
        lengths: Tensor | None = None,
    ) -> DecoderOutput:
        hidden, previous, position = self._initial_state(memory) if state is None else state
        if self.bridge == "every":
            inputs = torch.cat([inputs, memory.summary[:, None].expand(-1, inputs.shape[1], -1)], dim=-1)
        attended: list[AttentionOutput] = []
        if self.context is None or not (self.attends_before or self.input_feeding):  # inputs need no previous output
            output, hidden = self._recur(inputs, hidden, lengths)
            if self.context is not None:
                attended = [self._attend(output, memory, position)]
                output = self._combine(attended[0], output)
        else:
            outputs = []
            for step, current in enumerate(inputs.split(1, dim=1), position):  # (B, 1, D)
                if self.attends_before:
                    last_layer = (hidden[0] if isinstance(hidden, tuple) else hidden)[:, -1:]
                    attended.append(self._attend(last_layer, memory, step))
                    output, hidden = self._recur(torch.cat([current, attended[-1].context], dim=-1), hidden)
                else:
                    output, hidden = self._recur(torch.cat([current, previous], dim=-1), hidden)
                    attended.append(self._attend(output, memory, step))
                previous = self._combine(attended[-1], output)
                outputs.append(previous)
            output = torch.cat(outputs, dim=1)
        return DecoderOutput(
            output,
            (hidden, previous, position + inputs.shape[1]),
            _concatenated(each.weights for each in attended),
            _concatenated(each.log_prob for each in attended),
            _concatenated(each.patch_features for each in attended),
        )

    def _initial_state(self, memory: Memory) -> tuple[Any, Tensor, int]:
        """Returns the hidden state, the output (B, 1, size) and the number of steps before the first step."""
        batch = len(memory.summary)
        initial = memory.summary.new_zeros(batch, self.num_layers, self.size)
        if self.bridge == "state":
            initial = memory.summary[:, None].expand(-1, self.num_layers, -1)
        elif self.bridge == "network":
            initial = self.bridge_layer(memory.summary).view(batch, self.num_layers, self.size)
        hidden: Any = (initial, torch.zeros_like(initial)) if isinstance(self.layers, nn.LSTM) else initial
        if self.bridge == "first":
            _, hidden = self._recur(self.bridge_layer(memory.summary)[:, None], hidden)
        return hidden, memory.summary.new_zeros(batch, 1, self.size), 0

    def _recur(self, inputs: Tensor, hidden: Any, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        hidden = swap_batch_and_layers(hidden)
        if lengths is None:
            output, hidden = self.layers(inputs, hidden)
        else:
            output, hidden = run_recurrent(self.layers, inputs, lengths, hidden)
        return output, swap_batch_and_layers(hidden)

    def _attend(self, query: Tensor, memory: Memory, position: int) -> AttentionOutput:
        assert self.context is not None
        return self.context(query, memory, torch.arange(position, position + query.shape[1], device=query.device))

    def _combine(self, attended: AttentionOutput, output: Tensor) -> Tensor:
        """tanh(W [context; state]) (Luong et al. 2015, equation 5)."""
        return torch.tanh(self.out(torch.cat([attended.context, output], dim=-1)))


def _concatenated(steps: Iterable[Tensor | None]) -> Tensor | None:
    """Concatenates tensors (B, Q, ...) along the steps; None if there are none."""
    present = [each for each in steps if each is not None]
    return torch.cat(present, dim=1) if present else None


def check_recurrent(owner: str, cell: Cell, size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
    """Checks the options of a recurrent network; ``owner`` prefixes option names in error messages."""
    check_positive_integers(owner, size=size, num_layers=num_layers)
    check_choice(f"{owner}.cell", cell, get_args(Cell))
    check_probability(f"{owner}.dropout", dropout)


def swap_batch_and_layers(state: Any) -> Any:
    """Converts between PyTorch's recurrent states (layers, B, size) and batch-first states (B, layers, size)."""
    if isinstance(state, tuple):
        return tuple(each.transpose(0, 1).contiguous() for each in state)
    return state.transpose(0, 1).contiguous()
