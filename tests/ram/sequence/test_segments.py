"""Recurrent layers over sequences of different lengths, and logits of the positions of a mask."""

from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ram.sequence import segments
from ram.sequence.recurrent import LAYERS
from ram.sequence.segments import divide_into_segments, run_recurrent
from tests.ram.sequence.seq2seq_cases import (
    CAUSAL_ENCODERS,
    DECODERS,
    WITH_ATTENTION,
    make_decoder_only,
    make_encoder_decoder,
    run,
)

LENGTHS = [3, 9, 1, 9, 4, 4, 7]


def test_segments_by_hand() -> None:
    assert divide_into_segments([5, 5, 5], 0) == [(5, 3)]
    assert divide_into_segments([5, 3, 3, 1], 0) == [(1, 4), (2, 3), (2, 1)]
    # 1 * 4 + 4 * 3 = 16 elements in two segments, 3 * 4 + 2 * 1 = 14 in two, 5 * 4 = 20 in one.
    assert divide_into_segments([5, 3, 3, 1], 5) == [(3, 4), (2, 1)]
    assert divide_into_segments([5, 3, 3, 1], 7) == [(5, 4)]


@pytest.mark.parametrize("cost", [0, 1, 3, 10, 40])
def test_segments_have_the_smallest_cost(cost: int) -> None:
    def total(parts: list[tuple[int, int]]) -> int:
        return sum(steps * rows + cost for steps, rows in parts)

    inner = sorted(set(LENGTHS) - {9})
    possible = []
    for count in range(len(inner) + 1):
        for chosen in combinations(inner, count):
            spans = pairwise([0, *chosen, 9])
            possible.append([(end - start, sum(length > start for length in LENGTHS)) for start, end in spans])
    assert total(divide_into_segments(LENGTHS, cost)) == min(map(total, possible))


@pytest.mark.parametrize("cell", LAYERS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cost", [0, 4, 1000])
def test_segments_equal_packed_sequences(
    cell: str, num_layers: int, bidirectional: bool, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_SEGMENT_COST", cost)
    torch.manual_seed(0)
    layers = LAYERS[cell](3, 5, num_layers, batch_first=True, bidirectional=bidirectional).double()
    lengths, inputs = torch.tensor(LENGTHS), torch.randn(len(LENGTHS), 11, 3, dtype=torch.float64, requires_grad=True)
    start: Any = torch.randn(num_layers * (1 + bidirectional), len(LENGTHS), 5, dtype=torch.float64)
    start = (start, start.cos()) if cell == "lstm" else start
    packed, _ = layers(pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False), start)
    expected, _ = pad_packed_sequence(packed, batch_first=True, total_length=11)
    output, _ = run_recurrent(layers, inputs, lengths, start)
    mask = torch.arange(11) < lengths[:, None]
    torch.testing.assert_close(output[mask], expected[mask])
    factors = torch.randn_like(expected[mask])
    wanted = torch.autograd.grad((expected[mask] * factors).sum(), [inputs, *layers.parameters()])
    torch.testing.assert_close(
        torch.autograd.grad((output[mask] * factors).sum(), [inputs, *layers.parameters()]), wanted
    )


def test_dropout_between_layers_is_applied_in_training_only() -> None:
    layers = torch.nn.GRU(3, 5, 2, batch_first=True, dropout=0.5)
    inputs, lengths = torch.randn(7, 9, 3), torch.tensor(LENGTHS)
    first, second = (run_recurrent(layers, inputs, lengths)[0] for _ in range(2))
    assert not torch.equal(first, second)
    layers.eval()
    assert torch.equal(run_recurrent(layers, inputs, lengths)[0], run_recurrent(layers, inputs, lengths)[0])


def check_mask(model: Any, copy: bool = False) -> None:
    """Compares logits and gradients of the positions of a mask with those of all positions."""
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] * 4 + [False]])
    whole = run(model, [0, 1, 2], copy).logits[mask]
    masked = run(model, [0, 1, 2], copy, mask=mask).logits
    torch.testing.assert_close(masked, whole)
    parameters = [value for value in model.parameters() if value.requires_grad]
    finite = whole > -1e9
    gradients: list[tuple[Tensor, ...]] = [
        torch.autograd.grad(logits[finite].sin().sum(), parameters, allow_unused=True) for logits in (masked, whole)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("decoder", "copy"), [(decoder, False) for decoder in DECODERS] + [(decoder, True) for decoder in WITH_ATTENTION]
)
def test_the_logits_of_a_mask_equal_those_of_all_positions(decoder: str, copy: bool) -> None:
    check_mask(make_encoder_decoder(decoder, copy=copy), copy)


@pytest.mark.parametrize("encoder", CAUSAL_ENCODERS)
def test_the_logits_of_a_mask_equal_those_of_all_positions_without_a_decoder(encoder: str) -> None:
    check_mask(make_decoder_only(encoder))
