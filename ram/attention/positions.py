"""Positions: what tells one place of a sequence from another, for attention itself does not."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive


class Positions(nn.Module):
    """Adds to every element what tells its place: (B, N, D) -> (B, N, D).

    Args:
        size: width D.

    Attributes:
        max_length: how many places there are; None for any number.
    """

    max_length: int | None = None

    def __init__(self, size: int) -> None:
        super().__init__()

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        """Adds the places from ``start`` on."""
        raise TypeError(f"{type(self).__name__} does not say where an element stands.")


class NoPositions(Positions):
    """Nothing: order is not known."""

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        return elements


class SinusoidalPositions(Positions):
    """sin and cos of place / 10000^(2i/D), added to sqrt(D) times the element (Vaswani et al. 2017, section 3.5).

    Element 2i of the code is the sine, element 2i + 1 the cosine.

    Args:
        size: width D, which is even.
    """

    rates: Tensor

    def __init__(self, size: int) -> None:
        super().__init__(size)
        if size % 2:
            raise InputError(f"Sinusoidal positions need an even width, got {size}.")
        self.scale = math.sqrt(size)
        self.register_buffer("rates", 10000 ** (-torch.arange(0, size, 2) / size), persistent=False)

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        place = torch.arange(start, start + elements.shape[1], device=elements.device)
        angle = place[:, None] * self.rates
        return elements * self.scale + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(elements.dtype)


class LinearPositions(Positions):
    """The place's number, over ``unit``, times a learned vector.

    Args:
        size: width D.
        unit: how many places make one.
    """

    def __init__(self, size: int, unit: float = 10.0) -> None:
        super().__init__(size)
        check_positive("The unit of numbered positions", unit)
        self.unit = unit
        self.direction = nn.Parameter(torch.randn(size) / math.sqrt(size))

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        place = torch.arange(start, start + elements.shape[1], device=elements.device)
        return elements + place[:, None] / self.unit * self.direction


class LearnedPositions(Positions):
    """A learned vector for every place (Gehring et al. 2017, section 3.1).

    Args:
        size: width D.
        max_length: how many places there are.
    """

    def __init__(self, size: int, max_length: int = 128) -> None:
        super().__init__(size)
        if max_length < 1:
            raise InputError(f"The max_length of learned positions must be at least 1, got {max_length}.")
        self.max_length = max_length
        self.vectors = nn.Parameter(torch.randn(max_length, size) / math.sqrt(size))

    def forward(self, elements: Tensor, start: int = 0) -> Tensor:
        end, most = start + elements.shape[1], len(self.vectors)
        if end > most:
            raise InputError(
                f"A sequence of {end} is longer than the {most} positions learned: raise their max_length."
            )
        return elements + self.vectors[start:end]
