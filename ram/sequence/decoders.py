"""Decoders: one sequence said element by element, in the light of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive_integers, check_probability
from ram.attention import Attention, AttentionOutput, MultiHeadAttention, Score, Select, causal_mask, padding_mask
from ram.attention.positions import Positions, SinusoidalPositions
from ram.attention.scores import General, ScaledDot
from ram.attention.selection import Soft
from ram.sequence.encoders import (
    Cell,
    Encoder,
    TransformerLayer,
    batch_first_state,
    build_recurrent,
    check_recurrent,
    masked_log_prob,
    shortest,
)
from ram.sequence.pooling import LastState

Handover = Literal["state", "network", "first", "every", "none"]


@dataclass(frozen=True)
class DecoderSizes:
    """How wide is what a decoder is given.

    Attributes:
        inputs: of the vectors of the words it has said.
        vectors: of the source's elements as they came.
        states: of what the encoder made of each.
        summary: of what a reader made of them together.
        grid: rows and columns of a source that is an image; None of one that is a text.
    """

    inputs: int
    vectors: int
    states: int
    summary: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class Memory:
    """A source, read once for all steps of a decoder.

    Attributes:
        vectors: (B, N, widths.vectors), its elements as they came.
        states: (B, N, widths.states), what the encoder made of each.
        lengths: (B,) int64, how many count.
        summary: (B, widths.summary), all of it in one vector.
        copies: (B, N) int64, the number of each of its words among those that can be said; None where none is copied.
        prepared: what the decoder needs at every step and works out once.
    """

    vectors: Tensor
    states: Tensor
    lengths: Tensor
    summary: Tensor
    copies: Tensor | None = None
    prepared: Any = None

    @property
    def mask(self) -> Tensor:
        """(B, 1, N) bool, True where an element counts."""
        return padding_mask(self.lengths, self.vectors.shape[1])


@dataclass(frozen=True)
class DecoderOutput:
    """What a decoder makes of T words it was given.

    Attributes:
        output: (B, T, output_size), from which the next word is told.
        state: to go on with; its tensors hold a row a sequence.
        weights: (B, T, N), what each element of the source counted in the last layer that reads, the mean of its heads;
            None where nothing is weighed or nobody asked.
        log_prob: (B, T), of hard choices, with gradient; None where there are none.
    """

    output: Tensor
    state: Any
    weights: Tensor | None = None
    log_prob: Tensor | None = None


class Decoder(nn.Module):
    """Says a sequence, each element from those before it and from a :class:`Memory`.

    Args:
        widths: of what it is given.

    Attributes:
        output_size: width of what the next word is told from.
        max_length: how many words it may be given; None for any number.
        max_source_length: how many words the source may have; None for any number.
    """

    output_size: int
    max_length: int | None = None
    max_source_length: int | None = None

    def __init__(self, widths: DecoderSizes) -> None:
        super().__init__()

    def prepare(self, memory: Memory) -> Memory:
        """Works out once what every step needs."""
        return memory

    def forward(self, vectors: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        """Goes on by T words; all at once is the same as one by one.

        Args:
            vectors: (B, T, widths.inputs), of the words said.
            memory: prepared.
            state: after the words before these; None at the start.
            need_weights: tell the weights, where a faster way could do without.
        """
        raise TypeError(f"{type(self).__name__} does not say how it decodes.")


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
        read = self.attention.read(query, keys, values, memory.mask, step, need_weights=True)
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
        bridge: Handover = "state",
        context: Callable[[int, DecoderSizes], ContextModule] | None = None,
        attend: Literal["before", "after"] = "after",
        input_feeding: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(widths)
        if bridge not in get_args(Handover):
            raise InputError(f"decoder.bridge must be one of {', '.join(get_args(Handover))}, got {bridge!r}.")
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
        read = self.source.read(self.source_norm(vectors), *prepared, memory.mask, step, need_weights)
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


def _top(held: Any) -> Tensor:
    """What the last layer holds: (B, 1, size)."""
    return (held[0] if isinstance(held, tuple) else held)[:, -1:]
