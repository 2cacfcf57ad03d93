"""Fonts of figures are chosen by the characters of their texts."""

import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from envs import fonts
from envs.rendering import figure_pixels


def _text(written: str, family: str = "DejaVu Sans"):
    figure = Figure(figsize=(2, 1))
    return figure, figure.text(0.1, 0.5, written, family=family)


def test_a_font_that_has_the_characters_is_added() -> None:
    figure, text = _text("x ∮ ꜳ", family="cmr10")  # the font of computer modern lacks these signs
    figure_pixels(figure)
    families = text.get_fontfamily()
    assert families[0] == "cmr10" and len(families) > 1
    paths = [font.fname for font in fontManager.ttflist if font.name in families]
    assert set("x∮ꜳ") <= set().union(*(fonts._characters(path) for path in paths))


def test_fonts_are_kept_where_they_suffice() -> None:
    figure, text = _text("Größe, книга")
    figure_pixels(figure)
    assert text.get_fontfamily() == ["DejaVu Sans"]


def test_characters_without_a_font_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "DejaVu" in font.name])
    fonts._best_font.cache_clear()
    figure, _ = _text("犬 dog")
    with pytest.warns(
        UserWarning, match=r"^No installed font has the characters 犬 \(CJK\), which figures show as boxes"
    ):
        figure_pixels(figure)
