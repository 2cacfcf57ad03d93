"""Scores: equality with their formulas in plain Python and with values computed by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from ram.attention.scores import Additive, Content, Dot, General, Location, ScaledDot, Score

Vector = list[float]


def _dot(a: Vector, b: Vector) -> float:
    assert len(a) == len(b)
    return sum(x * y for x, y in zip(a, b, strict=True))


def _times(matrix: Tensor, vector: Vector) -> Vector:
    return [_dot(row, vector) for row in matrix.tolist()]


def _general(score: Score, query: Vector, key: Vector, position: int) -> float:
    assert isinstance(score, General)
    return sum(
        weight * query[column] * key[row]
        for row, weights in enumerate(score.weight.weight.tolist())
        for column, weight in enumerate(weights)
    )


def _additive(score: Score, query: Vector, key: Vector, position: int) -> float:
    assert isinstance(score, Additive)
    from_query, from_key = _times(score.query.weight, query), _times(score.key.weight, key)
    return _dot(score.out.weight[0].tolist(), [math.tanh(q + k) for q, k in zip(from_query, from_key, strict=True)])


def _content(score: Score, query: Vector, key: Vector, position: int) -> float:
    return 1.5 * _dot(query, key) / math.sqrt(_dot(query, query)) / math.sqrt(_dot(key, key))


def _location(score: Score, query: Vector, key: Vector, position: int) -> float:
    assert isinstance(score, Location)
    return _dot(score.weight.weight[position].tolist(), query)


Build = Callable[[int, int], Score]
Formula = Callable[[Score, Vector, Vector, int], float]
FORMULAS: dict[str, tuple[Build, Formula]] = {
    "dot": (Dot, lambda score, query, key, position: _dot(query, key)),
    "scaled_dot": (ScaledDot, lambda score, query, key, position: _dot(query, key) / math.sqrt(len(key))),
    "general": (General, _general),
    "additive": (Additive, _additive),
    "additive_narrow": (lambda query, key: Additive(query, key, hidden_size=1), _additive),
    "content": (lambda query, key: Content(query, key, sharpness=1.5), _content),
    "location": (lambda query, key: Location(query, key, max_length=5), _location),
}
EQUAL_WIDTHS = ("dot", "scaled_dot", "content")


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=20, deadline=None)
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 4),
    keys=st.integers(1, 5),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 2**32 - 1),
)
def test_scores_equal_their_formulas(
    name: str, batch: int, queries: int, keys: int, widths: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    build, formula = FORMULAS[name]
    query_size, key_size = (widths[0], widths[0]) if name in EQUAL_WIDTHS else widths
    score = build(query_size, key_size).double()
    query = torch.randn(batch, queries, query_size, dtype=torch.float64)
    key = torch.randn(batch, keys, key_size, dtype=torch.float64)
    expected = [
        [[formula(score, q, k, position) for position, k in enumerate(key[row].tolist())] for q in query[row].tolist()]
        for row in range(batch)
    ]
    torch.testing.assert_close(score(query, key), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("score", "weights", "expected"),
    [
        # q = (1, 2, 2); k = (2, 0, 1), (0, -3, 0)
        (Dot(3, 3), {}, [2 + 2, -6]),
        (ScaledDot(3, 3), {}, [4 / math.sqrt(3), -6 / math.sqrt(3)]),
        # W q = (1 + 2, 2 - 2, 0) = (3, 0, 0)
        (General(3, 3), {"weight.weight": [[1, 1, 0], [0, 1, -1], [0, 0, 0]]}, [6, 0]),
        # W1 q = (1, 2), W2 k = (2, 1), (0, -3)
        (
            Additive(3, 3, hidden_size=2),
            {"query.weight": [[1, 0, 0], [0, 0, 1]], "key.weight": [[1, 0, 0], [0, 1, 1]], "out.weight": [[2, -1]]},
            [2 * math.tanh(3) - math.tanh(3), 2 * math.tanh(1) - math.tanh(-1)],
        ),
        # |q| = 3, |k| = sqrt(5), 3
        (Content(3, 3, sharpness=2), {}, [2 * 4 / (3 * math.sqrt(5)), 2 * -6 / 9]),
        (Location(3, 3, max_length=3), {"weight.weight": [[1, 0, 0], [0, 1, -2], [9, 9, 9]]}, [1, -2]),
    ],
    ids=["dot", "scaled_dot", "general", "additive", "content", "location"],
)
def test_scores_of_a_small_example(score: Score, weights: dict[str, list[list[float]]], expected: list[float]) -> None:
    score.load_state_dict({name: torch.tensor(rows).float() for name, rows in weights.items()}, strict=False)
    query, keys = torch.tensor([[[1.0, 2, 2]]]), torch.tensor([[[2.0, 0, 1], [0, -3, 0]]])
    torch.testing.assert_close(score(query, keys), torch.tensor([[expected]]).float())


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=10, deadline=None)
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 4),
    keys=st.integers(1, 5),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 2**32 - 1),
)
def test_prepared_keys_serve_single_queries_and_single_rows(
    name: str, batch: int, queries: int, keys: int, widths: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    build, formula = FORMULAS[name]
    query_size, key_size = (widths[0], widths[0]) if name in EQUAL_WIDTHS else widths
    score = build(query_size, key_size).double()
    query = torch.randn(batch, queries, query_size, dtype=torch.float64)
    key = torch.randn(batch, keys, key_size, dtype=torch.float64)
    prepared = score.prepare(key)
    assert prepared.shape[:2] == (batch, keys)
    whole = score(query, key)
    torch.testing.assert_close(score.compare(query, prepared), whole)
    for row, position in ((row, position) for row in range(batch) for position in range(queries)):
        # Prepared keys may be indexed by row, and prepared one by one.
        one = score.compare(query[row : row + 1, position : position + 1], prepared[row : row + 1])[0, 0]
        vector = query[row, position].tolist()
        expected = [formula(score, vector, each, number) for number, each in enumerate(key[row].tolist())]
        torch.testing.assert_close(one, torch.tensor(expected, dtype=torch.float64))
    separate = torch.cat([score.prepare(each) for each in key.split(1, dim=1)], dim=1)
    torch.testing.assert_close(separate, prepared)


def test_compare_does_not_repeat_what_prepare_computes() -> None:
    torch.manual_seed(0)
    query, keys = torch.randn(2, 3, 3), torch.randn(2, 4, 3)
    additive, content = Additive(3, 3), Content(3, 3)
    torch.testing.assert_close(additive.prepare(keys), keys @ additive.key.weight.T)
    torch.testing.assert_close(content.prepare(keys), keys / keys.norm(dim=-1, keepdim=True))
    prepared = additive.prepare(keys)
    expected = additive.compare(query, prepared)
    additive.key.weight.data.zero_()  # not used by compare
    assert torch.equal(additive.compare(query, prepared), expected)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_equal_finite_differences(name: str) -> None:
    torch.manual_seed(0)
    query_size, key_size = (3, 3) if name in EQUAL_WIDTHS else (3, 2)
    score = FORMULAS[name][0](query_size, key_size).double()
    query = torch.randn(2, 3, query_size, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 4, key_size, dtype=torch.float64, requires_grad=True)
    inputs = (query, keys, *score.parameters())
    assert torch.autograd.gradcheck(lambda query, keys, *_: score(query, keys), inputs)


def test_the_hidden_layer_of_additive_is_as_wide_as_a_key_by_default() -> None:
    assert Additive(3, 5).out.weight.shape == (1, 5)
    assert Additive(3, 5, hidden_size=7).out.weight.shape == (1, 7)


def test_the_sharpness_of_content_is_learned_and_positive() -> None:
    score = Content(2, 2, sharpness=4.0)
    vector = torch.tensor([[[3.0, 4.0]]])
    assert float(score(vector, vector).detach()) == pytest.approx(4)
    (gradient,) = torch.autograd.grad(score(vector, vector).sum(), list(score.parameters()))
    assert float(gradient) == pytest.approx(4)  # d exp(x) / dx at x = log 4
    with torch.no_grad():
        score.log_sharpness -= 100
    assert 0 < float(score(vector, vector).detach()) < 1e-6


def test_content_does_not_depend_on_the_norms() -> None:
    torch.manual_seed(0)
    score, query, keys = Content(3, 3), torch.randn(2, 3, 3), torch.randn(2, 4, 3)
    torch.testing.assert_close(score(7 * query, 0.01 * keys), score(query, keys))


def test_the_content_score_of_zero_vectors_is_zero() -> None:
    score, query = Content(2, 2), torch.tensor([[[1.0, 2.0], [0.0, 0.0]]], requires_grad=True)
    keys = torch.tensor([[[0.0, 0.0], [1.0, 2.0]]], requires_grad=True)
    scores = score(query, keys)
    torch.testing.assert_close(scores, torch.tensor([[[0.0, 5.0], [0.0, 0.0]]]))
    scores.sum().backward()
    assert query.grad is not None and keys.grad is not None
    # For zero vectors the normalization is the identity: the gradient is beta = 5 times the sum of the other side's
    # unit vectors, (0, 0) and (1, 2) / sqrt(5). The first query is parallel to the only nonzero key: its gradient is 0.
    torch.testing.assert_close(query.grad[0, 1], math.sqrt(5) * torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(keys.grad[0, 0], math.sqrt(5) * torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(query.grad[0, 0], torch.zeros(2))


def test_the_location_score_ignores_the_keys() -> None:
    torch.manual_seed(0)
    score, query = Location(3, 2, max_length=4), torch.randn(2, 3, 3)
    scores = score(query, torch.randn(2, 4, 2))
    assert scores.unique().numel() == scores.numel()  # positions have different scores
    assert torch.equal(score(query, torch.full((2, 4, 2), math.nan)), scores)
    assert torch.equal(score(query, torch.randn(2, 2, 2)), scores[..., :2])


@pytest.mark.parametrize("build", [Dot, ScaledDot, Content])
def test_products_refuse_different_widths(build: type[Score]) -> None:
    with pytest.raises(InputError, match=f"{build.__name__} needs queries and keys of equal width, got 3 and 4"):
        build(3, 4)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InputError, match=r"Additive\.hidden_size must be at least 1, got 0"):
        Additive(2, 2, hidden_size=0)
    with pytest.raises(InputError, match="sharpness of the score Content must be positive and finite, got 0"):
        Content(2, 2, sharpness=0)
    with pytest.raises(InputError, match="sharpness of the score Content must be positive and finite, got nan"):
        Content(2, 2, sharpness=math.nan)
    with pytest.raises(InputError, match=r"Location\.max_length must be at least 1, got 0"):
        Location(2, 2, max_length=0)


def test_the_location_score_refuses_more_keys_than_max_length() -> None:
    score = Location(2, 2, max_length=3)
    assert score(torch.zeros(1, 1, 2), torch.zeros(1, 3, 2)).shape == (1, 1, 3)
    with pytest.raises(InputError, match="Location got 4 keys, but has max_length=3: raise it"):
        score(torch.zeros(1, 1, 2), torch.zeros(1, 4, 2))


def test_compare_must_be_implemented() -> None:
    class Incomplete(Score):
        pass

    with pytest.raises(TypeError, match="Incomplete does not implement compare"):
        Incomplete(2, 2)(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
