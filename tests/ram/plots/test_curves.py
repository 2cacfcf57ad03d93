"""Figures of metrics: accuracy by length, and beam search."""

from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps

from ram.plots.curves import accuracy_by_length, beam_curve

BLUE, ORANGE = (tuple(colormaps["tab10"](index, bytes=True)[:3]) for index in range(2))
GREEN, RED = (0x0B, 0x7A, 0x57), (0xC8, 0x48, 0x1A)


def curve(*counts: tuple[int, int, int]) -> np.ndarray:
    """Draws one model without a name, from (length, correct, total)."""
    return accuracy_by_length({"": {length: (correct, total) for length, correct, total in counts}})


def height(pixels: np.ndarray) -> float:
    """Returns the mean row of pixels (H, W) bool, counted from the top."""
    return float(np.argwhere(pixels).mean(0)[0])


def test_the_height_is_proportional_to_the_accuracy(assert_figure: Any, near: Any) -> None:
    none, half, full = (curve((4, correct, 2)) for correct in (0, 1, 2))
    assert_figure(half)
    heights = [height(near(figure, BLUE)) for figure in (none, half, full)]
    assert heights[0] - heights[1] > 50
    assert heights[1] - heights[2] == pytest.approx(heights[0] - heights[1], abs=2)
    assert np.array_equal(curve((4, 5, 10)), half), "the share counts, not the number of texts"


@pytest.mark.parametrize("length", [2, 3, 7])
def test_lengths_are_on_a_linear_axis_and_joined_by_lines(length: int, near: Any) -> None:
    """Lengths 1 to 9; all texts of one length between are correct."""
    line = near(curve((1, 0, 5), (length, 5, 5), (9, 0, 5)), BLUE)
    columns = line.any(0).nonzero()[0]
    assert (np.diff(columns) == 1).all(), "the line has a gap"
    top = line[line.any(1).argmax()].nonzero()[0].mean()
    assert (top - columns[0]) / (columns[-1] - columns[0]) == pytest.approx((length - 1) / 8, abs=0.02)


def test_models_differ_by_color_and_name(assert_figure: Any, near: Any, shows: Any) -> None:
    one, other = {1: (2, 2), 4: (2, 2)}, {1: (0, 2), 4: (0, 2)}
    figure = accuracy_by_length({"with": one, "without $": other})
    assert_figure(figure)
    assert height(near(figure, BLUE)) < height(near(figure, ORANGE))
    swapped = accuracy_by_length({"with": other, "without $": one})
    assert height(near(swapped, BLUE)) > height(near(swapped, ORANGE))
    assert not np.array_equal(accuracy_by_length({"with": one, "rather": other}), figure)
    unnamed = accuracy_by_length({"": one})
    assert shows(unnamed, BLUE) and not shows(unnamed, ORANGE)
    assert unnamed.shape[1] < figure.shape[1], "a model without a name needs no room for a legend"


def test_a_beam_curve_shows_metric_and_seconds_side_by_side(assert_figure: Any, near: Any) -> None:
    rising = beam_curve("bleu", [(1, 10.0, 0.5), (5, 30.0, 0.5)])
    assert_figure(rising)
    metric, seconds = (np.argwhere(near(rising, color)) for color in (GREEN, RED))
    assert metric[:, 1].mean() < rising.shape[1] / 2 < seconds[:, 1].mean()
    falling = beam_curve("bleu", [(1, 30.0, 0.5), (5, 10.0, 0.5)])
    first, last = (np.argwhere(near(figure, GREEN))[:, 1].max() for figure in (rising, falling))
    right_end = [
        np.argwhere(near(figure, GREEN)[:, max(first, last) - 2 :])[:, 0].mean() for figure in (rising, falling)
    ]
    assert right_end[0] + 50 < right_end[1], "a larger value is higher"
