"""Poolings against values computed by hand, and properties of every pooling."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention import Attention
from ram.attention.scores import Additive, Dot, General
from ram.attention.selection import GumbelSoftmax, Hard, LocalPredictive, Unnormalized
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, LastState, Pooling, SumPooling

EVERY: dict[str, Callable[..., Pooling]] = {
    "sum": SumPooling,
    "mean": partial(SumPooling, mean=True),
    "last": LastState,
    "fixed": AttentionPooling,
    "fixed_additive": partial(AttentionPooling, num_queries=3, score=Additive),
    "fixed_unnormalized": partial(AttentionPooling, select=Unnormalized),
    "fixed_hard": partial(AttentionPooling, num_queries=2, select=Hard),
    "fixed_gumbel": partial(AttentionPooling, select=GumbelSoftmax),
    "contextual": ContextualAttentionPooling,
    "contextual_last": partial(ContextualAttentionPooling, query="last"),
    "contextual_unnormalized": partial(ContextualAttentionPooling, select=Unnormalized),
    "contextual_hard": partial(ContextualAttentionPooling, query="last", select=Hard),
    "contextual_local": partial(ContextualAttentionPooling, select=partial(LocalPredictive, half_width=2)),
}

TEXTS = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [100.0, -100.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 12.0]]])
LENGTHS = torch.tensor([2, 3])


def contexts(pooling: Pooling) -> Tensor:
    """Pools both texts."""
    return pooling(TEXTS, LENGTHS).context


def test_sum_and_mean_by_hand() -> None:
    assert contexts(SumPooling(2)).tolist() == [[2, 2], [9, 18]]
    assert contexts(SumPooling(2, mean=True)).tolist() == [[1, 1], [3, 6]]


def test_padding_may_be_nan() -> None:
    padded = TEXTS.clone()
    padded[0, 2] = math.nan
    assert SumPooling(2)(padded, LENGTHS).context.tolist() == [[2, 2], [9, 18]]


def test_last_state_of_each_direction_by_hand() -> None:
    assert contexts(LastState(2)).tolist() == [[0, 2], [5, 12]]
    assert contexts(LastState(2, num_directions=2)).tolist() == [[0, 0], [5, 2]]  # the second half is backward


def set_weight(attention: Attention, weight: list[list[float]]) -> None:
    assert isinstance(attention.score, General)
    attention.score.weight.weight.data = torch.tensor(weight)


def test_attention_pooling_by_hand() -> None:
    pooling = AttentionPooling(2, num_queries=2)
    pooling.attention.query.data = torch.tensor([[math.log(3) / 2, 0.0], [0.0, math.log(2) / 2]])
    pooled = pooling(TEXTS, LENGTHS)
    # Scores of the first text: log 3 and 0, then 0 and log 2. Exponentials of those of the second: 3^(1/2), 3^(3/2),
    # 3^(5/2), proportional to 1, 3, 9; then 2, 4, 64, proportional to 1, 2, 32.
    expected = [[[3 / 4, 1 / 4, 0], [1 / 3, 2 / 3, 0]], [[1 / 13, 3 / 13, 9 / 13], [1 / 35, 2 / 35, 32 / 35]]]
    torch.testing.assert_close(pooled.weights, torch.tensor(expected))
    first, second = [1.5, 0.5, 2 / 3, 4 / 3], [55 / 13, 122 / 13, 167 / 35, 394 / 35]
    torch.testing.assert_close(pooled.context, torch.tensor([first, second]))
    assert pooling.output_size == 4
    assert pooled.log_prob is None


def test_unnormalized_weights_by_hand() -> None:
    pooling = AttentionPooling(2, select=Unnormalized)
    pooling.attention.query.data = torch.tensor([[1.0, -0.5]])
    pooled = pooling(TEXTS, LENGTHS)
    assert pooled.weights is not None
    assert pooled.weights.tolist() == [[[2, -1, 0]], [[0, 1, -1]]]
    assert pooled.context.tolist() == [[4, -2], [-2, -8]]


def test_query_from_the_mean_by_hand() -> None:
    pooling = ContextualAttentionPooling(2)
    set_weight(pooling.attention, [[math.log(3) / 2, 0.0], [0.0, 0.0]])
    pooled = pooling(TEXTS, LENGTHS)
    # The means are (1, 1) and (3, 6): scores log 3, 0; and log 3 times 3/2, 9/2, 15/2, with exponentials proportional
    # to 1, 27, 729.
    torch.testing.assert_close(pooled.weights, torch.tensor([[[3 / 4, 1 / 4, 0]], [[1 / 757, 27 / 757, 729 / 757]]]))
    second = [(1 + 81 + 3645) / 757, (2 + 108 + 8748) / 757]
    torch.testing.assert_close(pooled.context, torch.tensor([[1.5, 0.5], second]))


def test_query_from_the_last_state_by_hand() -> None:
    pooling = ContextualAttentionPooling(2, query="last")
    set_weight(pooling.attention, [[0.0, math.log(3) / 4], [0.0, 0.0]])
    pooled = pooling(TEXTS, LENGTHS)
    # The last states are (0, 2) and (5, 12): scores log 3, 0; and log 3 times 3, 9, 15.
    powers = [1, 3**6, 3**12]
    weights = [power / sum(powers) for power in powers]
    torch.testing.assert_close(pooled.weights, torch.tensor([[[3 / 4, 1 / 4, 0]], [weights]]))

    pooling = ContextualAttentionPooling(2, num_directions=2, query="last")
    set_weight(pooling.attention, [[0.0, math.log(3) / 2], [0.0, 0.0]])
    pooled = pooling(TEXTS, LENGTHS)
    # The queries are (0, 0) and (5, 2): scores 0, 0; and log 3 times 1, 3, 5.
    weights = [power / (3 + 27 + 243) for power in (3, 27, 243)]
    torch.testing.assert_close(pooled.weights, torch.tensor([[[1 / 2, 1 / 2, 0]], [weights]]))


def test_the_log_prob_of_hard_attention_sums_over_queries() -> None:
    pooling = AttentionPooling(2, num_queries=2, select=Hard).eval()
    pooling.attention.query.data = torch.tensor([[math.log(3) / 2, 0.0], [0.0, math.log(2) / 2]])
    pooled = pooling(TEXTS, LENGTHS)
    # The most probable choice of each query.
    assert pooled.context.tolist() == [[2, 0, 0, 2], [5, 12, 5, 12]]
    assert pooled.log_prob is not None
    expected = [math.log(3 / 4 * 2 / 3), math.log(9 / 13 * 32 / 35)]
    torch.testing.assert_close(pooled.log_prob.flatten(1).sum(1), torch.tensor(expected))


def test_hard_attention_samples_in_training() -> None:
    pooling = ContextualAttentionPooling(2, select=Hard).train()
    set_weight(pooling.attention, [[math.log(3) / 2, 0.0], [0.0, 0.0]])
    torch.manual_seed(0)
    pooled = pooling(TEXTS[:1].expand(4000, -1, -1), torch.full((4000,), 2))
    assert pooled.weights is not None and pooled.log_prob is not None
    assert pooled.weights[:, 0, 0].mean() == pytest.approx(3 / 4, abs=0.03)
    chosen = torch.where(pooled.weights[:, 0, 0] == 1, math.log(3 / 4), math.log(1 / 4))
    torch.testing.assert_close(pooled.log_prob.flatten(), chosen)


@pytest.mark.parametrize("num_directions", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_padding_changes_neither_outputs_nor_gradients(name: str, num_directions: int) -> None:
    torch.manual_seed(0)
    pooling = EVERY[name](4, num_directions).double().eval()
    lengths, vectors = [1, 3, 5], torch.randn(3, 5, 4, dtype=torch.float64)
    padded = torch.cat([vectors, vectors], dim=1)
    for row, length in enumerate(lengths):
        padded[row, length:] *= 10
    padded.requires_grad_()
    pooled = pooling(padded, torch.tensor(lengths))
    assert pooled.context.shape == (3, pooling.output_size)
    assert (pooled.log_prob is not None) == name.endswith("_hard")
    for row, length in enumerate(lengths):
        alone = pooling(vectors[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(pooled.context[row], alone.context[0])
        if pooled.weights is not None:
            torch.testing.assert_close(pooled.weights[row, :, :length], alone.weights[0])
            assert not pooled.weights[row, :, length:].any()
        if pooled.log_prob is not None:
            torch.testing.assert_close(pooled.log_prob[row], alone.log_prob[0])
    scalar = (pooled.context * torch.linspace(1, 2, pooling.output_size)).sum()
    if pooled.log_prob is not None:
        scalar = scalar + pooled.log_prob.sum()
    (gradient,) = torch.autograd.grad(scalar, padded)
    for row, length in enumerate(lengths):
        assert not gradient[row, length:].any()
        assert gradient[row, :length].any()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ContextualAttentionPooling, {"query": "first"}, r"pooling\.query must be one of mean, last, got 'first'"),
        (AttentionPooling, {"num_queries": 0}, "num_queries must be at least 1, got 0"),
        (AttentionPooling, {"select": partial(LocalPredictive, half_width=0)}, r"LocalPredictive\.half_width"),
        (ContextualAttentionPooling, {"score": partial(Additive, hidden_size=0)}, r"Additive\.hidden_size"),
    ],
)
def test_errors_name_the_wrong_option(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(2, **options)
    assert kind(2, score=Dot).output_size == 2
