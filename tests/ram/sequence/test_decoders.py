"""Properties of every decoder, and errors about their options."""

import math
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import InputError
from ram.attention import padding_mask
from ram.attention.scores import Dot
from ram.sequence.context import ContextModule, CrossAttention
from ram.sequence.interfaces import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.recurrent import Bridge, RecurrentDecoder
from ram.sequence.search import index_rows
from ram.sequence.transformer import TransformerDecoder
from tests.ram.sequence.decoder_cases import (
    BRIDGES,
    CELLS,
    DISTINCT,
    EVERY,
    MODES,
    SIZE,
    WITH_CONTEXT,
    build,
    decode_in_parts,
    make_source,
    randn,
    scalar,
)


def assert_same(decoded: DecoderOutput, expected: DecoderOutput) -> None:
    torch.testing.assert_close(
        (decoded.output, decoded.weights, decoded.log_prob), (expected.output, expected.weights, expected.log_prob)
    )


@pytest.mark.parametrize("name", EVERY)
def test_outputs_do_not_depend_on_the_division_into_calls(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    whole = decoder(inputs, prepared, need_weights=True)
    assert whole.output.shape == (2, 4, decoder.output_size)
    attends = name in WITH_CONTEXT and not name.startswith("reencoding")
    assert (None if whole.weights is None else whole.weights.shape) == ((2, 4, 4) if attends else None)
    assert (None if whole.log_prob is None else whole.log_prob.shape) == ((2, 4) if "hard" in name else None)
    assert_same(decode_in_parts(decoder, inputs, prepared, [1] * 4), whole)
    assert_same(decode_in_parts(decoder, inputs, prepared, [2, 2]), whole)
    # The outputs depend on the preceding steps: a lost state would be noticed.
    assert not torch.allclose(decoder(inputs[:, 2:], prepared).output, whole.output[:, 2:])


@pytest.mark.parametrize("name", EVERY)
def test_source_padding_changes_neither_outputs_nor_gradients(name: str) -> None:
    lengths = [1, 4, 2]
    decoder, memory, inputs = build(name, *lengths)
    longer = [torch.cat([each, 10 * randn(3, 2, each.shape[-1])], dim=1) for each in (memory.vectors, memory.states)]
    vectors, states = (each.requires_grad_() for each in longer)
    padded = replace(memory, vectors=vectors, states=states)
    decoded = decoder(inputs, decoder.prepare(padded), need_weights=True)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = Memory(vectors[one, :length], states[one, :length], torch.tensor([length]), memory.summary[one])
        expected = decoder(inputs[one], decoder.prepare(alone), need_weights=True)
        torch.testing.assert_close(decoded.output[row], expected.output[0])
        if decoded.weights is not None:
            assert expected.weights is not None
            torch.testing.assert_close(decoded.weights[row, :, :length], expected.weights[0])
            assert not decoded.weights[row, :, length:].any()
        if decoded.log_prob is not None:
            assert expected.log_prob is not None
            torch.testing.assert_close(decoded.log_prob[row], expected.log_prob[0])
    if name in WITH_CONTEXT:
        gradients = torch.autograd.grad(scalar(decoded), [vectors, states], allow_unused=True, materialize_grads=True)
        assert any(gradient.any() for gradient in gradients)
        for row, length in enumerate(lengths):
            assert not any(gradient[row, length:].any() for gradient in gradients)


@pytest.mark.parametrize("name", EVERY)
def test_outputs_do_not_depend_on_later_tokens(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    inputs.requires_grad_()
    decoded = decoder(inputs, prepared, need_weights=True)
    for position in (0, 1):
        (gradient,) = torch.autograd.grad(scalar(decoded, slice(None), position), inputs, retain_graph=True)
        assert not gradient[:, position + 1 :].any()
        assert gradient[:, : position + 1].any(-1).all()
        other = inputs.detach().clone()
        other[:, position + 1 :] = 10 * torch.randn_like(other[:, position + 1 :])
        changed, kept = decoder(other, prepared, need_weights=True), slice(position + 1)
        torch.testing.assert_close(changed.output[:, kept], decoded.output[:, kept])
        if decoded.weights is not None:
            assert changed.weights is not None
            torch.testing.assert_close(changed.weights[:, kept], decoded.weights[:, kept])
        if decoded.log_prob is not None:
            assert changed.log_prob is not None
            torch.testing.assert_close(changed.log_prob[:, kept], decoded.log_prob[:, kept])


@pytest.mark.parametrize("name", EVERY)
def test_states_can_be_indexed_by_row(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2, 3)
    prepared, rows = decoder.prepare(memory), torch.tensor([2, 0, 0, 1])
    state = decoder(inputs[:, :2], prepared).state
    continued = decoder(inputs[rows, 2:], index_rows(prepared, rows), index_rows(state, rows), need_weights=True)
    # The same four rows from the start.
    expected = decoder(inputs[rows], decoder.prepare(index_rows(memory, rows)), need_weights=True)
    torch.testing.assert_close(continued.output, expected.output[:, 2:])
    if continued.weights is not None:
        assert expected.weights is not None
        torch.testing.assert_close(continued.weights, expected.weights[:, 2:])


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 3)
    scalar(decoder(inputs, decoder.prepare(memory))).backward()
    # Unused where the weights do not depend on the scores.
    selecting = "query.", "key.", "score.", "cross_attention_norm."
    for parameter, value in decoder.named_parameters():
        fixed = any(each in name for each in ("uniform", "diagonal")) and any(each in parameter for each in selecting)
        fixed = fixed and not parameter.startswith("layers.0.self_attention.")
        located = "location" in name and "key." in parameter  # independent of the keys
        used = value.grad is not None and bool(value.grad.any())
        assert used != (fixed or located), parameter


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_gradients_reach_the_attended_source_and_the_summary(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 3)
    leaves = [each.requires_grad_() for each in (memory.vectors, memory.states, memory.summary)]
    decoded = decoder(inputs, decoder.prepare(memory))
    vectors, states, summary = torch.autograd.grad(scalar(decoded), leaves, allow_unused=True, materialize_grads=True)
    attended, other = (vectors, states) if "vectors" in name or "reencoding" in name else (states, vectors)
    assert not other.any()
    nonzero = attended.any(-1)
    if any(each in name for each in ("hard", "gumbel", "local")):
        assert nonzero.any(1).all()
    else:
        assert torch.equal(nonzero, padding_mask(memory.lengths, 4)[:, 0])
    bridged = any(f"_{bridge}_" in name for bridge in BRIDGES if bridge != "none")
    assert summary.any() == (bridged or name in {f"{cell}_attends_{mode}" for cell, mode in product(CELLS, MODES)})


@pytest.mark.parametrize("name", [f"lstm_2_{bridge}" for bridge in BRIDGES])
def test_without_context_the_output_depends_on_the_summary_only(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 3)
    other = replace(memory, vectors=randn(*memory.vectors.shape), states=randn(*memory.states.shape))
    assert torch.equal(decoder(inputs, memory).output, decoder(inputs, other).output)
    other = replace(memory, summary=randn(*memory.summary.shape))
    assert torch.equal(decoder(inputs, memory).output, decoder(inputs, other).output) == name.endswith("none")


@pytest.mark.parametrize("name", ["transformer_scaled_dot", "transformer_equal", "transformer_hard"])
def test_need_weights_does_not_change_the_output(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    with_weights, without = (decoder(inputs, prepared, need_weights=each) for each in (True, False))
    torch.testing.assert_close((with_weights.output, with_weights.log_prob), (without.output, without.log_prob))


@pytest.mark.parametrize("name", ["lstm_2_state", "transformer_dot"])
def test_dropout_is_applied_in_training_only(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    expected = decoder(inputs, prepared).output
    decoder.train()
    first, second = (decoder(inputs, prepared).output for _ in range(2))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, expected)
    decoder.eval()
    assert torch.equal(decoder(inputs, prepared).output, expected)


SHAPES = {
    "batch": st.integers(1, 3),
    "steps": st.integers(1, 4),
    "length": st.integers(1, 4),
    "heads": st.integers(1, 3),
    "layers": st.integers(1, 3),
    "sizes": st.builds(DecoderSizes, *[st.integers(1, 5)] * 4),
    "seed": st.integers(0, 2**32 - 1),
}


def assert_shapes(
    decoder: Decoder, sizes: DecoderSizes, batch: int, steps: int, length: int, size: int, attends: bool
) -> None:
    lengths = torch.randint(1, length + 1, (batch,)).tolist()
    lengths[-1] = length
    memory = decoder.double().eval().prepare(make_source(sizes, lengths))
    inputs = randn(batch, steps, sizes.inputs)
    decoded = decoder(inputs, memory, need_weights=True)
    assert decoder.output_size == size
    assert decoded.output.shape == (batch, steps, size)
    assert (None if decoded.weights is None else decoded.weights.shape) == ((batch, steps, length) if attends else None)
    if decoded.weights is not None:
        torch.testing.assert_close(decoded.weights.sum(-1), torch.ones(batch, steps, dtype=torch.float64))
    assert decoder(inputs[:, :1], memory, decoded.state).output.shape == (batch, 1, size)


@settings(max_examples=20, deadline=None)
@given(
    **SHAPES,
    size=st.integers(1, 4),
    cell=st.sampled_from(CELLS),
    bridge=st.sampled_from(BRIDGES),
    mode=st.sampled_from([None, *MODES]),
    over=st.sampled_from(["states", "vectors"]),
)
def test_shapes_of_recurrent_decoders(
    batch: int,
    steps: int,
    length: int,
    heads: int,
    layers: int,
    sizes: DecoderSizes,
    seed: int,
    size: int,
    cell: Any,
    bridge: Bridge,
    mode: str | None,
    over: Any,
) -> None:
    torch.manual_seed(seed)
    size *= heads
    if bridge == "state":
        sizes = replace(sizes, summary=size)
    context = None if mode is None else partial(CrossAttention, over=over, num_heads=heads)
    options = {} if mode is None else MODES[mode]
    decoder = RecurrentDecoder(sizes, cell, size, layers, bridge, context, **options)
    assert_shapes(decoder, sizes, batch, steps, length, size, mode is not None)


@settings(max_examples=10, deadline=None)
@given(**SHAPES, size=st.integers(1, 2))
def test_shapes_of_transformer_decoders(
    batch: int, steps: int, length: int, heads: int, layers: int, sizes: DecoderSizes, seed: int, size: int
) -> None:
    torch.manual_seed(seed)
    size *= 2 * heads
    decoder = TransformerDecoder(sizes, size, layers, heads)
    assert_shapes(decoder, sizes, batch, steps, length, size, attends=True)


@pytest.mark.parametrize(
    ("name", "steps", "length"),
    [
        ("lstm_1_none", None, None),
        ("lstm_attends_feeding", None, None),
        ("location_1_over_states", None, 9),
        ("location_2_over_states", None, 9),
        ("transformer_dot", None, None),
        ("transformer_location", 9, 9),
        ("transformer_learned", 6, None),
    ],
)
def test_maximum_lengths_of_target_and_source(name: str, steps: int | None, length: int | None) -> None:
    decoder, memory, inputs = build(name, length or 12, steps=steps or 12)
    assert (decoder.max_length, decoder.max_source_length) == (steps, length)
    decoder(inputs, decoder.prepare(memory))
    longer, memory, inputs = build(name, (length or 12) + 1, steps=steps or 12)
    if length is not None:
        with pytest.raises(InputError, match="got 10 keys, but has max_length=9: raise it"):
            longer(inputs, longer.prepare(memory))


untyped_cross_attention: Any = CrossAttention  # whose type refuses other values of over


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            RecurrentDecoder,
            {"bridge": "state"},
            r"decoder\.bridge=state needs decoder\.size \(4\) to equal the width of the encoding \(7\): set "
            r"decoder\.size=7, or decoder\.bridge=network\.",
        ),
        (
            RecurrentDecoder,
            {"bridge": "all"},
            r"decoder\.bridge must be one of state, network, first, every, none, got 'all'",
        ),
        (RecurrentDecoder, {"attend": "during"}, r"decoder\.attend must be one of before, after, got 'during'"),
        (RecurrentDecoder, {"cell": "elman"}, r"decoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (RecurrentDecoder, {"num_layers": 0}, r"decoder\.num_layers must be at least 1, got 0"),
        (RecurrentDecoder, {"num_layers": -1}, r"decoder\.num_layers must be at least 1, got -1"),
        (RecurrentDecoder, {"dropout": math.nan}, r"decoder\.dropout must be in \[0, 1\), got nan"),
        (RecurrentDecoder, {"dropout": 1.0}, r"decoder\.dropout must be in \[0, 1\), got 1\.0"),
        (
            RecurrentDecoder,
            {"context": partial(untyped_cross_attention, over="words")},
            r"decoder\.context\.over must be one of states, vectors, got 'words'",
        ),
        (
            RecurrentDecoder,
            {"context": partial(CrossAttention, num_heads=3)},
            "num_heads must divide the width of a query, 4; got 3",
        ),
        (
            RecurrentDecoder,
            {"context": partial(CrossAttention, num_heads=0)},
            "num_heads must divide the width of a query, 4; got 0",
        ),
        (
            RecurrentDecoder,
            {"context": partial(CrossAttention, score=Dot)},
            "The score Dot needs queries and keys of equal width, got 4 and 6: use General or Additive",
        ),
        (TransformerDecoder, {"size": 0}, r"decoder\.size must be at least 1, got 0"),
        (TransformerDecoder, {"num_layers": 0}, r"decoder\.num_layers must be at least 1, got 0"),
        (TransformerDecoder, {"num_heads": 0}, r"decoder\.num_heads must be at least 1, got 0"),
        (TransformerDecoder, {"hidden_size": 0}, r"decoder\.hidden_size must be at least 1, got 0"),
        (TransformerDecoder, {"num_heads": 3}, "num_heads must divide the width of a query, 4; got 3"),
        (TransformerDecoder, {"size": 5, "num_heads": 5}, "Sinusoidal positions need an even width, got 5"),
        (TransformerDecoder, {"dropout": math.nan}, r"decoder\.dropout must be in \[0, 1\), got nan"),
        (TransformerDecoder, {"dropout": -0.1}, r"decoder\.dropout must be in \[0, 1\), got -0\.1"),
    ],
)
def test_errors_name_the_wrong_option(kind: Any, options: dict[str, Any], message: str) -> None:
    valid = {"size": SIZE} | ({"bridge": "network"} if kind is RecurrentDecoder else {})
    assert kind(DISTINCT, **valid).output_size == SIZE
    with pytest.raises(InputError, match=message):
        kind(DISTINCT, **(valid | options))


@pytest.mark.parametrize(
    "options",
    [{"bridge": "network"}, {"context": CrossAttention}, {"bridge": "network", "context": CrossAttention}],
    ids=["network", "context", "both"],
)
@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_1_is_refused_with_every_bridge_and_context(options: dict[str, Any], size: int) -> None:
    with pytest.raises(InputError, match=rf"decoder\.size must be at least 1, got {size}"):
        RecurrentDecoder(DISTINCT, size=size, **({"bridge": "none"} | options))


def test_base_classes_do_not_implement_forward() -> None:
    class NoDecoder(Decoder):
        pass

    class NoContext(ContextModule):
        pass

    memory = make_source(DISTINCT, [2])
    assert NoDecoder(DISTINCT).prepare(memory) is memory
    assert NoContext(2, DISTINCT).prepare(memory) is None
    with pytest.raises(TypeError, match="NoDecoder does not implement forward"):
        NoDecoder(DISTINCT)(randn(1, 1, 3), memory)
    with pytest.raises(TypeError, match="NoContext does not implement forward"):
        NoContext(2, DISTINCT)(randn(1, 1, 2), memory, torch.arange(1))
