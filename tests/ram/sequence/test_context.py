"""Context modules: cross-attention and the re-encoded source."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from ram.attention import Attention, MultiHeadAttention
from ram.attention.positions import LearnedPositions
from ram.attention.scores import Additive, Location
from ram.attention.selection import Hard
from ram.sequence.context import CrossAttention, ReencodedContext
from ram.sequence.recurrent import RecurrentDecoder
from ram.sequence.transformer import TransformerEncoder
from tests.ram.sequence.decoder_cases import (
    DISTINCT,
    EQUAL,
    MODES,
    REENCODERS,
    SCORES,
    SIZE,
    build,
    decode_in_parts,
    make_source,
    randn,
)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("over", ["states", "vectors"])
@pytest.mark.parametrize("score", SCORES)
def test_cross_attention_is_attention_over_the_source(score: str, over: Any, heads: int) -> None:
    torch.manual_seed(0)
    context = CrossAttention(SIZE, EQUAL, over, heads, SCORES[score]).double()
    assert type(context.attention) is (Attention if heads == 1 else MultiHeadAttention)
    memory, query, step = make_source(EQUAL, [4, 2]), randn(2, 3, SIZE), torch.tensor([1, 2, 5])
    attended = context(query, replace(memory, prepared=context.prepare(memory)), step)
    keys = memory.states if over == "states" else memory.vectors
    expected = context.attention(query, keys, keys, memory.mask, step, need_weights=True)
    assert expected.weights is not None and attended.weights is not None
    torch.testing.assert_close(attended.context, expected.context)
    weights = expected.weights if heads == 1 else (expected.weights[:, 0] + expected.weights[:, 1]) / 2
    torch.testing.assert_close(attended.weights, weights)


@pytest.mark.parametrize(("heads", "expected"), [(1, {"states": 6, "vectors": 5}), (2, {"states": 4, "vectors": 4})])
def test_one_head_has_no_projections(heads: int, expected: dict[Any, int]) -> None:
    sizes = {over: CrossAttention(SIZE, DISTINCT, over, heads).context_size for over in expected}
    assert sizes == expected


@pytest.mark.parametrize("name", ["general_2_over_states", "additive_1_over_states", "transformer_general"])
def test_the_source_is_projected_once_for_all_steps(name: str) -> None:
    decoder, memory, inputs = build(name, 4, 2)
    prepared, calls = decoder.prepare(memory), []
    for module in decoder.modules():
        if isinstance(module, (MultiHeadAttention, Additive)) and module.key.in_features == DISTINCT.states:
            module.key.register_forward_hook(lambda *_: calls.append(1))
    decode_in_parts(decoder, inputs, prepared, [1] * 4)
    assert not calls
    decoder.prepare(memory)
    assert calls


@pytest.mark.parametrize("name", ["local_m_1_before", "local_m_2_feeding", "local_m_1_parallel", "transformer_local_m"])
def test_a_local_window_follows_the_target_position(name: str) -> None:
    decoder, memory, inputs = build(name, 7, steps=6)
    weights = decoder(inputs, decoder.prepare(memory), need_weights=True).weights
    assert weights is not None
    visible = [row.nonzero().flatten().tolist() for row in weights[0]]
    assert visible == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]


@pytest.mark.parametrize("mode", MODES)
def test_the_log_prob_of_hard_attention_is_that_of_the_sampled_distribution(mode: str) -> None:
    torch.manual_seed(0)
    context = partial(CrossAttention, score=partial(Location, max_length=4), select=Hard)
    decoder = RecurrentDecoder(DISTINCT, "rnn", SIZE, bridge="none", context=context, **MODES[mode]).double().train()
    module: Any = decoder.context
    module.attention.score.weight.weight.data *= 4
    scored: list[Tensor] = []
    module.attention.score.weight.register_forward_hook(lambda *arguments: scored.append(arguments[-1]))
    memory = decoder.prepare(make_source(DISTINCT, [4] * 3000))
    decoded = decoder(randn(3000, 3, DISTINCT.inputs), memory)
    scores = torch.cat(scored, dim=1)
    assert decoded.weights is not None and decoded.log_prob is not None
    assert torch.equal(decoded.weights.sum(-1), torch.ones(3000, 3, dtype=torch.float64))
    torch.testing.assert_close(decoded.log_prob, (scores.log_softmax(-1) * decoded.weights).sum(-1))
    torch.testing.assert_close(decoded.weights.mean(0), scores.softmax(-1).mean(0), atol=0.04, rtol=0)


def test_reencoded_context_encodes_embeddings_and_query_together() -> None:
    torch.manual_seed(0)
    context = ReencodedContext(2, DISTINCT, REENCODERS["bigru"]).double()
    assert context.context_size == 6
    memory, query = make_source(DISTINCT, [4, 2]), randn(2, 3, 2)
    attended = context(query, memory, torch.arange(3))
    for row, length in enumerate((4, 2)):
        for step in range(3):
            inputs = torch.cat([memory.vectors[row, :length], query[row, step].expand(length, -1)], dim=1)
            encoded = context.encoder(inputs[None], torch.tensor([length])).output[0]
            torch.testing.assert_close(attended.context[row, step], torch.cat([encoded[-1, :3], encoded[0, 3:]]))


def test_the_log_prob_of_a_reencoded_context_sums_up_to_the_end_of_the_source() -> None:
    torch.manual_seed(0)
    context, lengths = ReencodedContext(2, DISTINCT, REENCODERS["hard"]).double().eval(), (4, 2)
    memory, query = make_source(DISTINCT, list(lengths)), randn(2, 3, 2)
    log_prob = context(query, memory, torch.arange(3)).log_prob
    assert log_prob is not None and log_prob.shape == (2, 3)
    for row, step in product(range(2), range(3)):
        length = lengths[row]
        inputs = torch.cat([memory.vectors[row, :length], query[row, step].expand(length, -1)], dim=1)
        expected = context.encoder(inputs[None], torch.tensor([length])).log_prob
        assert expected is not None
        torch.testing.assert_close(log_prob[row, step], expected.sum())


def test_the_encoder_of_a_reencoded_context_limits_the_source_length() -> None:
    encoder = partial(TransformerEncoder, size=4, num_heads=2, positions=partial(LearnedPositions, max_length=7))
    decoder = RecurrentDecoder(DISTINCT, size=SIZE, bridge="none", context=partial(ReencodedContext, encoder=encoder))
    assert (decoder.max_length, decoder.max_source_length) == (None, 7)
