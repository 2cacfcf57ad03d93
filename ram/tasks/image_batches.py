"""The images of training steps and of evaluations, as functions of the seed: for tasks on images and scenes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.scene import SceneSet
from ram.distributed import world

EVALUATION_ROWS = 1000
EVALUATION_SEED = 0  # the same for all runs, so that they are evaluated on the same scenes, locations and noise
SCALE_IMAGES = 1000  # which give the scale of a network's inputs


class ImageBatches:
    """The images of every training step: a permutation of the training split in each epoch.

    Args:
        images: the number of images of the training split.
        batch_size: images per step, over all processes.
        row_seed: from :func:`first_row_seed`.
        device: of the indices.

    Attributes:
        share: the images of a batch that this process computes.
        steps_per_epoch: the number of whole batches of the split.

    Raises:
        InputError: if there are fewer images than ``batch_size``.
    """

    def __init__(self, images: int, batch_size: int, row_seed: int, device: torch.device) -> None:
        if images < batch_size:
            raise InputError(f"task.batch_size ({batch_size}) is larger than the training split ({images} images).")
        self.share, self.steps_per_epoch = world().share(batch_size), images // batch_size
        self._images, self._batch_size, self._row_seed, self._device = images, batch_size, row_seed, device
        self._epoch = -1

    def __call__(self, step: int) -> Tensor:
        """Returns this process's images of training step ``step``: (n,) int64."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch != epoch:
            seed, key = torch.tensor([[self._row_seed], [epoch]], device=self._device)
            self._order, self._epoch = RowRandom(seed, key).bits("order", self._images)[0].argsort(), epoch
        first = position * self._batch_size
        return self._order[first + self.share.start : first + self.share.stop]


def first_row_seed(seed: int) -> int:
    """Returns a seed for row 0 such that runs of different seeds share no row: row i of an environment adds i to it."""
    return seed << 24


def evaluation_batches(images: range, rows: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields image numbers (rows,) and a mask (rows,) bool that is True once for every number in ``images``."""
    for start in range(images.start, images.stop, rows):
        index = torch.arange(start, start + rows, device=device)
        yield index.clamp(max=images.stop - 1), index < images.stop


def image_names(scenes: SceneSet) -> list[str]:
    """Returns the names of the images of a set, or their numbers."""
    return list(getattr(scenes, "names", ())) or [str(number) for number in range(len(scenes))]
