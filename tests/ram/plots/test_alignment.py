"""Figures of alignments: dark where the weight is large, on one scale, with literal names."""

from typing import Any

import numpy as np
import pytest
import torch

from ram.plots.alignment import alignment


def test_a_cell_is_dark_if_its_weight_is_large(assert_figure: Any, near: Any, shade: Any) -> None:
    positions = {(row, column): (0.0, 0.0) for row in range(2) for column in range(3)}
    for row, column in positions:
        weights = torch.zeros(2, 3)
        weights[row, column] = 1
        figure = alignment(weights, ["le", "chat"], ["the", "black", "cat"])
        assert_figure(figure)
        positions[row, column] = tuple(np.argwhere(near(figure, shade("Blues", 1.0))).mean(0))
    for row in range(2):  # from left to right
        x = [positions[row, column][1] for column in range(3)]
        assert x[0] + 10 < x[1] < x[2] - 10
        assert np.ptp([positions[row, column][0] for column in range(3)]) < 2
    for column in range(3):  # from top to bottom
        assert positions[0, column][0] + 10 < positions[1, column][0]


def test_heads_are_drawn_side_by_side(near: Any, shade: Any) -> None:
    weights = torch.zeros(3, 2, 2)
    weights[1, 0, 1] = 1
    figure = alignment(weights, ["a", "b"], ["c", "d"])
    dark = np.argwhere(near(figure, shade("Blues", 1.0)))
    assert 0.4 < dark[:, 1].mean() / figure.shape[1] < 0.7  # of the second of three
    assert figure.shape[1] > 1.9 * alignment(weights[0], ["a", "b"], ["c", "d"]).shape[1]


def test_weights_in_the_unit_range_have_an_absolute_scale(shows: Any, shade: Any) -> None:
    half = alignment(torch.full((2, 2), 0.5), "ab", "cd")
    assert shows(half, shade("Blues", 0.5)) and not shows(half, shade("Blues", 1.0))
    assert not np.array_equal(alignment(torch.full((2, 2), 0.5), "ab", "cd", "title"), half)


def test_other_weights_are_scaled_to_the_largest_magnitude(shows: Any, shade: Any) -> None:
    signed = alignment(torch.tensor([[4.0, -4.0], [0.0, 2.0]]), "ab", "cd")
    for value in (0.0, 0.5, 0.75, 1.0):
        assert shows(signed, shade("RdBu", value))


def test_only_the_first_40_queries_and_keys_are_drawn() -> None:
    weights = torch.rand(50, 50)
    names = [f"{index:02}" for index in range(50)]
    assert np.array_equal(alignment(weights, names, names), alignment(weights[:40, :40], names[:40], names[:40]))


@pytest.mark.filterwarnings("ignore:No installed font")
def test_names_are_literal_text_with_any_characters(assert_figure: Any) -> None:
    assert_figure(alignment(torch.ones(1, 1), ["$^$"], ["$$"]))
    assert_figure(alignment(torch.eye(2), ["電影", "\x97"], ["a", "b"]))
