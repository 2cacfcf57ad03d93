"""Recurrent encoders against their formulas."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ram.attention.scores import General
from ram.attention.selection import Hard, LocalMonotonic
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from tests.ram.sequence.encoder_cases import CELLS, SIZE, WIDTH, randn


def step(cell: str, weights: list[Tensor], inputs: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """One step of a cell: the state, and the cell state of an LSTM."""
    from_input, from_state, input_bias, state_bias = weights
    state, memory = hidden
    x, h = from_input @ inputs + input_bias, from_state @ state + state_bias
    if cell == "rnn":
        return torch.tanh(x + h), memory
    if cell == "gru":
        (r, z, n), (hr, hz, hn) = x.chunk(3), h.chunk(3)
        reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        return (1 - update) * torch.tanh(n + reset * hn) + update * state, memory
    input_gate, forget_gate, new, output_gate = (x + h).chunk(4)
    memory = torch.sigmoid(forget_gate) * memory + torch.sigmoid(input_gate) * torch.tanh(new)
    return torch.sigmoid(output_gate) * torch.tanh(memory), memory


def weights_of(module: nn.Module, suffix: str = "") -> list[Tensor]:
    return [getattr(module, f"{name}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


ZEROS = (torch.zeros(SIZE, dtype=torch.float64),) * 2


def run_cell(cell: str, weights: list[Tensor], row: Tensor) -> Tensor:
    """(N, D) -> (N, SIZE)."""
    state, outputs = ZEROS, []
    for inputs in row:
        state = step(cell, weights, inputs, state)
        outputs.append(state[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_encoder_by_hand(cell: Any, num_layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(WIDTH, cell, SIZE, num_layers, bidirectional, dropout=0.3).double().eval()
    lengths, vectors = [5, 2, 4], randn(3, 5, WIDTH)
    encoded = encoder(vectors, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        expected = vectors[row, :length]
        for layer in range(num_layers):
            directions = [run_cell(cell, weights_of(encoder.layers, f"_l{layer}"), expected)]
            if bidirectional:
                backwards = weights_of(encoder.layers, f"_l{layer}_reverse")
                directions.append(run_cell(cell, backwards, expected.flip(0)).flip(0))
            expected = torch.cat(directions, dim=1)
        torch.testing.assert_close(encoded.output[row, :length], expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("over", "causal"), [("past", True), ("past", False), ("below", True), ("below", False)])
def test_attentive_recurrent_encoder_by_hand(cell: Any, over: Any, causal: bool) -> None:
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, over, cell, SIZE, causal).double()
    assert encoder.causal == (causal or over == "past")  # past states do not depend on later inputs
    score = encoder.attention.score
    assert isinstance(score, General)
    lengths, vectors = [5, 1, 3], randn(3, 5, WIDTH)
    encoded = encoder(vectors, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        state, outputs = ZEROS, []
        for position in range(length):
            below = vectors[row, : position + 1 if causal else length]
            memory = list(outputs) if over == "past" else list(below)
            context = torch.zeros(SIZE if over == "past" else WIDTH, dtype=torch.float64)
            powers = [(score.weight.weight @ state[0] @ key).exp() for key in memory]
            for power, value in zip(powers, memory, strict=True):
                context = context + power / sum(powers) * value
            state = step(cell, weights_of(encoder.cell), torch.cat([vectors[row, position], context]), state)
            outputs.append(state[0])
        torch.testing.assert_close(encoded.output[row, :length], torch.stack(outputs))


def test_a_local_window_follows_the_position() -> None:
    select = partial(LocalMonotonic, half_width=1)
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, "below", "rnn", SIZE, causal=False, select=select).double()
    encoder.cell.weight_hh.data.zero_()  # no recurrence: a state depends on the current context only
    encoder.attention.score.weight.weight.data.zero_()  # equal scores
    encoder.cell.weight_ih.data[:, :WIDTH].zero_()  # no direct input
    vectors = randn(1, 7, WIDTH).requires_grad_()
    output = encoder(vectors, torch.tensor([7])).output
    (gradient,) = torch.autograd.grad(output[0, 5].sum(), vectors)
    assert gradient[0].any(-1).nonzero().flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize(("over", "causal"), [("past", True), ("below", True), ("below", False)])
def test_the_log_prob_of_hard_attention_is_that_of_the_sampled_distribution(over: Any, causal: bool) -> None:
    torch.manual_seed(0)
    encoder = AttentiveRecurrentEncoder(WIDTH, over, "rnn", SIZE, causal, select=Hard).double().train()
    vectors, samples = randn(1, 4, WIDTH), 4000
    encoded = encoder(vectors.expand(samples, -1, -1), torch.full((samples,), 4))
    assert encoded.log_prob is not None
    memory = encoded.output if over == "past" else vectors.expand(samples, -1, -1)
    score = encoder.attention.score
    assert isinstance(score, General)
    for position in range(4):
        query = encoded.output[:, position - 1] if position else torch.zeros(samples, SIZE, dtype=torch.float64)
        visible = position if over == "past" else position + 1 if causal else 4
        if not visible:
            assert not encoded.log_prob[:, position].any()  # the past is empty
            continue
        log_probs = ((query @ score.weight.weight.T)[:, None] @ memory[:, :visible].mT)[:, 0].log_softmax(-1)
        # The choice is recovered from the state: only one choice leads to it.
        candidates = []
        for chosen in range(visible):
            cell_input = torch.cat([vectors[:, position].expand(samples, -1), memory[:, chosen]], dim=1)
            candidates.append(encoder.cell(cell_input, query))
        distance = (torch.stack(candidates, 1) - encoded.output[:, position, None]).square().sum(-1)
        chosen = distance.argmin(1)
        assert distance.gather(1, chosen[:, None]).max() < 1e-20
        torch.testing.assert_close(encoded.log_prob[:, position], log_probs.gather(1, chosen[:, None])[:, 0])
        frequency = nn.functional.one_hot(chosen, visible).double().mean(0)
        torch.testing.assert_close(frequency, log_probs.exp().mean(0), atol=0.03, rtol=0)
