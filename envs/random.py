"""Counter-based random numbers: every draw is a pure function of (seed, counter, purpose).

There is no generator state that advances: a draw is identified by its name. A row therefore draws the same numbers in
any batch, in one process or several, in an interrupted run or not, and on any device.
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
    """Logical right shift; that of torch is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection of the 64-bit integers."""
    x = (x ^ _shift_right(x, 30)) * _MULTIPLY_1
    x = (x ^ _shift_right(x, 27)) * _MULTIPLY_2
    return x ^ _shift_right(x, 31)


@dataclass(frozen=True)
class RowRandom:
    """Random numbers for a batch of rows, each row from its own (seed, counter).

    A purpose names one draw: two draws with the same purpose return the same bits.

    Attributes:
        seed: (B,) int64, the row's seed.
        counter: (B,) int64, distinguishes draws with the same seed: the episode, or the index of an image.
    """

    seed: Tensor
    counter: Tensor

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """Returns 64 random bits for each element: (B, *shape) int64, any value."""
        key = _mix(_mix(self.seed + _GOLDEN) ^ _mix(self.counter - _GOLDEN))
        key = _mix(key + zlib.crc32(purpose.encode()) * 0x100000001)
        position = torch.arange(1, math.prod(shape) + 1, device=key.device) * _GOLDEN
        return _mix(key[:, None] + position).view(len(key), *shape)

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Returns uniform numbers in [0, 1): (B, *shape) float32, multiples of 2^-24."""
        return _shift_right(self.bits(purpose, *shape), 40).float() * 2.0**-24

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """Returns standard normal numbers: (B, *shape) float32, by the method of Box and Muller (1958)."""
        radius, angle = self.uniform(purpose, 2, *shape).unbind(1)
        return (-2 * torch.log1p(-radius)).sqrt() * torch.cos(2 * math.pi * angle)

    def integers(self, purpose: str, high: int) -> Tensor:
        """Returns uniform integers in 0 .. high - 1: (B,) int64."""
        return _shift_right(self.bits(purpose), 1) % high
