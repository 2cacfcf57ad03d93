"""Figures of metrics: compared runs, accuracy by length, and the gain and cost of beam search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

from envs.rendering import figure_pixels
from ram.plots.style import CORRECT, INK, POINTS, WRONG, hide_spines, new_figure, plain_text


def comparison_bars(metric: str, values: Mapping[str, Sequence[float]]) -> np.ndarray:
    """Draws the mean of every row as a bar, and every run as a dot.

    Args:
        metric: label of the axis.
        values: the metric of the runs, by the name of the row, from top to bottom.

    Returns:
        (H, W, 3) uint8.
    """
    figure = new_figure(7, 0.8 + 0.32 * len(values))
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


def accuracy_by_length(counts: Mapping[str, Mapping[int, tuple[int, int]]]) -> np.ndarray:
    """Draws the accuracy in percent against the length of the source, one line per model.

    Args:
        counts: (correct, total) by the name of the model and the length of the source.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(10 if len(counts) > 1 else 6, 3.8)
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
    figure = new_figure(6.6, 3)
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
