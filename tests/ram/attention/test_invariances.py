"""Properties of attention with every score and selection: padding, causality, masks, and order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ram.attention import (
    MultiHeadAttention,
    causal_mask,
    padding_mask,
)
from ram.attention.positions import NoPositions, Positions, SinusoidalPositions
from tests.ram.attention.helpers import SCORES, SEED, SELECTIONS, WIDTH, all_attentions, build, gradients, randn


@all_attentions
@settings(max_examples=2, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3).filter(any),
    extra=st.integers(1, 3),
    need_weights=st.booleans(),
    training=st.booleans(),
    seed=SEED,
)
def test_padding_changes_neither_outputs_nor_gradients(
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
    attention = build(score, select, heads).train(training and select != "gumbel")  # its noise depends on N
    parameters = list(attention.parameters())
    query, keys, values = randn(batch, 2, WIDTH), randn(batch, longest, WIDTH), randn(batch, longest, WIDTH)
    longer = [torch.cat([each, 10 * randn(batch, extra, WIDTH)], dim=1) for each in (keys, values)]
    short, long = (
        [each.clone().requires_grad_() for each in inputs] for inputs in ((query, keys, values), (query, *longer))
    )
    outputs = []
    for inputs in (short, long):
        torch.manual_seed(seed)
        mask = padding_mask(torch.tensor(lengths), inputs[1].shape[1])
        outputs.append(attention(*inputs, mask, need_weights=need_weights))
    output, padded = outputs
    torch.testing.assert_close(padded.context, output.context)
    torch.testing.assert_close(padded.log_prob, output.log_prob)
    if output.weights is not None:
        assert padded.weights is not None
        torch.testing.assert_close(padded.weights[..., :longest], output.weights)
        assert not padded.weights[..., longest:].any()
    expected, gradient = gradients(output, [*short, *parameters]), gradients(padded, [*long, *parameters])
    for number in (1, 2):
        assert not gradient[number][:, longest:].any()
        gradient[number] = gradient[number][:, :longest]
    torch.testing.assert_close(gradient, expected)
    for row, length in enumerate(lengths):
        for each in expected[1:3]:
            assert not each[row, length:].any()
        if length and not attention.training:  # a single row without padding needs no mask
            alone = attention(
                *(each[row : row + 1, :size] for each, size in zip(short, (2, length, length), strict=True))
            )
            torch.testing.assert_close(alone.context[0], padded.context[row])


@all_attentions
@settings(max_examples=2, deadline=None)
@given(
    size=st.integers(2, 6),
    data=st.data(),
    strict=st.booleans(),
    need_weights=st.booleans(),
    training=st.booleans(),
    seed=SEED,
)
def test_later_keys_do_not_change_causal_attention(
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
    position = data.draw(st.integers(1, size - 1) if strict else st.integers(0, size - 2), label="position")
    past, future = slice(0, position + 1), slice(position if strict else position + 1, None)
    inputs = [randn(2, size, WIDTH).requires_grad_() for _ in range(3)]
    other = [each.detach().clone() for each in inputs]
    other[0][:, position + 1 :] = 10 * randn(2, size - position - 1, WIDTH)
    for each in other[1:]:
        each[:, future] = 10 * torch.randn_like(each[:, future])
    mask = causal_mask(size, strict=strict)
    torch.manual_seed(seed)
    output = attention(*inputs, mask, need_weights=need_weights)
    torch.manual_seed(seed)
    changed = attention(*other, mask, need_weights=need_weights)
    assert torch.equal(changed.context[:, past], output.context[:, past])
    if output.weights is not None:
        assert changed.weights is not None
        assert torch.equal(changed.weights[..., past, :], output.weights[..., past, :])
        assert not output.weights[..., past, position + 1 :].any()
    if output.log_prob is not None:
        assert changed.log_prob is not None
        assert torch.equal(changed.log_prob[:, past], output.log_prob[:, past])
    grads = gradients(output, inputs, (slice(None), past))
    assert grads[2].any()  # earlier values have a gradient
    assert not grads[0][:, position + 1 :].any()
    for gradient in grads[1:]:
        assert not gradient[:, future].any()


@all_attentions
@settings(max_examples=2, deadline=None)
@given(
    size=st.integers(1, 6),
    causal=st.sampled_from(["past", "past and present", "all"]),
    first=st.integers(0, 2),
    need_weights=st.booleans(),
    seed=SEED,
)
def test_single_queries_equal_all_queries_at_once(
    heads: int | None, score: str, select: str, size: int, causal: str, first: int, need_weights: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).eval()
    query, keys, values = (randn(2, size, WIDTH) for _ in range(3))
    strict = causal == "past"
    if causal == "all":
        padding = padding_mask(torch.tensor([size, (size + 1) // 2]), size)
        whole = attention(query, keys, values, padding, torch.arange(first, first + size), need_weights)
    else:
        first = 0
        whole = attention(query, keys, values, causal_mask(size, strict=strict), need_weights=need_weights)
    projected = attention.project(keys, values) if isinstance(attention, MultiHeadAttention) else (keys, values)
    for position in range(size):
        step = torch.tensor([first + position])
        seen = slice(0, size if causal == "all" else position + 1)
        mask = padding if causal == "all" else causal_mask(position + 1, queries=1, strict=strict)
        rest = (mask, step, need_weights)
        one = query[:, position : position + 1]
        outputs = [attention(one, keys[:, seen], values[:, seen], *rest)]
        if isinstance(attention, MultiHeadAttention):
            outputs.append(attention.attend(one, projected[0][:, seen], projected[1][:, seen], *rest))
        for output in outputs:
            torch.testing.assert_close(output.context[:, 0], whole.context[:, position])
            if output.weights is not None:
                assert whole.weights is not None
                torch.testing.assert_close(output.weights[..., 0, :], whole.weights[..., position, seen])
            if output.log_prob is not None:
                assert whole.log_prob is not None
                torch.testing.assert_close(output.log_prob[:, 0], whole.log_prob[:, position])


@all_attentions
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
def test_queries_without_visible_keys_have_zero_context(
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
    output = attention(*inputs, mask, need_weights=need_weights)
    has_no_key = ~mask.any(-1).expand(batch, queries)
    assert has_no_key.any()
    assert not output.context[has_no_key].any()
    assert output.context.isfinite().all()
    if output.weights is not None:
        weights = output.weights if heads is None else output.weights.transpose(1, 2)
        assert not weights[has_no_key].any()
        assert weights.isfinite().all()
    if output.log_prob is not None:
        assert not output.log_prob[has_no_key].any()
        assert output.log_prob.isfinite().all()
    assert not any(gradient.any() for gradient in gradients(output, [*inputs, *attention.parameters()], has_no_key))
    grads = gradients(output, [*inputs, *attention.parameters()])
    assert all(gradient.isfinite().all() for gradient in grads)
    assert not grads[0][has_no_key].any()
    if whole_row:
        assert not grads[1][-1].any() and not grads[2][-1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("select", "need_weights"), [("soft", False), *((select, True) for select in SELECTIONS)])
def test_queries_without_visible_keys_have_zero_context_at_any_precision(
    dtype: torch.dtype, select: str, need_weights: bool
) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(WIDTH, num_heads=2, select=SELECTIONS[select]).to(dtype)
    sequence = torch.randn(2, 3, WIDTH, dtype=dtype, requires_grad=True)
    mask = padding_mask(torch.tensor([2, 0]), 3) & causal_mask(3, strict=True)
    output = attention(sequence, sequence, sequence, mask, need_weights=need_weights)
    assert not output.context[0, 0].any() and not output.context[1].any()
    assert output.context.isfinite().all()
    assert output.context[0, 1:].any(-1).all()
    (gradient,) = gradients(output, [sequence])
    assert gradient.isfinite().all()
    assert not gradient[1].any()


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
@pytest.mark.parametrize("select", [name for name in SELECTIONS if not name.startswith(("local", "diagonal"))])
@settings(max_examples=2, deadline=None)
@given(size=st.integers(1, 6), need_weights=st.booleans(), data=st.data(), seed=SEED)
def test_self_attention_without_positions_is_permutation_equivariant(
    heads: int | None, score: str, select: str, size: int, need_weights: bool, data: st.DataObject, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = build(score, select, heads).eval()
    order = data.draw(st.permutations(range(size)))
    sequence = randn(2, size, WIDTH)
    output = attention(sequence, sequence, sequence, need_weights=need_weights)
    reordered = attention(*[sequence[:, order]] * 3, need_weights=need_weights)
    torch.testing.assert_close(reordered.context, output.context[:, order])
    if output.weights is not None:
        assert reordered.weights is not None
        torch.testing.assert_close(reordered.weights, output.weights[..., order, :][..., order])
    if output.log_prob is not None:
        torch.testing.assert_close(reordered.log_prob, output.log_prob[:, order])


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
@pytest.mark.parametrize(("positions", "is_equivariant"), [(NoPositions, True), (SinusoidalPositions, False)])
def test_positions_break_permutation_equivariance(
    heads: int | None, score: str, positions: type[Positions], is_equivariant: bool
) -> None:
    torch.manual_seed(0)
    attention, encode, sequence = build(score, "soft", heads), positions(WIDTH), randn(2, 5, WIDTH)

    def context(sequence: Tensor) -> Tensor:
        encoded = encode(sequence)
        return attention(encoded, encoded, sequence).context  # values without positions

    order = torch.tensor([3, 0, 4, 2, 1])
    assert torch.allclose(context(sequence[:, order]), context(sequence)[:, order]) == is_equivariant


@pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])
@pytest.mark.parametrize("select", SELECTIONS)
def test_masks_broadcast(heads: int | None, select: str) -> None:
    torch.manual_seed(0)
    attention = build("dot", select, heads).eval()
    query, keys, values = randn(3, 2, WIDTH), randn(3, 5, WIDTH), randn(3, 5, WIDTH)
    for shape in ((3, 1, 5), (1, 2, 5), (2, 5), (5,), (3, 2, 1)):
        mask = torch.rand(shape) < 0.6
        output, full = (attention(query, keys, values, each) for each in (mask, mask.expand(3, 2, 5)))
        torch.testing.assert_close(output.context, full.context)
        torch.testing.assert_close(output.log_prob, full.log_prob)
