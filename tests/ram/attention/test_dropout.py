"""Dropout of attention weights."""

import pytest
import torch
from torch import Tensor

from ram.attention import (
    Attention,
    AttentionOutput,
    FixedAttention,
    MultiHeadAttention,
)
from ram.attention.scores import ScaledDot
from ram.attention.selection import (
    Soft,
)
from tests.ram.attention.helpers import SELECTIONS, WIDTH, build, randn


def _uniform_attention(layer: str, mask: Tensor | None, need_weights: bool) -> AttentionOutput:
    """Attends uniformly to one-hot values with dropout 0.25 in training: the context is the dropped weights."""
    query, keys, values = torch.zeros(4000, 1, 4), torch.zeros(4000, 4, 4), torch.eye(4).expand(4000, -1, -1)
    if layer == "fixed":
        return FixedAttention(4, dropout=0.25)(keys, values, mask, need_weights)
    if layer == "single":
        return Attention(ScaledDot(4, 4), Soft(), dropout=0.25)(query, keys, values, mask, None, need_weights)
    heads = MultiHeadAttention(4, num_heads=2, dropout=0.25)
    for projection in (heads.value, heads.out):
        projection.weight.data = torch.eye(4)
    return heads(query, keys, values, mask, None, need_weights)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("layer", ["single", "multi_head", "fixed"])
def test_dropout_drops_weights_and_scales_the_others(layer: str, is_masked: bool, need_weights: bool) -> None:
    torch.manual_seed(0)
    visible = 3 if is_masked else 4
    mask = torch.arange(4) < visible if is_masked else None
    output = _uniform_attention(layer, mask, need_weights)
    context = output.context.view(4000, 4)
    kept = context != 0
    assert not kept[:, visible:].any()
    torch.testing.assert_close(context[kept], torch.full([int(kept.sum())], 1 / visible / 0.75))
    assert kept[:, :visible].float().mean() == pytest.approx(0.75, abs=0.02)
    together = (kept[:, 0] & kept[:, 1]).float().mean()
    assert together == pytest.approx(0.75**2, abs=0.03)  # weights are dropped independently
    assert (output.weights is not None) == need_weights
    if output.weights is not None:  # the weights are returned before dropout
        assert output.weights[..., :visible].unique().tolist() == pytest.approx([1 / visible])


@pytest.mark.parametrize("need_weights", [False, True], ids=["fused", "explicit"])
def test_the_gradient_flows_through_kept_weights_only(need_weights: bool) -> None:
    torch.manual_seed(0)
    attention = Attention(ScaledDot(2, 2), Soft(), dropout=0.5)
    values = torch.eye(4).expand(50, 4, 4).clone().requires_grad_()
    context = attention(torch.zeros(50, 1, 2), torch.zeros(50, 4, 2), values, need_weights=need_weights).context
    context.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, context.detach().mT.expand(50, 4, 4))
    assert 0.3 < (context == 0).float().mean() < 0.7


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("select", SELECTIONS)
def test_dropout_changes_training_only(heads: int | None, select: str) -> None:
    torch.manual_seed(0)
    plain, dropping = (build("scaled_dot", select, heads, dropout) for dropout in (0.0, 0.5))
    dropping.load_state_dict(plain.state_dict())
    inputs = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, WIDTH)
    for training in (False, True):
        contexts = []
        for attention in (plain, dropping):
            torch.manual_seed(1)  # the same samples
            contexts.append(attention.train(training)(*inputs).context)
        assert torch.equal(*contexts) != training
