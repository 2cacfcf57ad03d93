"""Pictures of captions: a strip an image, with what each word has looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.rendering import figure_pixels
from envs.sensor import Sensor
from ram.corpora import Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS = 12  # words beside one another, before the next line
_SIDE = 1.1  # inches of a picture
_DARK = 0.25  # brightness where a word did not look
_DIMMED = 0.6  # brightness below the windows of a look
_AMBER = (1.0, 0.7, 0.1)
_GLOW = np.array([0.5, 0.33, 0.05])  # what black sends back in full light


def strips(
    images: Tensor, captions: Sequence[Tokens], weights: Tensor, grid: tuple[int, int], sensor: Sensor | None = None
) -> np.ndarray:
    """Every image, and beside it once for each word of its caption, lit where the word has looked.

    Args:
        images: (B, C, H, W) float in [0, 1].
        captions: B of them.
        weights: (B, T, rows * columns), of the words; T of the longest at least.
        grid: rows and columns.
        sensor: what has looked at the places of the largest weights, to draw its windows; None for attention.

    Returns:
        (H', W', 3) uint8.
    """
    from matplotlib.figure import Figure

    lines = [max(1, math.ceil(len(caption) / _ACROSS)) for caption in captions]
    height = sum(lines) * _SIDE * 1.22
    figure = Figure(figsize=((_ACROSS + 1) * _SIDE, height), dpi=100)
    room = {"left": 0.005, "right": 0.995, "top": 1 - 0.18 / height, "bottom": 0.05 / height}
    places = figure.add_gridspec(sum(lines), _ACROSS + 1, wspace=0.06, hspace=0.22, **room)
    line = 0
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        picture = image.permute(1, 2, 0).expand(-1, -1, 3).numpy()
        _show(figure.add_subplot(places[line, 0]), picture, "")
        for place, word in enumerate(caption):
            axes = figure.add_subplot(places[line + place // _ACROSS, 1 + place % _ACROSS])
            seen = weights[number, place].view(1, 1, *grid).clamp(min=0)
            if sensor is None:
                lit = F.interpolate(seen / seen.max().clamp(min=1e-9), picture.shape[:2], mode="bilinear")
                _show(axes, _lit(picture, lit[0, 0, :, :, None].numpy()), word)
            else:
                _show(axes, picture * _DIMMED, word)
                _outline(axes, sensor, seen[0, 0])
        line += lines[number]
    return figure_pixels(figure)


def _lit(picture: np.ndarray, light: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) in the light (H, W, 1), in [0, 1], of which black sends back some too."""
    shown = picture * (_DARK + (1 - _DARK) * light)
    return shown + _GLOW * light * (1 - shown)


def _outline(axes: Axes, sensor: Sensor, seen: Tensor) -> None:
    """Draws the windows of a look at the place of the largest weight (H, W)."""
    from matplotlib.patches import Ellipse, Rectangle

    height, width = seen.shape
    row, column = divmod(int(seen.argmax()), width)
    location = torch.tensor([[column, row]]) * 2 / torch.tensor([width - 1, height - 1]) - 1
    for number, (left, top, right, bottom) in enumerate(sensor.windows(height, width, location)[0].tolist()):
        look: Any = {"fill": False, "edgecolor": _AMBER, "linewidth": 1.2 if number == 0 else 0.5}
        across, down = right - left, bottom - top
        if sensor.is_round:
            axes.add_patch(Ellipse(((left + right - 1) / 2, (top + bottom - 1) / 2), across, down, **look))
        else:
            axes.add_patch(Rectangle((left - 0.5, top - 0.5), across, down, **look))


def _show(axes: Axes, picture: np.ndarray, word: str) -> None:
    axes.imshow(picture, vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(word, fontsize=9, pad=2)
    axes.axis("off")
