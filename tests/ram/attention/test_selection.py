"""Selections: softmax, controls, and what holds of all selections."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.attention import causal_mask, padding_mask
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    Local,
    LocalMonotonic,
    LocalPredictive,
    Select,
    Soft,
    Uniform,
    Unnormalized,
)
from ram.distributions import Categorical
from tests.ram.attention.helpers import PROBLEMS, random_problem, softmax


def test_soft_weights_of_a_small_example() -> None:
    scores = torch.tensor([[[0.0, math.log(2), math.log(5)]]])
    torch.testing.assert_close(Soft()(scores).weights, torch.tensor([[[1 / 8, 2 / 8, 5 / 8]]]))
    weights = Soft()(scores, torch.tensor([[[True, True, False]]])).weights
    torch.testing.assert_close(weights, torch.tensor([[[1 / 3, 2 / 3, 0]]]))
    assert weights[0, 0, 2] == 0
    assert Soft()(scores).log_prob is None


@settings(max_examples=30, deadline=None)
@given(**PROBLEMS)
def test_soft_is_the_softmax_over_visible_keys(seed: int, batch: int, queries: int, keys: int) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    expected = [[softmax(scores[b, q].tolist(), mask[b, q].tolist()) for q in range(queries)] for b in range(batch)]
    weights = Soft()(scores, mask).weights
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert not weights[~mask].any()


def test_soft_is_stable_for_large_scores() -> None:
    scores = torch.tensor([[[1e4, 1e4 + 1, -1e30, 3e38]]])
    weights = Soft()(scores, torch.tensor([True, True, True, False])).weights
    torch.testing.assert_close(weights, torch.tensor([[[1 / (1 + math.e), math.e / (1 + math.e), 0, 0]]]))


def test_unnormalized_weights_are_the_scores() -> None:
    scores = torch.tensor([[[2.0, -3.0, 0.5]]])
    assert torch.equal(Unnormalized()(scores).weights, scores)
    weights = Unnormalized()(scores, torch.tensor([[[True, True, False]]])).weights
    assert weights.tolist() == [[[2, -3, 0]]]
    assert Unnormalized()(scores).log_prob is None


# Controls that ignore the scores.

CONTROLS = {"uniform": Uniform(), "diagonal": Diagonal(), "from_end": Diagonal(from_end=True)}


def test_uniform_weights_of_a_small_example() -> None:
    scores = torch.tensor([[[5.0, -3.0, 0.0, 9.0], [0.0, 0.0, 0.0, 1e30]]])
    assert Uniform()(scores).weights.tolist() == [[[1 / 4] * 4] * 2]
    mask = torch.tensor([[[True, False, True, False], [False, False, True, False]]])
    assert Uniform()(scores, mask).weights.tolist() == [[[1 / 2, 0, 1 / 2, 0], [0, 0, 1, 0]]]


def test_diagonal_weights_of_a_small_example() -> None:
    scores = torch.tensor([5.0, -3.0, 9.0]).expand(2, 4, 3)
    weights = Diagonal()(scores).weights
    assert weights.argmax(-1).tolist() == [[0, 1, 2, 2]] * 2  # query 3 is past the last key
    assert weights.sum(-1).tolist() == [[1] * 4] * 2 and weights.dtype == scores.dtype
    weights = Diagonal(from_end=True)(scores).weights
    assert weights.tolist() == [[[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 0]]] * 2


def test_diagonal_counts_visible_keys_only() -> None:
    scores, mask = torch.zeros(3, 4, 5), padding_mask(torch.tensor([5, 3, 1]), 5)
    assert Diagonal()(scores, mask).weights.argmax(-1).tolist() == [[0, 1, 2, 3], [0, 1, 2, 2], [0, 0, 0, 0]]
    weights = Diagonal(from_end=True)(scores, mask).weights
    assert weights.argmax(-1).tolist() == [[4, 3, 2, 1], [2, 1, 0, 0], [0, 0, 0, 0]]
    assert torch.equal(weights.sum(-1), torch.ones(3, 4))


def test_diagonal_is_the_position_of_the_query_up_to_the_last_key() -> None:
    scores, step = torch.zeros(2, 3, 4), torch.tensor([1, 3, 90])
    mask = padding_mask(torch.tensor([4, 3]), 4)
    assert Diagonal()(scores, mask, None, step).weights.argmax(-1).tolist() == [[1, 3, 3], [1, 2, 2]]
    assert Diagonal(from_end=True)(scores, mask, None, step).weights.argmax(-1).tolist() == [[2, 0, 0], [1, 0, 0]]


def test_diagonal_in_causal_self_attention_is_the_present_and_from_the_end_the_first_key() -> None:
    scores, mask = torch.randn(1, 4, 4), causal_mask(4)
    assert torch.equal(Diagonal()(scores, mask).weights[0], torch.eye(4))
    assert Diagonal(from_end=True)(scores, mask).weights[0].argmax(-1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CONTROLS)
@settings(max_examples=20, deadline=None)
@given(**PROBLEMS, first=st.integers(0, 8))
def test_controls_equal_their_formulas(
    name: str, training: bool, seed: int, batch: int, queries: int, keys: int, first: int
) -> None:
    scores, _ = random_problem(seed, batch, queries, keys)
    lengths = torch.randint(0, keys + 1, (batch,))
    step = torch.arange(first, first + queries)
    weights = CONTROLS[name].train(training)(scores, padding_mask(lengths, keys), None, step).weights
    for b, q in product(range(batch), range(queries)):
        length = int(lengths[b])
        expected = [0.0] * keys
        if length and name == "uniform":
            expected[:length] = [1 / length] * length
        elif length:
            position = min(first + q, length - 1)
            expected[position if name == "diagonal" else length - 1 - position] = 1
        assert weights[b, q].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_have_neither_parameters_nor_gradient_nor_log_prob(name: str) -> None:
    select = CONTROLS[name]
    selection = select(torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3, 4) < 0.7)
    assert not list(select.parameters())
    assert not selection.weights.requires_grad
    assert selection.log_prob is None


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_have_zero_weights_without_visible_keys(name: str) -> None:
    mask = torch.tensor([[[True, True, False], [False, False, False]], [[False] * 3] * 2])
    weights = CONTROLS[name](torch.randn(2, 2, 3), mask).weights
    assert weights.sum(-1).tolist() == [[1, 0], [0, 0]]
    assert not weights[~mask].any()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "select", [Soft(), Uniform(), Diagonal(), Unnormalized(), Hard(), GumbelSoftmax(), LocalMonotonic()]
)
def test_no_keys_have_no_weights(select: Select, training: bool) -> None:
    selection = select.train(training)(torch.zeros(2, 3, 0))
    assert selection.weights.shape == (2, 3, 0)
    if selection.log_prob is not None:
        assert torch.equal(selection.log_prob, torch.zeros(2, 3))


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InputError, match="temperature of GumbelSoftmax must be positive and finite, got 0"):
        GumbelSoftmax(temperature=0)
    with pytest.raises(InputError, match="temperature of GumbelSoftmax must be positive and finite, got nan"):
        GumbelSoftmax(temperature=math.nan)
    with pytest.raises(InputError, match=r"LocalMonotonic\.half_width must be at least 1, got 0"):
        LocalMonotonic(half_width=0)
    with pytest.raises(InputError, match=r"LocalPredictive\.half_width must be at least 1, got -1"):
        LocalPredictive(3, half_width=-1)
    with pytest.raises(InputError, match="LocalPredictive needs the width of a query: set its query_size"):
        LocalPredictive()


@pytest.mark.parametrize("hidden_size", [0, -1])
def test_local_p_refuses_an_empty_hidden_layer(hidden_size: int) -> None:
    with pytest.raises(InputError, match=rf"LocalPredictive\.hidden_size must be at least 1, got {hidden_size}"):
        LocalPredictive(3, hidden_size=hidden_size)


def test_abstract_methods_must_be_implemented() -> None:
    class Incomplete(Select):
        pass

    class NoCenter(Local):
        pass

    with pytest.raises(TypeError, match="Incomplete does not implement weights"):
        Incomplete()(torch.zeros(1, 1, 2))
    with pytest.raises(TypeError, match="NoCenter does not implement center"):
        NoCenter(None, 1, False)(torch.zeros(1, 1, 2))
    with pytest.raises(TypeError, match="Unnormalized has no distribution over keys"):
        Unnormalized().logits(torch.zeros(1, 1, 2), None, None, None)


@pytest.mark.parametrize(
    "select",
    [
        Soft(),
        Uniform(),
        Diagonal(),
        Diagonal(from_end=True),
        LocalMonotonic(half_width=1),
        LocalMonotonic(half_width=2, gaussian=True),
        LocalPredictive(3, half_width=2),
    ],
)
@settings(max_examples=20, deadline=None)
@given(**PROBLEMS, first=st.integers(0, 8))
def test_the_distribution_has_the_normalized_weights_as_probabilities(
    select: Select, seed: int, batch: int, queries: int, keys: int, first: int
) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    query, step = torch.randn(batch, queries, 3, dtype=torch.float64), torch.arange(first, first + queries)
    weights = select.double()(scores, mask, query, step).weights
    logits = select.logits(scores, mask, query, step)
    probabilities = logits.softmax(-1)
    has_weight = weights.sum(-1) > 1e-200
    expected = weights / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(probabilities[has_weight], expected[has_weight])
    entropy = Categorical(logits).entropy()
    assert entropy.isfinite().all()
