"""Positional encodings: values computed by hand and by their formulas, and offsets."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions, Positions, SinusoidalPositions

POSITIONS: dict[str, Callable[[int], Positions]] = {
    "none": NoPositions,
    "sinusoidal": SinusoidalPositions,
    "linear": LinearPositions,
    "learned": lambda size: LearnedPositions(size, max_length=20),
}


def test_sinusoidal_positions_of_a_short_sequence() -> None:
    elements = torch.tensor([[[1.0, 0, 0, -1], [0, 0, 0, 0], [0, 0.5, 0, 0]]])
    expected = [
        [2 + 0.0, 1.0, 0.0, -2 + 1.0],  # elements times sqrt(4); sin 0 = 0, cos 0 = 1
        [0.8414710, 0.5403023, 0.0099998, 0.9999500],  # sin 1, cos 1, sin 0.01, cos 0.01
        [0.9092974, 1 - 0.4161468, 0.0199987, 0.9998000],  # sin 2, cos 2, sin 0.02, cos 0.02
    ]
    torch.testing.assert_close(SinusoidalPositions(4)(elements), torch.tensor([expected]), atol=1e-6, rtol=0)


@settings(max_examples=30, deadline=None)
@given(half=st.integers(1, 4), length=st.integers(1, 5), start=st.integers(0, 200), dtype=st.sampled_from([32, 64]))
def test_sinusoidal_positions_equal_their_formula(half: int, length: int, start: int, dtype: int) -> None:
    size = 2 * half
    elements = torch.randn(2, length, size, dtype=torch.float32 if dtype == 32 else torch.float64)
    out = SinusoidalPositions(size)(elements, start)
    assert out.dtype == elements.dtype
    for row in range(2):
        for position in range(length):
            for i in range(half):
                angle = (start + position) / 10000 ** (2 * i / size)
                sine, cosine = (
                    math.sqrt(size) * value for value in elements[row, position, 2 * i : 2 * i + 2].tolist()
                )
                assert out[row, position, 2 * i].item() == pytest.approx(sine + math.sin(angle), abs=1e-4)
                assert out[row, position, 2 * i + 1].item() == pytest.approx(cosine + math.cos(angle), abs=1e-4)


def test_sinusoidal_positions_have_neither_parameters_nor_state() -> None:
    positions = SinusoidalPositions(6)
    assert not list(positions.parameters())
    assert not positions.state_dict()


def test_linear_positions_of_a_short_sequence() -> None:
    positions = LinearPositions(2, unit=4.0)
    with torch.no_grad():
        positions.direction.copy_(torch.tensor([8.0, -1.0]))
    elements = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [5.0, 0.0]]])
    expected = torch.tensor([[[1.0, 1.0], [2.0, -0.25], [9.0, -0.5]]])  # 0, 1/4 and 2/4 times (8, -1)
    torch.testing.assert_close(positions(elements), expected)
    torch.testing.assert_close(positions(elements, start=4), expected + torch.tensor([8.0, -1.0]))
    (gradient,) = torch.autograd.grad(positions(elements)[..., 0].sum(), list(positions.parameters()))
    torch.testing.assert_close(gradient, torch.tensor([0.75, 0.0]))


def test_learned_positions_of_a_short_sequence() -> None:
    positions = LearnedPositions(2, max_length=3)
    with torch.no_grad():
        positions.vectors.copy_(torch.tensor([[1.0, 2.0], [30.0, 40.0], [500.0, 600.0]]))
    elements = torch.tensor([[[0.0, 0.5], [0.0, 0.0]], [[-1.0, 0.0], [1.0, 1.0]]])
    expected = [[[1.0, 2.5], [30.0, 40.0]], [[0.0, 2.0], [31.0, 41.0]]]
    torch.testing.assert_close(positions(elements), torch.tensor(expected))
    expected = [[[30.0, 40.5], [500.0, 600.0]], [[29.0, 40.0], [501.0, 601.0]]]
    torch.testing.assert_close(positions(elements, start=1), torch.tensor(expected))
    (gradient,) = torch.autograd.grad(positions(elements, start=1).sum(), list(positions.parameters()))
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [2.0, 2.0], [2.0, 2.0]]))


def test_no_positions_return_their_input() -> None:
    elements = torch.randn(2, 3, 5)
    assert torch.equal(NoPositions(5)(elements), elements)
    assert torch.equal(NoPositions(5)(elements, start=7), elements)


@pytest.mark.parametrize("name", POSITIONS)
@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 10), data=st.data())
def test_start_offsets_the_positions(name: str, length: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, length - 1))
    positions, elements = POSITIONS[name](4), torch.randn(2, length, 4)
    assert torch.equal(positions(elements[:, start:], start), positions(elements)[:, start:])


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_equal_elements_at_different_positions_differ(name: str) -> None:
    torch.manual_seed(0)
    encoded = POSITIONS[name](4)(torch.ones(1, 15, 4))[0]
    difference = (encoded[:, None] - encoded).abs().amax(-1)
    assert difference[~torch.eye(15, dtype=torch.bool)].min() > 1e-3


def test_sinusoidal_positions_refuse_an_odd_width() -> None:
    with pytest.raises(InputError, match="even width, got 5"):
        SinusoidalPositions(5)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InputError, match="unit of linear positions must be positive and finite, got 0"):
        LinearPositions(2, unit=0)
    with pytest.raises(InputError, match=r"LearnedPositions\.max_length must be at least 1, got 0"):
        LearnedPositions(2, max_length=0)


def test_a_sequence_longer_than_max_length_is_refused() -> None:
    positions = LearnedPositions(2, max_length=4)
    assert positions(torch.zeros(1, 4, 2)).shape == (1, 4, 2)
    assert positions(torch.zeros(1, 1, 2), start=3).shape == (1, 1, 2)
    with pytest.raises(InputError, match="A sequence has length 5, but LearnedPositions has max_length=4: raise it"):
        positions(torch.zeros(1, 5, 2))
    with pytest.raises(InputError, match="A sequence has length 5, but LearnedPositions has max_length=4"):
        positions(torch.zeros(1, 2, 2), start=3)


def test_forward_must_be_implemented() -> None:
    class Incomplete(Positions):
        pass

    with pytest.raises(TypeError, match="Incomplete does not implement forward"):
        Incomplete(2)(torch.zeros(1, 1, 2))
