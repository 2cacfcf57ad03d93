"""The options of a reset, and their parsing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.validation import parse_floats, parse_integers, parse_tensor


@dataclass(frozen=True)
class ResetOptions:
    """The options of a reset of B rows that show B / R images; None where an option is not given.

    Attributes:
        index: (B / R,) int64, the scenes to show.
        location: (B, 2) float32, the first locations.
        episode: (B,) int64, the numbers of the episodes.
        reset_mask: (B,) bool, the rows to reset.
    """

    index: Tensor | None = None
    location: Tensor | None = None
    episode: Tensor | None = None
    reset_mask: Tensor | None = None


def parse_reset_options(
    options: Mapping[str, Any] | None, rows: int, rows_per_image: int, num_scenes: int, device: torch.device
) -> ResetOptions:
    """Returns the options as tensors on the device.

    Raises:
        InputError: an option is unknown, or has a wrong shape, dtype or range.
    """
    options = options or {}
    names = [each.name for each in fields(ResetOptions)]
    if not options.keys() <= set(names):
        unknown = ", ".join(sorted(map(str, options.keys() - set(names))))
        raise InputError(f"The options of reset are {', '.join(names)}, not {unknown}.")
    index, location, episode, mask = (options.get(name) for name in names)
    if index is not None:
        index = parse_integers("options['index']", index, rows // rows_per_image, num_scenes, device)
    if location is not None:
        location = parse_floats("location", location, (rows, 2), device)
    if episode is not None:
        episode = parse_tensor("options['episode']", episode, device)
        episode = episode.expand(rows) if episode.ndim == 0 else episode
        episode = parse_integers("options['episode']", episode, rows, None, device).clone()
    if mask is not None:
        mask = parse_tensor("options['reset_mask']", mask, device)
        if mask.shape != (rows,) or mask.dtype != torch.bool or not mask.any():
            raise InputError(f"options['reset_mask'] must be ({rows},) bool with at least one True.")
        by_image = mask.view(-1, rows_per_image)
        if not (by_image == by_image[:, :1]).all():
            raise InputError("options['reset_mask'] must reset all rollouts of an image or none.")
    return ResetOptions(index, location, episode, mask)
