"""Positional encodings: attention itself does not depend on the order of a sequence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive, check_positive_integers


class Positions(nn.Module):
    """Base class of positional encodings: (B, N, D) -> (B, N, D).

    Args:
        size: width D.

    Attributes:
        max_length: the largest N; None for any.
    """

    max_length: int | None = None

    def __init__(self, size: int) -> None:
        super().__init__()

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        """Encodes the positions from ``start`` on."""
        raise TypeError(f"{type(self).__name__} does not implement forward.")


class NoPositions(Positions):
    """No positional encoding: returns its input."""

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        return elements


class SinusoidalPositions(Positions):
    """Sines and cosines of position / 10000^(2i/D), added to sqrt(D) times the element.

    Feature 2i is the sine, feature 2i + 1 the cosine (Vaswani et al. 2017, section 3.5).

    Args:
        size: width D, an even number.
    """

    rates: Tensor

    def __init__(self, size: int) -> None:
        super().__init__(size)
        if size % 2:
            raise InputError(f"Sinusoidal positions need an even width, got {size}.")
        self.scale = math.sqrt(size)
        self.register_buffer("rates", 10000 ** (-torch.arange(0, size, 2) / size), persistent=False)

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        position = torch.arange(start, start + elements.shape[1], device=elements.device)
        angle = position[:, None] * self.rates
        return elements * self.scale + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(elements.dtype)


class LinearPositions(Positions):
    """A learned vector times the position divided by ``unit``.

    Args:
        size: width D.
        unit: the position whose encoding is the vector itself.
    """

    def __init__(self, size: int, unit: float = 10.0) -> None:
        super().__init__(size)
        check_positive("The unit of linear positions", unit)
        self.unit = unit
        self.direction = nn.Parameter(torch.randn(size) / math.sqrt(size))

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        position = torch.arange(start, start + elements.shape[1], device=elements.device)
        return elements + position[:, None] / self.unit * self.direction


class LearnedPositions(Positions):
    """A learned vector for every position (Gehring et al. 2017, section 3.1).

    Args:
        size: width D.
        max_length: number of positions.
    """

    def __init__(self, size: int, max_length: int = 128) -> None:
        super().__init__(size)
        check_positive_integers("LearnedPositions", max_length=max_length)
        self.max_length = max_length
        self.vectors = nn.Parameter(torch.randn(max_length, size) / math.sqrt(size))

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        end = start + elements.shape[1]
        if end > len(self.vectors):
            raise InputError(
                f"A sequence has length {end}, but LearnedPositions has max_length={self.max_length}: raise it."
            )
        return elements + self.vectors[start:end]
