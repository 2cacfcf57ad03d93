"""Batches of sequences: which examples a training step uses, and padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

EVALUATION_BATCH_SIZE = 256
_POOL = 50  # number of batches whose texts are sorted by length together


class Batches:
    """Example indices of every batch, grouped by similar length, as a function of (seed, step); each once per epoch.

    Args:
        lengths: of all texts.
        batch_size: texts per batch; one batch of an epoch may be smaller.
        seed: of the order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = torch.tensor(lengths), batch_size, seed
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self._epoch, self._batches = -1, list[list[int]]()

    def __call__(self, step: int) -> list[int]:
        """Returns the indices of the texts of training step ``step``."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffle(epoch)
        return self._batches[position]

    def _shuffle(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(((self.seed << 24) + epoch) % 2**63)
        order = torch.randperm(len(self.lengths), generator=generator)
        pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in order.split(_POOL * self.batch_size)]
        batches = [batch.tolist() for pool in pools for batch in pool.split(self.batch_size)]
        return [batches[index] for index in torch.randperm(len(batches), generator=generator)]


def pad(sequences: Sequence[Sequence[int]], device: torch.device, value: int = 0) -> tuple[Tensor, Tensor]:
    """Pads B integer sequences with ``value`` at the end: (B, N) int64, and their lengths (B,) int64."""
    rows = [torch.tensor(sequence, dtype=torch.int64) for sequence in sequences]
    padded = pad_sequence(rows, batch_first=True, padding_value=value)
    return padded.to(device), torch.tensor(list(map(len, rows)), device=device)
