"""Figure of compared runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

from envs.rendering import figure_pixels
from ram.plots.style import POINTS, hide_spines, plain_text


def comparison_bars(metric: str, values: Mapping[str, Sequence[float]]) -> np.ndarray:
    """Draws the mean of every row as a bar, and every run as a dot.

    Args:
        metric: label of the axis.
        values: the metric of the runs, by the name of the row, from top to bottom.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.8 + 0.32 * len(values)), dpi=110, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.barh(range(len(values)), [mean(row) for row in values.values()], color="#9cc4e6", height=0.7)
    for place, row in enumerate(values.values()):
        axes.plot(row, [place] * len(row), "o", color="#1f4e79", markersize=3.5)
        axes.annotate(f"{mean(row):.2f}", (max(row), place), (6, 0), textcoords="offset points", va="center", size=8)
    axes.set_yticks(range(len(values)), list(map(plain_text, values)), fontsize=POINTS)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(metric, fontsize=POINTS)
    hide_spines(axes, "top", "right", "left")
    return figure_pixels(figure)
