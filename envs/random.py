"""Counter-based random numbers: every draw is a pure function of (seed, counter, purpose).

A row of an environment owns no generator that advances; it asks for numbers by name. So a row draws the same numbers
alone or among others, in one process or several, interrupted or not, on any device.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed 64-bit integer
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection of the 64-bit integers."""
    x = (x ^ _shift_right(x, 30)) * _MULTIPLY_1
    x = (x ^ _shift_right(x, 27)) * _MULTIPLY_2
    return x ^ _shift_right(x, 31)


@dataclass(frozen=True)
class RowRandom:
    """Random numbers for a batch of rows, each row from its own (seed, counter).

    A purpose names one draw: two draws by the same name hold the same bits.

    Attributes:
        seed: (B,) int64, the row's seed.
        counter: (B,) int64, what the draws may differ by under one seed: the episode, or the index of an image.
    """

    seed: Tensor
    counter: Tensor

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """64 random bits a number: (B, *shape) int64, any value."""
        key = _mix(_mix(self.seed + _GOLDEN) ^ _mix(self.counter - _GOLDEN))
        key = _mix(key + zlib.crc32(purpose.encode()) * 0x100000001)
        position = torch.arange(1, math.prod(shape) + 1, device=key.device) * _GOLDEN
        return _mix(key[:, None] + position).view(len(key), *shape)

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Uniform in [0, 1): (B, *shape) float32, multiples of 2^-24."""
        return _shift_right(self.bits(purpose, *shape), 40).float() * 2.0**-24

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """Standard normal: (B, *shape) float32, by the method of Box and Muller (1958)."""
        radius, angle = self.uniform(purpose, 2, *shape).unbind(1)
        return (-2 * torch.log1p(-radius)).sqrt() * torch.cos(2 * math.pi * angle)

    def integers(self, purpose: str, high: int) -> Tensor:
        """Uniform in 0 .. high - 1: (B,) int64."""
        return _shift_right(self.bits(purpose), 1) % high
