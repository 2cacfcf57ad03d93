"""Colors, sizes and helpers that the figures of texts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#1b1f27"
CORRECT, WRONG = "#0b7a57", "#c8481a"  # bluish green and vermilion: distinct in every common color blindness
POINTS = 9
LETTER = 0.078  # inches, the largest width of a letter at this font size


def plain_text(text: str) -> str:
    """Escapes the dollar signs, between which matplotlib would set mathematics."""
    return text.replace("$", r"\$")


def hide_spines(axes: Axes, *sides: str) -> None:
    """Hides the given sides of the frame and the tick marks, and makes the tick labels small."""
    axes.tick_params(labelsize=POINTS - 1, length=0, colors=INK)
    for side in sides:
        axes.spines[side].set_visible(False)
