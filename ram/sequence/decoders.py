"""Decoders of sequences: the base class, its inputs and its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ram.attention import padding_mask


@dataclass(frozen=True)
class DecoderSizes:
    """Widths of the inputs of a decoder.

    Attributes:
        inputs: of the embeddings of the target tokens.
        vectors: of the embeddings of the source tokens.
        states: of the outputs of the encoder.
        summary: of the pooled source.
        grid: rows and columns of an image source; None of a text.
    """

    inputs: int
    vectors: int
    states: int
    summary: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class Memory:
    """The encoded source, computed once for all steps of a decoder.

    Attributes:
        vectors: (B, N, sizes.vectors), embeddings of the source tokens.
        states: (B, N, sizes.states), outputs of the encoder.
        lengths: (B,) int64, in [1, N].
        summary: (B, sizes.summary), the pooled source.
        copy_ids: (B, N) int64, token ids of the source tokens in the target vocabulary; None without copying.
        prepared: result of the decoder's or context module's ``prepare``.
    """

    vectors: Tensor
    states: Tensor
    lengths: Tensor
    summary: Tensor
    copy_ids: Tensor | None = None
    prepared: Any = None

    @property
    def mask(self) -> Tensor:
        """(B, 1, N) bool, True at the elements of the source, False at padding."""
        return padding_mask(self.lengths, self.vectors.shape[1])


@dataclass(frozen=True)
class DecoderOutput:
    """Output of a decoder at T steps.

    Attributes:
        output: (B, T, output_size), features of the next token.
        state: state after the last step, from which decoding continues; dimension 0 of its tensors is B.
        weights: (B, T, N), attention weights over the source, of the last layer and averaged over its heads; None
            without attention, or where they were not requested.
        log_prob: (B, T), log-probability of the hard choices, with gradient; None without hard attention.
    """

    output: Tensor
    state: Any
    weights: Tensor | None = None
    log_prob: Tensor | None = None


class Decoder(nn.Module):
    """Base class of decoders: outputs depend on the preceding target tokens and on a :class:`Memory`.

    Args:
        sizes: widths of the inputs.

    Attributes:
        output_size: width of the outputs.
        max_length: largest number of steps; None for any.
        max_source_length: largest length of the source; None for any.
    """

    output_size: int
    max_length: int | None = None
    max_source_length: int | None = None

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()

    def prepare(self, memory: Memory) -> Memory:
        """Returns the memory with the computations that all steps share."""
        return memory

    def forward(self, inputs: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        """Decodes T steps; the outputs do not depend on how a sequence is divided into calls.

        Args:
            inputs: (B, T, sizes.inputs), embeddings of the target tokens.
            memory: from :meth:`prepare`.
            state: state after the preceding steps; None at the start.
            need_weights: return attention weights also where this requires a slower implementation.
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")
