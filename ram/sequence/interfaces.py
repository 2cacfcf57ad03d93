"""Interfaces of sequence models: base classes of encoders and decoders, and the records they exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from envs.validation import check_factory
from ram.attention import padding_mask


@dataclass(frozen=True)
class EncoderOutput:
    """Output of an encoder.

    Attributes:
        output: (B, N, output_size); arbitrary after the end of a row.
        state: state at the end of each row, from which a causal encoder continues; dimension 0 of its tensors is B.
        log_prob: (B, N), log-probability of the hard choices, with gradient; None without hard attention.
    """

    output: Tensor
    state: Any = None
    log_prob: Tensor | None = None


class Encoder(nn.Module):
    """Base class of encoders of vectors (B, N, input_size).

    Attributes:
        output_size: width of the outputs.
        num_directions: 2 where the second half of the output is computed backwards from the end, else 1.
        causal: whether an output depends on the inputs up to its own position alone.
        max_length: largest N; None for any.
    """

    output_size: int
    num_directions = 1
    causal = True
    max_length: int | None = None

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        """Encodes a batch of sequences.

        Args:
            inputs: (B, N, input_size).
            lengths: (B,) int64, in [1, N].
            state: state after the preceding part of the sequences, which has one length for all rows; None at the
                start.
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")


class IdentityEncoder(Encoder):
    """Returns its inputs.

    Args:
        input_size: width of the inputs.
    """

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> EncoderOutput:
        return EncoderOutput(inputs)


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
        patch_features: (B, T, D), h_g of the glimpse of every step; None without glimpses.
    """

    output: Tensor
    state: Any
    weights: Tensor | None = None
    log_prob: Tensor | None = None
    patch_features: Tensor | None = None


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

    def forward(
        self,
        inputs: Tensor,
        memory: Memory,
        state: Any = None,
        need_weights: bool = False,
        lengths: Tensor | None = None,
    ) -> DecoderOutput:
        """Decodes T steps; the outputs do not depend on how a sequence is divided into calls.

        Args:
            inputs: (B, T, sizes.inputs), embeddings of the target tokens.
            memory: from :meth:`prepare`.
            state: state after the preceding steps; None at the start.
            need_weights: return attention weights also where this requires a slower implementation.
            lengths: (B,) int64, in [1, T], number of steps of each row; later outputs and the state are arbitrary. None
                for T.
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")


@dataclass(frozen=True)
class ModelOutput:
    """Output of a classifier, tagger, language model or decoder model.

    Attributes:
        logits: (B, K) of a text, (B, N, K) of its tokens, or (n, K) of those that a mask selects, row by row.
        features: input of learned baselines, computed before any hard choice: (B, D) of the text, or (B, T, D) of every
            decoding step.
        log_prob: log-probability of the hard choices, with gradient: (B,) of all, or (B, T) of every step; None without
            hard attention.
        weights: attention weights (B, Q, N); None without attention.
        state: state of the encoder or decoder, from which decoding continues.
        copied: (B, T), or (n,) with a mask, probability mass copied from the source; None without copying.
        source_logits: (B, N, K) of the source tokens, from models with ``models_source``.
        patch_features: (B, T, D), h_g of the glimpse of every decoding step; None without glimpses.
    """

    logits: Tensor
    features: Tensor
    log_prob: Tensor | None = None
    weights: Tensor | None = None
    state: Any = None
    copied: Tensor | None = None
    source_logits: Tensor | None = None
    patch_features: Tensor | None = None


def build_encoder(builder: Callable[[int], Encoder], input_size: int) -> Encoder:
    """Builds the encoder of a model of texts; refuses the builder of an image encoder."""
    check_factory("encoder", builder, Encoder, "texts, such as encoder=lstm")
    return builder(input_size)


def masked_log_prob(log_prob: Tensor, lengths: Tensor) -> Tensor:
    """Replaces log-probabilities (B, N) after the end of a row by 0."""
    return torch.where(padding_mask(lengths, log_prob.shape[1])[:, 0], log_prob, 0)


def smallest_limit(*limits: int | None) -> int | None:
    """Returns the smallest limit; None means unlimited."""
    return min((limit for limit in limits if limit is not None), default=None)
