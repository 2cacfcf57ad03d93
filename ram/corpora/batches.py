"""Batches of texts: which ones a training step shows, and how they are padded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_POOL = 50  # batches whose texts are sorted by length together


class Batches:
    """Every text once an epoch, in batches of like length, as functions of (seed, step).

    Args:
        lengths: of all texts.
        batch_size: texts a batch; one batch of an epoch may have fewer.
        seed: of the order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = torch.tensor(lengths), batch_size, seed
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self._epoch, self._batches = -1, list[list[int]]()

    def __call__(self, step: int) -> list[int]:
        """The numbers of the texts that training step ``step`` shows."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._divide(epoch)
        return self._batches[position]

    def _divide(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(((self.seed << 24) + epoch) % 2**63)
        order = torch.randperm(len(self.lengths), generator=generator)
        pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in order.split(_POOL * self.batch_size)]
        batches = [batch.tolist() for pool in pools for batch in pool.split(self.batch_size)]
        return [batches[number] for number in torch.randperm(len(batches), generator=generator)]


def pad(sequences: Sequence[Sequence[int]], device: torch.device, filling: int = 0) -> tuple[Tensor, Tensor]:
    """Numbers of B sequences side by side: (B, N) int64, filled up at the end, and lengths (B,) int64."""
    lengths = [len(sequence) for sequence in sequences]
    padded = torch.full((len(sequences), max(lengths)), filling, dtype=torch.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
    return padded.to(device), torch.tensor(lengths, device=device)
