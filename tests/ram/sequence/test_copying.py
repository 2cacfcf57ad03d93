"""Copying source tokens: the mixture by hand, its gradient, and training."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import InputError
from ram.attention.selection import Unnormalized
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence.context import CrossAttention
from ram.sequence.seq2seq import copy_distribution
from tests.ram.sequence.seq2seq_cases import (
    COPY_IDS,
    SOURCES,
    TARGET_SIZE,
    TARGETS,
    WITH_ATTENTION,
    WITHOUT_ATTENTION,
    build,
    lengths,
    make_encoder_decoder,
    make_inputs,
    padded,
    recurrent_decoder,
    run,
)


def probs(*rows: list[float]) -> Tensor:
    """(1, T, ...)."""
    return torch.tensor([rows], dtype=torch.float64)


def test_mixture_by_hand() -> None:
    generated, weights = probs([0.6], [0.9]), probs([0.2, 0.3, 0.5], [1.0, 0.0, 0.0])
    logits = probs([0.5, 0.25, 0.25], [0.2, 0.2, 0.6]).log() + 7  # the scale does not matter
    mixture, copied = copy_distribution(logits, weights, torch.tensor([[1, 4, 1]]), generated)
    expected = [
        # The first and the last source token are the same.
        [0.6 * 0.5, 0.6 * 0.25 + 0.4 * (0.2 + 0.5), 0.6 * 0.25, 0, 0.4 * 0.3],
        [0.9 * 0.2, 0.9 * 0.2 + 0.1, 0.9 * 0.6, 0, 0],
    ]
    torch.testing.assert_close(mixture.exp(), probs(*expected), atol=1e-12, rtol=1e-6)
    assert copied[0].tolist() == pytest.approx([0.4, 0.1])
    assert mixture[0, :, [0, 1, 2, 4]].isfinite().all()


def test_weights_below_1_increase_the_generated_probability() -> None:
    generated, weights = probs([0.6]), probs([0.1, 0.0, 0.4])
    mixture, copied = copy_distribution(probs([0.5, 0.25, 0.25]).log(), weights, torch.tensor([[3, 0, 2]]), generated)
    # The weights sum to 0.5: 0.2 is copied, 0.8 generated.
    expected = [0.8 * 0.5, 0.8 * 0.25, 0.8 * 0.25 + 0.4 * 0.4, 0.4 * 0.1]
    torch.testing.assert_close(mixture.exp(), probs(expected))
    assert copied[0].tolist() == pytest.approx([0.2])


def test_without_tokens_out_of_vocabulary_the_vocabulary_is_not_extended() -> None:
    mixture, _ = copy_distribution(
        probs([0.5, 0.25, 0.25]).log(), probs([0.5, 0.5]), torch.tensor([[2, 0]]), probs([0.5])
    )
    torch.testing.assert_close(mixture.exp(), probs([0.5, 0.125, 0.375]))


def test_tokens_out_of_vocabulary_differ_between_rows() -> None:
    logits = probs([0.5, 0.5]).log().expand(2, 1, 2)
    weights = torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]], dtype=torch.float64)
    generated = torch.tensor([[[0.2]], [[0.6]]], dtype=torch.float64)
    mixture, copied = copy_distribution(logits, weights, torch.tensor([[2, 3], [0, 2]]), generated)
    expected = [[[0.1, 0.1, 0.2, 0.6]], [[0.5, 0.3, 0.2, 0]]]
    torch.testing.assert_close(mixture.exp(), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(copied, torch.tensor([[0.8], [0.4]], dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    steps=st.integers(1, 3),
    length=st.integers(1, 5),
    vocabulary_size=st.integers(1, 4),
    extra=st.integers(0, 3),
    local=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_mixture_equals_its_formula(
    batch: int, steps: int, length: int, vocabulary_size: int, extra: int, local: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(batch, steps, vocabulary_size, dtype=torch.float64)
    generated = torch.rand(batch, steps, 1).double()
    weights = torch.randn(batch, steps, length, dtype=torch.float64).softmax(-1)
    if local:
        weights = weights * torch.rand(batch, steps, length)
    copy_ids = torch.randint(0, vocabulary_size + extra, (batch, length))
    mixture, copied = copy_distribution(logits, weights, copy_ids, generated)
    size = max(vocabulary_size, int(copy_ids.max()) + 1)
    assert mixture.shape == (batch, steps, size)
    for b in range(batch):
        for t in range(steps):
            total = (1 - float(generated[b, t])) * float(weights[b, t].sum())
            expected = [(1 - total) * prob for prob in logits[b, t].softmax(-1).tolist()]
            expected += [0.0] * (size - vocabulary_size)
            for position, token in enumerate(copy_ids[b].tolist()):
                expected[token] += (1 - float(generated[b, t])) * float(weights[b, t, position])
            assert mixture[b, t].exp().tolist() == pytest.approx(expected)
            assert float(copied[b, t]) == pytest.approx(total)
    torch.testing.assert_close(mixture.exp().sum(-1), torch.ones(batch, steps, dtype=torch.float64))


def test_gradient_of_the_mixture() -> None:
    torch.manual_seed(0)
    copy_ids = torch.tensor([[1, 4, 1, 0], [2, 2, 3, 5]])
    logits, raw, gate = (torch.randn(2, 3, size, dtype=torch.float64, requires_grad=True) for size in (3, 4, 1))

    def mixture_of_possible(logits: Tensor, raw: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        mixture, copied = copy_distribution(logits, raw.softmax(-1) * 0.9, copy_ids, gate.sigmoid())
        possible = torch.cat([mixture[0, :, [0, 1, 2, 4]], mixture[1, :, [0, 1, 2, 3, 5]]], dim=1)
        return possible, copied

    assert torch.autograd.gradcheck(mixture_of_possible, (logits, raw, gate))


def test_tokens_of_other_sources_cannot_be_copied() -> None:
    mixture, _ = copy_distribution(
        torch.zeros(2, 1, 2), torch.ones(2, 1, 1), torch.tensor([[2], [3]]), torch.full((2, 1, 1), 0.5)
    )
    assert mixture.exp().tolist() == [[[0.25, 0.25, 0.5, 0]], [[0.25, 0.25, 0, 0.5]]]


def test_copying_needs_normalized_weights() -> None:
    with pytest.raises(InputError, match=r"^task\.model\.copy=true needs normalized attention weights"):
        build(partial(recurrent_decoder, context=partial(CrossAttention, select=Unnormalized)), copy=True)


def test_an_impossible_token_has_a_finite_loss_without_gradient() -> None:
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    mixture, _ = copy_distribution(
        logits, torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0, 3]]), torch.tensor([[[0.5]]])
    )
    assert mixture[0, 0, 3].item() == pytest.approx(math.log(torch.finfo(torch.float32).tiny))
    mixture[0, 0, 3].backward()
    assert logits.grad is not None and not logits.grad.any()


@pytest.mark.parametrize("decoder", WITH_ATTENTION)
def test_the_copied_probability_is_computed_from_weights_and_gate(decoder: str) -> None:
    model = make_encoder_decoder(decoder, copy=True)
    output = run(model, [0, 1, 2], copy=True, need_weights=True)
    plain = make_encoder_decoder(decoder)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "gate" not in name})
    uncopied = run(plain, [0, 1, 2], need_weights=True)
    assert output.weights is not None and uncopied.weights is not None and output.copied is not None
    torch.testing.assert_close(output.weights, uncopied.weights)
    copied = output.copied / output.weights.sum(-1)  # 1 - gate
    assert model.gate is not None
    decoded = output.features[:, 1:]  # the decoder outputs of all steps but the last
    vectors = model.embedding.table.weight[make_inputs(*TARGETS)][:, :-1]
    gate = (torch.cat([decoded, vectors], dim=-1) @ model.gate.weight.T + model.gate.bias)[..., 0].sigmoid()
    torch.testing.assert_close(copied[:, :-1], 1 - gate)
    mixture, _ = copy_distribution(uncopied.logits, uncopied.weights, padded(*COPY_IDS), 1 - copied[..., None])
    torch.testing.assert_close(output.logits, mixture)
    torch.testing.assert_close(output.logits.exp().sum(-1), torch.ones(3, 5, dtype=torch.float64))


def test_a_copied_token_out_of_vocabulary_is_embedded_as_unknown() -> None:
    model = make_encoder_decoder("luong", copy=True)
    one, other = (
        model(padded(*SOURCES), lengths(*SOURCES), make_inputs(*[[4, token, 5]] * 3), padded(*COPY_IDS)).logits
        for token in (TARGET_SIZE + 1, UNKNOWN)
    )
    assert torch.equal(one, other)


def test_a_copied_token_trains_attention_encoder_and_gate() -> None:
    model = make_encoder_decoder("luong", copy=True)
    (-run(model, [0, 1, 2], copy=True).logits[0, 1, TARGET_SIZE]).backward()
    decoder: Any = model.decoder
    for module in (decoder.context, model.encoder, model.gate, model.source_embedding):
        assert module is not None
        assert all(value.grad is not None and value.grad.any() for value in module.parameters())
    assert model.out.weight.grad is None or not model.out.weight.grad.any()  # not involved


def test_training_on_a_token_out_of_vocabulary_copies_it() -> None:
    model = make_encoder_decoder("luong", copy=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(15):
        optimizer.zero_grad()
        loss = -run(model, [0, 1, 2], copy=True).logits[0, :, TARGET_SIZE + 1].mean()
        loss.backward()
        optimizer.step()
    output = run(model, [0, 1, 2], copy=True, need_weights=True)
    assert output.copied is not None and output.weights is not None
    assert (output.copied[0] > 0.8).all()
    assert (output.weights[0].argmax(-1) == COPY_IDS[0].index(TARGET_SIZE + 1)).all()


@pytest.mark.parametrize("decoder", WITHOUT_ATTENTION)
def test_copying_needs_a_decoder_with_attention(decoder: str) -> None:
    model = make_encoder_decoder(decoder, copy=True)
    with pytest.raises(InputError, match=r"task\.model\.copy=true needs a decoder with attention, such as"):
        run(model, [0, 1], copy=True)


def test_copying_needs_copy_ids() -> None:
    with pytest.raises(InputError, match="needs copy_ids"):
        run(make_encoder_decoder("luong", copy=True), [0, 1])
