"""Fonts of figures: texts in any script that an installed font has."""

from __future__ import annotations

import unicodedata
import warnings
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def choose_fonts(figure: Figure) -> None:
    """Adds to every text of a matplotlib figure the installed fonts that have the characters its own font lacks.

    Characters that no font has become small boxes, and a warning names them.
    """
    from matplotlib.font_manager import findfont
    from matplotlib.text import Text

    lacking: set[str] = set()
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        characters = {each for each in text.get_text() if each.isprintable() and not unicodedata.combining(each)}
        missing = characters - _characters(findfont(text.get_fontproperties()))
        families = list(text.get_fontfamily())
        while missing and (found := _best_font(frozenset(missing))):
            families.append(found[0])
            missing -= found[1]
        if len(families) > len(text.get_fontfamily()):
            text.set_fontfamily(families)
        lacking |= missing
    if lacking:
        shown = "".join(sorted(lacking)[:8])
        name = unicodedata.name(min(lacking), "UNKNOWN").split()[0]
        warnings.warn(
            f"No installed font has the characters {shown} ({name}), which figures show as boxes: install a font that "
            "has them, such as a Noto font.",
            stacklevel=2,
        )


@cache
def _characters(path: str) -> frozenset[str]:
    """Returns the characters of a font file; none if it is missing or damaged."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


@cache
def _best_font(missing: frozenset[str]) -> tuple[str, frozenset[str]] | None:
    """Returns the family with most of the missing characters, and its characters; None if no font has any."""
    from matplotlib.font_manager import fontManager

    fonts = sorted(
        {
            (font.name, font.fname)
            for font in fontManager.ttflist
            if font.style == "normal" and not font.name.startswith("Last Resort")  # which has boxes for all characters
        }
    )
    if not fonts:
        return None
    family, path = max(fonts, key=lambda font: len(missing & _characters(font[1])))
    return (family, _characters(path)) if missing & _characters(path) else None
