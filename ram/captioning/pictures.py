"""Pictures of captions: a strip an image, with what each word has looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from envs.rendering import figure_pixels
from ram.corpora import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS = 12  # words beside one another, before the next line
_SIDE = 1.1  # inches of a picture


def strips(images: Tensor, captions: Sequence[Words], weights: Tensor, grid: tuple[int, int]) -> np.ndarray:
    """Every image, and beside it once for each word of its caption, darkened where the word did not look.

    Args:
        images: (B, C, H, W) float in [0, 1].
        captions: B of them.
        weights: (B, T, rows * columns), of the words; T of the longest at least.
        grid: rows and columns.

    Returns:
        (H', W', 3) uint8.
    """
    from matplotlib.figure import Figure

    lines = [max(1, math.ceil(len(caption) / _ACROSS)) for caption in captions]
    figure = Figure(figsize=((_ACROSS + 1) * _SIDE, sum(lines) * _SIDE * 1.22), dpi=100)
    places = figure.add_gridspec(
        sum(lines), _ACROSS + 1, left=0.005, right=0.995, top=0.985, bottom=0.005, wspace=0.06, hspace=0.22
    )
    line = 0
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        picture = image.permute(1, 2, 0).expand(-1, -1, 3).numpy()
        _show(figure.add_subplot(places[line, 0]), picture, "")
        for place, word in enumerate(caption):
            where = places[line + place // _ACROSS, 1 + place % _ACROSS]
            seen = weights[number, place].view(1, 1, *grid)
            lit = F.interpolate(seen / seen.max().clamp(min=1e-9), picture.shape[:2], mode=_smoothly(grid, picture))
            _show(figure.add_subplot(where), picture * (0.25 + 0.75 * lit[0, 0, :, :, None].clamp(0, 1).numpy()), word)
        line += lines[number]
    return figure_pixels(figure)


def _smoothly(grid: tuple[int, int], picture: np.ndarray) -> str:
    return "nearest" if grid == picture.shape[:2] else "bilinear"


def _show(axes: Axes, picture: np.ndarray, word: str) -> None:
    axes.imshow(picture, vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(word, fontsize=9, pad=2)
    axes.axis("off")
