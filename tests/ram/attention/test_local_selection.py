"""Local selections: windows around a center."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ram.attention import padding_mask
from ram.attention.selection import (
    LocalMonotonic,
    LocalPredictive,
)
from tests.ram.attention.helpers import PROBLEMS, random_problem, softmax


def window(scores: list[float], visible: list[bool], center: float, half_width: int, gaussian: bool) -> list[float]:
    """Luong et al. 2015, section 3.2 and equation 10, with sigma = D / 2."""
    within = [shown and abs(position - center) <= half_width for position, shown in enumerate(visible)]
    sigma = half_width / 2
    return [
        weight * (math.exp(-((position - center) ** 2) / (2 * sigma**2)) if gaussian else 1)
        for position, weight in enumerate(softmax(scores, within))
    ]


def test_local_m_weights_of_a_small_example() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).log().expand(1, 5, 6)
    weights = LocalMonotonic(half_width=1)(scores, step=torch.tensor([0, 1, 3, 5, 9])).weights
    expected = [
        [1 / 3, 2 / 3, 0, 0, 0, 0],  # the window is cut off at the start
        [1 / 6, 2 / 6, 3 / 6, 0, 0, 0],
        [0, 0, 3 / 12, 4 / 12, 5 / 12, 0],
        [0, 0, 0, 0, 5 / 11, 6 / 11],  # and at the end
        [0, 0, 0, 0, 5 / 11, 6 / 11],  # the center stays at the last key
    ]
    torch.testing.assert_close(weights, torch.tensor([expected]))


def test_local_m_weights_with_the_gaussian() -> None:
    select = LocalMonotonic(half_width=2, gaussian=True)
    weights = select(torch.zeros(1, 1, 7), step=torch.tensor([3])).weights
    one, two = math.exp(-1 / 2), math.exp(-4 / 2)  # at distances 1 and 2, with standard deviation 1
    torch.testing.assert_close(weights, torch.tensor([[[0, two / 5, one / 5, 1 / 5, one / 5, two / 5, 0]]]))


def test_local_m_stays_at_the_last_visible_key() -> None:
    mask = padding_mask(torch.tensor([4, 1]), 6)
    weights = LocalMonotonic(half_width=1)(torch.zeros(2, 1, 6), mask, step=torch.tensor([5])).weights
    assert weights.tolist() == [[[0, 0, 0.5, 0.5, 0, 0]], [[1, 0, 0, 0, 0, 0]]]


def test_steps_count_from_0_by_default() -> None:
    scores = torch.zeros(2, 3, 6)
    select = LocalMonotonic(half_width=1)
    assert torch.equal(select(scores).weights, select(scores, step=torch.tensor([0, 1, 2])).weights)
    assert not torch.equal(select(scores).weights, select(scores, step=torch.tensor([1, 2, 3])).weights)


def test_the_default_window_is_that_of_luong() -> None:
    weights = LocalMonotonic()(torch.zeros(1, 1, 50), step=torch.tensor([25])).weights[0, 0]
    assert weights.nonzero().flatten().tolist() == list(range(15, 36))


@settings(max_examples=40, deadline=None)
@given(**PROBLEMS, half_width=st.integers(1, 3), gaussian=st.booleans(), first=st.integers(0, 8), prefix=st.booleans())
def test_local_m_equals_its_formula(
    seed: int, batch: int, queries: int, keys: int, half_width: int, gaussian: bool, first: int, prefix: bool
) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    if prefix:
        mask = padding_mask(mask.sum((1, 2)) % (keys + 1), keys).expand(batch, queries, keys)
    step = torch.arange(first, first + queries)
    expected = torch.zeros(batch, queries, keys, dtype=torch.float64)
    for b, q in product(range(batch), range(queries)):
        center = max(0, min(first + q, int(mask[b, q].sum()) - 1))
        row = window(scores[b, q].tolist(), mask[b, q].tolist(), center, half_width, gaussian)
        expected[b, q] = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(LocalMonotonic(None, half_width, gaussian)(scores, mask, None, step).weights, expected)


def _predicting(logit: float, half_width: int) -> LocalPredictive:
    """Returns a selection with center S sigmoid(logit) for a query of 1."""
    select = LocalPredictive(1, half_width)
    with torch.no_grad():
        select.position[0].weight.fill_(0.5)
        select.position[2].weight.fill_(logit / math.tanh(0.5))
    return select


def test_local_p_weights_of_a_small_example() -> None:
    # sigmoid(-log 3) = 1/4, so the center of 10 keys is 2.5; keys 1 to 4 are within 2; the standard deviation is 1.
    query = torch.ones(1, 1, 1)
    weights = _predicting(-math.log(3), half_width=2)(torch.zeros(1, 1, 10), None, query).weights
    near, far = math.exp(-(0.5**2) / 2), math.exp(-(1.5**2) / 2)
    expected = [0, far / 4, near / 4, near / 4, far / 4, 0, 0, 0, 0, 0]
    torch.testing.assert_close(weights, torch.tensor([[expected]]))


def test_local_p_weights_with_a_center_between_two_keys() -> None:
    # The center of 6 visible keys is 1.5: keys 1 and 2 are within 1, at distance 1/2; the standard deviation is 1/2.
    query, mask = torch.ones(1, 1, 1), padding_mask(torch.tensor([6]), 8)
    scores = torch.tensor([[[9.0, math.log(1), math.log(3), 9, 9, 9, 9, 9]]])
    weights = _predicting(-math.log(3), half_width=1)(scores, mask, query).weights
    near = math.exp(-(0.5**2) / (2 * 0.5**2))
    torch.testing.assert_close(weights, torch.tensor([[[0, near / 4, near * 3 / 4, 0, 0, 0, 0, 0]]]))


def test_local_p_weights_at_both_ends() -> None:
    query, scores = torch.ones(1, 1, 1), torch.zeros(1, 1, 6)
    one, two = math.exp(-1 / 2), math.exp(-4 / 2)
    start = _predicting(-100, half_width=2)(scores, None, query).weights
    torch.testing.assert_close(start, torch.tensor([[[1 / 3, one / 3, two / 3, 0, 0, 0]]]))
    end = _predicting(100, half_width=2)(scores, None, query).weights  # the center is S, one past the last key
    torch.testing.assert_close(end, torch.tensor([[[0, 0, 0, 0, two / 2, one / 2]]]))


@settings(max_examples=40, deadline=None)
@given(**PROBLEMS, half_width=st.integers(1, 3), width=st.integers(1, 3), hidden_size=st.sampled_from([None, 1, 4]))
def test_local_p_equals_its_formula(
    seed: int, batch: int, queries: int, keys: int, half_width: int, width: int, hidden_size: int | None
) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    query = 3 * torch.randn(batch, queries, width, dtype=torch.float64)
    select = LocalPredictive(width, half_width, hidden_size).double()
    inner, outer = select.position[0].weight, select.position[2].weight
    assert inner.shape == (hidden_size or width, width)
    expected = torch.zeros(batch, queries, keys, dtype=torch.float64)
    for b, q in product(range(batch), range(queries)):
        hidden = [
            math.tanh(sum(w * x for w, x in zip(row, query[b, q].tolist(), strict=True))) for row in inner.tolist()
        ]
        logit = sum(v * h for v, h in zip(outer[0].tolist(), hidden, strict=True))
        center = int(mask[b, q].sum()) / (1 + math.exp(-logit))
        row = window(scores[b, q].tolist(), mask[b, q].tolist(), center, half_width, gaussian=True)
        expected[b, q] = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(select(scores, mask, query).weights, expected)


def test_the_predicted_center_has_the_gradient_of_the_gaussian() -> None:
    select = _predicting(-math.log(3), half_width=1)
    query, scores = torch.ones(1, 1, 1, requires_grad=True), torch.zeros(1, 1, 6)
    weights = select(scores, None, query).weights[0, 0]
    (gradient,) = torch.autograd.grad(weights[2], query)
    # p = 6 sigmoid(logit) = 1.5, w = exp(-2 d^2) / 2 with d = 2 - p = 1/2, so dw/dp = 4 d w; dp/dlogit = 6 / 4 * 3 / 4;
    # logit = c tanh(q / 2) with c = -log 3 / tanh(1 / 2), so dlogit/dq = c (1 - tanh^2(1 / 2)) / 2.
    tanh = math.tanh(0.5)
    slope = -math.log(3) / tanh * (1 - tanh**2) / 2
    assert gradient.item() == pytest.approx(4 * 0.5 * math.exp(-0.5) / 2 * (6 / 4 * 3 / 4) * slope, rel=1e-5)


def test_windows_are_exact_in_half_precision() -> None:
    select, scores, step = LocalMonotonic(half_width=2, gaussian=True), torch.zeros(1, 1, 1000), torch.tensor([901])
    weights = select(scores.bfloat16(), step=step).weights
    assert weights.dtype == torch.bfloat16
    assert weights.nonzero()[:, 2].tolist() == [899, 900, 901, 902, 903]
    torch.testing.assert_close(weights.float(), select(scores, step=step).weights, rtol=0.01, atol=0)
