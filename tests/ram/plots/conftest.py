"""Fixtures that find colors in figures."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib import colormaps

Color = tuple[int, ...]


def _near(figure: np.ndarray, color: Color) -> np.ndarray:
    return (abs(figure.astype(int) - np.array(color, int)) <= 1).all(-1)


@pytest.fixture
def near() -> Callable[[np.ndarray, Color], np.ndarray]:
    """Returns where a figure has a color, up to rounding: (H, W) bool."""
    return _near


@pytest.fixture
def shows() -> Callable[[np.ndarray, Color], bool]:
    """Returns whether a figure has a color anywhere."""
    return lambda figure, color: bool(_near(figure, color).any())


@pytest.fixture
def shade() -> Callable[[str, float], Color]:
    """Returns the color of a colormap at a value in [0, 1]."""
    return lambda name, value: tuple(colormaps[name](value, bytes=True)[:3])


@pytest.fixture
def assert_figure() -> Callable[[np.ndarray], None]:
    """Asserts that an array is an RGB image with contents."""

    def check(figure: np.ndarray) -> None:
        assert figure.dtype == np.uint8
        assert figure.ndim == 3 and figure.shape[-1] == 3
        assert figure.std() > 1

    return check
