"""Attention layers: equality with their formulas, gradients, and invalid options."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from ram.attention import (
    Attention,
    FixedAttention,
    MultiHeadAttention,
    Score,
    causal_mask,
    padding_mask,
)
from ram.attention.scores import Additive, Dot, General, ScaledDot
from ram.attention.selection import (
    Hard,
    Soft,
)
from tests.ram.attention.helpers import SCORES, SEED, SELECTIONS, WIDTH, all_attentions, build, gradients, randn


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_context_of_a_small_example(need_weights: bool) -> None:
    attention = Attention(ScaledDot(4, 4), Soft())
    query = torch.tensor([[[2.0, 0, 0, 0], [0, 0, 0, 0]]])
    keys = torch.tensor([[[0.0, 1, 2, 3], [math.log(2), 0, 5, 0], [math.log(5), 1, 1, 1]]])
    values = torch.tensor([[[8.0, 0], [80.0, 3.0], [800.0, 0]]])
    output = attention(query, keys, values, need_weights=need_weights)
    # The scores of the first query are 0, log 2, log 5; those of the second are 0.
    expected = [[8 / 8 + 80 * 2 / 8 + 800 * 5 / 8, 3 * 2 / 8], [888 / 3, 1]]
    torch.testing.assert_close(output.context, torch.tensor([expected]))
    masked = attention(query, keys, values, torch.tensor([[[True, True, False]]]), need_weights=need_weights)
    expected = [[8 / 3 + 80 * 2 / 3, 2], [88 / 2, 1.5]]
    torch.testing.assert_close(masked.context, torch.tensor([expected]))
    if need_weights:
        weights = [[[1 / 3, 2 / 3, 0], [1 / 2, 1 / 2, 0]]]
        torch.testing.assert_close(masked.weights, torch.tensor(weights))
    else:
        assert masked.weights is None  # the fused kernel returns none


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", SELECTIONS)
def test_the_context_is_the_weighted_sum_of_the_values(score: str, select: str) -> None:
    torch.manual_seed(0)
    attention = Attention(SCORES[score](WIDTH, WIDTH), SELECTIONS[select](WIDTH)).double()
    query, keys, values = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, 2)  # values may have another width
    step = torch.tensor([1, 2, 4])
    torch.manual_seed(1)
    output = attention(query, keys, values, step=step, need_weights=True)
    assert output.weights is not None
    weights, numbers = output.weights.tolist(), values.tolist()
    expected = [
        [[sum(weights[b][q][n] * numbers[b][n][d] for n in range(5)) for d in range(2)] for q in range(3)]
        for b in range(2)
    ]
    torch.testing.assert_close(output.context, torch.tensor(expected, dtype=torch.float64))
    torch.manual_seed(1)
    selection = attention.select(attention.score(query, keys), None, query, step)
    torch.testing.assert_close(output.weights, selection.weights)
    torch.testing.assert_close(output.log_prob, selection.log_prob)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", SELECTIONS)
def test_multi_head_attention_equals_a_loop_over_heads(score: str, select: str) -> None:
    torch.manual_seed(0)
    batch, queries, number = 3, 2, 5
    masks = [
        None,
        padding_mask(torch.tensor([5, 2, 0]), number),
        torch.rand(batch, queries, number) < 0.7,
        causal_mask(number, queries),
    ]
    query, keys, values = randn(batch, queries, WIDTH), randn(batch, number, 3), randn(batch, number, 5)
    step = torch.tensor([1, 3])
    for heads, mask in zip((1, 2, 2, 4), masks, strict=True):
        attention = MultiHeadAttention(WIDTH, 3, 5, heads, SCORES[score], SELECTIONS[select]).double().eval()
        maps = attention.query, attention.key, attention.value
        contexts, log_probs = [], []
        output = attention(query, keys, values, mask, step, need_weights=True)
        assert output.weights is not None and output.weights.shape == (batch, heads, queries, number)
        for head in range(heads):
            rows = slice(head * WIDTH // heads, (head + 1) * WIDTH // heads)
            q, k, v = (each @ linear.weight[rows].T for each, linear in zip((query, keys, values), maps, strict=True))
            selection = attention.select(attention.score(q, k), mask, q, step)
            torch.testing.assert_close(output.weights[:, head], selection.weights)
            contexts.append(selection.weights @ v)
            log_probs.append(selection.log_prob)
        torch.testing.assert_close(output.context, torch.cat(contexts, dim=-1) @ attention.out.weight.T)
        assert (output.log_prob is None) == (select != "hard")
        if output.log_prob is not None:
            torch.testing.assert_close(output.log_prob, sum(log_probs))
        torch.testing.assert_close(attention(query, keys, values, mask, step).context, output.context)


def test_project_applies_the_key_and_value_projections() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(WIDTH, 3, 5, 2).double()
    query, keys, values = randn(2, 3, WIDTH), randn(2, 4, 3), randn(2, 4, 5)
    projected = attention.project(keys, values)
    torch.testing.assert_close(projected[0], keys @ attention.key.weight.T)
    torch.testing.assert_close(projected[1], values @ attention.value.weight.T)
    mask = padding_mask(torch.tensor([2, 4]), 4)
    expected = attention(query, keys, values, mask, need_weights=True)
    output = attention.attend(query, *projected, mask, None, need_weights=True)
    torch.testing.assert_close((output.context, output.weights), (expected.context, expected.weights))


@all_attentions
def test_attend_on_projected_keys_and_values_equals_forward(heads: int | None, score: str, select: str) -> None:
    torch.manual_seed(0)
    attention = build(score, select, heads).eval()
    query, key, value = randn(3, 2, WIDTH), randn(3, 5, WIDTH), randn(3, 5, WIDTH)
    mask, step = torch.rand(3, 2, 5) < 0.7, torch.tensor([1, 4])
    projected = attention.project(key, value)
    for need_weights in (False, True):
        expected = attention(query, key, value, mask, step, need_weights)
        for rows in ([0, 1, 2], [2, 0, 0, 1]):  # projected keys and values may be indexed by row
            chosen = projected[0][rows], projected[1][rows]
            output = attention.attend(query[rows], *chosen, mask[rows], step, need_weights)
            torch.testing.assert_close(output.context, expected.context[rows])
            for part, whole in ((output.weights, expected.weights), (output.log_prob, expected.log_prob)):
                assert (part is None) == (whole is None)
                if part is not None and whole is not None:
                    torch.testing.assert_close(part, whole[rows])
        for position in range(2):  # one query at a time
            now = slice(position, position + 1)
            output = attention.attend(query[:, now], *projected, mask[:, now], step[now], need_weights)
            torch.testing.assert_close(output.context, expected.context[:, now])


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
def test_attend_does_not_project_again(heads: int | None) -> None:
    torch.manual_seed(0)
    attention = build("additive", "soft", heads)
    query, keys, values = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, WIDTH)
    projected, expected = attention.project(keys, values), attention(query, keys, values)
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            if name in (("score.key.weight",) if heads is None else ("key.weight", "value.weight")):
                parameter.zero_()  # not used by attend
    torch.testing.assert_close(attention.attend(query, *projected, None, None, False).context, expected.context)


def test_keys_and_values_are_as_wide_as_queries_by_default() -> None:
    attention = MultiHeadAttention(8, num_heads=2)
    assert (attention.key.in_features, attention.value.in_features) == (8, 8)
    attention = MultiHeadAttention(8, 6, num_heads=2)
    assert (attention.key.in_features, attention.value.in_features) == (6, 6)


def _fixed_score(fixed: FixedAttention, query: list[float], key: list[float]) -> float:
    score = fixed.attention.score
    if isinstance(score, Dot):
        return sum(q * k for q, k in zip(query, key, strict=True))
    assert isinstance(score, Additive)
    out, from_query, from_key = (layer.weight.tolist() for layer in (score.out, score.query, score.key))
    total = 0.0
    for weight, row, column in zip(out[0], from_query, from_key, strict=True):
        inner = sum(w * q for w, q in zip(row, query, strict=True)) + sum(
            w * k for w, k in zip(column, key, strict=True)
        )
        total += weight * math.tanh(inner)
    return total


@pytest.mark.parametrize("score", [Dot, Additive])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_fixed_attention_equals_its_formula(score: type[Score], num_queries: int) -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, score, num_queries=num_queries).double()
    lengths, keys, values = [4, 2], randn(2, 4, 3), randn(2, 4, 2)
    output = fixed(keys, values, padding_mask(torch.tensor(lengths), 4), need_weights=True)
    assert fixed.query in set(fixed.parameters()) and fixed.query.shape == (num_queries, 3)
    assert output.weights is not None and output.weights.shape == (2, num_queries, 4)
    for row, length in enumerate(lengths):
        context: list[float] = []
        for number, query in enumerate(fixed.query.tolist()):
            powers = [math.exp(_fixed_score(fixed, query, key)) for key in keys[row, :length].tolist()]
            weights = [power / sum(powers) for power in powers] + [0.0] * (4 - length)
            torch.testing.assert_close(output.weights[row, number], torch.tensor(weights, dtype=torch.float64))
            context += [sum(w * float(values[row, n, d]) for n, w in enumerate(weights)) for d in range(2)]
        torch.testing.assert_close(output.context[row], torch.tensor(context, dtype=torch.float64))


def test_the_fixed_queries_are_learned() -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, ScaledDot, num_queries=2).double()
    keys, values = randn(2, 4, 3), randn(2, 4, 2)
    assert torch.autograd.gradcheck(lambda query: fixed(keys, values).context, (fixed.query,))


def test_the_log_probability_of_fixed_attention_is_summed_over_queries() -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, Dot, Hard, num_queries=2)
    keys, values = torch.randn(5, 4, 3), torch.randn(5, 4, 2)
    output = fixed(keys, values)
    assert output.weights is not None and output.log_prob is not None
    log_softmax = (fixed.query @ keys.mT).log_softmax(-1)
    torch.testing.assert_close(output.log_prob, (log_softmax * output.weights).sum((1, 2))[:, None])
    assert output.context.shape == (5, 4)


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 4),
    keys=st.integers(1, 5),
    shape=st.sampled_from(["none", "BQN", "B1N", "1QN", "QN", "N", "BQ1"]),
    seed=SEED,
)
def test_the_fused_kernel_equals_explicit_attention(
    heads: int | None, batch: int, queries: int, keys: int, shape: str, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = build("scaled_dot", "soft", heads)
    inputs = [randn(batch, number, WIDTH).requires_grad_() for number in (queries, keys, keys)]
    sizes = {"B": batch, "Q": queries, "N": keys, "1": 1}
    mask = None if shape == "none" else torch.rand([sizes[letter] for letter in shape]) < 0.6
    fused, explicit = attention(*inputs, mask), attention(*inputs, mask, need_weights=True)
    assert fused.weights is None and explicit.weights is not None
    torch.testing.assert_close(fused.context, explicit.context)
    leaves = [*inputs, *attention.parameters()]
    torch.testing.assert_close(gradients(fused, leaves), gradients(explicit, leaves))


def test_only_softmax_of_scaled_dot_products_is_fused() -> None:
    query, keys = torch.randn(1, 2, WIDTH), torch.randn(1, 3, WIDTH)
    for score in SCORES:
        for select in SELECTIONS:
            output = build(score, select, None).float()(query, keys, keys)
            assert (output.weights is None) == (score == "scaled_dot" and select == "soft")


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", ["soft", "unnormalized", "local_m_gaussian", "local_p"])
def test_gradients_equal_finite_differences(heads: int | None, score: str, select: str) -> None:
    torch.manual_seed(1)
    attention = build(score, select, heads)
    inputs = [randn(2, number, WIDTH).requires_grad_() for number in (2, 3, 3)]
    mask = torch.tensor([[[True, True, False], [True] * 3], [[False] * 3, [True, False, False]]])

    def context(query: Tensor, keys: Tensor, values: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(attention(query, keys, values, mask, need_weights=each).context for each in (False, True))

    assert torch.autograd.gradcheck(context, (*inputs, *attention.parameters()), fast_mode=True)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_dropout_outside_its_range_is_refused(dropout: float) -> None:
    match = rf"dropout of attention must be in \[0, 1\), got {dropout}"
    with pytest.raises(InputError, match=match):
        Attention(Dot(2, 2), Soft(), dropout)
    with pytest.raises(InputError, match=match):
        MultiHeadAttention(4, num_heads=2, dropout=dropout)
    with pytest.raises(InputError, match=match):
        FixedAttention(4, dropout=dropout)


@pytest.mark.parametrize("num_heads", [0, -2, 3, 8])
def test_num_heads_must_divide_the_width(num_heads: int) -> None:
    with pytest.raises(InputError, match=f"num_heads must divide the width of a query, 4; got {num_heads}"):
        MultiHeadAttention(4, num_heads=num_heads)


def test_fixed_attention_needs_a_query() -> None:
    with pytest.raises(InputError, match="num_queries must be at least 1, got 0"):
        FixedAttention(4, num_queries=0)


@pytest.mark.parametrize(
    ("query", "keys", "values"),
    [
        ((2, 3, 4), (2, 7, 5), (2, 7, 5)),
        ((2, 3, 5), (2, 7, 6), (2, 7, 6)),
        ((2, 3, 4), (2, 7, 6), (2, 6, 6)),
        ((3, 4), (2, 7, 6), (2, 7, 6)),
        ((1, 3, 4), (2, 7, 6), (2, 7, 6)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    query: tuple[int, ...], keys: tuple[int, ...], values: tuple[int, ...]
) -> None:
    expected = (
        rf"^Attention needs queries \(B, Q, 4\), keys \(B, N, 6\) and values \(B, N, D\); got {re.escape(str(query))}, "
    )
    for attention in (Attention(General(4, 6), Soft(4)), MultiHeadAttention(4, 6, num_heads=2)):
        with pytest.raises(InputError, match=expected):
            attention(torch.zeros(query), torch.zeros(keys), torch.zeros(values))
