"""Figures of classified images, and images lit by attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from envs.rendering import figure_pixels
from ram.plots.style import CORRECT, POINTS, WRONG, new_figure, plain_text

_COLUMNS = 4
_SIDE = 1.6  # inches of an image
_DARK = 0.25  # brightness where the attention weight is 0
_GLOW = np.array([0.5, 0.33, 0.05])  # color of a black pixel with the largest weight


def classified_images(
    images: Tensor, labels: Sequence[str], predicted: Sequence[str], weights: Tensor | None, grid: tuple[int, int]
) -> np.ndarray:
    """Draws images with their predicted classes, and the true ones where they differ.

    Args:
        images: (N, C, H, W) float in [0, 1].
        labels: N class names.
        predicted: N class names.
        weights: (N, rows * columns), attention weights that light the images; None for none.
        grid: (rows, columns) of the weights.

    Returns:
        (H', W', 3) uint8.
    """
    columns = min(_COLUMNS, len(images))
    figure = new_figure(columns * _SIDE, math.ceil(len(images) / columns) * (_SIDE + 0.2))
    for index, (image, label, answer) in enumerate(zip(images, labels, predicted, strict=True)):
        pixels = image.permute(1, 2, 0).expand(-1, -1, 3).numpy()
        if weights is not None:
            pixels = illuminate(pixels, weights[index].view(grid).clamp(min=0))
        axes = figure.add_subplot(math.ceil(len(images) / columns), columns, index + 1)
        axes.imshow(pixels, vmin=0, vmax=1, interpolation="nearest")
        title, color = (answer, CORRECT) if answer == label else (f"{answer}, not {label}", WRONG)
        axes.set_title(plain_text(title), fontsize=POINTS, pad=3, color=color)
        axes.axis("off")
    return figure_pixels(figure)


def illuminate(pixels: np.ndarray, weights: Tensor) -> np.ndarray:
    """Scales the brightness of an image (H, W, 3) by attention weights (rows, columns), and tints its dark pixels."""
    light = F.interpolate((weights / weights.max().clamp(min=1e-9))[None, None], pixels.shape[:2], mode="bilinear")
    shade = light[0, 0, :, :, None].numpy()
    scaled = pixels * (_DARK + (1 - _DARK) * shade)
    return scaled + _GLOW * shade * (1 - scaled)
