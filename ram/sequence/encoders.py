"""Encoders of sequences: the base class, and the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ram.attention import padding_mask


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


def shortest(*limits: int | None) -> int | None:
    """The smallest of some limits, of which None is none."""
    return min((limit for limit in limits if limit is not None), default=None)
