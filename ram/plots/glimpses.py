"""Figures of glimpses: the paths over some images, and the distribution of all locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from envs import GlimpseVectorEnv
from envs.rendering import grid, location_heatmap


def glimpse_frames(env: GlimpseVectorEnv, index: Tensor, actions: Sequence[Mapping[str, Tensor]]) -> list[np.ndarray]:
    """Draws the images of some episodes in a grid, once before and once after every action.

    Args:
        env: an environment with ``render_mode="rgb_array"``.
        index: (B,) int64, the numbers of the images.
        actions: the T actions of an episode on these images.

    Returns:
        T + 1 frames (H, W, 3) uint8.
    """
    env.reset(options={"index": index})
    frames = [env.render()]
    for action in actions:
        env.step(action)
        frames.append(env.render())
    return [grid(rows, columns=8) for rows in frames if rows is not None]


def location_histogram(locations: Sequence[Tensor], num_glimpses: int) -> np.ndarray:
    """Draws how often each location is looked at, for every look.

    Args:
        locations: (T, B, 2) of each batch, T at most ``num_glimpses``; the last location of an episode is repeated.
        num_glimpses: number of looks drawn.

    Returns:
        (H, W, 3) uint8.
    """
    padded = [torch.cat([each, each[-1:].expand(num_glimpses - len(each), -1, -1)]) for each in locations]
    return location_heatmap(torch.cat(padded, dim=1))
