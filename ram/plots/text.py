"""Figures of text classification: words shaded by weights and gradients, and the class that single words predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from envs.rendering import figure_pixels
from ram.plots.style import CORRECT, INK, LETTER, POINTS, WRONG, hide_spines, new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINE_WIDTH = 110  # letters


def weights_over_words(
    texts: Sequence[Sequence[str]],
    weights: Tensor | None,
    gradient_norms: Tensor,
    predictions: Sequence[str],
    labels: Sequence[str],
) -> np.ndarray:
    """Draws texts whose words are shaded by their attention weight, blue, and by their gradient norm, orange.

    The weight of a word is the mean over the queries of the weights' magnitude. The gradient norm is that of the
    prediction with respect to the vector of the word. Each is drawn relative to the largest of its text. The prediction
    is written before each text, green if it is correct and red if it is wrong.

    Args:
        texts: B texts.
        weights: (B, Q, N), or None to draw the gradient norms alone.
        gradient_norms: (B, N).
        predictions: B predicted classes.
        labels: B correct classes.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    lines = [_line_breaks(text) for text in texts]
    longest = max(_width(text[start:end]) for text, parts in zip(texts, lines, strict=True) for start, end in parts)
    shades = [(gradient_norms, "Oranges")]
    if weights is not None:
        shades.insert(0, (weights.abs().mean(1), "Blues"))
    margin = 0.35 + 0.085 * max(map(len, predictions))
    line, gap, legend = 0.2 * len(shades) + 0.06, 0.16, 0.34
    top = sum(len(parts) * line + gap for parts in lines) + legend
    figure = Figure(figsize=(max(margin + longest * LETTER, 4.2), top), dpi=110, facecolor="white")
    for index, text in enumerate(texts):
        top -= gap
        color = CORRECT if predictions[index] == labels[index] else WRONG
        _write(figure, 0.12, top - 0.05, predictions[index], color, fontweight="bold")
        for start, end in lines[index]:
            for row, (values, colormap) in enumerate(shades):
                shares = values[index] / values[index, : len(text)].max().clamp(min=1e-12)
                _write_shaded(figure, margin, top - 0.05 - 0.2 * row, text[start:end], shares[start:end], colormap)
            top -= line
    if weights is not None:
        _write(figure, 0.12, 0.14, "blue: attention", "#2f6fb0")
    _write(figure, 0.12 if weights is None else 1.5, 0.14, "orange: gradient of the prediction", "#d06a1c")
    return figure_pixels(figure)


def direction_of_words(words: Sequence[str], log_odds: Tensor, classes: Sequence[str], shown: int = 20) -> np.ndarray:
    """Draws the words that, each as a text of one word, give the largest log-odds of either of two classes.

    Args:
        words: N words.
        log_odds: (N,), the log-odds of the second class.
        classes: the names of both classes.
        shown: the largest number of words drawn for each class.

    Returns:
        (H, W, 3) uint8.
    """
    shown = min(shown, len(words) // 2)
    order = log_odds.argsort().tolist()
    sides = [(order[:shown], WRONG, classes[0]), (order[::-1][:shown], CORRECT, classes[1])]
    figure = new_figure(6.6, 0.9 + 0.2 * shown)
    for position, (indices, color, name) in enumerate(sides, start=1):
        axes = figure.add_subplot(1, 2, position)
        names = [plain_text(words[index]) for index in indices]
        axes.barh(names[::-1], [float(log_odds[index]) for index in indices][::-1], color=color)
        axes.set_title(plain_text(name), fontsize=POINTS + 1, color=color, loc="left")
        axes.set_xlabel(f"log-odds of {plain_text(classes[1])}", fontsize=POINTS - 1, color=INK)
        hide_spines(axes, "top", "right", "left")
    return figure_pixels(figure)


def _line_breaks(text: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the first word of each line and the word after its last; lines of one word may exceed the width."""
    lines, start = [], 0
    for end in range(1, len(text) + 1):
        if end == len(text) or _width(text[start : end + 1]) > _LINE_WIDTH:
            lines.append((start, end))
            start = end
    return lines


def _width(words: Sequence[str]) -> int:
    """Returns the width of words on one line, in letters, with the spaces after them."""
    return sum(len(word) + 2 for word in words)


def _write_shaded(figure: Figure, x: float, y: float, words: Sequence[str], shares: Tensor, colormap: str) -> None:
    """Writes words on backgrounds whose darkness is their share in [0, 1]."""
    from matplotlib import colormaps

    for word, share in zip(words, shares.tolist(), strict=True):
        width = (len(word) + 1.2) * LETTER
        color = colormaps[colormap](0.75 * max(share, 0))
        background = {"facecolor": color, "edgecolor": "none", "boxstyle": "square,pad=0.12"}
        _write(figure, x + width / 2, y, word, INK, family="monospace", ha="center", bbox=background)
        x += width + 0.02


def _write(figure: Figure, x: float, y: float, text: str, color: str, **options: Any) -> None:
    """Writes text at a position in inches from the lower left corner; ``options`` are those of matplotlib's text."""
    width, height = figure.get_size_inches()
    style: dict[str, Any] = {"family": "sans-serif", "fontsize": POINTS, "va": "center", "color": color}
    figure.text(x / width, y / height, plain_text(text), **style | options)
