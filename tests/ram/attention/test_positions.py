"""The positions against numbers worked out by hand, and from any start."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions, Positions, SinusoidalPositions

EVERY: dict[str, Callable[[int], Positions]] = {
    "none": NoPositions,
    "sinusoidal": SinusoidalPositions,
    "numbered": LinearPositions,
    "learned": lambda size: LearnedPositions(size, max_length=20),
}


def test_sinusoidal_by_hand() -> None:
    elements = torch.tensor([[[1.0, 0, 0, -1], [0, 0, 0, 0], [0, 0.5, 0, 0]]])
    expected = [
        [2 + 0.0, 1.0, 0.0, -2 + 1.0],  # elements times sqrt(4); sin 0 = 0, cos 0 = 1
        [0.8414710, 0.5403023, 0.0099998, 0.9999500],  # sin 1, cos 1, sin 0.01, cos 0.01
        [0.9092974, 1 - 0.4161468, 0.0199987, 0.9998000],  # sin 2, cos 2, sin 0.02, cos 0.02
    ]
    torch.testing.assert_close(SinusoidalPositions(4)(elements), torch.tensor([expected]), atol=1e-6, rtol=0)


@settings(max_examples=30, deadline=None)
@given(half=st.integers(1, 4), length=st.integers(1, 5), start=st.integers(0, 200), dtype=st.sampled_from([32, 64]))
def test_sinusoidal_is_its_formula(half: int, length: int, start: int, dtype: int) -> None:
    size = 2 * half
    elements = torch.randn(2, length, size, dtype=torch.float32 if dtype == 32 else torch.float64)
    out = SinusoidalPositions(size)(elements, start)
    assert out.dtype == elements.dtype
    for row in range(2):
        for place in range(length):
            for i in range(half):
                angle = (start + place) / 10000 ** (2 * i / size)
                sine, cosine = (math.sqrt(size) * value for value in elements[row, place, 2 * i : 2 * i + 2].tolist())
                assert out[row, place, 2 * i].item() == pytest.approx(sine + math.sin(angle), abs=1e-4)
                assert out[row, place, 2 * i + 1].item() == pytest.approx(cosine + math.cos(angle), abs=1e-4)


def test_sinusoids_are_not_learned_and_need_no_saving() -> None:
    positions = SinusoidalPositions(6)
    assert not list(positions.parameters())
    assert not positions.state_dict()


def test_numbered_by_hand() -> None:
    positions = LinearPositions(2, unit=4.0)
    with torch.no_grad():
        positions.direction.copy_(torch.tensor([8.0, -1.0]))
    elements = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [5.0, 0.0]]])
    expected = torch.tensor([[[1.0, 1.0], [2.0, -0.25], [9.0, -0.5]]])  # places 0, 1/4 and 2/4 of (8, -1)
    torch.testing.assert_close(positions(elements), expected)
    torch.testing.assert_close(positions(elements, start=4), expected + torch.tensor([8.0, -1.0]))
    (gradient,) = torch.autograd.grad(positions(elements)[..., 0].sum(), list(positions.parameters()))
    torch.testing.assert_close(gradient, torch.tensor([0.75, 0.0]))


def test_learned_by_hand() -> None:
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


def test_none_leaves_the_elements_as_they_are() -> None:
    elements = torch.randn(2, 3, 5)
    assert torch.equal(NoPositions(5)(elements), elements)
    assert torch.equal(NoPositions(5)(elements, start=7), elements)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 10), data=st.data())
def test_a_start_is_where_the_whole_would_have_been(name: str, length: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, length - 1))
    positions, elements = EVERY[name](4), torch.randn(2, length, 4)
    assert torch.equal(positions(elements[:, start:], start), positions(elements)[:, start:])


@pytest.mark.parametrize("name", [name for name in EVERY if name != "none"])
def test_positions_tell_equal_elements_apart(name: str) -> None:
    torch.manual_seed(0)
    told = EVERY[name](4)(torch.ones(1, 15, 4))[0]
    apart = (told[:, None] - told).abs().amax(-1)
    assert apart[~torch.eye(15, dtype=torch.bool)].min() > 1e-3


def test_an_odd_width_has_no_sinusoids() -> None:
    with pytest.raises(InputError, match="even width, got 5"):
        SinusoidalPositions(5)


def test_wrong_options_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="unit of numbered positions must be positive and finite, got 0"):
        LinearPositions(2, unit=0)
    with pytest.raises(InputError, match="max_length of learned positions must be at least 1, got 0"):
        LearnedPositions(2, max_length=0)


def test_a_sequence_longer_than_what_was_learned_is_refused() -> None:
    positions = LearnedPositions(2, max_length=4)
    assert positions(torch.zeros(1, 4, 2)).shape == (1, 4, 2)
    assert positions(torch.zeros(1, 1, 2), start=3).shape == (1, 1, 2)
    with pytest.raises(InputError, match="5 is longer than the 4 positions learned: raise their max_length"):
        positions(torch.zeros(1, 5, 2))
    with pytest.raises(InputError, match="5 is longer than the 4 positions learned"):
        positions(torch.zeros(1, 2, 2), start=3)


def test_positions_that_say_nothing_are_refused() -> None:
    class Wordless(Positions):
        pass

    with pytest.raises(TypeError, match="Wordless does not say where an element stands"):
        Wordless(2)(torch.zeros(1, 1, 2))
