"""Readers against numbers worked out by hand, and what must hold of every one of them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention import Attention
from ram.attention.scores import Additive, Dot, General
from ram.attention.selection import GumbelSoftmax, Hard, LocalPredictive, Unnormalised
from ram.sequence.readers import Contextual, Fixed, Last, Reader, Sum

EVERY: dict[str, Callable[..., Reader]] = {
    "sum": Sum,
    "mean": partial(Sum, mean=True),
    "last": Last,
    "fixed": Fixed,
    "fixed_additive": partial(Fixed, num_queries=3, score=Additive),
    "fixed_unnormalised": partial(Fixed, select=Unnormalised),
    "fixed_hard": partial(Fixed, num_queries=2, select=Hard),
    "fixed_gumbel": partial(Fixed, select=GumbelSoftmax),
    "contextual": Contextual,
    "contextual_last": partial(Contextual, query="last"),
    "contextual_unnormalised": partial(Contextual, select=Unnormalised),
    "contextual_hard": partial(Contextual, query="last", select=Hard),
    "contextual_local": partial(Contextual, select=partial(LocalPredictive, half_width=2)),
}

TEXTS = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [100.0, -100.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 12.0]]])
LENGTHS = torch.tensor([2, 3])


def contexts(reader: Reader) -> Tensor:
    """What is read in both texts."""
    return reader(TEXTS, LENGTHS).context


def test_the_sum_and_the_mean_by_hand() -> None:
    assert contexts(Sum(2)).tolist() == [[2, 2], [9, 18]]
    assert contexts(Sum(2, mean=True)).tolist() == [[1, 1], [3, 6]]


def test_the_sum_does_not_look_at_what_fills_a_row_up() -> None:
    filled = TEXTS.clone()
    filled[0, 2] = math.nan
    assert Sum(2)(filled, LENGTHS).context.tolist() == [[2, 2], [9, 18]]


def test_the_last_of_either_direction_by_hand() -> None:
    assert contexts(Last(2)).tolist() == [[0, 2], [5, 12]]
    assert contexts(Last(2, directions=2)).tolist() == [[0, 0], [5, 2]]  # the second half was read from the end


def weighing(attention: Attention, weight: list[list[float]]) -> None:
    assert isinstance(attention.score, General)
    attention.score.weight.weight.data = torch.tensor(weight)


def test_fixed_attention_by_hand() -> None:
    reader = Fixed(2, num_queries=2)
    reader.attention.query.data = torch.tensor([[math.log(3) / 2, 0.0], [0.0, math.log(2) / 2]])
    read = reader(TEXTS, LENGTHS)
    # Scores of the first text: log 3 and 0, then 0 and log 2. Of the second: powers 3^(1/2), 3^(3/2), 3^(5/2) are as
    # 1, 3, 9, then 2, 4, 64 as 1, 2, 32.
    expected = [[[3 / 4, 1 / 4, 0], [1 / 3, 2 / 3, 0]], [[1 / 13, 3 / 13, 9 / 13], [1 / 35, 2 / 35, 32 / 35]]]
    torch.testing.assert_close(read.weights, torch.tensor(expected))
    first, second = [1.5, 0.5, 2 / 3, 4 / 3], [55 / 13, 122 / 13, 167 / 35, 394 / 35]
    torch.testing.assert_close(read.context, torch.tensor([first, second]))
    assert reader.output_size == 4
    assert read.log_prob is None


def test_a_weight_for_every_vector_by_hand() -> None:
    reader = Fixed(2, select=Unnormalised)
    reader.attention.query.data = torch.tensor([[1.0, -0.5]])
    read = reader(TEXTS, LENGTHS)
    assert read.weights is not None
    assert read.weights.tolist() == [[[2, -1, 0]], [[0, 1, -1]]]
    assert read.context.tolist() == [[4, -2], [-2, -8]]


def test_a_query_from_the_mean_by_hand() -> None:
    reader = Contextual(2)
    weighing(reader.attention, [[math.log(3) / 2, 0.0], [0.0, 0.0]])
    read = reader(TEXTS, LENGTHS)
    # The means are (1, 1) and (3, 6): scores log 3, 0; and log 3 times 3/2, 9/2, 15/2: powers as 1, 27, 729.
    torch.testing.assert_close(read.weights, torch.tensor([[[3 / 4, 1 / 4, 0]], [[1 / 757, 27 / 757, 729 / 757]]]))
    second = [(1 + 81 + 3645) / 757, (2 + 108 + 8748) / 757]
    torch.testing.assert_close(read.context, torch.tensor([[1.5, 0.5], second]))


def test_a_query_from_the_last_by_hand() -> None:
    reader = Contextual(2, query="last")
    weighing(reader.attention, [[0.0, math.log(3) / 4], [0.0, 0.0]])
    read = reader(TEXTS, LENGTHS)
    # The last are (0, 2) and (5, 12): scores log 3, 0; and log 3 times 3, 9, 15.
    powers = [1, 3**6, 3**12]
    weights = [power / sum(powers) for power in powers]
    torch.testing.assert_close(read.weights, torch.tensor([[[3 / 4, 1 / 4, 0]], [weights]]))

    reader = Contextual(2, directions=2, query="last")
    weighing(reader.attention, [[0.0, math.log(3) / 2], [0.0, 0.0]])
    read = reader(TEXTS, LENGTHS)
    # Of what was read from the end, the first: (0, 0) and (5, 2): scores 0, 0; and log 3 times 1, 3, 5.
    weights = [power / (3 + 27 + 243) for power in (3, 27, 243)]
    torch.testing.assert_close(read.weights, torch.tensor([[[1 / 2, 1 / 2, 0]], [weights]]))


def test_a_hard_reader_tells_the_probability_of_its_choices() -> None:
    reader = Fixed(2, num_queries=2, select=Hard).eval()
    reader.attention.query.data = torch.tensor([[math.log(3) / 2, 0.0], [0.0, math.log(2) / 2]])
    read = reader(TEXTS, LENGTHS)
    # The likeliest of the weights above.
    assert read.context.tolist() == [[2, 0, 0, 2], [5, 12, 5, 12]]
    assert read.log_prob is not None
    expected = [math.log(3 / 4 * 2 / 3), math.log(9 / 13 * 32 / 35)]
    torch.testing.assert_close(read.log_prob.flatten(1).sum(1), torch.tensor(expected))


def test_a_hard_reader_samples_in_training() -> None:
    reader = Contextual(2, select=Hard).train()
    weighing(reader.attention, [[math.log(3) / 2, 0.0], [0.0, 0.0]])
    torch.manual_seed(0)
    read = reader(TEXTS[:1].expand(4000, -1, -1), torch.full((4000,), 2))
    assert read.weights is not None and read.log_prob is not None
    assert read.weights[:, 0, 0].mean() == pytest.approx(3 / 4, abs=0.03)
    chosen = torch.where(read.weights[:, 0, 0] == 1, math.log(3 / 4), math.log(1 / 4))
    torch.testing.assert_close(read.log_prob.flatten(), chosen)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_padding_changes_neither_what_is_read_nor_its_gradient(name: str, directions: int) -> None:
    torch.manual_seed(0)
    reader = EVERY[name](4, directions).double().eval()
    lengths, vectors = [1, 3, 5], torch.randn(3, 5, 4, dtype=torch.float64)
    padded = torch.cat([vectors, vectors], dim=1)
    for row, length in enumerate(lengths):
        padded[row, length:] *= 10
    padded.requires_grad_()
    read = reader(padded, torch.tensor(lengths))
    assert read.context.shape == (3, reader.output_size)
    assert (read.log_prob is not None) == name.endswith("_hard")
    for row, length in enumerate(lengths):
        alone = reader(vectors[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(read.context[row], alone.context[0])
        if read.weights is not None:
            torch.testing.assert_close(read.weights[row, :, :length], alone.weights[0])
            assert not read.weights[row, :, length:].any()
        if read.log_prob is not None:
            torch.testing.assert_close(read.log_prob[row], alone.log_prob[0])
    number = (read.context * torch.linspace(1, 2, reader.output_size)).sum()
    if read.log_prob is not None:
        number = number + read.log_prob.sum()
    (gradient,) = torch.autograd.grad(number, padded)
    for row, length in enumerate(lengths):
        assert not gradient[row, length:].any()
        assert gradient[row, :length].any()


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (Contextual, {"query": "first"}, r"reader\.query must be mean or last, got 'first'"),
        (Fixed, {"num_queries": 0}, "num_queries must be at least 1, got 0"),
        (Fixed, {"select": partial(LocalPredictive, half_width=0)}, "half_width of a local window"),
        (Contextual, {"score": partial(Additive, hidden_size=0)}, "hidden_size of the score Additive"),
    ],
)
def test_wrong_options_are_refused_by_name(kind: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        kind(2, **options)
    assert kind(2, score=Dot).output_size == 2
