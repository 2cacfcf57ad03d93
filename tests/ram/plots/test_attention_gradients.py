"""The example that draws attention weights beside gradients."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from ram.attention import Attention, causal_mask
from ram.attention.scores import ScaledDot
from ram.attention.selection import Hard, LocalMonotonic, Soft, Unnormalised


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "examples" / "attention_gradients.py"))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # it passes tensors to matplotlib
def test_the_example_writes_a_figure(
    example: dict[str, Any], assert_figure: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gradients.png"
    example["main"](str(path))
    assert capsys.readouterr().out == f"  {path}\n"
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert_figure(np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("select", "mask"),
    [
        (Soft(), None),
        (Soft(), causal_mask(12, 6)),
        (Soft(), torch.arange(12) < 5),
        (LocalMonotonic(half_width=2), None),
        (Hard().eval(), None),
        (Unnormalised(), None),
    ],
    ids=["soft", "causal", "padding", "local", "hard", "unnormalised"],
)
def test_the_gradient_with_respect_to_a_value_is_its_weight(
    example: dict[str, Any], select: Any, mask: Tensor | None
) -> None:
    torch.manual_seed(0)
    query, keys = torch.randn(1, 6, 16), torch.randn(1, 12, 16)
    attention = Attention(ScaledDot(16, 16), select)
    weights = attention(query, keys, keys, mask, need_weights=True).weights[0]
    gradients = example["gradients"](attention, query, keys, mask)
    torch.testing.assert_close(gradients, weights.abs())
    assert torch.equal(gradients == 0, weights == 0)
