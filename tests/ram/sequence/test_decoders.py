"""Decoders against numbers worked out by hand, and what must hold of every one of them."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from math import exp, tanh
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import InputError
from ram.attention import Attention, MultiHeadAttention, padding_mask
from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions
from ram.attention.scores import Additive, Content, Dot, General, Location, ScaledDot
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Uniform,
    Unnormalised,
)
from ram.sequence import recurrent, transformer
from ram.sequence.context import ContextModule, CrossAttention, ReencodedContext
from ram.sequence.decoders import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.recurrent import Bridge, RecurrentDecoder
from ram.sequence.search import index_rows
from ram.sequence.transformer import TransformerDecoder

SIZE = 4
OWN, ALIKE = (
    DecoderSizes(inputs=3, vectors=5, states=6, summary=7),
    DecoderSizes(inputs=3, vectors=SIZE, states=SIZE, summary=SIZE),
)
"""Widths that are all different, and those that products and bridge=state need."""

CELLS: Any = ("rnn", "gru", "lstm")
HANDOVERS: Any = get_args(Bridge)
MODES: dict[str, dict[str, Any]] = {
    "before": {"attend": "before"},
    "fed": {"attend": "after", "input_feeding": True},
    "unfed": {"attend": "after", "input_feeding": False},
}
SCORES: dict[str, Any] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": partial(Additive, hidden_size=3),
    "content": Content,
    "location": partial(Location, max_length=9),
}
SELECTIONS: dict[str, Any] = {
    "unnormalised": Unnormalised,
    "uniform": Uniform,
    "diagonal": Diagonal,
    "diagonal_from_end": partial(Diagonal, from_end=True),
    "hard": Hard,
    "gumbel": GumbelSoftmax,
    "local_m": partial(LocalMonotonic, half_width=1),
    "local_m_gaussian": partial(LocalMonotonic, half_width=2, gaussian=True),
    "local_p": partial(LocalPredictive, half_width=2),
}
REENCODERS: dict[str, Any] = {
    "bigru": partial(recurrent.RecurrentEncoder, cell="gru", size=3, bidirectional=True),
    "lstm": partial(recurrent.RecurrentEncoder, size=5),
    "transformer": partial(transformer.TransformerEncoder, size=4, num_heads=2, num_layers=1),
    "hard": partial(recurrent.AttentiveRecurrentEncoder, over="below", cell="rnn", size=4, causal=False, select=Hard),
}
small = partial(TransformerDecoder, size=SIZE, num_heads=2, hidden_size=5)


def recurrent_decoder(bridge: Bridge = "none", **options: Any) -> Callable[[], Decoder]:
    """With widths of its own for everything, as far as the options allow."""
    score = options.pop("score", None)
    if score is not None:
        options["context"] = partial(options["context"], score=SCORES[score])
    products = score in ("dot", "scaled_dot", "content")
    widths = ALIKE if bridge == "state" or products else OWN
    return partial(RecurrentDecoder, widths, size=SIZE, bridge=bridge, **options)


WITHOUT = {
    f"{cell}_{layers}_{bridge}": recurrent_decoder(bridge, cell=cell, num_layers=layers, dropout=0.3)
    for cell, layers, bridge in product(CELLS, (1, 2), HANDOVERS)
}
"""Those that know of the source what was handed over."""

READING: dict[str, Callable[[], Decoder]] = {
    **{
        f"{cell}_reads_{mode}": recurrent_decoder("state", cell=cell, context=CrossAttention, **MODES[mode])
        for cell, mode in product(CELLS, MODES)
    },
    **{
        f"deep_lstm_{bridge}_reads_{mode}": recurrent_decoder(
            bridge, num_layers=2, context=CrossAttention, **MODES[mode]
        )
        for bridge, mode in product(HANDOVERS, MODES)
    },
    **{
        f"{score}_{heads}_over_{over}": recurrent_decoder(
            cell="gru", score=score, context=partial(CrossAttention, num_heads=heads, over=over)
        )
        for score, (heads, over) in product(SCORES, ((1, "states"), (1, "vectors"), (2, "states")))
    },
    **{
        f"{select}_{heads}_{mode}": recurrent_decoder(
            cell="rnn", context=partial(CrossAttention, num_heads=heads, select=SELECTIONS[select]), **MODES[mode]
        )
        for select, (heads, mode) in [
            *product(SELECTIONS, ((1, "unfed"), (2, "fed"))),
            *product(("hard", "local_m"), ((1, "before"),)),
        ]
    },
    **{
        f"reencoding_{encoder}_{mode}": recurrent_decoder(
            cell="gru", context=partial(ReencodedContext, encoder=REENCODERS[encoder]), **MODES[mode]
        )
        for encoder, mode in zip(
            ("bigru", "bigru", "lstm", "transformer", "hard", "hard"), [*MODES, "unfed", "unfed", "fed"], strict=True
        )
    },
    **{f"transformer_{score}": partial(small, OWN, score=SCORES[score], dropout=0.3) for score in SCORES},
    **{f"transformer_{select}": partial(small, OWN, num_layers=1, select=SELECTIONS[select]) for select in SELECTIONS},
    "transformer_alike": partial(small, DecoderSizes(SIZE, SIZE, SIZE, SIZE), num_heads=1),
    "transformer_learned": partial(small, OWN, positions=partial(LearnedPositions, max_length=6)),
    "transformer_numbered": partial(small, OWN, positions=LinearPositions),
    "transformer_unplaced": partial(small, OWN, positions=NoPositions),
}
"""Those that read the source at every step."""

EVERY = WITHOUT | READING


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def widths_of(name: str) -> DecoderSizes:
    build: Any = EVERY[name]
    return build.args[0]


def source(widths: DecoderSizes, lengths: list[int]) -> Memory:
    """With anything after a row's end."""
    batch, number = len(lengths), max(lengths)
    vectors, states = randn(batch, number, widths.vectors), randn(batch, number, widths.states)
    for row, length in enumerate(lengths):
        vectors[row, length:] *= 10
        states[row, length:] *= 10
    return Memory(vectors, states, torch.tensor(lengths), randn(batch, widths.summary))


def build(name: str, *lengths: int, words: int = 4) -> tuple[Decoder, Memory, Tensor]:
    """A decoder of double precision in evaluation, a source not yet prepared, and the vectors of some words."""
    torch.manual_seed(0)
    decoder = EVERY[name]().double().eval()
    widths = widths_of(name)
    return decoder, source(widths, list(lengths)), randn(len(lengths), words, widths.inputs)


def number_of(decoded: DecoderOutput, *part: Any) -> Tensor:
    """A number that every entry of a part moves, hard choices included."""
    factors = torch.linspace(1, 2, decoded.output.shape[-1], dtype=torch.float64)
    total = (decoded.output[part] * factors).sum()
    return total if decoded.log_prob is None else total + decoded.log_prob[part].sum()


def in_pieces(
    decoder: Decoder, vectors: Tensor, memory: Memory, subwords: list[int], need_weights: bool = True
) -> DecoderOutput:
    """What the pieces told, side by side."""
    state, told = None, []
    for piece in vectors.split(subwords, dim=1):
        told.append(decoder(piece, memory, state, need_weights))
        state = told[-1].state
    weights, log_probs = [each.weights for each in told], [each.log_prob for each in told]
    return DecoderOutput(
        torch.cat([each.output for each in told], dim=1),
        state,
        None if weights[0] is None else torch.cat([each for each in weights if each is not None], dim=1),
        None if log_probs[0] is None else torch.cat([each for each in log_probs if each is not None], dim=1),
    )


def assert_same(decoded: DecoderOutput, expected: DecoderOutput) -> None:
    torch.testing.assert_close(
        (decoded.output, decoded.weights, decoded.log_prob), (expected.output, expected.weights, expected.log_prob)
    )


# What must hold of every decoder.


@pytest.mark.parametrize("name", EVERY)
def test_all_at_once_is_the_same_as_one_by_one(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    whole = decoder(vectors, prepared, need_weights=True)
    assert whole.output.shape == (2, 4, decoder.output_size)
    weighs = name in READING and not name.startswith("reencoding")
    assert (None if whole.weights is None else whole.weights.shape) == ((2, 4, 4) if weighs else None)
    assert (None if whole.log_prob is None else whole.log_prob.shape) == ((2, 4) if "hard" in name else None)
    assert_same(in_pieces(decoder, vectors, prepared, [1] * 4), whole)
    assert_same(in_pieces(decoder, vectors, prepared, [2, 2]), whole)
    # What went before counts, so that a lost state would show.
    assert not torch.allclose(decoder(vectors[:, 2:], prepared).output, whole.output[:, 2:])


@pytest.mark.parametrize("name", EVERY)
def test_padding_of_the_source_changes_neither_an_output_nor_its_gradient(name: str) -> None:
    lengths = [1, 4, 2]
    decoder, memory, vectors = build(name, *lengths)
    longer = [torch.cat([each, 10 * randn(3, 2, each.shape[-1])], dim=1) for each in (memory.vectors, memory.states)]
    words, states = (each.requires_grad_() for each in longer)
    padded = replace(memory, vectors=words, states=states)
    decoded = decoder(vectors, decoder.prepare(padded), need_weights=True)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = Memory(words[one, :length], states[one, :length], torch.tensor([length]), memory.summary[one])
        expected = decoder(vectors[one], decoder.prepare(alone), need_weights=True)
        torch.testing.assert_close(decoded.output[row], expected.output[0])
        if decoded.weights is not None:
            assert expected.weights is not None
            torch.testing.assert_close(decoded.weights[row, :, :length], expected.weights[0])
            assert not decoded.weights[row, :, length:].any()
        if decoded.log_prob is not None:
            assert expected.log_prob is not None
            torch.testing.assert_close(decoded.log_prob[row], expected.log_prob[0])
    if name in READING:
        gradients = torch.autograd.grad(number_of(decoded), [words, states], allow_unused=True, materialize_grads=True)
        assert any(gradient.any() for gradient in gradients)
        for row, length in enumerate(lengths):
            assert not any(gradient[row, length:].any() for gradient in gradients)


@pytest.mark.parametrize("name", EVERY)
def test_nothing_of_a_later_word_leaks(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    vectors.requires_grad_()
    decoded = decoder(vectors, prepared, need_weights=True)
    for place in (0, 1):
        (gradient,) = torch.autograd.grad(number_of(decoded, slice(None), place), vectors, retain_graph=True)
        assert not gradient[:, place + 1 :].any()
        assert gradient[:, : place + 1].any(-1).all()
        other = vectors.detach().clone()
        other[:, place + 1 :] = 10 * torch.randn_like(other[:, place + 1 :])
        changed, seen = decoder(other, prepared, need_weights=True), slice(place + 1)
        torch.testing.assert_close(changed.output[:, seen], decoded.output[:, seen])
        if decoded.weights is not None:
            assert changed.weights is not None
            torch.testing.assert_close(changed.weights[:, seen], decoded.weights[:, seen])
        if decoded.log_prob is not None:
            assert changed.log_prob is not None
            torch.testing.assert_close(changed.log_prob[:, seen], decoded.log_prob[:, seen])


@pytest.mark.parametrize("name", EVERY)
def test_a_state_holds_a_row_a_sequence(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2, 3)
    prepared, rows = decoder.prepare(memory), torch.tensor([2, 0, 0, 1])
    state = decoder(vectors[:, :2], prepared).state
    gone_on = decoder(vectors[rows, 2:], index_rows(prepared, rows), index_rows(state, rows), need_weights=True)
    # The same four from the start.
    expected = decoder(vectors[rows], decoder.prepare(index_rows(memory, rows)), need_weights=True)
    torch.testing.assert_close(gone_on.output, expected.output[:, 2:])
    if gone_on.weights is not None:
        assert expected.weights is not None
        torch.testing.assert_close(gone_on.weights, expected.weights[:, 2:])


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_is_of_use(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 3)
    number_of(decoder(vectors, decoder.prepare(memory))).backward()
    asking = "query.", "key.", "score.", "source_norm."  # of no use to weights that are wired
    for part, value in decoder.named_parameters():
        wired = any(each in name for each in ("uniform", "diagonal")) and any(each in part for each in asking)
        wired = wired and not part.startswith("layers.0.attention.")
        located = "location" in name and "key." in part  # whatever the keys hold
        used = value.grad is not None and bool(value.grad.any())
        assert used != (wired or located), part


@pytest.mark.parametrize("name", READING)
def test_gradients_reach_what_is_read_and_what_is_handed_over(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 3)
    leaves = [each.requires_grad_() for each in (memory.vectors, memory.states, memory.summary)]
    decoded = decoder(vectors, decoder.prepare(memory))
    words, states, summary = torch.autograd.grad(number_of(decoded), leaves, allow_unused=True, materialize_grads=True)
    read, unread = (words, states) if "vectors" in name or "reencoding" in name else (states, words)
    assert not unread.any()
    counts = read.any(-1)
    if any(each in name for each in ("hard", "gumbel", "local")):
        assert counts.any(1).all()
    else:
        assert torch.equal(counts, padding_mask(memory.lengths, 4)[:, 0])
    handed = any(f"_{bridge}_" in name for bridge in HANDOVERS if bridge != "none")
    assert summary.any() == (handed or name in {f"{cell}_reads_{mode}" for cell, mode in product(CELLS, MODES)})


@pytest.mark.parametrize("name", [f"lstm_2_{bridge}" for bridge in HANDOVERS])
def test_without_a_reading_the_source_is_known_by_its_summary_alone(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 3)
    other = replace(memory, vectors=randn(*memory.vectors.shape), states=randn(*memory.states.shape))
    assert torch.equal(decoder(vectors, memory).output, decoder(vectors, other).output)
    other = replace(memory, summary=randn(*memory.summary.shape))
    assert torch.equal(decoder(vectors, memory).output, decoder(vectors, other).output) == name.endswith("none")


@pytest.mark.parametrize("name", ["transformer_scaled_dot", "transformer_alike", "transformer_hard"])
def test_telling_the_weights_changes_nothing(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    told, untold = (decoder(vectors, prepared, need_weights=each) for each in (True, False))
    torch.testing.assert_close((told.output, told.log_prob), (untold.output, untold.log_prob))


@pytest.mark.parametrize("name", ["lstm_2_state", "transformer_dot"])
def test_dropout_drops_in_training_alone(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2)
    prepared = decoder.prepare(memory)
    expected = decoder(vectors, prepared).output
    decoder.train()
    first, second = (decoder(vectors, prepared).output for _ in range(2))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, expected)
    decoder.eval()
    assert torch.equal(decoder(vectors, prepared).output, expected)


SHAPES = {
    "batch": st.integers(1, 3),
    "words": st.integers(1, 4),
    "number": st.integers(1, 4),
    "heads": st.integers(1, 3),
    "layers": st.integers(1, 3),
    "widths": st.builds(DecoderSizes, *[st.integers(1, 5)] * 4),
    "seed": st.integers(0, 2**32 - 1),
}


def shapes_hold(
    decoder: Decoder, widths: DecoderSizes, batch: int, words: int, number: int, size: int, reads: bool
) -> None:
    lengths = torch.randint(1, number + 1, (batch,)).tolist()
    lengths[-1] = number
    memory = decoder.double().eval().prepare(source(widths, lengths))
    vectors = randn(batch, words, widths.inputs)
    decoded = decoder(vectors, memory, need_weights=True)
    assert decoder.output_size == size
    assert decoded.output.shape == (batch, words, size)
    assert (None if decoded.weights is None else decoded.weights.shape) == ((batch, words, number) if reads else None)
    if decoded.weights is not None:
        torch.testing.assert_close(decoded.weights.sum(-1), torch.ones(batch, words, dtype=torch.float64))
    assert decoder(vectors[:, :1], memory, decoded.state).output.shape == (batch, 1, size)


@settings(max_examples=20, deadline=None)
@given(
    **SHAPES,
    size=st.integers(1, 4),
    cell=st.sampled_from(CELLS),
    bridge=st.sampled_from(HANDOVERS),
    mode=st.sampled_from([None, *MODES]),
    over=st.sampled_from(["states", "vectors"]),
)
def test_shapes_of_recurrent_decoders(
    batch: int,
    words: int,
    number: int,
    heads: int,
    layers: int,
    widths: DecoderSizes,
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
        widths = replace(widths, summary=size)
    context = None if mode is None else partial(CrossAttention, over=over, num_heads=heads)
    how = {} if mode is None else MODES[mode]
    decoder = RecurrentDecoder(widths, cell, size, layers, bridge, context, **how)
    shapes_hold(decoder, widths, batch, words, number, size, mode is not None)


@settings(max_examples=10, deadline=None)
@given(**SHAPES, size=st.integers(1, 2))
def test_shapes_of_transformers(
    batch: int, words: int, number: int, heads: int, layers: int, widths: DecoderSizes, seed: int, size: int
) -> None:
    torch.manual_seed(seed)
    size *= 2 * heads
    decoder = TransformerDecoder(widths, size, layers, heads)
    shapes_hold(decoder, widths, batch, words, number, size, reads=True)


# Reading.


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("over", ["states", "vectors"])
@pytest.mark.parametrize("score", SCORES)
def test_to_attend_is_attention_over_the_source(score: str, over: Any, heads: int) -> None:
    torch.manual_seed(0)
    context = CrossAttention(SIZE, ALIKE, over, heads, SCORES[score]).double()
    assert type(context.attention) is (Attention if heads == 1 else MultiHeadAttention)
    memory, query, step = source(ALIKE, [4, 2]), randn(2, 3, SIZE), torch.tensor([1, 2, 5])
    read = context(query, replace(memory, prepared=context.prepare(memory)), step)
    keys = memory.states if over == "states" else memory.vectors
    expected = context.attention(query, keys, keys, memory.mask, step, need_weights=True)
    assert expected.weights is not None and read.weights is not None
    torch.testing.assert_close(read.context, expected.context)
    weights = expected.weights if heads == 1 else (expected.weights[:, 0] + expected.weights[:, 1]) / 2
    torch.testing.assert_close(read.weights, weights)


@pytest.mark.parametrize(("heads", "expected"), [(1, {"states": 6, "vectors": 5}), (2, {"states": 4, "vectors": 4})])
def test_one_head_reads_without_maps(heads: int, expected: dict[Any, int]) -> None:
    widths = {over: CrossAttention(SIZE, OWN, over, heads).context_size for over in expected}
    assert widths == expected


@pytest.mark.parametrize("name", ["general_2_over_states", "additive_1_over_states", "transformer_general"])
def test_a_source_is_mapped_once_for_all_steps(name: str) -> None:
    decoder, memory, vectors = build(name, 4, 2)
    prepared, calls = decoder.prepare(memory), []
    for module in decoder.modules():
        if isinstance(module, (MultiHeadAttention, Additive)) and module.key.in_features == OWN.states:
            module.key.register_forward_hook(lambda *_: calls.append(1))
    in_pieces(decoder, vectors, prepared, [1] * 4)
    assert not calls
    decoder.prepare(memory)
    assert calls


def test_weights_are_the_mean_of_the_heads_of_the_last_layer() -> None:
    decoder, memory, vectors = build("transformer_scaled_dot", 4, 2)
    told: list[Tensor] = []
    last: Any = decoder
    attention = last.layers[-1].source
    attention.records.append(told)
    decoded = decoder(vectors, decoder.prepare(memory), need_weights=True)
    assert told[0].shape == (2, 2, 4, 4)
    torch.testing.assert_close(decoded.weights, (told[0][:, 0] + told[0][:, 1]) / 2)


@pytest.mark.parametrize("name", ["local_m_1_before", "local_m_2_fed", "local_m_1_unfed", "transformer_local_m"])
def test_the_window_moves_on_with_the_words(name: str) -> None:
    decoder, memory, vectors = build(name, 7, words=6)
    weights = decoder(vectors, decoder.prepare(memory), need_weights=True).weights
    assert weights is not None
    seen = [row.nonzero().flatten().tolist() for row in weights[0]]
    assert seen == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]


def test_hard_choices_of_heads_and_layers_are_scored_together() -> None:
    torch.manual_seed(0)
    decoder = TransformerDecoder(OWN, SIZE, 2, 2, score=SCORES["general"], select=Hard, dropout=0.0).double().train()
    memory, vectors, told = source(OWN, [4, 2]), randn(2, 3, OWN.inputs), []
    for layer in decoder.layers:
        layer.source.register_forward_hook(lambda *_: pytest.fail("the source must be attended prepared"))
        read = layer.source.attend

        def context(*arguments: Any, read: Any = read) -> Any:
            told.append(read(*arguments))
            return told[-1]

        layer.source.attend = context
    decoded = decoder(vectors, decoder.prepare(memory))
    assert len(told) == 2 and decoded.log_prob is not None
    torch.testing.assert_close(decoded.log_prob, told[0].log_prob + told[1].log_prob)
    assert (decoded.log_prob < 0).any()
    decoded.log_prob.sum().backward()
    assert all(layer.source.score.weight.weight.grad.any() for layer in decoder.layers)


@pytest.mark.parametrize("mode", MODES)
def test_a_hard_choice_of_a_recurrent_decoder_is_scored_with_what_it_was_drawn_from(mode: str) -> None:
    torch.manual_seed(0)
    context = partial(CrossAttention, score=partial(Location, max_length=4), select=Hard)
    decoder = RecurrentDecoder(OWN, "rnn", SIZE, bridge="none", context=context, **MODES[mode]).double().train()
    attending: Any = decoder.context
    attending.attention.score.weight.weight.data *= 4
    drawn: list[Tensor] = []
    attending.attention.score.weight.register_forward_hook(lambda *told: drawn.append(told[-1]))
    memory = decoder.prepare(source(OWN, [4] * 3000))
    decoded = decoder(randn(3000, 3, OWN.inputs), memory)
    scores = torch.cat(drawn, dim=1)
    assert decoded.weights is not None and decoded.log_prob is not None
    assert torch.equal(decoded.weights.sum(-1), torch.ones(3000, 3, dtype=torch.float64))
    torch.testing.assert_close(decoded.log_prob, (scores.log_softmax(-1) * decoded.weights).sum(-1))
    torch.testing.assert_close(decoded.weights.mean(0), scores.softmax(-1).mean(0), atol=0.04, rtol=0)


def test_to_reencode_is_to_read_the_words_and_the_state_together() -> None:
    torch.manual_seed(0)
    context = ReencodedContext(2, OWN, REENCODERS["bigru"]).double()
    assert context.context_size == 6
    memory, query = source(OWN, [4, 2]), randn(2, 3, 2)
    read = context(query, memory, torch.arange(3))
    for row, length in enumerate((4, 2)):
        for step in range(3):
            seen = torch.cat([memory.vectors[row, :length], query[row, step].expand(length, -1)], dim=1)
            made = context.encoder(seen[None], torch.tensor([length])).output[0]
            torch.testing.assert_close(read.context[row, step], torch.cat([made[-1, :3], made[0, 3:]]))


def test_the_choices_of_an_encoder_that_reads_anew_are_scored_together_up_to_the_sources_end() -> None:
    torch.manual_seed(0)
    context, lengths = ReencodedContext(2, OWN, REENCODERS["hard"]).double().eval(), (4, 2)
    memory, query = source(OWN, list(lengths)), randn(2, 3, 2)
    log_prob = context(query, memory, torch.arange(3)).log_prob
    assert log_prob is not None and log_prob.shape == (2, 3)
    for row, step in product(range(2), range(3)):
        length = lengths[row]
        seen = torch.cat([memory.vectors[row, :length], query[row, step].expand(length, -1)], dim=1)
        chosen = context.encoder(seen[None], torch.tensor([length])).log_prob
        assert chosen is not None
        torch.testing.assert_close(log_prob[row, step], chosen.sum())


# Recurrent decoders by hand.


def one(value: float, *values: float) -> Tensor:
    """(1, D)."""
    return torch.tensor([[value, *values]], dtype=torch.float64)


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def with_weights(decoder: Decoder, weights: dict[str, Tensor]) -> Decoder:
    """Every parameter must be told."""
    decoder = decoder.double()
    decoder.load_state_dict(weights)
    return decoder


def rnn_weights(layer: int, into: list[float], held: float, bias: float = 0.0) -> dict[str, Tensor]:
    """Of a layer of width 1: tanh(into . input + held state + bias)."""
    names = (f"layers.{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return dict(zip(names, (matrix(into), matrix([held]), vector(bias), vector(0)), strict=True))


H = [(1.0, 0.0), (0.5, 2.0), (-1.0, 1.0)]
"""Three states of an encoder, of which the last is hidden below."""
NARROW = DecoderSizes(inputs=1, vectors=1, states=2, summary=2)
SUMMARY, SAID = (0.7, -0.4), (0.8, -1.1)


def narrow() -> Memory:
    states = torch.tensor([H], dtype=torch.float64)
    return Memory(torch.zeros(1, 3, 1, dtype=torch.float64), states, torch.tensor([2]), one(*SUMMARY))


def said() -> Tensor:
    return vector(*SAID)[None, :, None]


def softmax(first: float, second: float) -> tuple[float, float]:
    return exp(first) / (exp(first) + exp(second)), exp(second) / (exp(first) + exp(second))


def weighted(first: float, second: float) -> tuple[float, float]:
    """The mean of the first two states."""
    return first * H[0][0] + second * H[1][0], first * H[0][1] + second * H[1][1]


@pytest.mark.parametrize("input_feeding", [True, False])
def test_the_step_of_luong_by_hand(input_feeding: bool) -> None:
    decoder = with_weights(
        RecurrentDecoder(
            NARROW, "rnn", 1, bridge="none", context=CrossAttention, attend="after", input_feeding=input_feeding
        ),
        {
            **rnn_weights(
                0, [1, 0.5] if input_feeding else [1], -1, 0.25
            ),  # of the word and what was fed; of the state
            "context.attention.score.weight.weight": matrix([1], [-1]),
            "out.weight": matrix([1, 2, 3]),  # of the context, of the state
        },
    )
    expected, weights, state, fed = [], [], 0.0, 0.0
    for word in SAID:
        state = tanh(word + (0.5 * fed if input_feeding else 0) - state + 0.25)
        # s^T W h with W h = h_1 - h_2: 1 and -1.5.
        weights.append(softmax(state, -1.5 * state))
        context = weighted(*weights[-1])
        fed = tanh(context[0] + 2 * context[1] + 3 * state)
        expected.append([fed])
    decoded = decoder(said(), decoder.prepare(narrow()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))
    torch.testing.assert_close(decoded.weights, torch.tensor([[(*row, 0) for row in weights]], dtype=torch.float64))


def test_the_step_of_bahdanau_by_hand() -> None:
    decoder = with_weights(
        RecurrentDecoder(
            NARROW,
            "rnn",
            1,
            bridge="network",
            context=partial(CrossAttention, score=partial(Additive, hidden_size=1)),
            attend="before",
        ),
        {
            **rnn_weights(0, [1, 0.5, -0.25], -1),  # of the word and the context
            "context.attention.score.query.weight": matrix([2]),
            "context.attention.score.key.weight": matrix([1, -1]),
            "context.attention.score.out.weight": matrix([3]),
            "out.weight": matrix([1, 2, 3]),
            "into.0.weight": matrix([1, -1]),
            "into.0.bias": vector(0.1),
        },
    )
    expected, weights, state = [], [], tanh(0.7 + 0.4 + 0.1)
    for word in SAID:
        weights.append(softmax(3 * tanh(2 * state + 1), 3 * tanh(2 * state - 1.5)))
        context = weighted(*weights[-1])
        state = tanh(word + 0.5 * context[0] - 0.25 * context[1] - state)
        expected.append([tanh(context[0] + 2 * context[1] + 3 * state)])
    decoded = decoder(said(), decoder.prepare(narrow()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))
    torch.testing.assert_close(decoded.weights, torch.tensor([[(*row, 0) for row in weights]], dtype=torch.float64))


def deep(word: float, held: list[float]) -> list[float]:
    """Two layers: tanh(word + held / 2), and tanh(2 below - held)."""
    first = tanh(word + held[0] / 2)
    return [first, tanh(2 * first - held[1])]


def deep_weights(into: list[float]) -> dict[str, Tensor]:
    return rnn_weights(0, into, 0.5) | rnn_weights(1, [2], -1)


@pytest.mark.parametrize(
    ("bridge", "weights", "held", "beside"),
    [
        ("none", deep_weights([1]), [0, 0], 0),
        (
            "network",
            deep_weights([1]) | {"into.0.weight": matrix([1, -1], [0.5, 2]), "into.0.bias": vector(0, 0.1)},
            [tanh(0.7 + 0.4), tanh(0.5 * 0.7 - 2 * 0.4 + 0.1)],
            0,
        ),
        (
            "first",
            deep_weights([1]) | {"into.weight": matrix([1, -1]), "into.bias": vector(0.3)},
            deep(0.7 + 0.4 + 0.3, [0, 0]),
            0,
        ),
        ("every", deep_weights([1, 3, -2]), [0, 0], 3 * 0.7 + 2 * 0.4),
    ],
    ids=["none", "network", "first", "every"],
)
def test_how_the_source_is_handed_over_by_hand(
    bridge: Bridge, weights: dict[str, Tensor], held: list[float], beside: float
) -> None:
    decoder = with_weights(RecurrentDecoder(NARROW, "rnn", 1, 2, bridge), weights)
    expected = []
    for word in SAID:
        held = deep(word + beside, held)
        expected.append([held[1]])
    decoded = decoder(said(), decoder.prepare(narrow()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_a_state_that_is_handed_over_is_that_of_every_layer_by_hand() -> None:
    decoder = with_weights(RecurrentDecoder(replace(NARROW, summary=1), "rnn", 1, 2, "state"), deep_weights([1]))
    held, expected = [0.7, 0.7], []
    for word in SAID:
        held = deep(word, held)
        expected.append([held[1]])
    decoded = decoder(said(), replace(narrow(), summary=one(0.7)))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


@pytest.mark.parametrize("bridge", ["state", "network"])
def test_the_cell_of_an_lstm_that_is_handed_a_state_is_empty(bridge: Bridge) -> None:
    gates = [0.5, -1.0, 2.0, 1.5]  # input, forget, new, output; of word and state alike
    weights = {
        "layers.weight_ih_l0": matrix(*[[gate] for gate in gates]),
        "layers.weight_hh_l0": matrix(*[[gate] for gate in gates]),
        "layers.bias_ih_l0": vector(0, 0, 0, 0),
        "layers.bias_hh_l0": vector(0, 0, 0, 0),
    }
    state, cell, expected = 0.7, 0.0, []
    if bridge == "network":
        weights |= {"into.0.weight": matrix([2]), "into.0.bias": vector(0.1)}
        state = tanh(2 * 0.7 + 0.1)
    decoder = with_weights(RecurrentDecoder(replace(NARROW, summary=1), "lstm", 1, 1, bridge), weights)
    for word in SAID:
        taken, kept, new, shown = (gate * (word + state) for gate in gates)
        cell = cell / (1 + exp(-kept)) + tanh(new) / (1 + exp(-taken))
        state = tanh(cell) / (1 + exp(-shown))
        expected.append([state])
    decoded = decoder(said(), replace(narrow(), summary=one(0.7)))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_beside_every_word_stand_the_summary_and_then_what_was_read() -> None:
    decoder = with_weights(
        RecurrentDecoder(
            NARROW, "rnn", 1, bridge="every", context=partial(CrossAttention, select=Uniform), attend="before"
        ),
        {
            **rnn_weights(0, [1, 3, -2, 0.5, -0.25], -1),
            "context.attention.score.weight.weight": matrix([9], [9]),
            "out.weight": matrix([0, 0, 1]),
        },
    )
    state, expected = 0.0, []
    for word in SAID:
        state = tanh(word + 3 * 0.7 + 2 * 0.4 + 0.5 * 0.75 - 0.25 * 1.0 - state)  # the mean of the states: (0.75, 1)
        expected.append([tanh(state)])
    decoded = decoder(said(), decoder.prepare(narrow()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_the_top_layer_asks_before_a_step() -> None:
    decoder, memory, vectors = build("deep_lstm_network_reads_before", 4, 2)
    prepared, asked = decoder.prepare(memory), []
    context: Any = decoder.context
    context.register_forward_pre_hook(lambda module, inputs: asked.append(inputs[0]))
    into: Any = decoder.into
    handed = torch.tanh(memory.summary @ into[0].weight.T + into[0].bias)
    decoder(vectors, prepared)
    torch.testing.assert_close(asked[0][:, 0], handed[:, SIZE:])


# The Transformer by hand.


def norm(row: Tensor, layer: Any) -> Tensor:
    centred = row - row.mean()
    return centred / (centred.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def attend(attention: Any, query: Tensor, seen: list[Tensor]) -> Tensor:
    heads, size = [], SIZE // attention.num_heads
    for head in range(attention.num_heads):
        rows = slice(head * size, (head + 1) * size)
        asked = attention.query.weight[rows] @ query
        powers = [(asked @ attention.key.weight[rows] @ key / math.sqrt(size)).exp() for key in seen]
        values = [attention.value.weight[rows] @ value for value in seen]
        heads.append(sum(power * value for power, value in zip(powers, values, strict=True)) / sum(powers))
    return attention.out.weight @ torch.cat(heads)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_a_transformer_reads_its_own_words_then_the_source_and_then_thinks(num_heads: int) -> None:
    torch.manual_seed(0)
    decoder = (
        TransformerDecoder(OWN, SIZE, 2, num_heads, hidden_size=5, dropout=0.5, positions=NoPositions).double().eval()
    )
    for value in decoder.parameters():
        value.data += 0.3 * torch.randn_like(value)
    memory, vectors = source(OWN, [4, 2]), randn(2, 3, OWN.inputs)
    output = decoder(vectors, decoder.prepare(memory)).output
    into: Any = decoder.into
    for number, length in enumerate((4, 2)):
        row = [into.weight @ vector for vector in vectors[number]]
        for layer in decoder.layers:
            normalised = [norm(vector, layer.attention_norm) for vector in row]
            row = [
                vector + attend(layer.attention, normalised[place], normalised[: place + 1])
                for place, vector in enumerate(row)
            ]
            states = list(memory.states[number, :length])
            row = [vector + attend(layer.source, norm(vector, layer.source_norm), states) for vector in row]
            first, _, second = layer.network
            hidden = [(first.weight @ norm(vector, layer.network_norm) + first.bias).clamp(min=0) for vector in row]
            row = [vector + second.weight @ each + second.bias for vector, each in zip(row, hidden, strict=True)]
        expected = torch.stack([norm(vector, decoder.norm) for vector in row])
        torch.testing.assert_close(output[number], expected)


def test_the_networks_of_a_transformer_are_four_times_as_wide_unless_told_otherwise() -> None:
    widths = [TransformerDecoder(OWN, 8, hidden_size=hidden).layers[0].network[0].out_features for hidden in (None, 5)]
    assert widths == [32, 5]


def test_more_words_than_positions_are_refused_one_by_one_too() -> None:
    decoder, memory, vectors = build("transformer_learned", 4, words=7)
    prepared = decoder.prepare(memory)
    with pytest.raises(InputError, match="A sequence has length 7, but LearnedPositions has max_length=6"):
        decoder(vectors, prepared)
    state = decoder(vectors[:, :6], prepared).state
    with pytest.raises(InputError, match="A sequence has length 7, but LearnedPositions has max_length=6"):
        decoder(vectors[:, 6:], prepared, state)


@pytest.mark.parametrize(
    ("name", "words", "elements"),
    [
        ("lstm_1_none", None, None),
        ("lstm_reads_fed", None, None),
        ("location_1_over_states", None, 9),
        ("location_2_over_states", None, 9),
        ("transformer_dot", None, None),
        ("transformer_location", 9, 9),
        ("transformer_learned", 6, None),
    ],
)
def test_how_many_words_and_elements_there_may_be_is_told(name: str, words: int | None, elements: int | None) -> None:
    decoder, memory, vectors = build(name, elements or 12, words=words or 12)
    assert (decoder.max_length, decoder.max_source_length) == (words, elements)
    decoder(vectors, decoder.prepare(memory))
    longer, memory, vectors = build(name, (elements or 12) + 1, words=words or 12)
    if elements is not None:
        with pytest.raises(InputError, match="knows 9 places and was given 10 keys: raise its max_length"):
            longer(vectors, longer.prepare(memory))


def test_a_decoder_that_reencodes_is_limited_by_its_encoder() -> None:
    encoder = partial(
        transformer.TransformerEncoder, size=4, num_heads=2, positions=partial(LearnedPositions, max_length=7)
    )
    decoder = RecurrentDecoder(OWN, size=SIZE, bridge="none", context=partial(ReencodedContext, encoder=encoder))
    assert (decoder.max_length, decoder.max_source_length) == (None, 7)


# What is refused.

attending: Any = CrossAttention  # which takes no other "over"


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (
            RecurrentDecoder,
            {"bridge": "state"},
            r"decoder\.bridge=state needs decoder\.size \(4\) to be the width of the encoding \(7\): set "
            r"decoder\.size=7, or decoder\.bridge=network\.",
        ),
        (
            RecurrentDecoder,
            {"bridge": "all"},
            r"decoder\.bridge must be one of state, network, first, every, none, got 'all'",
        ),
        (RecurrentDecoder, {"attend": "during"}, r"decoder\.attend must be before or after, got 'during'"),
        (RecurrentDecoder, {"cell": "elman"}, r"decoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (RecurrentDecoder, {"num_layers": 0}, r"decoder\.num_layers must be at least 1, got 0"),
        (RecurrentDecoder, {"num_layers": -1}, r"decoder\.num_layers must be at least 1, got -1"),
        (RecurrentDecoder, {"dropout": math.nan}, r"decoder\.dropout must be in \[0, 1\), got nan"),
        (RecurrentDecoder, {"dropout": 1.0}, r"decoder\.dropout must be in \[0, 1\), got 1\.0"),
        (
            RecurrentDecoder,
            {"context": partial(attending, over="words")},
            r"decoder\.context\.over must be states or vectors, got 'words'",
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
def test_wrong_options_are_refused_by_name(kind: Any, options: dict[str, Any], told: str) -> None:
    right = {"size": SIZE} | ({"bridge": "network"} if kind is RecurrentDecoder else {})
    assert kind(OWN, **right).output_size == SIZE
    with pytest.raises(InputError, match=told):
        kind(OWN, **(right | options))


@pytest.mark.parametrize(
    "options",
    [{"bridge": "network"}, {"context": CrossAttention}, {"bridge": "network", "context": CrossAttention}],
    ids=["network", "reading", "both"],
)
@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_1_is_refused_with_whatever_goes_with_it(options: dict[str, Any], size: int) -> None:
    with pytest.raises(InputError, match=rf"decoder\.size must be at least 1, got {size}"):
        RecurrentDecoder(OWN, size=size, **({"bridge": "none"} | options))


def test_a_decoder_or_a_reading_without_a_rule_says_so() -> None:
    class Wordless(Decoder):
        pass

    class Blind(ContextModule):
        pass

    memory = source(OWN, [2])
    assert Wordless(OWN).prepare(memory) is memory
    assert Blind(2, OWN).prepare(memory) is None
    with pytest.raises(TypeError, match="Wordless does not say how it decodes"):
        Wordless(OWN)(randn(1, 1, 3), memory)
    with pytest.raises(TypeError, match="Blind does not say how it reads"):
        Blind(2, OWN)(randn(1, 1, 2), memory, torch.arange(1))
