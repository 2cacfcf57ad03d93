"""Recurrent decoders against values computed by hand."""

from dataclasses import replace
from functools import partial
from math import exp, tanh
from typing import Any

import pytest
import torch
from torch import Tensor

from ram.attention.scores import Additive
from ram.attention.selection import Uniform
from ram.sequence.context import CrossAttention
from ram.sequence.interfaces import Decoder, DecoderSizes, Memory
from ram.sequence.recurrent import Bridge, RecurrentDecoder
from tests.ram.sequence.decoder_cases import SIZE, build


def one(value: float, *values: float) -> Tensor:
    """(1, D)."""
    return torch.tensor([[value, *values]], dtype=torch.float64)


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def load_weights(decoder: Decoder, weights: dict[str, Tensor]) -> Decoder:
    """Sets every parameter."""
    decoder = decoder.double()
    decoder.load_state_dict(weights)
    return decoder


def rnn_weights(layer: int, input_weight: list[float], state_weight: float, bias: float = 0.0) -> dict[str, Tensor]:
    """Of a layer of width 1: tanh(input_weight . input + state_weight * state + bias)."""
    names = (f"layers.{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return dict(zip(names, (matrix(input_weight), matrix([state_weight]), vector(bias), vector(0)), strict=True))


STATES = [(1.0, 0.0), (0.5, 2.0), (-1.0, 1.0)]
"""Three encoder states; the last is padding."""
NARROW = DecoderSizes(inputs=1, vectors=1, states=2, summary=2)
SUMMARY, TOKENS = (0.7, -0.4), (0.8, -1.1)


def make_memory() -> Memory:
    states = torch.tensor([STATES], dtype=torch.float64)
    return Memory(torch.zeros(1, 3, 1, dtype=torch.float64), states, torch.tensor([2]), one(*SUMMARY))


def make_inputs() -> Tensor:
    return vector(*TOKENS)[None, :, None]


def softmax(first: float, second: float) -> tuple[float, float]:
    return exp(first) / (exp(first) + exp(second)), exp(second) / (exp(first) + exp(second))


def weighted(first: float, second: float) -> tuple[float, float]:
    """The weighted sum of the first two states."""
    return first * STATES[0][0] + second * STATES[1][0], first * STATES[0][1] + second * STATES[1][1]


@pytest.mark.parametrize("input_feeding", [True, False])
def test_attention_after_a_step_by_hand(input_feeding: bool) -> None:
    decoder = load_weights(
        RecurrentDecoder(
            NARROW, "rnn", 1, bridge="none", context=CrossAttention, attend="after", input_feeding=input_feeding
        ),
        {
            # Of the token and the previous output, and of the state.
            **rnn_weights(0, [1, 0.5] if input_feeding else [1], -1, 0.25),
            "context.attention.score.weight.weight": matrix([1], [-1]),
            "out.weight": matrix([1, 2, 3]),  # of the context, of the state
        },
    )
    expected, weights, state, previous = [], [], 0.0, 0.0
    for token in TOKENS:
        state = tanh(token + (0.5 * previous if input_feeding else 0) - state + 0.25)
        # s^T W h with W h = h_1 - h_2: 1 and -1.5.
        weights.append(softmax(state, -1.5 * state))
        context = weighted(*weights[-1])
        previous = tanh(context[0] + 2 * context[1] + 3 * state)
        expected.append([previous])
    decoded = decoder(make_inputs(), decoder.prepare(make_memory()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))
    torch.testing.assert_close(decoded.weights, torch.tensor([[(*row, 0) for row in weights]], dtype=torch.float64))


def test_attention_before_a_step_by_hand() -> None:
    decoder = load_weights(
        RecurrentDecoder(
            NARROW,
            "rnn",
            1,
            bridge="network",
            context=partial(CrossAttention, score=partial(Additive, hidden_size=1)),
            attend="before",
        ),
        {
            **rnn_weights(0, [1, 0.5, -0.25], -1),  # of the token and the context
            "context.attention.score.query.weight": matrix([2]),
            "context.attention.score.key.weight": matrix([1, -1]),
            "context.attention.score.out.weight": matrix([3]),
            "out.weight": matrix([1, 2, 3]),
            "bridge_layer.0.weight": matrix([1, -1]),
            "bridge_layer.0.bias": vector(0.1),
        },
    )
    expected, weights, state = [], [], tanh(0.7 + 0.4 + 0.1)
    for token in TOKENS:
        weights.append(softmax(3 * tanh(2 * state + 1), 3 * tanh(2 * state - 1.5)))
        context = weighted(*weights[-1])
        state = tanh(token + 0.5 * context[0] - 0.25 * context[1] - state)
        expected.append([tanh(context[0] + 2 * context[1] + 3 * state)])
    decoded = decoder(make_inputs(), decoder.prepare(make_memory()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))
    torch.testing.assert_close(decoded.weights, torch.tensor([[(*row, 0) for row in weights]], dtype=torch.float64))


def two_layers(token: float, state: list[float]) -> list[float]:
    """A step of two layers: tanh(token + state[0] / 2), and tanh(2 * first - state[1])."""
    first = tanh(token + state[0] / 2)
    return [first, tanh(2 * first - state[1])]


def two_layer_weights(input_weight: list[float]) -> dict[str, Tensor]:
    return rnn_weights(0, input_weight, 0.5) | rnn_weights(1, [2], -1)


@pytest.mark.parametrize(
    ("bridge", "weights", "state", "extra"),
    [
        ("none", two_layer_weights([1]), [0, 0], 0),
        (
            "network",
            two_layer_weights([1])
            | {"bridge_layer.0.weight": matrix([1, -1], [0.5, 2]), "bridge_layer.0.bias": vector(0, 0.1)},
            [tanh(0.7 + 0.4), tanh(0.5 * 0.7 - 2 * 0.4 + 0.1)],
            0,
        ),
        (
            "first",
            two_layer_weights([1]) | {"bridge_layer.weight": matrix([1, -1]), "bridge_layer.bias": vector(0.3)},
            two_layers(0.7 + 0.4 + 0.3, [0, 0]),
            0,
        ),
        ("every", two_layer_weights([1, 3, -2]), [0, 0], 3 * 0.7 + 2 * 0.4),
    ],
    ids=["none", "network", "first", "every"],
)
def test_bridges_by_hand(bridge: Bridge, weights: dict[str, Tensor], state: list[float], extra: float) -> None:
    decoder = load_weights(RecurrentDecoder(NARROW, "rnn", 1, 2, bridge), weights)
    expected = []
    for token in TOKENS:
        state = two_layers(token + extra, state)
        expected.append([state[1]])
    decoded = decoder(make_inputs(), decoder.prepare(make_memory()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_the_bridge_state_initializes_every_layer() -> None:
    decoder = load_weights(RecurrentDecoder(replace(NARROW, summary=1), "rnn", 1, 2, "state"), two_layer_weights([1]))
    state, expected = [0.7, 0.7], []
    for token in TOKENS:
        state = two_layers(token, state)
        expected.append([state[1]])
    decoded = decoder(make_inputs(), replace(make_memory(), summary=one(0.7)))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


@pytest.mark.parametrize("bridge", ["state", "network"])
def test_the_cell_state_of_an_lstm_starts_at_zero(bridge: Bridge) -> None:
    gates = [0.5, -1.0, 2.0, 1.5]  # input, forget, cell and output weights, of token and state
    weights = {
        "layers.weight_ih_l0": matrix(*[[gate] for gate in gates]),
        "layers.weight_hh_l0": matrix(*[[gate] for gate in gates]),
        "layers.bias_ih_l0": vector(0, 0, 0, 0),
        "layers.bias_hh_l0": vector(0, 0, 0, 0),
    }
    state, cell, expected = 0.7, 0.0, []
    if bridge == "network":
        weights |= {"bridge_layer.0.weight": matrix([2]), "bridge_layer.0.bias": vector(0.1)}
        state = tanh(2 * 0.7 + 0.1)
    decoder = load_weights(RecurrentDecoder(replace(NARROW, summary=1), "lstm", 1, 1, bridge), weights)
    for token in TOKENS:
        input_gate, forget_gate, new, output_gate = (gate * (token + state) for gate in gates)
        cell = cell / (1 + exp(-forget_gate)) + tanh(new) / (1 + exp(-input_gate))
        state = tanh(cell) / (1 + exp(-output_gate))
        expected.append([state])
    decoded = decoder(make_inputs(), replace(make_memory(), summary=one(0.7)))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_the_input_is_the_token_then_the_summary_then_the_context() -> None:
    decoder = load_weights(
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
    for token in TOKENS:
        state = tanh(token + 3 * 0.7 + 2 * 0.4 + 0.5 * 0.75 - 0.25 * 1.0 - state)  # the mean of the states: (0.75, 1)
        expected.append([tanh(state)])
    decoded = decoder(make_inputs(), decoder.prepare(make_memory()))
    torch.testing.assert_close(decoded.output, torch.tensor([expected], dtype=torch.float64))


def test_the_query_before_a_step_is_the_state_of_the_top_layer() -> None:
    decoder, memory, inputs = build("deep_lstm_network_attends_before", 4, 2)
    prepared, queries = decoder.prepare(memory), []
    context: Any = decoder.context
    context.register_forward_pre_hook(lambda module, arguments: queries.append(arguments[0]))
    bridge: Any = decoder.bridge_layer
    initial = torch.tanh(memory.summary @ bridge[0].weight.T + bridge[0].bias)
    decoder(inputs, prepared)
    torch.testing.assert_close(queries[0][:, 0], initial[:, SIZE:])
