"""Transformer encoders against loops over heads and positions."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from envs import InputError
from ram.attention import MultiHeadAttention
from ram.attention.positions import LinearPositions, NoPositions, SinusoidalPositions
from ram.attention.selection import Hard
from ram.sequence.transformer import TransformerEncoder, TransformerLayer
from tests.ram.sequence.encoder_cases import SIZE, WIDTH, build, randn


def norm(vector: Tensor, layer: nn.LayerNorm) -> Tensor:
    centered = vector - vector.mean()
    return centered / (centered.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def layer_by_hand(layer: TransformerLayer, row: list[Tensor], visible: Callable[[int, int], bool]) -> list[Tensor]:
    attention, size = layer.self_attention, SIZE // layer.self_attention.num_heads
    normalized = [norm(vector, layer.self_attention_norm) for vector in row]
    first, second = layer.network[0], layer.network[2]
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
    outputs = []
    for position, vector in enumerate(row):
        heads = []
        for head in range(attention.num_heads):
            rows = slice(head * size, (head + 1) * size)
            query = attention.query.weight[rows] @ normalized[position]
            keys = [n for n in range(len(row)) if visible(position, n)]
            powers = [(query @ attention.key.weight[rows] @ normalized[n] / math.sqrt(size)).exp() for n in keys]
            values = [attention.value.weight[rows] @ normalized[n] for n in keys]
            heads.append(sum(power * value for power, value in zip(powers, values, strict=True)) / sum(powers))
        vector = vector + attention.out.weight @ torch.cat(heads)
        hidden = (first.weight @ norm(vector, layer.network_norm) + first.bias).clamp(min=0)
        outputs.append(vector + second.weight @ hidden + second.bias)
    return outputs


def perturbed(module: nn.Module) -> nn.Module:
    """Changes the parameters: the initial norms and biases would hide whether they are used."""
    for value in module.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return module


@pytest.mark.parametrize("num_heads", [1, 2])
def test_a_transformer_layer_by_hand(num_heads: int) -> None:
    torch.manual_seed(0)
    layer = TransformerLayer(MultiHeadAttention(SIZE, num_heads=num_heads), 5, dropout=0.5).double().eval()
    perturbed(layer)
    vectors = randn(1, 4, SIZE)
    mask = torch.tensor([[[True, False, True, True], [True, True, True, True], [False, True, False, False]]])
    mask = torch.cat([mask, torch.tensor([[[False, True, True, False]]])], dim=1)
    output, (keys, values), log_prob = layer(vectors, mask)
    expected = layer_by_hand(layer, list(vectors[0]), lambda position, n: bool(mask[0, position, n]))
    torch.testing.assert_close(output[0], torch.stack(expected))
    assert keys.shape == values.shape == (1, 4, SIZE)
    assert log_prob is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [WIDTH, SIZE])
def test_a_transformer_encoder_by_hand(causal: bool, width: int) -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(width, SIZE, num_layers=2, num_heads=2, hidden_size=5, causal=causal).double().eval()
    perturbed(encoder)
    vectors, lengths = randn(2, 4, width), [4, 2]
    output = encoder(vectors, torch.tensor(lengths)).output
    for index, length in enumerate(lengths):
        row = []
        for position, vector in enumerate(vectors[index, :length]):
            if isinstance(encoder.projection, nn.Linear):
                vector = encoder.projection.weight @ vector
            angles = [position / 10000 ** (2 * i / SIZE) for i in range(SIZE // 2)]
            code = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
            row.append(2 * vector + torch.tensor(code, dtype=torch.float64))  # 2 is the square root of the width
        for layer in encoder.layers:
            row = layer_by_hand(layer, row, lambda position, n: n <= position or not causal)
        expected = torch.stack([norm(vector, encoder.norm) for vector in row])
        torch.testing.assert_close(output[index, :length], expected, atol=1e-6, rtol=0)
    assert isinstance(encoder.projection, nn.Identity) == (width == SIZE)


def test_hidden_size_is_four_times_the_size_by_default() -> None:
    sizes = [TransformerEncoder(8, 8, hidden_size=hidden).layers[0].network[0].out_features for hidden in (None, 5)]
    assert sizes == [32, 5]


@pytest.mark.parametrize(
    ("positions", "equivariant"), [(NoPositions, True), (SinusoidalPositions, False), (LinearPositions, False)]
)
def test_without_positions_the_encoder_is_equivariant_to_order(positions: Any, equivariant: bool) -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(WIDTH, SIZE, num_heads=2, positions=positions).double().eval()
    vectors, lengths, order = randn(2, 5, WIDTH), torch.tensor([5, 5]), torch.tensor([3, 0, 4, 2, 1])
    reordered = encoder(vectors[:, order], lengths).output
    assert torch.allclose(reordered, encoder(vectors, lengths).output[:, order]) == equivariant


def test_more_inputs_than_positions_are_refused_also_in_later_calls() -> None:
    encoder = build("transformer_learned")
    vectors, lengths = randn(2, 10, WIDTH), torch.tensor([5, 5])
    with pytest.raises(InputError, match="A sequence has length 10, but LearnedPositions has max_length=9"):
        encoder(vectors, torch.tensor([10, 10]))
    state = encoder(vectors[:, :5], lengths).state
    with pytest.raises(InputError, match="A sequence has length 10, but LearnedPositions has max_length=9"):
        encoder(vectors[:, 5:], lengths, state)


def test_the_log_prob_of_hard_attention_sums_over_heads_and_layers() -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(WIDTH, SIZE, num_layers=2, num_heads=2, dropout=0.0, causal=True, select=Hard).double()
    vectors, lengths, calls = randn(3, 4, WIDTH), torch.full((3,), 4), []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda module, arguments, outputs: calls.append((module, arguments[0], outputs)))
    encoded = encoder.train()(vectors, lengths)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for layer, inputs, (after, _, log_prob) in calls:
        attention, normalized = layer.self_attention, layer.self_attention_norm(inputs)
        query, keys, values = (
            linear(normalized).view(3, 4, 2, 2).transpose(1, 2)
            for linear in (attention.query, attention.key, attention.value)
        )
        scores = (query @ keys.mT / math.sqrt(2)).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf)
        log_probs = scores.log_softmax(-1)  # (B, heads, Q, N)
        total = torch.zeros(3, 4, dtype=torch.float64)
        for row in range(3):
            for position in range(4):
                # The choices are recovered from the output: only one pair of keys leads to it.
                pairs = [(one, other) for one in range(position + 1) for other in range(position + 1)]
                chosen = [torch.cat([values[row, 0, one], values[row, 1, other]]) for one, other in pairs]
                hidden = inputs[row, position] + attention.out(torch.stack(chosen))
                candidates = hidden + layer.network(layer.network_norm(hidden))
                distance = (candidates - after[row, position]).square().sum(-1)
                one, other = pairs[int(distance.argmin())]
                assert distance.min() < 1e-20
                total[row, position] = log_probs[row, 0, position, one] + log_probs[row, 1, position, other]
        torch.testing.assert_close(log_prob, total)
        expected += total
    torch.testing.assert_close(encoded.log_prob, expected)
    assert len(calls) == 2
