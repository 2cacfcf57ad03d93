"""Encoders of sequences: the base class, its output, and the identity."""

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
