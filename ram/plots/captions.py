"""Figures of captions: the image once for every word, with the attention map or the glimpse of the word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from envs.rendering import figure_pixels
from envs.sensor import Sensor
from ram.plots.images import illuminate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 12  # words in a row
_SIDE = 1.1  # inches of an image
_DIMMED = 0.6  # brightness of an image below the windows of a glimpse
_AMBER = (1.0, 0.7, 0.1)


def caption_strips(
    images: Tensor,
    captions: Sequence[Sequence[str]],
    weights: Tensor,
    grid: tuple[int, int],
    sensor: Sensor | None = None,
) -> np.ndarray:
    """Draws every image, and next to it once for each word of its caption, bright where the word attends.

    Args:
        images: (B, C, H, W) float in [0, 1].
        captions: B captions.
        weights: (B, T, rows * columns), of the words; T at least the length of the longest caption.
        grid: (rows, columns) of the weights.
        sensor: draws the windows of this sensor at the largest weight instead; None for attention.

    Returns:
        (H', W', 3) uint8.
    """
    from matplotlib.figure import Figure

    rows = [max(1, math.ceil(len(caption) / _COLUMNS)) for caption in captions]
    height = sum(rows) * _SIDE * 1.22
    figure = Figure(figsize=((_COLUMNS + 1) * _SIDE, height), dpi=100)
    margins = {"left": 0.005, "right": 0.995, "top": 1 - 0.18 / height, "bottom": 0.05 / height}
    cells = figure.add_gridspec(sum(rows), _COLUMNS + 1, wspace=0.06, hspace=0.22, **margins)
    first_row = 0
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        pixels = image.permute(1, 2, 0).expand(-1, -1, 3).numpy()
        _show(figure.add_subplot(cells[first_row, 0]), pixels, "")
        for step, word in enumerate(caption):
            axes = figure.add_subplot(cells[first_row + step // _COLUMNS, 1 + step % _COLUMNS])
            word_map = weights[index, step].view(grid).clamp(min=0)
            if sensor is None:
                _show(axes, illuminate(pixels, word_map), word)
            else:
                _show(axes, pixels * _DIMMED, word)
                _outline_windows(axes, sensor, word_map)
        first_row += rows[index]
    return figure_pixels(figure)


def _outline_windows(axes: Axes, sensor: Sensor, word_map: Tensor) -> None:
    """Draws the windows of a glimpse at the pixel of the largest weight (H, W)."""
    from matplotlib.patches import Ellipse, Rectangle

    height, width = word_map.shape
    row, column = divmod(int(word_map.argmax()), width)
    location = torch.tensor([[column, row]]) * 2 / torch.tensor([width - 1, height - 1]) - 1
    for scale, (left, top, right, bottom) in enumerate(sensor.windows(height, width, location)[0].tolist()):
        style: Any = {"fill": False, "edgecolor": _AMBER, "linewidth": 1.2 if scale == 0 else 0.5}
        size = right - left, bottom - top
        if sensor.is_round:
            axes.add_patch(Ellipse(((left + right - 1) / 2, (top + bottom - 1) / 2), *size, **style))
        else:
            axes.add_patch(Rectangle((left - 0.5, top - 0.5), *size, **style))


def _show(axes: Axes, pixels: np.ndarray, word: str) -> None:
    axes.imshow(pixels, vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(word, fontsize=9, pad=2)
    axes.axis("off")
