"""Colors, sizes and helpers that the figures of texts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1f27"
CORRECT, WRONG = "#0b7a57", "#c8481a"  # bluish green and vermilion: distinct in every common color blindness
POINTS = 9
LETTER = 0.078  # inches, the largest width of a letter at this font size


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty white figure of a size in inches, which arranges its axes without overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, facecolor="white", layout="constrained")


def plain_text(text: str) -> str:
    """Escapes the dollar signs, between which matplotlib would set mathematics."""
    return text.replace("$", r"\$")


def hide_spines(axes: Axes, *sides: str) -> None:
    """Hides the given sides of the frame and the tick marks, and makes the tick labels small."""
    axes.tick_params(labelsize=POINTS - 1, length=0, colors=INK)
    for side in sides:
        axes.spines[side].set_visible(False)
