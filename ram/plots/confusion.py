"""Figure of a confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from envs.rendering import figure_pixels
from ram.plots.style import INK, LETTER, POINTS, WRONG, hide_spines, new_figure, plain_text

_CELL = 0.34  # inches
_MAX_NUMBERED, _MAX_NAMED, _MAX_NAME = 30, 60, 18  # classes with counts, classes with names, letters of a name
_MAX_SIDE = 11.0  # inches


def confusion_matrix(counts: Tensor, classes: Sequence[str]) -> np.ndarray:
    """Draws how many inputs of a class, a row, are classified as another, a column, and the error of each class.

    The shade of an error is its share of the row, relative to the largest; correct classifications are not shaded.

    Args:
        counts: (K, K), of each class by predicted class.
        classes: K names.

    Returns:
        (H, W, 3) uint8.
    """
    count, totals = len(classes), counts.sum(1).clamp(min=1)
    shares = counts / totals[:, None]
    errors = shares.clone().fill_diagonal_(0)
    names = [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}\u2026" for name in classes]
    margin = 0.4 + (max(map(len, names)) * LETTER if count <= _MAX_NAMED else 0)
    side = min(_CELL * count, _MAX_SIDE)
    figure = new_figure(side + margin + 0.9, side + margin + 0.3)
    axes = figure.add_subplot()
    axes.imshow(errors.numpy(), cmap="Oranges", vmin=0, vmax=max(float(errors.max()), 1e-9) * 1.3)
    if count <= _MAX_NUMBERED:
        for (row, column), value in np.ndenumerate(counts.numpy()):
            if value:
                weight = "bold" if row == column else "normal"
                axes.text(column, row, value, ha="center", va="center", fontsize=POINTS - 2, color=INK, weight=weight)
    shown = range(count) if count <= _MAX_NAMED else range(0)
    axes.set_xticks(shown, [plain_text(names[index]) for index in shown], rotation=90)
    axes.set_yticks(shown, [plain_text(names[index]) for index in shown])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("predicted", fontsize=POINTS, color=INK)
    axes.set_ylabel("label", fontsize=POINTS, color=INK)
    hide_spines(axes)
    for spine in axes.spines.values():
        spine.set_color("#d5d9e0")
    for row in [index for index in shown if counts[index].any()]:
        error = 100 * (1 - float(shares[row, row]))
        color = WRONG if error >= 0.05 else INK
        axes.text(count - 0.3, row, f"{error:.1f} %", va="center", fontsize=POINTS - 1, color=color)
    wrong = 100 * (1 - float(counts.trace() / counts.sum()))
    figure.suptitle(f"error {wrong:.2f} % of {int(counts.sum())}", fontsize=POINTS, color=INK)
    return figure_pixels(figure)
