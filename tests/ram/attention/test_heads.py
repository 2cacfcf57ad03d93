"""Attention against plain loops, and what must hold of every score with every selection, with one head and several."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from envs.errors import InputError
from ram.attention import (
    Attention,
    AttentionOutput,
    FixedAttention,
    MultiHeadAttention,
    Score,
    Select,
    causal_mask,
    padding_mask,
    record_weights,
)
from ram.attention.positions import NoPositions, Positions, SinusoidalPositions
from ram.attention.scores import Additive, Content, Dot, General, Location, ScaledDot
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Soft,
    Unnormalised,
)

WIDTH = 4
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "content": Content,
    "location": partial(Location, max_length=12),
}
SELECTIONS: dict[str, Callable[[int], Select]] = {
    "soft": Soft,
    "diagonal": Diagonal,
    "unnormalised": Unnormalised,
    "hard": Hard,
    "gumbel": partial(GumbelSoftmax, temperature=0.7),
    "local_m": partial(LocalMonotonic, half_width=2),
    "local_m_gaussian": partial(LocalMonotonic, half_width=2, gaussian=True),
    "local_p": partial(LocalPredictive, half_width=2),
}
SEED = st.integers(0, 2**32 - 1)


def build(score: str, select: str, heads: int | None, dropout: float = 0.0) -> Attention:
    """Of double precision; with one head and no maps where ``heads`` is None."""
    if heads is None:
        attention = Attention(SCORES[score](WIDTH, WIDTH), SELECTIONS[select](WIDTH), dropout)
    else:
        attention = MultiHeadAttention(
            WIDTH, num_heads=heads, score=SCORES[score], select=SELECTIONS[select], dropout=dropout
        )
    return attention.double()


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def every_attention(test: Callable[..., None]) -> Callable[..., None]:
    for name, values in (("select", SELECTIONS), ("score", SCORES)):
        test = pytest.mark.parametrize(name, values)(test)
    return pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])(test)


def grads(read: AttentionOutput, inputs: list[Tensor], rows: Any = slice(None)) -> list[Tensor]:
    """Of a number that every entry of a read moves, hard choices included."""
    factors = torch.linspace(1, 2, read.context.shape[-1], dtype=read.context.dtype)
    number = (read.context[rows] * factors).sum()
    if read.log_prob is not None:
        number = number + read.log_prob[rows].sum()
    if not number.requires_grad:
        return [torch.zeros_like(each) for each in inputs]
    return list(torch.autograd.grad(number, inputs, allow_unused=True, materialize_grads=True, retain_graph=True))


# Against numbers and loops.


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_read_by_hand(need_weights: bool) -> None:
    attention = Attention(ScaledDot(4, 4), Soft())
    query = torch.tensor([[[2.0, 0, 0, 0], [0, 0, 0, 0]]])
    keys = torch.tensor([[[0.0, 1, 2, 3], [math.log(2), 0, 5, 0], [math.log(5), 1, 1, 1]]])
    values = torch.tensor([[[8.0, 0], [80.0, 3.0], [800.0, 0]]])
    read = attention(query, keys, values, need_weights=need_weights)
    # The scores of the first are 0, log 2, log 5, those of the second 0.
    expected = [[8 / 8 + 80 * 2 / 8 + 800 * 5 / 8, 3 * 2 / 8], [888 / 3, 1]]
    torch.testing.assert_close(read.context, torch.tensor([expected]))
    masked = attention(query, keys, values, torch.tensor([[[True, True, False]]]), need_weights=need_weights)
    expected = [[8 / 3 + 80 * 2 / 3, 2], [88 / 2, 1.5]]
    torch.testing.assert_close(masked.context, torch.tensor([expected]))
    if need_weights:
        weights = [[[1 / 3, 2 / 3, 0], [1 / 2, 1 / 2, 0]]]
        torch.testing.assert_close(masked.weights, torch.tensor(weights))
    else:
        assert masked.weights is None  # the kernel of torch keeps none


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", SELECTIONS)
def test_the_context_is_the_weighted_sum_of_the_values(score: str, select: str) -> None:
    torch.manual_seed(0)
    attention = Attention(SCORES[score](WIDTH, WIDTH), SELECTIONS[select](WIDTH)).double()
    query, keys, values = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, 2)  # values of a width of their own
    step = torch.tensor([1, 2, 4])
    torch.manual_seed(1)
    read = attention(query, keys, values, step=step, need_weights=True)
    assert read.weights is not None
    weights, numbers = read.weights.tolist(), values.tolist()
    expected = [
        [[sum(weights[b][q][n] * numbers[b][n][d] for n in range(5)) for d in range(2)] for q in range(3)]
        for b in range(2)
    ]
    torch.testing.assert_close(read.context, torch.tensor(expected, dtype=torch.float64))
    torch.manual_seed(1)
    selection = attention.select(attention.score(query, keys), None, query, step)
    torch.testing.assert_close(read.weights, selection.weights)
    torch.testing.assert_close(read.log_prob, selection.log_prob)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", SELECTIONS)
def test_multi_head_is_a_loop_over_heads(score: str, select: str) -> None:
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
        read = attention(query, keys, values, mask, step, need_weights=True)
        assert read.weights is not None and read.weights.shape == (batch, heads, queries, number)
        for head in range(heads):
            rows = slice(head * WIDTH // heads, (head + 1) * WIDTH // heads)
            q, k, v = (each @ linear.weight[rows].T for each, linear in zip((query, keys, values), maps, strict=True))
            selection = attention.select(attention.score(q, k), mask, q, step)
            torch.testing.assert_close(read.weights[:, head], selection.weights)
            contexts.append(selection.weights @ v)
            log_probs.append(selection.log_prob)
        torch.testing.assert_close(read.context, torch.cat(contexts, dim=-1) @ attention.out.weight.T)
        assert (read.log_prob is None) == (select != "hard")
        if read.log_prob is not None:
            torch.testing.assert_close(read.log_prob, sum(log_probs))
        torch.testing.assert_close(attention(query, keys, values, mask, step).context, read.context)


def test_keys_and_values_are_projected_once_for_many_reads() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(WIDTH, 3, 5, 2).double()
    query, keys, values = randn(2, 3, WIDTH), randn(2, 4, 3), randn(2, 4, 5)
    projected = attention.project(keys, values)
    torch.testing.assert_close(projected[0], keys @ attention.key.weight.T)
    torch.testing.assert_close(projected[1], values @ attention.value.weight.T)
    mask = padding_mask(torch.tensor([2, 4]), 4)
    expected = attention(query, keys, values, mask, need_weights=True)
    read = attention.read(query, *projected, mask, need_weights=True)
    torch.testing.assert_close((read.context, read.weights), (expected.context, expected.weights))


@every_attention
def test_to_project_and_to_read_is_to_attend(heads: int | None, score: str, select: str) -> None:
    torch.manual_seed(0)
    attention = build(score, select, heads).eval()
    query, key, value = randn(3, 2, WIDTH), randn(3, 5, WIDTH), randn(3, 5, WIDTH)
    mask, step = torch.rand(3, 2, 5) < 0.7, torch.tensor([1, 4])
    projected = attention.project(key, value)
    for need_weights in (False, True):
        expected = attention(query, key, value, mask, step, need_weights)
        for rows in ([0, 1, 2], [2, 0, 0, 1]):  # of what is projected rows may be chosen
            chosen = projected[0][rows], projected[1][rows]
            read = attention.read(query[rows], *chosen, mask[rows], step, need_weights)
            torch.testing.assert_close(read.context, expected.context[rows])
            for part, whole in ((read.weights, expected.weights), (read.log_prob, expected.log_prob)):
                assert (part is None) == (whole is None)
                if part is not None and whole is not None:
                    torch.testing.assert_close(part, whole[rows])
        for place in range(2):  # queries one after the other, with keys and values projected once
            now = slice(place, place + 1)
            read = attention.read(query[:, now], *projected, mask[:, now], step[now], need_weights)
            torch.testing.assert_close(read.context, expected.context[:, now])


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
def test_what_is_read_is_the_projected_keys_and_values(heads: int | None) -> None:
    torch.manual_seed(0)
    attention = build("additive", "soft", heads)
    query, keys, values = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, WIDTH)
    projected, expected = attention.project(keys, values), attention(query, keys, values)
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            if name in (("score.key.weight",) if heads is None else ("key.weight", "value.weight")):
                parameter.zero_()  # of no use once keys and values are projected
    torch.testing.assert_close(attention.read(query, *projected).context, expected.context)


def test_keys_and_values_are_as_wide_as_queries_unless_told_otherwise() -> None:
    attention = MultiHeadAttention(8, num_heads=2)
    assert (attention.key.in_features, attention.value.in_features) == (8, 8)
    attention = MultiHeadAttention(8, 6, num_heads=2)
    assert (attention.key.in_features, attention.value.in_features) == (6, 6)


def _fixed_score(fixed: FixedAttention, query: list[float], key: list[float]) -> float:
    score = fixed.attention.score
    if isinstance(score, Dot):
        return sum(q * k for q, k in zip(query, key, strict=True))
    assert isinstance(score, Additive)
    out, from_query, from_key = (part.weight.tolist() for part in (score.out, score.query, score.key))
    total = 0.0
    for weight, row, column in zip(out[0], from_query, from_key, strict=True):
        inner = sum(w * q for w, q in zip(row, query, strict=True)) + sum(
            w * k for w, k in zip(column, key, strict=True)
        )
        total += weight * math.tanh(inner)
    return total


@pytest.mark.parametrize("score", [Dot, Additive])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_fixed_attention_is_its_formula(score: type[Score], num_queries: int) -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, score, num_queries=num_queries).double()
    lengths, keys, values = [4, 2], randn(2, 4, 3), randn(2, 4, 2)
    read = fixed(keys, values, padding_mask(torch.tensor(lengths), 4), need_weights=True)
    assert fixed.num_queries == num_queries
    assert fixed.query in set(fixed.parameters()) and fixed.query.shape == (num_queries, 3)
    assert read.weights is not None and read.weights.shape == (2, num_queries, 4)
    for row, length in enumerate(lengths):
        context: list[float] = []
        for number, query in enumerate(fixed.query.tolist()):
            powers = [math.exp(_fixed_score(fixed, query, key)) for key in keys[row, :length].tolist()]
            weights = [power / sum(powers) for power in powers] + [0.0] * (4 - length)
            torch.testing.assert_close(read.weights[row, number], torch.tensor(weights, dtype=torch.float64))
            context += [sum(w * float(values[row, n, d]) for n, w in enumerate(weights)) for d in range(2)]
        torch.testing.assert_close(read.context[row], torch.tensor(context, dtype=torch.float64))


def test_the_fixed_queries_are_learned() -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, ScaledDot, num_queries=2).double()
    keys, values = randn(2, 4, 3), randn(2, 4, 2)
    assert torch.autograd.gradcheck(lambda query: fixed(keys, values).context, (fixed.query,))


def test_the_choices_of_several_fixed_queries_are_scored_together() -> None:
    torch.manual_seed(0)
    fixed = FixedAttention(3, Dot, Hard, num_queries=2)
    keys, values = torch.randn(5, 4, 3), torch.randn(5, 4, 2)
    read = fixed(keys, values)
    assert read.weights is not None and read.log_prob is not None
    log_softmax = (fixed.query @ keys.mT).log_softmax(-1)
    torch.testing.assert_close(read.log_prob, (log_softmax * read.weights).sum((1, 2))[:, None])
    assert read.context.shape == (5, 4)


# What must hold of every attention.


@every_attention
@settings(max_examples=2, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3).filter(any),
    extra=st.integers(1, 3),
    need_weights=st.booleans(),
    training=st.booleans(),
    seed=SEED,
)
def test_padding_changes_neither_an_output_nor_its_gradient(
    heads: int | None,
    score: str,
    select: str,
    lengths: list[int],
    extra: int,
    need_weights: bool,
    training: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    batch, longest = len(lengths), max(lengths)
    attention = build(score, select, heads).train(training and select != "gumbel")  # whose noise has the keys' number
    parameters = list(attention.parameters())
    query, keys, values = randn(batch, 2, WIDTH), randn(batch, longest, WIDTH), randn(batch, longest, WIDTH)
    longer = [torch.cat([each, 10 * randn(batch, extra, WIDTH)], dim=1) for each in (keys, values)]
    short, long = (
        [each.clone().requires_grad_() for each in inputs] for inputs in ((query, keys, values), (query, *longer))
    )
    reads = []
    for inputs in (short, long):
        torch.manual_seed(seed)
        mask = padding_mask(torch.tensor(lengths), inputs[1].shape[1])
        reads.append(attention(*inputs, mask, need_weights=need_weights))
    read, padded = reads
    torch.testing.assert_close(padded.context, read.context)
    torch.testing.assert_close(padded.log_prob, read.log_prob)
    if read.weights is not None:
        assert padded.weights is not None
        torch.testing.assert_close(padded.weights[..., :longest], read.weights)
        assert not padded.weights[..., longest:].any()
    expected, gradient = grads(read, [*short, *parameters]), grads(padded, [*long, *parameters])
    for number in (1, 2):
        assert not gradient[number][:, longest:].any()
        gradient[number] = gradient[number][:, :longest]
    torch.testing.assert_close(gradient, expected)
    for row, length in enumerate(lengths):
        for each in expected[1:3]:
            assert not each[row, length:].any()
        if length and not attention.training:  # a row by itself, which needs no mask
            alone = attention(
                *(each[row : row + 1, :size] for each, size in zip(short, (2, length, length), strict=True))
            )
            torch.testing.assert_close(alone.context[0], padded.context[row])


@every_attention
@settings(max_examples=2, deadline=None)
@given(
    size=st.integers(2, 6),
    data=st.data(),
    strict=st.booleans(),
    need_weights=st.booleans(),
    training=st.booleans(),
    seed=SEED,
)
def test_nothing_of_the_future_leaks(
    heads: int | None,
    score: str,
    select: str,
    size: int,
    data: st.DataObject,
    strict: bool,
    need_weights: bool,
    training: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).train(training)
    place = data.draw(st.integers(1, size - 1) if strict else st.integers(0, size - 2), label="place")
    past, future = slice(0, place + 1), slice(place if strict else place + 1, None)
    inputs = [randn(2, size, WIDTH).requires_grad_() for _ in range(3)]
    other = [each.detach().clone() for each in inputs]
    other[0][:, place + 1 :] = 10 * randn(2, size - place - 1, WIDTH)
    for each in other[1:]:
        each[:, future] = 10 * torch.randn_like(each[:, future])
    mask = causal_mask(size, strict=strict)
    torch.manual_seed(seed)
    read = attention(*inputs, mask, need_weights=need_weights)
    torch.manual_seed(seed)
    changed = attention(*other, mask, need_weights=need_weights)
    assert torch.equal(changed.context[:, past], read.context[:, past])
    if read.weights is not None:
        assert changed.weights is not None
        assert torch.equal(changed.weights[..., past, :], read.weights[..., past, :])
        assert not read.weights[..., past, place + 1 :].any()
    if read.log_prob is not None:
        assert changed.log_prob is not None
        assert torch.equal(changed.log_prob[:, past], read.log_prob[:, past])
    gradients = grads(read, inputs, (slice(None), past))
    assert gradients[2].any()  # there is a past, and it counts
    assert not gradients[0][:, place + 1 :].any()
    for gradient in gradients[1:]:
        assert not gradient[:, future].any()


@every_attention
@settings(max_examples=2, deadline=None)
@given(
    size=st.integers(1, 6),
    causal=st.sampled_from(["past", "past and present", "everything"]),
    first=st.integers(0, 2),
    need_weights=st.booleans(),
    seed=SEED,
)
def test_step_by_step_equals_all_at_once(
    heads: int | None, score: str, select: str, size: int, causal: str, first: int, need_weights: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).eval()
    query, keys, values = (randn(2, size, WIDTH) for _ in range(3))
    strict = causal == "past"
    if causal == "everything":
        everything = padding_mask(torch.tensor([size, (size + 1) // 2]), size)
        whole = attention(query, keys, values, everything, torch.arange(first, first + size), need_weights)
    else:
        first = 0
        whole = attention(query, keys, values, causal_mask(size, strict=strict), need_weights=need_weights)
    projected = attention.project(keys, values) if isinstance(attention, MultiHeadAttention) else (keys, values)
    for place in range(size):
        step = torch.tensor([first + place])
        seen = slice(0, size if causal == "everything" else place + 1)
        mask = everything if causal == "everything" else causal_mask(place + 1, queries=1, strict=strict)
        rest = (mask, step, need_weights)
        one = query[:, place : place + 1]
        reads = [attention(one, keys[:, seen], values[:, seen], *rest)]
        if isinstance(attention, MultiHeadAttention):
            reads.append(attention.read(one, projected[0][:, seen], projected[1][:, seen], *rest))
        for read in reads:
            torch.testing.assert_close(read.context[:, 0], whole.context[:, place])
            if read.weights is not None:
                assert whole.weights is not None
                torch.testing.assert_close(read.weights[..., 0, :], whole.weights[..., place, seen])
            if read.log_prob is not None:
                assert whole.log_prob is not None
                torch.testing.assert_close(read.log_prob[:, 0], whole.log_prob[:, place])


@every_attention
@settings(max_examples=2, deadline=None)
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 3),
    keys=st.integers(1, 5),
    whole_row=st.booleans(),
    need_weights=st.booleans(),
    training=st.booleans(),
    seed=SEED,
)
def test_a_row_that_sees_nothing_gives_zeros(
    heads: int | None,
    score: str,
    select: str,
    batch: int,
    queries: int,
    keys: int,
    whole_row: bool,
    need_weights: bool,
    training: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).train(training)
    inputs = [randn(batch, number, WIDTH).requires_grad_() for number in (queries, keys, keys)]
    if whole_row:
        mask = torch.rand(batch, 1, keys) < 0.6
        mask[-1] = False
    else:
        mask = torch.rand(batch, queries, keys) < 0.6
        mask[-1, -1] = False
    read = attention(*inputs, mask, need_weights=need_weights)
    blind = ~mask.any(-1).expand(batch, queries)
    assert blind.any()
    assert not read.context[blind].any()
    assert read.context.isfinite().all()
    if read.weights is not None:
        weights = read.weights if heads is None else read.weights.transpose(1, 2)
        assert not weights[blind].any()
        assert weights.isfinite().all()
    if read.log_prob is not None:
        assert not read.log_prob[blind].any()
        assert read.log_prob.isfinite().all()
    assert not any(gradient.any() for gradient in grads(read, [*inputs, *attention.parameters()], blind))
    gradients = grads(read, [*inputs, *attention.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][blind].any()
    if whole_row:
        assert not gradients[1][-1].any() and not gradients[2][-1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("select", "need_weights"), [("soft", False), *((select, True) for select in SELECTIONS)])
def test_a_row_that_sees_nothing_gives_zeros_at_any_precision(
    dtype: torch.dtype, select: str, need_weights: bool
) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(WIDTH, num_heads=2, select=SELECTIONS[select]).to(dtype)
    sequence = torch.randn(2, 3, WIDTH, dtype=dtype, requires_grad=True)
    mask = padding_mask(torch.tensor([2, 0]), 3) & causal_mask(3, strict=True)
    read = attention(sequence, sequence, sequence, mask, need_weights=need_weights)
    assert not read.context[0, 0].any() and not read.context[1].any()
    assert read.context.isfinite().all()
    assert read.context[0, 1:].any(-1).all()
    (gradient,) = grads(read, [sequence])
    assert gradient.isfinite().all()
    assert not gradient[1].any()


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
@pytest.mark.parametrize("select", [name for name in SELECTIONS if not name.startswith(("local", "diagonal"))])
@settings(max_examples=2, deadline=None)
@given(size=st.integers(1, 6), need_weights=st.booleans(), data=st.data(), seed=SEED)
def test_self_attention_without_positions_follows_the_order(
    heads: int | None, score: str, select: str, size: int, need_weights: bool, data: st.DataObject, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).eval()
    order = data.draw(st.permutations(range(size)))
    sequence = randn(2, size, WIDTH)
    read = attention(sequence, sequence, sequence, need_weights=need_weights)
    reordered = attention(*[sequence[:, order]] * 3, need_weights=need_weights)
    torch.testing.assert_close(reordered.context, read.context[:, order])
    if read.weights is not None:
        assert reordered.weights is not None
        torch.testing.assert_close(reordered.weights, read.weights[..., order, :][..., order])
    if read.log_prob is not None:
        torch.testing.assert_close(reordered.log_prob, read.log_prob[:, order])


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
@pytest.mark.parametrize(("positions", "follows"), [(NoPositions, True), (SinusoidalPositions, False)])
def test_positions_tell_the_order(heads: int | None, score: str, positions: type[Positions], follows: bool) -> None:
    torch.manual_seed(0)
    attention, place, sequence = build(score, "soft", heads), positions(WIDTH), randn(2, 5, WIDTH)

    def read(sequence: Tensor) -> Tensor:
        placed = place(sequence)
        return attention(placed, placed, sequence).context  # the values bare: only who is asked may differ

    order = torch.tensor([3, 0, 4, 2, 1])
    assert torch.allclose(read(sequence[:, order]), read(sequence)[:, order]) == follows


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("select", ["soft", "unnormalised", "local_m_gaussian", "local_p"])
def test_the_gradient_is_that_of_the_differences(heads: int | None, score: str, select: str) -> None:
    torch.manual_seed(1)
    attention = build(score, select, heads)
    inputs = [randn(2, number, WIDTH).requires_grad_() for number in (2, 3, 3)]
    mask = torch.tensor([[[True, True, False], [True] * 3], [[False] * 3, [True, False, False]]])

    def read(query: Tensor, keys: Tensor, values: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(attention(query, keys, values, mask, need_weights=each).context for each in (False, True))

    assert torch.autograd.gradcheck(read, (*inputs, *attention.parameters()), fast_mode=True)


# The kernel of torch.


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 4),
    keys=st.integers(1, 5),
    shape=st.sampled_from(["none", "BQN", "B1N", "1QN", "QN", "N", "BQ1"]),
    seed=SEED,
)
def test_the_fused_read_equals_the_explicit_one(
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
    torch.testing.assert_close(grads(fused, leaves), grads(explicit, leaves))


def test_only_plain_scaled_dot_products_are_fused() -> None:
    query, keys = torch.randn(1, 2, WIDTH), torch.randn(1, 3, WIDTH)
    for score in SCORES:
        for select in SELECTIONS:
            read = build(score, select, None).float()(query, keys, keys)
            assert (read.weights is None) == (score == "scaled_dot" and select == "soft")


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("select", SELECTIONS)
def test_a_mask_broadcasts(heads: int | None, select: str) -> None:
    torch.manual_seed(0)
    attention = build("dot", select, heads).eval()
    query, keys, values = randn(3, 2, WIDTH), randn(3, 5, WIDTH), randn(3, 5, WIDTH)
    for shape in ((3, 1, 5), (1, 2, 5), (2, 5), (5,), (3, 2, 1)):
        mask = torch.rand(shape) < 0.6
        read, full = (attention(query, keys, values, each) for each in (mask, mask.expand(3, 2, 5)))
        torch.testing.assert_close(read.context, full.context)
        torch.testing.assert_close(read.log_prob, full.log_prob)


# Dropout.


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_drops_weights_in_training_alone(need_weights: bool) -> None:
    torch.manual_seed(0)
    attention = Attention(ScaledDot(1, 1), Soft(), dropout=0.25)
    query, keys = torch.zeros(4000, 1, 1), torch.zeros(4000, 4, 1)
    values = torch.eye(4).expand(4000, 4, 4)  # so the context shows the weights
    read = attention(query, keys, values, need_weights=need_weights)
    kept = read.context != 0
    torch.testing.assert_close(read.context[kept], torch.full([int(kept.sum())], 1 / 4 / 0.75))
    assert kept.float().mean() == pytest.approx(0.75, abs=0.02)
    if need_weights:
        assert read.weights is not None
        torch.testing.assert_close(read.weights, torch.full_like(read.weights, 1 / 4))  # told as they were weighed
    read = attention.eval()(query, keys, values, need_weights=need_weights)
    torch.testing.assert_close(read.context, torch.full_like(read.context, 1 / 4))


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("select", SELECTIONS)
def test_dropout_changes_nothing_in_evaluation(heads: int | None, select: str) -> None:
    torch.manual_seed(0)
    plain, dropping = (build("scaled_dot", select, heads, dropout) for dropout in (0.0, 0.5))
    dropping.load_state_dict(plain.state_dict())
    inputs = randn(2, 3, WIDTH), randn(2, 5, WIDTH), randn(2, 5, WIDTH)
    for training in (False, True):
        contexts = []
        for attention in (plain, dropping):
            torch.manual_seed(1)  # the same choices; what is not dropped counts twice
            contexts.append(attention.train(training)(*inputs).context)
        assert torch.equal(*contexts) != training


def test_fixed_queries_hand_their_dropout_on() -> None:
    torch.manual_seed(0)
    keys, values = torch.zeros(2000, 4, 2), torch.eye(4).expand(2000, 4, 4)
    fixed = FixedAttention(2, Dot, num_queries=2, dropout=0.25)
    context = fixed(keys, values).context
    torch.testing.assert_close(context.unique(), torch.tensor([0, 1 / 4 / 0.75]))
    assert (context == 0).float().mean() == pytest.approx(0.25, abs=0.02)


# Recording.


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
        third = heads.read(sequence[:, :1], *heads.project(sequence, sequence), need_weights=True)
        fourth = fixed(sequence, sequence)
        return [read.weights for read in (first, second, third, fourth)]


def test_the_weights_of_every_call_are_recorded() -> None:
    torch.manual_seed(0)
    model = _Model()
    first, second = torch.randn(2, 3, WIDTH), torch.randn(1, 5, WIDTH)
    with record_weights(model) as records:
        told = [model(first), model(second)]
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
        "plain": [told[0][0], told[1][0]],
        "inner.heads": [told[0][1], told[0][2], told[1][1], told[1][2]],
        "inner.fixed.attention": [told[0][3], told[1][3]],
    }
    for name, weights in records.items():
        for recorded, weighed in zip(weights, expected[name], strict=True):
            assert weighed is not None and torch.equal(recorded, weighed)
            assert not recorded.requires_grad
            torch.testing.assert_close(recorded.sum(-1), torch.ones(recorded.shape[:-1]))
    scores = first @ first.mT / 2
    torch.testing.assert_close(records["plain"][0], scores.exp() / scores.exp().sum(-1, keepdim=True))


def test_recording_changes_nothing_and_stops_after() -> None:
    torch.manual_seed(0)
    model, sequence = _Model().eval(), torch.randn(2, 3, WIDTH)
    plain = model.plain(sequence, sequence, sequence)
    assert plain.weights is None
    with record_weights(model) as records:
        recorded = model.plain(sequence, sequence, sequence)
    torch.testing.assert_close(recorded.context, plain.context)
    assert len(records["plain"]) == 1
    assert model.plain(sequence, sequence, sequence).weights is None  # the fast way again
    model(sequence)
    assert [len(weights) for weights in records.values()] == [1, 0, 0]


def test_two_may_record_at_once() -> None:
    model, sequence = _Model(), torch.randn(2, 3, WIDTH)
    with record_weights(model) as outer:
        with record_weights(model.inner) as inner:
            model(sequence)
        model(sequence)
    assert [len(weights) for weights in outer.values()] == [2, 4, 2]
    assert [len(weights) for weights in inner.values()] == [2, 1]
    assert torch.equal(inner["heads"][0], outer["inner.heads"][0])
    assert model.plain(sequence, sequence, sequence).weights is None


def test_recording_stops_when_something_fails() -> None:
    model, sequence = _Model(), torch.randn(2, 3, WIDTH)
    with pytest.raises(RuntimeError, match="in between"), record_weights(model) as records:
        model(sequence)
        raise RuntimeError("in between")
    model(sequence)
    assert [len(weights) for weights in records.values()] == [1, 2, 1]


def test_an_attention_by_itself_is_recorded_under_no_name() -> None:
    attention, sequence = MultiHeadAttention(WIDTH, num_heads=2, select=Hard), torch.randn(2, 3, WIDTH)
    with record_weights(attention) as records:
        read = attention(sequence, sequence, sequence)
    assert list(records) == [""]
    assert torch.equal(records[""][0], read.weights)


# What is refused.


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_a_dropout_that_is_no_share_is_refused(dropout: float) -> None:
    match = rf"dropout of attention must be in \[0, 1\), got {dropout}"
    with pytest.raises(InputError, match=match):
        Attention(Dot(2, 2), Soft(), dropout)
    with pytest.raises(InputError, match=match):
        MultiHeadAttention(4, num_heads=2, dropout=dropout)
    with pytest.raises(InputError, match=match):
        FixedAttention(4, dropout=dropout)


@pytest.mark.parametrize("num_heads", [0, -2, 3, 8])
def test_heads_that_do_not_divide_the_width_are_refused(num_heads: int) -> None:
    with pytest.raises(InputError, match=f"num_heads must divide the width of a query, 4; got {num_heads}"):
        MultiHeadAttention(4, num_heads=num_heads)


def test_fixed_attention_without_a_query_is_refused() -> None:
    with pytest.raises(InputError, match="num_queries must be at least 1, got 0"):
        FixedAttention(4, num_queries=0)
