"""Seeds and episode numbers of the rows of an environment: everything that its random draws depend on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.splits import Split


class EpisodeSeeds:
    """Gives the random numbers of every episode.

    On the training split the draws of row i depend on (seed + i, episode), and those of an image on its first row. On
    validation and test the draws depend on (seed, index of the scene).

    Args:
        seed: row i has seed + i; or one seed for each row.
        rows: the number of rows, B.
        rows_per_image: adjacent rows that show the same image.
        split: the seeds of different splits differ.
        device: of the draws.

    Attributes:
        row: (B,) int64, the seed of each row.
        scene: (B,) int64, the seed of the draws that depend on the index of the scene.
        episode: (B,) int64, the number of each row's episode; -1 before the first.
    """

    def __init__(
        self, seed: int | Sequence[int], rows: int, rows_per_image: int, split: Split, device: torch.device
    ) -> None:
        self._rows_per_image = rows_per_image
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

    def begin_episode(self, rows: Tensor | None, episode: Tensor | None) -> None:
        """Begins the next episode, or those with the given numbers (B,), in the masked rows (B,), or in all."""
        episode = self.episode + 1 if episode is None else episode
        self.episode = episode if rows is None else torch.where(rows, episode, self.episode)

    def image_random(self, images: Any) -> RowRandom:
        """Returns the random numbers of the given images by seed and episode."""
        step = self._rows_per_image
        return RowRandom(self.row[::step][images], self.episode[::step][images])

    def episode_random(self, rows: Any, images: Any, index: Tensor) -> tuple[RowRandom, RowRandom]:
        """Returns the random numbers of the given rows, and those of their images.

        Args:
            rows: an index of rows.
            images: an index of the images that these rows show.
            index: the indices of their scenes, one for each image.
        """
        step = self._rows_per_image
        if self._is_training:
            return RowRandom(self.row[rows], self.episode[rows]), self.image_random(images)
        of_rows = RowRandom(self.scene[rows], index.repeat_interleave(step))
        return of_rows, RowRandom(self.scene[::step][images], index)
