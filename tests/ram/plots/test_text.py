"""Pictures of reading: what must move them, what must not, and the example that draws gradients."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from ram.attention import Attention, causal_mask
from ram.attention.scores import ScaledDot
from ram.attention.selection import Hard, LocalMonotonic, Soft, Unnormalised
from ram.plots.text import accuracy_by_length, alignment, direction_of_words, weights_over_words

TEXTS = [("the", "film", "is", "not", "bad"), ("dull", "!")]
WEIGHTS = torch.tensor([[[0.1, 0.2, 0.0, 0.3, 0.4]], [[0.5, 0.5, 9.0, 9.0, 9.0]]])
INFLUENCE = torch.tensor([[1.0, 2.0, 0.0, 3.0, 4.0], [7.0, 1.0, 99.0, 99.0, 99.0]])
GREEN, RED = (0x0B, 0x7A, 0x57), (0xC8, 0x48, 0x1A)


def over_words(weights: Tensor | None = WEIGHTS, influence: Tensor = INFLUENCE, said: str = "ab") -> np.ndarray:
    return weights_over_words(TEXTS, weights, influence, said, "ab")


def assert_picture(picture: np.ndarray) -> None:
    assert picture.dtype == np.uint8
    assert picture.ndim == 3 and picture.shape[-1] == 3
    assert picture.std() > 1


def near(picture: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """(H, W) bool, but for what rounding takes off."""
    return (abs(picture.astype(int) - np.array(colour, int)) <= 1).all(-1)


def shows(picture: np.ndarray, colour: tuple[int, ...]) -> bool:
    return bool(near(picture, colour).any())


def shade(name: str, share: float) -> tuple[int, ...]:
    return tuple(colormaps[name](share, bytes=True)[:3])


def test_the_shades_are_shares_of_the_largest_in_a_text() -> None:
    picture = over_words()
    assert_picture(picture)
    for share in (0, 1 / 4, 2 / 4, 3 / 4, 1):
        assert shows(picture, shade("Blues", 0.75 * share))
        assert shows(picture, shade("Oranges", 0.75 * share))
    assert shows(picture, shade("Oranges", 0.75 / 7))  # of the other text
    assert not shows(picture, shade("Blues", 0.75 / 7))
    assert np.array_equal(over_words(8 * WEIGHTS, INFLUENCE / 4), picture)
    assert not np.array_equal(over_words(WEIGHTS.flip(0)), picture)


def test_where_nothing_is_weighed_only_the_gradient_is_drawn() -> None:
    picture = over_words(None)
    assert_picture(picture)
    assert not shows(picture, shade("Blues", 0.75))
    assert shows(picture, shade("Oranges", 0.75))


def test_of_weights_the_size_counts_and_of_several_queries_the_mean() -> None:
    picture = over_words()
    assert np.array_equal(over_words(-WEIGHTS), picture)
    two = torch.cat([0.5 * WEIGHTS, -1.5 * WEIGHTS], dim=1)
    assert np.array_equal(over_words(two), picture)
    one = torch.cat([0 * WEIGHTS, torch.tensor([[[0.1, 0.0, 0.0, 0.0, 0.0]]] * 2)], dim=1)
    assert not np.array_equal(over_words(one), picture)


def test_a_long_text_goes_on_in_the_next_line() -> None:
    def drawn(number: int) -> np.ndarray:
        return weights_over_words([("word",) * number], None, torch.ones(1, number), ["a"], ["a"])

    one, two, three = drawn(15), drawn(30), drawn(50)
    assert one.shape[1] < two.shape[1] == three.shape[1] < 1100
    taller = two.shape[0] - one.shape[0]
    assert three.shape[0] - two.shape[0] == pytest.approx(taller, abs=1) and taller > 10
    ground = shade("Oranges", 0.75)  # words of one width, each on a ground of its own
    assert near(three, ground).sum() / near(one, ground).sum() == pytest.approx(50 / 15, rel=0.1)


def test_what_fills_a_text_up_is_not_drawn() -> None:
    weights, influence = WEIGHTS.clone(), INFLUENCE.clone()
    weights[1, :, 2:], influence[1, 2:] = 0, 0
    assert np.array_equal(over_words(weights, influence), over_words())


def test_a_wrong_answer_stands_out() -> None:
    right, half, wrong = (over_words(said=said) for said in ("ab", "aa", "ba"))
    assert shows(right, GREEN) and not shows(right, RED)
    assert shows(half, GREEN) and shows(half, RED)
    assert shows(wrong, RED) and not shows(wrong, GREEN)


def test_weights_of_zero_are_drawn_too() -> None:
    picture = over_words(0 * WEIGHTS, 0 * INFLUENCE)
    assert shows(picture, shade("Blues", 0)) and not shows(picture, shade("Blues", 0.75))


def test_an_alignment_is_dark_where_the_weight_is() -> None:
    places = {(row, column): (row, column) for row in range(2) for column in range(3)}
    for row, column in places:
        weights = torch.zeros(2, 3)
        weights[row, column] = 1
        picture = alignment(weights, ["le", "chat"], ["the", "black", "cat"])
        assert_picture(picture)
        dark = np.argwhere(near(picture, shade("Blues", 1.0)))
        places[row, column] = tuple(dark.mean(0))
    for row in range(2):  # from left to right
        x = [places[row, column][1] for column in range(3)]
        assert x[0] + 10 < x[1] < x[2] - 10
        assert np.ptp([places[row, column][0] for column in range(3)]) < 2
    for column in range(3):  # from above to below
        assert places[0, column][0] + 10 < places[1, column][0]


def test_heads_are_drawn_side_by_side() -> None:
    weights = torch.zeros(3, 2, 2)
    weights[1, 0, 1] = 1
    picture = alignment(weights, ["a", "b"], ["c", "d"])
    dark = np.argwhere(near(picture, shade("Blues", 1.0)))
    assert 0.4 < dark[:, 1].mean() / picture.shape[1] < 0.7  # of the second of three
    assert picture.shape[1] > 1.9 * alignment(weights[0], ["a", "b"], ["c", "d"]).shape[1]


def test_an_alignment_has_one_scale_for_all() -> None:
    half = alignment(torch.full((2, 2), 0.5), "ab", "cd")
    assert shows(half, shade("Blues", 0.5)) and not shows(half, shade("Blues", 1.0))
    assert not np.array_equal(alignment(torch.full((2, 2), 0.5), "ab", "cd", "title"), half)


def test_the_words_that_lean_most_are_drawn_on_either_side() -> None:
    words, lean = ["fine", "the", "dull", "a", "weak", "good"], torch.tensor([2.0, 0.1, -3.0, 0.0, -1.0, 4.0])
    picture = direction_of_words(words, lean, ["bad", "good"], shown=2)
    assert_picture(picture)
    assert shows(picture, GREEN) and shows(picture, RED)
    order = [3, 0, 5, 1, 4, 2]
    again = direction_of_words([words[n] for n in order], lean[order], ["bad", "good"], shown=2)
    assert np.array_equal(again, picture)
    few = [0, 2, 4, 5]  # the two that lean most to either side
    assert np.array_equal(
        direction_of_words([words[n] for n in few], lean[few], ["bad", "good"], shown=2),
        picture,
    )
    assert not np.array_equal(direction_of_words(words, -lean, ["bad", "good"], shown=2), picture)
    assert not np.array_equal(direction_of_words(words, lean, ["bad", "good"], shown=1), picture)


def test_no_word_leans_to_both_sides() -> None:
    words, lean = ["fine", "the", "dull"], torch.tensor([2.0, 0.1, -3.0])
    picture = direction_of_words(words, lean, ["bad", "good"])
    assert np.array_equal(direction_of_words(words, lean, ["bad", "good"], shown=1), picture)
    assert_picture(direction_of_words(["one"], torch.ones(1), ["bad", "good"]))


def test_a_word_is_drawn_as_it_is_written() -> None:
    assert_picture(weights_over_words([("$^$", "$$")], None, torch.ones(1, 2), "a", "a"))


def test_a_sign_that_the_font_lacks_is_drawn_as_a_box() -> None:
    assert_picture(alignment(torch.eye(2), ["電影", "\x97"], ["a", "b"]))
    assert_picture(weights_over_words([("電影",)], None, torch.ones(1, 1), ["a"], ["a"]))


def test_a_label_is_drawn_as_it_is_written() -> None:
    assert_picture(weights_over_words([("word",)], None, torch.ones(1, 1), ["$^$"], ["$$"]))


def test_the_names_of_an_alignment_are_drawn_as_they_are_written() -> None:
    assert_picture(alignment(torch.ones(1, 1), ["$^$"], ["$$"]))


# How many are right by length.

BLUE, ORANGE = shade("tab10", 0), shade("tab10", 1)


def curve(*counts: tuple[int, int, int]) -> np.ndarray:
    """Of one model without a name: length, how many of that are right, and of how many."""
    return accuracy_by_length({"": {length: (right, total) for length, right, total in counts}})


def place(picture: np.ndarray, colour: tuple[int, ...] = BLUE) -> tuple[float, float]:
    """Where the colour is, from the upper left corner: down and across."""
    down, across = np.argwhere(near(picture, colour)).mean(0)
    return float(down), float(across)


def test_the_share_of_right_texts_is_drawn_at_its_height() -> None:
    none, half, all_ = (curve((4, right, 2)) for right in (0, 1, 2))
    assert_picture(half)
    heights = [place(each)[0] for each in (none, half, all_)]
    assert heights[0] - heights[1] > 50
    assert heights[1] - heights[2] == pytest.approx(heights[0] - heights[1], abs=2)
    assert np.array_equal(curve((4, 5, 10)), half), "a share, however many texts there are"


@pytest.mark.parametrize("length", [2, 3, 7])
def test_lengths_are_drawn_at_their_distance_and_joined(length: int) -> None:
    """From 1 to 9; all texts of one length between are right."""
    line = near(curve((1, 0, 5), (length, 5, 5), (9, 0, 5)), BLUE)
    columns = line.any(0).nonzero()[0]
    assert (np.diff(columns) == 1).all(), "there is a gap"
    top = line[line.any(1).argmax()].nonzero()[0].mean()
    assert (top - columns[0]) / (columns[-1] - columns[0]) == pytest.approx((length - 1) / 8, abs=0.02)


def test_several_models_are_told_apart_by_colour_and_name() -> None:
    one, other = {1: (2, 2), 4: (2, 2)}, {1: (0, 2), 4: (0, 2)}
    picture = accuracy_by_length({"with": one, "without $": other})
    assert_picture(picture)
    assert place(picture, BLUE)[0] < place(picture, ORANGE)[0]
    swapped = accuracy_by_length({"with": other, "without $": one})
    assert place(swapped, BLUE)[0] > place(swapped, ORANGE)[0]
    assert not np.array_equal(accuracy_by_length({"with": one, "rather": other}), picture)
    alone = accuracy_by_length({"": one})
    assert shows(alone, BLUE) and not shows(alone, ORANGE)
    assert alone.shape[1] < picture.shape[1], "no room for names where there are none"


# The example.


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "examples" / "attention_gradients.py"))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # it hands matplotlib tensors
def test_the_example_draws_weights_beside_gradients(
    example: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gradients.png"
    example["main"](str(path))
    assert capsys.readouterr().out == f"  {path}\n"
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert_picture(np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize(
    ("select", "mask"),
    [
        (Soft(), None),
        (Soft(), causal_mask(12, 6)),
        (Soft(), torch.arange(12) < 5),
        (LocalMonotonic(half_width=2), None),
        (Hard().eval(), None),
        (Unnormalised(), None),
    ],
    ids=["soft", "causal", "padding", "local", "hard", "unnormalised"],
)
def test_the_gradient_that_flows_back_to_a_value_is_its_weight(
    example: dict[str, Any], select: Any, mask: Tensor | None
) -> None:
    torch.manual_seed(0)
    query, keys = torch.randn(1, 6, 16), torch.randn(1, 12, 16)
    attention = Attention(ScaledDot(16, 16), select)
    weights = attention(query, keys, keys, mask, need_weights=True).weights[0]
    flow = example["gradients"](attention, query, keys, mask)
    torch.testing.assert_close(flow, weights.abs())
    assert torch.equal(flow == 0, weights == 0)  # nothing at all where nothing is read
