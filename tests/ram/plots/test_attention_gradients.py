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
from ram.attention.selection import Hard, LocalMonotonic, Soft, Unnormalized


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "examples" / "attention_gradients.py"))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # it passes tensors to matplotlib
def test_the_example_writes_a_figure(
    example: dict[str, Any], assert_figure: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gradients.png"
    example["main"](str(path))
    header, *rows, last = capsys.readouterr().out.splitlines()
    assert header.startswith("correlation with the weights") and last == f"  {path}"
    assert len(rows) == 4
    for row in rows:
        values, words, before_self_attention = map(float, row.split()[-3:])
        assert values == 1 and words > 0.9 and before_self_attention < 0.7
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
        (Unnormalized(), None),
    ],
    ids=["soft", "causal", "padding", "local", "hard", "unnormalized"],
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


def test_the_gradient_with_respect_to_a_word_vector_equals_its_formula(example: dict[str, Any]) -> None:
    torch.manual_seed(0)
    query, words = torch.randn(1, 6, 16), torch.randn(1, 12, 16)
    attention = Attention(ScaledDot(16, 16), Soft())
    weights = attention(query, words, words, need_weights=True).weights[0]
    context = weights @ words[0]
    # dc / dx_n = w_n (I + (x_n - c) q^T / sqrt(D)), whose squared Frobenius norm has this closed form.
    difference = words - context[:, None]  # (Q, N, D)
    squares = 16 + 2 / 4 * (difference @ query[0][..., None])[..., 0]
    squares = squares + (difference.norm(dim=-1) * query[0].norm(dim=-1)[:, None] / 4).square()
    expected = weights * (squares / 16).sqrt()
    torch.testing.assert_close(example["word_gradients"](attention, query, words, None), expected)
