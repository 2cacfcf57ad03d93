"""Recorded attention weights."""

import pytest
import torch
from torch import Tensor, nn

from ram.attention import (
    Attention,
    FixedAttention,
    MultiHeadAttention,
    record_weights,
)
from ram.attention.scores import ScaledDot
from ram.attention.selection import (
    Hard,
    Soft,
)
from tests.ram.attention.helpers import WIDTH


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = Attention(ScaledDot(WIDTH, WIDTH), Soft())
        self.inner = nn.ModuleDict(
            {"heads": MultiHeadAttention(WIDTH, num_heads=2, dropout=0.5), "fixed": FixedAttention(WIDTH)}
        )

    def forward(self, sequence: Tensor) -> list[Tensor | None]:
        heads, fixed = self.inner["heads"], self.inner["fixed"]
        first = self.plain(sequence, sequence, sequence)
        second = heads(sequence, sequence, sequence)
        third = heads.attend(sequence[:, :1], *heads.project(sequence, sequence), None, None, True)
        fourth = fixed(sequence, sequence)
        return [output.weights for output in (first, second, third, fourth)]


def test_the_weights_of_all_calls_are_recorded() -> None:
    torch.manual_seed(0)
    model = _Model()
    first, second = torch.randn(2, 3, WIDTH), torch.randn(1, 5, WIDTH)
    with record_weights(model) as records:
        returned = [model(first), model(second)]
    assert set(records) == {"plain", "inner.heads", "inner.fixed.attention"}
    assert [tuple(weights.shape) for weights in records["plain"]] == [(2, 3, 3), (1, 5, 5)]
    assert [tuple(weights.shape) for weights in records["inner.heads"]] == [
        (2, 2, 3, 3),
        (2, 2, 1, 3),
        (1, 2, 5, 5),
        (1, 2, 1, 5),
    ]
    assert [tuple(weights.shape) for weights in records["inner.fixed.attention"]] == [(2, 1, 3), (1, 1, 5)]
    expected = {
        "plain": [returned[0][0], returned[1][0]],
        "inner.heads": [returned[0][1], returned[0][2], returned[1][1], returned[1][2]],
        "inner.fixed.attention": [returned[0][3], returned[1][3]],
    }
    for name, weights in records.items():
        for recorded, weights_returned in zip(weights, expected[name], strict=True):
            assert weights_returned is not None and torch.equal(recorded, weights_returned)
            assert not recorded.requires_grad
            torch.testing.assert_close(recorded.sum(-1), torch.ones(recorded.shape[:-1]))
    scores = first @ first.mT / 2
    torch.testing.assert_close(records["plain"][0], scores.exp() / scores.exp().sum(-1, keepdim=True))


def test_recording_changes_no_output_and_ends_with_the_context() -> None:
    torch.manual_seed(0)
    model, sequence = _Model().eval(), torch.randn(2, 3, WIDTH)
    plain = model.plain(sequence, sequence, sequence)
    assert plain.weights is None
    with record_weights(model) as records:
        recorded = model.plain(sequence, sequence, sequence)
    torch.testing.assert_close(recorded.context, plain.context)
    assert len(records["plain"]) == 1
    assert model.plain(sequence, sequence, sequence).weights is None  # fused again
    model(sequence)
    assert [len(weights) for weights in records.values()] == [1, 0, 0]


def test_recordings_can_be_nested() -> None:
    model, sequence = _Model(), torch.randn(2, 3, WIDTH)
    with record_weights(model) as outer:
        with record_weights(model.inner) as inner:
            model(sequence)
        model(sequence)
    assert [len(weights) for weights in outer.values()] == [2, 4, 2]
    assert [len(weights) for weights in inner.values()] == [2, 1]
    assert torch.equal(inner["heads"][0], outer["inner.heads"][0])
    assert model.plain(sequence, sequence, sequence).weights is None


def test_recording_ends_after_an_error() -> None:
    model, sequence = _Model(), torch.randn(2, 3, WIDTH)
    with pytest.raises(RuntimeError, match="failed"), record_weights(model) as records:
        model(sequence)
        raise RuntimeError("failed")
    model(sequence)
    assert [len(weights) for weights in records.values()] == [1, 2, 1]


def test_the_record_of_the_module_itself_has_an_empty_name() -> None:
    attention, sequence = MultiHeadAttention(WIDTH, num_heads=2, select=Hard), torch.randn(2, 3, WIDTH)
    with record_weights(attention) as records:
        output = attention(sequence, sequence, sequence)
    assert list(records) == [""]
    assert torch.equal(records[""][0], output.weights)
