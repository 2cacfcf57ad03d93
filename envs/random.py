"""Counter-based random numbers: every draw is a pure function of (seed, counter, purpose).

There is no generator state that advances: a draw is identified by its name. A row therefore draws the same numbers in
any batch, in one process or several, in an interrupted run or not, and on any device.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed 64-bit integer
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; that of torch is arithmetic."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection of the 64-bit integers."""
    x = _shift_right(x, 30).bitwise_xor_(x).mul_(_MULTIPLY_1)
    x = _shift_right(x, 27).bitwise_xor_(x).mul_(_MULTIPLY_2)
    return _shift_right(x, 31).bitwise_xor_(x)


@lru_cache(maxsize=256)
def _positions(count: int, device: torch.device) -> Tensor:
    """Returns distinct increments of the elements of a draw: (count,) int64."""
    return torch.arange(1, count + 1, device=device) * _GOLDEN


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

    @cached_property
    def _key(self) -> Tensor:
        """The key of all draws: (B,) int64."""
        return _mix(_mix(self.seed + _GOLDEN) ^ _mix(self.counter - _GOLDEN))

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """Returns 64 random bits for each element: (B, *shape) int64, any value."""
        key = _mix(self._key + zlib.crc32(purpose.encode()) * 0x100000001)
        return _mix(key[:, None] + _positions(math.prod(shape), key.device)).view(key.shape[0], *shape)

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


class EpisodeSeeds:
    """Gives the random numbers of every episode.

    On the training split the draws of row i depend on (seed + i, episode), and those of an image on its first row. On
    validation and test the scene and the first location depend on (seed, index of the scene); an index that is not
    given is drawn from (seed + i, episode). With one seed for each row, the seed of the row replaces seed + i and seed.

    Args:
        seed: row i has seed + i; or one seed for each row.
        rows: the number of rows, B.
        split: the seeds of different splits differ.
        device: of the draws.

    Attributes:
        row: (B,) int64, the seed of each row.
        scene: (B,) int64, the seed of the draws that depend on the index of the scene.
        episode: (B,) int64, the number of each row's episode; -1 before the first.
    """

    def __init__(self, seed: int | Sequence[int], rows: int, split: Split, device: torch.device) -> None:
        self._is_training = split == "train"
        if isinstance(seed, int | np.integer):
            self.row = torch.arange(rows, device=device) + int(seed)
            scene = torch.full_like(self.row, int(seed))
        else:
            if len(seed) != rows:
                raise InputError(f"reset needs one seed, or {rows} seeds for {rows} rows, got {len(seed)}.")
            self.row = scene = torch.tensor([int(value) for value in seed], device=device)
        # Scenes of different splits must differ although their indices and the seed are the same.
        self.scene = self.row if self._is_training else scene + (zlib.crc32(split.encode()) << 31)
        self.episode = torch.full_like(self.row, -1)

    def replace(self, rows: Tensor, new: EpisodeSeeds) -> None:
        """Takes the seeds of the masked rows (B,) from ``new`` and begins their episodes from the first."""
        self.row = torch.where(rows, new.row, self.row)
        self.scene = torch.where(rows, new.scene, self.scene)
        self.episode = torch.where(rows, new.episode, self.episode)

    def begin_episode(self, rows: Tensor, episode: Tensor | None) -> None:
        """Begins the next episode in the given rows (n,), or those with the numbers ``episode`` (B,)."""
        episode = self.episode + 1 if episode is None else episode
        self.episode = self.episode.index_copy(0, rows, episode[rows])

    def by_episode(self, rows: Tensor) -> RowRandom:
        """Returns the random numbers of the given rows (n,) by seed and episode."""
        return RowRandom(self.row[rows], self.episode[rows])

    def by_scene(self, rows: Tensor, index: Tensor, by_episode: RowRandom | None = None) -> RowRandom:
        """Returns the random numbers of the given rows (n,) that show the scenes with the given indices (n,).

        Args:
            rows: the rows.
            index: the indices.
            by_episode: the result of :meth:`by_episode` for the same rows, if it is known.
        """
        if self._is_training:
            return by_episode or self.by_episode(rows)
        return RowRandom(self.scene[rows], index)
