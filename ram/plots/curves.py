"""Figures of metrics: accuracy by length, and the gain and cost of beam search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from envs.rendering import figure_pixels
from ram.plots.style import CORRECT, INK, POINTS, WRONG, hide_spines, plain_text


def accuracy_by_length(counts: Mapping[str, Mapping[int, tuple[int, int]]]) -> np.ndarray:
    """Draws the accuracy in percent against the length of the source, one line per model.

    Args:
        counts: (correct, total) by the name of the model and the length of the source.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10 if len(counts) > 1 else 6, 3.8), dpi=110, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for index, (name, lengths) in enumerate(counts.items()):
        accuracy = [100 * correct / total for correct, total in lengths.values()]
        color = colormaps["tab10"](index % 10)
        dashes = ("-", "--", ":")[index // 10 % 3]
        axes.plot(list(lengths), accuracy, dashes, color=color, marker="o", markersize=3, label=plain_text(name))
    axes.set_xlabel("source length in tokens", fontsize=POINTS, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("correct (%)", fontsize=POINTS, color=INK)
    axes.set_ylim(-3, 103)
    hide_spines(axes, "top", "right")
    if any(counts):
        axes.legend(fontsize=POINTS - 2, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure_pixels(figure)


def beam_curve(metric: str, rows: Sequence[tuple[int, float, float]]) -> np.ndarray:
    """Draws a metric and the time of the search against the beam size.

    Args:
        metric: name of the metric.
        rows: beam size, value of the metric, and seconds, of each search.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3), dpi=110, facecolor="white", layout="constrained")
    sizes, values, seconds = zip(*rows, strict=True)
    curves = [(metric, values, CORRECT), ("seconds", seconds, WRONG)]
    for position, (name, heights, color) in enumerate(curves, start=1):
        axes = figure.add_subplot(1, 2, position)
        axes.plot(sizes, heights, color=color, marker="o", markersize=3.5)
        axes.set_xlabel("beam size", fontsize=POINTS, color=INK)
        axes.set_title(name, fontsize=POINTS + 1, color=color, loc="left")
        axes.set_xticks(sizes)
        hide_spines(axes, "top", "right")
    figure.axes[1].set_ylim(bottom=0)
    return figure_pixels(figure)
