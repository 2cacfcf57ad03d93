"""Metrics of attention maps, against values computed by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ram.metrics.pointing import entropy, pointing

# Images of 8 x 12 pixels in 2 x 3 cells of 4 x 4; one box inside the first cell, one over the two cells to its right.
BOXES = torch.tensor([[[0.0, 0, 3, 3], [6, 1, 9, 2]]])


def one_hot(*cells: int) -> Tensor:
    return torch.eye(6)[list(cells)]


def test_a_map_points_to_an_object_if_its_peak_overlaps_the_box() -> None:
    maps = [one_hot(0, 3, 2, 1)]
    metrics = pointing(maps, (2, 3), (8, 12), BOXES, [[(0,), (0,), (1,), ()]])
    assert metrics["pointing"] == pytest.approx(100 * 2 / 3)
    assert metrics["mass_in_box"] == pytest.approx(100 * (1 + 0 + 2 * 2 / 16) / 3)
    assert metrics["map_entropy"] == 0
    assert metrics["map_change"] == 1


def test_the_gradient_of_the_entropy_is_finite_where_a_softmax_underflows() -> None:
    scores = torch.tensor([[0.0, 0.0, -300.0], [0.0, 200.0, -3.0], [math.log(3), 0.0, -300.0]], requires_grad=True)
    nats = entropy(scores.softmax(-1))
    expected = [math.log(2), 0.0, math.log(4) - 0.75 * math.log(3)]
    torch.testing.assert_close(nats, torch.tensor(expected))
    nats.sum().backward()
    slope = 0.75 * 0.25 * math.log(3)  # p (1 - p) ln (p / (1 - p)), of the binary entropy by the score
    torch.testing.assert_close(scores.grad, torch.tensor([[0.0, 0, 0], [0, 0, 0], [-slope, slope, 0]]))


def test_the_controls_are_the_center_cell_and_the_maps_of_other_captions() -> None:
    """The center is the fifth cell; the maps of two words, of two images, are exchanged."""
    boxes = torch.cat([BOXES, torch.tensor([[[4.0, 4, 7, 7], [0, 0, 0, 0]]])])
    maps = [one_hot(0), one_hot(4)]
    metrics = pointing(maps, (2, 3), (8, 12), boxes, [[(0,)], [(0,)]])
    assert (metrics["pointing"], metrics["pointing_center"], metrics["pointing_shuffled"]) == (100, 50, 0)
    assert "map_change" not in metrics  # captions of one word


def test_a_word_that_may_name_several_objects_may_point_to_any() -> None:
    metrics = pointing([one_hot(0, 2, 4)], (2, 3), (8, 12), BOXES, [[(0, 1), (0, 1), (0, 1)]])
    assert metrics["pointing"] == pytest.approx(100 * 2 / 3)
    assert metrics["mass_in_box"] == pytest.approx(100 * (1 + 2 * 2 / 16) / 3)


def test_entropy_and_change_need_no_boxes() -> None:
    maps = [torch.tensor([[0.5, 0.5, 0, 0, 0, 0], [0.25, 0.5, 0.25, 0, 0, 0]])]
    expected = {"map_entropy": (math.log(2) + 1.5 * math.log(2)) / 2, "map_change": 0.25}
    assert pointing(maps, (2, 3), (8, 12), None, [()]) == pytest.approx(expected)
    assert pointing(maps, (2, 3), (8, 12), BOXES, [((), ())]) == pytest.approx(expected)


@given(
    st.lists(st.integers(0, 11), min_size=4, max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_the_mass_of_a_uniform_map_in_a_box_is_the_area_of_the_box(corners: list[int], rows: int, columns: int) -> None:
    left, right = sorted(corners[:2])
    top, bottom = sorted(corners[2:])
    uniform = [torch.full((1, rows * columns), 1 / (rows * columns))]
    box = torch.tensor([[[left, top, right, bottom]]]).float()
    metrics = pointing(uniform, (rows, columns), (12, 12), box, [[(0,)]])
    area = (right + 1 - left) * (bottom + 1 - top) / 144
    assert metrics["mass_in_box"] == pytest.approx(100 * area, rel=1e-4)
