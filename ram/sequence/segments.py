"""Recurrent layers over sequences of different lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_SEGMENT_COST = 64  # of an additional call of a recurrent layer, in steps of one row


def run_recurrent(layers: nn.RNNBase, inputs: Tensor, lengths: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """Runs recurrent layers over sequences of different lengths, with little computation for their padding.

    PyTorch has no fused kernel of packed sequences for the CPU, and the gradient of each of their steps has the size of
    all steps. There the sequences are sorted by length and divided into segments of several steps; a segment is
    computed for the rows that reach it.

    Args:
        layers: ``nn.RNN``, ``nn.GRU`` or ``nn.LSTM`` with ``batch_first=True``.
        inputs: (B, N, D).
        lengths: (B,) int64, in [1, N].
        state: initial state in PyTorch's format (layers, B, size); None for zeros.

    Returns:
        The outputs (B, N, size), arbitrary after the end of a row, and the state at the end of each row; in training,
        it is arbitrary for rows that are shorter than the longest.
    """
    if inputs.device.type != "cpu":
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, state = layers(packed, state)
        return pad_packed_sequence(output, batch_first=True, total_length=inputs.shape[1])[0], state
    ordered, order = lengths.sort(descending=True, stable=True)
    # Exact segments have the state at the end of every row.
    segments = divide_into_segments(ordered.tolist(), _SEGMENT_COST if layers.training else 0)
    longest, batch = sum(steps for steps, _ in segments), len(lengths)
    if len(segments) == 1 and (not layers.bidirectional or int(ordered[-1]) == longest):
        output, state = layers(inputs[:, :longest], state)
        return F.pad(output, (0, 0, 0, inputs.shape[1] - longest)), state
    lstm, directions = isinstance(layers, nn.LSTM), 1 + layers.bidirectional
    if state is None:
        zeros = inputs.new_zeros(layers.num_layers * directions, batch, layers.hidden_size)
        state = (zeros, zeros) if lstm else zeros
    starts = state if isinstance(state, tuple) else (state,)
    position, end = torch.arange(longest), ordered[:, None]
    reverse = torch.arange(batch)[:, None], torch.where(position < end, end - 1 - position, position)
    output, finals = inputs[order, :longest], []
    for index, weights in enumerate(layers.all_weights):
        direction = index % directions
        if direction == 0:
            current = F.dropout(output, layers.dropout, layers.training) if index else output
        start = tuple(each[index : index + 1, order] for each in starts)
        result, final = _run_segments(layers, weights, current[reverse] if direction else current, segments, start)
        finals.append(final)
        output = torch.cat([output, result[reverse]], dim=-1) if direction else result
    original = order.argsort()
    states = tuple(torch.cat(each)[:, original] for each in zip(*finals, strict=True))
    return F.pad(output[original], (0, 0, 0, inputs.shape[1] - longest)), states if lstm else states[0]


def _run_segments(
    layers: nn.RNNBase,
    weights: Sequence[Tensor],
    inputs: Tensor,
    segments: Sequence[tuple[int, int]],
    state: tuple[Tensor, ...],
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Runs one layer in one direction over segments; see :func:`divide_into_segments`.

    Args:
        layers: with the options.
        weights: of the layer and direction.
        inputs: (B, N, D), longest first.
        segments: number of steps, and of rows.
        state: initial state, (1, B, size) each.
    """
    functions: dict[str, Any] = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh}
    run: Callable[..., Any] = functions[layers.mode]
    outputs, ended = [], []
    for part, (_, rows) in zip(inputs.split([steps for steps, _ in segments], dim=1), segments, strict=True):
        ended.append(tuple(each[:, rows:] for each in state))
        state = tuple(each[:, :rows].contiguous() for each in state)
        output, *state = run(
            part[:rows],
            state if len(state) > 1 else state[0],
            list(weights),
            True,
            1,
            0.0,
            layers.training,
            False,
            True,
        )
        outputs.append(F.pad(output, (0, 0, 0, 0, 0, len(inputs) - rows)))
    finals = zip(state, *reversed(ended), strict=True)
    return torch.cat(outputs, dim=1), tuple(torch.cat(parts, dim=1) for parts in finals)


def divide_into_segments(lengths: Sequence[int], cost: int) -> list[tuple[int, int]]:
    """Divides the steps of sequences into segments, which are computed for all sequences that reach their first step.

    The segments minimize the number of computed elements plus ``cost`` for every segment. With ``cost=0`` no padding is
    computed.

    Args:
        lengths: of the sequences, at least 1 each.
        cost: of a segment, at least 0.

    Returns:
        The number of steps of each segment, and the number of sequences that reach it.
    """
    counts = Counter(lengths)
    ends = [0, *sorted(counts)]
    rows = [len(lengths) - ended for ended in accumulate(counts[end] for end in ends)]  # longer than the end
    best: list[tuple[int, int]] = [(0, 0)]  # the cost up to each end, and the start of its last segment
    for last in range(1, len(ends)):
        costs = (best[first][0] + rows[first] * (ends[last] - ends[first]) + cost for first in range(last))
        best.append(min((cost, first) for first, cost in enumerate(costs)))
    segments, last = list[tuple[int, int]](), len(ends) - 1
    while last:
        first = best[last][1]
        segments.append((ends[last] - ends[first], rows[first]))
        last = first
    return segments[::-1]
