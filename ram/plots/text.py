"""Pictures of what is read in a text: weights over its words, alignments, and where words lean by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from envs.rendering import figure_pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1b1f27"
_RIGHT, _WRONG = "#0b7a57", "#c8481a"  # bluish green against vermilion, apart in every common colour blindness
_POINTS = 9
_ACROSS = 110  # letters on a line
_LONGEST, _HEADS = 40, 8  # words along a side of an alignment, and heads side by side: more cannot be read
_LETTER = 0.078  # inches that a letter of so many points takes, at most


def weights_over_words(
    texts: Sequence[Sequence[str]],
    weights: Tensor | None,
    influence: Tensor,
    said: Sequence[str],
    labels: Sequence[str],
) -> np.ndarray:
    """Draws texts whose words are shaded by what they count.

    Blue is explicit: the weight that attention gives the word, the mean of several queries'; of weights of either sign,
    the size. Orange is implicit: how much the answer would change with the word's vector, the norm of its gradient.
    Each is shown as a share of the text's largest.

    Args:
        texts: B texts.
        weights: (B, Q, N), or None where nothing is weighed.
        influence: (B, N).
        said: B answers.
        labels: B right answers.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    lines = [_lines(text) for text in texts]
    longest = max(_letters(text[first:end]) for text, parts in zip(texts, lines, strict=True) for first, end in parts)
    shares = [(influence, "Oranges")] if weights is None else [(weights.abs().mean(1), "Blues"), (influence, "Oranges")]
    margin = 0.35 + 0.085 * max(map(len, said))
    line, gap, legend = 0.2 * len(shares) + 0.06, 0.16, 0.34
    top = sum(len(parts) * line + gap for parts in lines) + legend
    figure = Figure(figsize=(max(margin + longest * _LETTER, 4.2), top), dpi=110, facecolor="white")
    for number, text in enumerate(texts):
        top -= gap
        _write(figure, 0.12, top - 0.05, said[number], _RIGHT if said[number] == labels[number] else _WRONG, bold=True)
        for first, end in lines[number]:
            for drop, (values, colours) in enumerate(shares):
                largest = float(values[number, : len(text)].max().clamp(min=1e-12))
                left, height = margin, top - 0.05 - 0.2 * drop
                for word, value in zip(text[first:end], values[number, first:end].tolist(), strict=True):
                    across = (len(word) + 1.2) * _LETTER
                    colour = colormaps[colours](0.75 * max(value, 0) / largest)
                    _write(figure, left + across / 2, height, word, _INK, ground=colour, middle=True)
                    left += across + 0.02
            top -= line
    if weights is not None:
        _write(figure, 0.12, 0.14, "blue: attention", "#2f6fb0")
    _write(figure, 0.12 if weights is None else 1.5, 0.14, "orange: gradient of the answer", "#d06a1c")
    return figure_pixels(figure)


def alignment(weights: Tensor, queries: Sequence[str], keys: Sequence[str], title: str = "") -> np.ndarray:
    """Draws which keys each query read: a row a query, a column a key, dark where the weight is large.

    Shares are blue. Weights of either sign or above 1 go from red to blue, up to the largest; of long texts the
    beginning is drawn.

    Args:
        weights: (Q, N), or of heads side by side (H, Q, N).
        queries: Q names.
        keys: N names.
        title: written above.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    heads = weights.detach().cpu().reshape(-1, len(queries), len(keys))[:_HEADS, :_LONGEST, :_LONGEST]
    queries, keys = queries[:_LONGEST], keys[:_LONGEST]
    shares = bool(((heads >= 0) & (heads <= 1)).all())
    largest = 1.0 if shares else float(heads.abs().max())
    margin = 0.3 + max(map(len, queries)) * _LETTER, 0.5 + max(map(len, keys)) * _LETTER
    size = margin[0] + (0.27 * len(keys) + 0.25) * len(heads), margin[1] + 0.27 * len(queries) + 0.15
    figure = Figure(figsize=size, dpi=110, facecolor="white", layout="constrained")
    for number, (axes, head) in enumerate(zip(figure.subplots(1, len(heads), squeeze=False)[0], heads, strict=True)):
        axes.imshow(head.numpy(), cmap="Blues" if shares else "RdBu", vmin=0 if shares else -largest, vmax=largest)
        axes.set_xticks(range(len(keys)), map(_plain, keys), rotation=90, fontsize=_POINTS)
        axes.set_yticks(range(len(queries)), map(_plain, queries if number == 0 else [""] * len(queries)))
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelsize=_POINTS)
        for spine in axes.spines.values():
            spine.set_color("#d5d9e0")
    figure.suptitle(_plain(title), fontsize=_POINTS, color=_INK)
    return figure_pixels(figure)


def direction_of_words(words: Sequence[str], lean: Tensor, classes: Sequence[str], shown: int = 20) -> np.ndarray:
    """Draws the words that, each as a text of its own, speak most for either of two classes.

    Args:
        words: N words.
        lean: (N,), the log-odds of the second class.
        classes: both names.
        shown: words a side, at most.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    shown = min(shown, len(words) // 2)
    order = lean.argsort().tolist()
    sides = [(order[:shown], _WRONG, classes[0]), (order[::-1][:shown], _RIGHT, classes[1])]
    figure = Figure(figsize=(6.6, 0.9 + 0.2 * shown), dpi=110, facecolor="white", layout="constrained")
    for number, (chosen, colour, name) in enumerate(sides, start=1):
        axes = figure.add_subplot(1, 2, number)
        axes.barh(
            [_plain(words[each]) for each in chosen][::-1], [float(lean[each]) for each in chosen][::-1], color=colour
        )
        axes.set_title(_plain(name), fontsize=_POINTS + 1, color=colour, loc="left")
        axes.set_xlabel(f"log-odds of {_plain(classes[1])}", fontsize=_POINTS - 1, color=_INK)
        _bare(axes, "top", "right", "left")
    return figure_pixels(figure)


def accuracy_by_length(counts: Mapping[str, Mapping[int, tuple[int, int]]]) -> np.ndarray:
    """Draws which share of texts is right, by their length.

    Args:
        counts: by the name of a model and the length of texts, how many were right, and of how many.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10 if len(counts) > 1 else 6, 3.8), dpi=110, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for number, (name, lengths) in enumerate(counts.items()):
        shares = [100 * right / total for right, total in lengths.values()]
        colour = colormaps["tab10"](number % 10)
        dashes = ("-", "--", ":")[number // 10 % 3]
        axes.plot(list(lengths), shares, dashes, color=colour, marker="o", markersize=3, label=_plain(name))
    axes.set_xlabel("words of the source", fontsize=_POINTS, color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("right, in %", fontsize=_POINTS, color=_INK)
    axes.set_ylim(-3, 103)
    _bare(axes, "top", "right")
    if any(counts):
        axes.legend(fontsize=_POINTS - 2, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure_pixels(figure)


def beam_curve(metric: str, rows: Sequence[tuple[int, float, float]]) -> np.ndarray:
    """Draws what a wider beam gains, and what it costs.

    Args:
        metric: what is gained.
        rows: size of the beam, the metric, and seconds.

    Returns:
        (H, W, 3) uint8.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3), dpi=110, facecolor="white", layout="constrained")
    sizes = [size for size, _, _ in rows]
    told = [(metric, [value for _, value, _ in rows], _RIGHT), ("seconds", [spent for _, _, spent in rows], _WRONG)]
    for number, (name, values, colour) in enumerate(told, start=1):
        axes = figure.add_subplot(1, 2, number)
        axes.plot(sizes, values, color=colour, marker="o", markersize=3.5)
        axes.set_xlabel("hypotheses followed", fontsize=_POINTS, color=_INK)
        axes.set_title(name, fontsize=_POINTS + 1, color=colour, loc="left")
        axes.set_xticks(sizes)
        _bare(axes, "top", "right")
    figure.axes[1].set_ylim(bottom=0)
    return figure_pixels(figure)


def _bare(axes: Axes, *sides: str) -> None:
    """Axes with small numbers, and without some of their sides."""
    axes.tick_params(labelsize=_POINTS - 1, length=0, colors=_INK)
    for side in sides:
        axes.spines[side].set_visible(False)


def _lines(text: Sequence[str]) -> list[tuple[int, int]]:
    """Where the lines of a text begin and end, none longer than ``_ACROSS`` letters if words allow."""
    lines, first = [], 0
    for end in range(1, len(text) + 1):
        if end == len(text) or _letters(text[first : end + 1]) > _ACROSS:
            lines.append((first, end))
            first = end
    return lines


def _letters(words: Sequence[str]) -> int:
    """How many letters wide some words are, with what is between them."""
    return sum(len(word) + 2 for word in words)


def _plain(text: str) -> str:
    """Text without mathematics, which matplotlib sees between two dollar signs."""
    return text.replace("$", r"\$")


def _write(
    figure: Figure,
    x: float,
    y: float,
    text: str,
    colour: str,
    ground: object = None,
    bold: bool = False,
    middle: bool = False,
) -> None:
    """Writes at a place in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    box = None if ground is None else {"facecolor": ground, "edgecolor": "none", "boxstyle": "square,pad=0.12"}
    figure.text(
        x / width,
        y / height,
        _plain(text),
        color=colour,
        fontsize=_POINTS,
        fontweight="bold" if bold else "normal",
        family="monospace" if middle else "sans-serif",
        ha="center" if middle else "left",
        va="center",
        bbox=box,
    )
