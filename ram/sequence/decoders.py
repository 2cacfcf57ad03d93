"""Decoders of sequences: the base class, its inputs and its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ram.attention import padding_mask


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
