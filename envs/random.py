"""Counter-based random numbers: every draw is a pure function of (seed, counter, purpose).

There is no generator state that advances: a draw is identified by its name. A row therefore draws the same numbers in
any batch, in one process or several, in an interrupted run or not, and on any device.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed 64-bit integer
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)

_Draw = tuple[str, tuple[int, ...]]
"""The purpose of a draw and the shape of its elements."""


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; that of torch is arithmetic."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection of the 64-bit integers."""
    if x.is_cpu:  # numpy has a logical shift, and a small array costs a third of the time
        bits: np.ndarray = x.numpy().view(np.uint64)
        bits = ((bits >> 30) ^ bits) * np.uint64(_MULTIPLY_1 % (1 << 64))
        bits = ((bits >> 27) ^ bits) * np.uint64(_MULTIPLY_2 % (1 << 64))
        return torch.from_numpy(((bits >> 31) ^ bits).view(np.int64))
    x = _shift_right(x, 30).bitwise_xor_(x).mul_(_MULTIPLY_1)
    x = _shift_right(x, 27).bitwise_xor_(x).mul_(_MULTIPLY_2)
    return _shift_right(x, 31).bitwise_xor_(x)


@lru_cache(maxsize=256)
def _increments(draws: tuple[_Draw, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the increments of the keys of some draws, which have E elements together.

    Returns:
        The increment of each purpose, (P,) int64; and of each element the purpose, (E,) int64, and the increment, (E,)
        int64, distinct for every element of a draw.
    """
    purposes = np.array([zlib.crc32(purpose.encode()) * 0x100000001 for purpose, _ in draws], dtype=np.uint64)
    counts = [math.prod(shape) for _, shape in draws]
    owner = torch.cat([torch.full((count,), number) for number, count in enumerate(counts)])
    positions = torch.cat([torch.arange(1, count + 1) for count in counts]) * _GOLDEN
    return torch.from_numpy(purposes.view(np.int64)).to(device), owner.to(device), positions.to(device)


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
    _prepared: dict[_Draw, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _seed_key(self) -> Tensor:
        """The part of the key that depends on the seed: (B,) int64."""
        return _mix(self.seed + _GOLDEN)

    @cached_property
    def _key(self) -> Tensor:
        """The key of all draws: (B, 1) int64."""
        return _mix(_mix(self.counter - _GOLDEN).bitwise_xor_(self._seed_key))[:, None]

    def at(self, counter: Tensor) -> RowRandom:
        """Returns the random numbers of the same seeds at other counters (B,)."""
        random = RowRandom(self.seed, counter)
        random.__dict__["_seed_key"] = self._seed_key
        return random

    def rows(self, rows: Tensor | slice) -> RowRandom:
        """Returns the random numbers of some rows."""
        random = RowRandom(self.seed[rows], self.counter[rows])
        random.__dict__["_seed_key"] = self._seed_key[rows]
        return random

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Draws the bits of several purposes together, in fewer operations than one after another.

        Args:
            shapes: of the draws that follow, by purpose.
        """
        draws = tuple(shapes.items())
        self._prepared.update(zip(draws, self._draw(draws), strict=True))

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """Returns 64 random bits for each element: (B, *shape) int64, any value."""
        prepared = self._prepared.get((purpose, shape))
        return self._draw(((purpose, shape),))[0] if prepared is None else prepared

    def _draw(self, draws: tuple[_Draw, ...]) -> list[Tensor]:
        """Returns the bits of some draws: (B, *shape) int64 each."""
        purposes, owner, positions = _increments(draws, self.seed.device)
        keys = _mix(self._key + purposes)  # (B, P)
        bits = _mix((keys.index_select(1, owner) if len(draws) > 1 else keys) + positions)  # (B, E)
        parts = bits.split([math.prod(shape) for _, shape in draws], 1) if len(draws) > 1 else [bits]
        return [part.view(len(keys), *shape) for part, (_, shape) in zip(parts, draws, strict=True)]

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
    """

    def __init__(self, seed: int | Sequence[int], rows: int, split: Split, device: torch.device) -> None:
        self._is_training = split == "train"
        if isinstance(seed, int | np.integer):
            row = torch.arange(rows, device=device) + int(seed)
            scene = torch.full_like(row, int(seed))
        else:
            if len(seed) != rows:
                raise InputError(f"reset needs one seed, or {rows} seeds for {rows} rows, got {len(seed)}.")
            row = scene = torch.tensor([int(value) for value in seed], device=device)
        # Scenes of different splits must differ although their indices and the seed are the same.
        scene = row if self._is_training else scene + (zlib.crc32(split.encode()) << 31)
        before_first = torch.full_like(row, -1)
        self._by_episode, self._by_scene = RowRandom(row, before_first), RowRandom(scene, before_first)

    def replace(self, rows: Tensor, new: EpisodeSeeds) -> None:
        """Takes the seeds of the masked rows (B,) from ``new`` and begins their episodes from the first."""
        self._by_episode, self._by_scene = (
            RowRandom(torch.where(rows, theirs.seed, ours.seed), torch.where(rows, theirs.counter, ours.counter))
            for ours, theirs in ((self._by_episode, new._by_episode), (self._by_scene, new._by_scene))
        )

    def begin_episode(self, rows: Tensor | None, episode: Tensor | None) -> None:
        """Begins the next episode in the given rows (n,) or in all, or those with the numbers ``episode`` (B,)."""
        before = self._by_episode.counter
        episode = before + 1 if episode is None else episode
        self._by_episode = self._by_episode.at(
            episode if rows is None else before.index_copy(0, rows, episode.index_select(0, rows))
        )

    def by_episode(self, rows: Tensor | slice | None) -> RowRandom:
        """Returns the random numbers of the given rows, or of all, by seed and episode."""
        return self._by_episode if rows is None else self._by_episode.rows(rows)

    def by_scene(self, rows: Tensor | slice | None, index: Tensor, by_episode: RowRandom | None = None) -> RowRandom:
        """Returns the random numbers of the given rows, or of all, that show the scenes with the given indices (n,).

        Args:
            rows: the rows.
            index: the indices.
            by_episode: the result of :meth:`by_episode` for the same rows, if it is known.
        """
        if self._is_training:
            return by_episode or self.by_episode(rows)
        return (self._by_scene if rows is None else self._by_scene.rows(rows)).at(index)
