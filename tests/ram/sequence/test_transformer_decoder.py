"""Transformer decoders against loops over heads and positions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.positions import NoPositions
from ram.attention.selection import Hard
from ram.sequence.transformer import TransformerDecoder
from tests.ram.sequence.decoder_cases import DISTINCT, SCORES, SIZE, build, make_source, randn


def norm(row: Tensor, layer: Any) -> Tensor:
    centered = row - row.mean()
    return centered / (centered.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def attend(attention: Any, query: Tensor, inputs: list[Tensor]) -> Tensor:
    heads, size = [], SIZE // attention.num_heads
    for head in range(attention.num_heads):
        rows = slice(head * size, (head + 1) * size)
        projected = attention.query.weight[rows] @ query
        powers = [(projected @ attention.key.weight[rows] @ key / math.sqrt(size)).exp() for key in inputs]
        values = [attention.value.weight[rows] @ value for value in inputs]
        heads.append(sum(power * value for power, value in zip(powers, values, strict=True)) / sum(powers))
    return attention.out.weight @ torch.cat(heads)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_a_transformer_decoder_by_hand(num_heads: int) -> None:
    torch.manual_seed(0)
    decoder = TransformerDecoder(DISTINCT, SIZE, 2, num_heads, hidden_size=5, dropout=0.5, positions=NoPositions)
    decoder.double().eval()
    for value in decoder.parameters():
        value.data += 0.3 * torch.randn_like(value)
    memory, inputs = make_source(DISTINCT, [4, 2]), randn(2, 3, DISTINCT.inputs)
    output = decoder(inputs, decoder.prepare(memory)).output
    projection: Any = decoder.projection
    for index, length in enumerate((4, 2)):
        row = [projection.weight @ vector for vector in inputs[index]]
        for layer in decoder.layers:
            normalized = [norm(vector, layer.self_attention_norm) for vector in row]
            row = [
                vector + attend(layer.self_attention, normalized[position], normalized[: position + 1])
                for position, vector in enumerate(row)
            ]
            states = list(memory.states[index, :length])
            row = [
                vector + attend(layer.cross_attention, norm(vector, layer.cross_attention_norm), states)
                for vector in row
            ]
            first, _, second = layer.network
            hidden = [(first.weight @ norm(vector, layer.network_norm) + first.bias).clamp(min=0) for vector in row]
            row = [vector + second.weight @ each + second.bias for vector, each in zip(row, hidden, strict=True)]
        expected = torch.stack([norm(vector, decoder.norm) for vector in row])
        torch.testing.assert_close(output[index], expected)


def test_hidden_size_is_four_times_the_size_by_default() -> None:
    sizes = [
        TransformerDecoder(DISTINCT, 8, hidden_size=hidden).layers[0].network[0].out_features for hidden in (None, 5)
    ]
    assert sizes == [32, 5]


def test_more_tokens_than_positions_are_refused_also_in_later_calls() -> None:
    decoder, memory, inputs = build("transformer_learned", 4, steps=7)
    prepared = decoder.prepare(memory)
    with pytest.raises(InputError, match="A sequence has length 7, but LearnedPositions has max_length=6"):
        decoder(inputs, prepared)
    state = decoder(inputs[:, :6], prepared).state
    with pytest.raises(InputError, match="A sequence has length 7, but LearnedPositions has max_length=6"):
        decoder(inputs[:, 6:], prepared, state)


def test_weights_are_the_mean_over_the_heads_of_the_last_layer() -> None:
    decoder, memory, inputs = build("transformer_scaled_dot", 4, 2)
    recorded: list[Tensor] = []
    untyped: Any = decoder
    attention = untyped.layers[-1].cross_attention
    attention.records.append(recorded)
    decoded = decoder(inputs, decoder.prepare(memory), need_weights=True)
    assert recorded[0].shape == (2, 2, 4, 4)
    torch.testing.assert_close(decoded.weights, (recorded[0][:, 0] + recorded[0][:, 1]) / 2)


def test_the_log_prob_of_hard_attention_sums_over_heads_and_layers() -> None:
    torch.manual_seed(0)
    decoder = (
        TransformerDecoder(DISTINCT, SIZE, 2, 2, score=SCORES["general"], select=Hard, dropout=0.0).double().train()
    )
    memory, inputs, outputs = make_source(DISTINCT, [4, 2]), randn(2, 3, DISTINCT.inputs), []
    for layer in decoder.layers:
        layer.cross_attention.register_forward_hook(lambda *_: pytest.fail("the prepared source must be attended"))
        attend = layer.cross_attention.attend

        def recording(*arguments: Any, attend: Any = attend) -> Any:
            outputs.append(attend(*arguments))
            return outputs[-1]

        layer.cross_attention.attend = recording
    decoded = decoder(inputs, decoder.prepare(memory))
    assert len(outputs) == 2 and decoded.log_prob is not None
    torch.testing.assert_close(decoded.log_prob, outputs[0].log_prob + outputs[1].log_prob)
    assert (decoded.log_prob < 0).any()
    decoded.log_prob.sum().backward()
    assert all(layer.cross_attention.score.weight.weight.grad.any() for layer in decoder.layers)
