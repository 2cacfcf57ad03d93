"""Figures of text classification: shaded words, and the class that single words predict."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ram.plots.text import direction_of_words, weights_over_words

TEXTS = [("the", "film", "is", "not", "bad"), ("dull", "!")]
WEIGHTS = torch.tensor([[[0.1, 0.2, 0.0, 0.3, 0.4]], [[0.5, 0.5, 9.0, 9.0, 9.0]]])
GRADIENT_NORMS = torch.tensor([[1.0, 2.0, 0.0, 3.0, 4.0], [7.0, 1.0, 99.0, 99.0, 99.0]])
GREEN, RED = (0x0B, 0x7A, 0x57), (0xC8, 0x48, 0x1A)


def draw(
    weights: Tensor | None = WEIGHTS, gradient_norms: Tensor = GRADIENT_NORMS, predictions: str = "ab"
) -> np.ndarray:
    return weights_over_words(TEXTS, weights, gradient_norms, predictions, "ab")


def test_shades_are_relative_to_the_largest_value_of_the_text(assert_figure: Any, shows: Any, shade: Any) -> None:
    figure = draw()
    assert_figure(figure)
    for share in (0, 1 / 4, 2 / 4, 3 / 4, 1):
        assert shows(figure, shade("Blues", 0.75 * share))
        assert shows(figure, shade("Oranges", 0.75 * share))
    assert shows(figure, shade("Oranges", 0.75 / 7))  # of the other text
    assert not shows(figure, shade("Blues", 0.75 / 7))
    assert np.array_equal(draw(8 * WEIGHTS, GRADIENT_NORMS / 4), figure)
    assert not np.array_equal(draw(WEIGHTS.flip(0)), figure)


def test_without_weights_only_the_gradients_are_drawn(assert_figure: Any, shows: Any, shade: Any) -> None:
    figure = draw(None)
    assert_figure(figure)
    assert not shows(figure, shade("Blues", 0.75))
    assert shows(figure, shade("Oranges", 0.75))


def test_a_shade_is_the_mean_magnitude_over_the_queries() -> None:
    figure = draw()
    assert np.array_equal(draw(-WEIGHTS), figure)
    two_queries = torch.cat([0.5 * WEIGHTS, -1.5 * WEIGHTS], dim=1)
    assert np.array_equal(draw(two_queries), figure)
    other = torch.cat([0 * WEIGHTS, torch.tensor([[[0.1, 0.0, 0.0, 0.0, 0.0]]] * 2)], dim=1)
    assert not np.array_equal(draw(other), figure)


def test_long_texts_are_wrapped(near: Any, shade: Any) -> None:
    def draw_words(count: int) -> np.ndarray:
        return weights_over_words([("word",) * count], None, torch.ones(1, count), ["a"], ["a"])

    one, two, three = draw_words(15), draw_words(30), draw_words(50)
    assert one.shape[1] < two.shape[1] == three.shape[1] < 1100
    taller = two.shape[0] - one.shape[0]
    assert three.shape[0] - two.shape[0] == pytest.approx(taller, abs=1) and taller > 10
    background = shade("Oranges", 0.75)  # words of one width, each with its own background
    assert near(three, background).sum() / near(one, background).sum() == pytest.approx(50 / 15, rel=0.1)


def test_padding_is_not_drawn() -> None:
    weights, gradient_norms = WEIGHTS.clone(), GRADIENT_NORMS.clone()
    weights[1, :, 2:], gradient_norms[1, 2:] = 0, 0
    assert np.array_equal(draw(weights, gradient_norms), draw())


def test_correct_predictions_are_green_and_wrong_ones_red(shows: Any) -> None:
    correct, half, wrong = (draw(predictions=predictions) for predictions in ("ab", "aa", "ba"))
    assert shows(correct, GREEN) and not shows(correct, RED)
    assert shows(half, GREEN) and shows(half, RED)
    assert shows(wrong, RED) and not shows(wrong, GREEN)


def test_weights_that_are_all_zero_are_drawn(shows: Any, shade: Any) -> None:
    figure = draw(0 * WEIGHTS, 0 * GRADIENT_NORMS)
    assert shows(figure, shade("Blues", 0)) and not shows(figure, shade("Blues", 0.75))


@pytest.mark.filterwarnings("ignore:No installed font")
@pytest.mark.parametrize("text", [("$^$", "$$"), ("電影",)])
def test_words_and_classes_are_literal_text_with_any_characters(text: tuple[str, ...], assert_figure: Any) -> None:
    assert_figure(weights_over_words([text], None, torch.ones(1, len(text)), ["$^$"], ["$$"]))


def test_the_words_of_the_largest_log_odds_are_drawn_for_each_class(assert_figure: Any, shows: Any) -> None:
    words, log_odds = ["fine", "the", "dull", "a", "weak", "good"], torch.tensor([2.0, 0.1, -3.0, 0.0, -1.0, 4.0])
    figure = direction_of_words(words, log_odds, ["bad", "good"], shown=2)
    assert_figure(figure)
    assert shows(figure, GREEN) and shows(figure, RED)
    for indices in ([3, 0, 5, 1, 4, 2], [0, 2, 4, 5]):  # in another order; without the words that are not shown
        same = direction_of_words([words[index] for index in indices], log_odds[indices], ["bad", "good"], shown=2)
        assert np.array_equal(same, figure)
    assert not np.array_equal(direction_of_words(words, -log_odds, ["bad", "good"], shown=2), figure)
    assert not np.array_equal(direction_of_words(words, log_odds, ["bad", "good"], shown=1), figure)


def test_no_word_is_drawn_for_both_classes(assert_figure: Any) -> None:
    words, log_odds = ["fine", "the", "dull"], torch.tensor([2.0, 0.1, -3.0])
    figure = direction_of_words(words, log_odds, ["bad", "good"])
    assert np.array_equal(direction_of_words(words, log_odds, ["bad", "good"], shown=1), figure)
    assert_figure(direction_of_words(["one"], torch.ones(1), ["bad", "good"]))
