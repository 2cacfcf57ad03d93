"""BLEU, ROUGE-L and CIDEr-D: by hand, and as the COCO evaluation (pycocoevalcap 1.2) computes them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ram.metrics.captions import Cider, bleu, rouge_l

CAPTIONS = [
    (
        "a large bright three left of a small seven",
        "a large bright three left of a small seven",
        "a small seven right of a bright three",
        "there is a three and a seven",
    ),
    ("a four", "one dark four", "a small four at the bottom"),
    ("the the the the the", "the cat is on the mat", "there is a cat on the mat"),
    (
        "two boats on the river near the bridge and a a a road",
        "there are two boats on the river",
        "two boats near a bridge on the river",
        "a river with boats and a road beside it",
    ),
    ("trees", "many green trees are around a pond", "a pond"),
]
SAID = [tuple(said.split()) for said, *_ in CAPTIONS]
RIGHT = [[tuple(each.split()) for each in right] for _, *right in CAPTIONS]

words = st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map(tuple)
captions = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=5)


def test_the_figures_of_the_coco_evaluation() -> None:
    expected = [0.8333333333055556, 0.6831300510389252, 0.6057068642529594, 0.5605976101444056]
    measured = bleu(SAID, RIGHT)
    assert list(measured) == ["bleu_1", "bleu_2", "bleu_3", "bleu_4"]
    assert list(measured.values()) == pytest.approx([100 * each for each in expected], rel=1e-6)
    expected = [1.0, 0.45864661654135336, 0.3577712609970674, 0.5285961871750434, 0.22021660649819494]
    assert rouge_l(SAID, RIGHT) == pytest.approx([100 * each for each in expected])
    expected = [4.852114077578786, 1.2525853923264942, 0.2236608214999716, 2.0672869225122232, 0.32857799852665537]
    assert Cider.of(RIGHT)(SAID, RIGHT) == pytest.approx(expected)


def test_bleu_by_hand() -> None:
    """Papineni et al. (2002), section 2.1: of seven "the" two are in the reference; and nothing else is."""
    said, right = ["the " * 7], [["the cat is on the mat", "there is a cat on the mat"]]
    measured = _bleu(said, right)
    assert measured == pytest.approx({"bleu_1": 100 * 2 / 7, "bleu_2": 0, "bleu_3": 0, "bleu_4": 0})
    short = _bleu(["a b c d"], [["a b c d e", "a b c d e f g h"]])
    assert short == pytest.approx(dict.fromkeys(short, 100 * math.exp(1 - 5 / 4)))
    equally_close = _bleu(["a b c d e"], [["a b c d e f g", "a b c"]])  # the shorter counts: no penalty
    assert equally_close["bleu_1"] == 100
    assert _bleu([""], [["a"]]) == dict.fromkeys(short, 0)


def test_rouge_l_by_hand() -> None:
    """Lin (2004), section 3.1: police the gunman; of four words three, in order."""
    said, right = ["police", "kill", "the", "gunman"], ["police", "killed", "the", "gunman"]
    (score,) = rouge_l([tuple(said)], [[tuple(right)]])
    assert score == pytest.approx(75)
    precision, recall = 2 / 4, 2 / 2
    (score,) = rouge_l([tuple("axby")], [[tuple("ab")]])
    assert score == pytest.approx(100 * 2.44 * precision * recall / (recall + 1.44 * precision))
    assert rouge_l([(), ("a",)], [[("a",)], [("b",)]]) == [0, 0]


def test_cider_by_hand() -> None:
    """Two images; "a" is said of both and counts nothing, "b" and "c" of one, their logarithms are equal."""
    right = [[("a", "b")], [("a", "c")]]
    measure = Cider.of(right)
    assert measure.images == 2 and measure.frequency[("a",)] == 2 and measure.frequency[("a", "b")] == 1
    assert measure([("a", "b")], right[:1]) == pytest.approx([10 * 2 / 4])  # words and pairs are right, of four orders
    assert measure([("a", "c")], right[:1]) == [0]
    assert measure([("b",)], right[:1]) == pytest.approx([10 / 4 * math.exp(-1 / 72)])  # a word too few
    twice = measure([("b", "b")], right[:1])  # the second does not help: the vector is cut, and its length is not
    assert twice == pytest.approx([10 / 4 * 0.5])


@given(captions)
def test_a_reference_itself_is_best_and_all_stay_in_their_range(drawn: list) -> None:
    said, right = zip(*drawn, strict=True)
    assert all(0 <= value <= 100 + 1e-9 for value in bleu(said, right).values())
    assert all(0 <= value <= 100 for value in rouge_l(said, right))
    assert all(0 <= value <= 10 + 1e-9 for value in Cider.of(right)(said, right))
    own = [each[0] for each in right]
    assert bleu(own, right)["bleu_1"] == pytest.approx(100)
    assert rouge_l(own, right) == pytest.approx([100] * len(own))
    alone = [[each] for each in own]
    for mine, other in zip(Cider.of(right)(own, alone), Cider.of(right)(said, alone), strict=True):
        assert mine >= other - 1e-9


def _bleu(said: list[str], right: list[list[str]]) -> dict[str, float]:
    return bleu([tuple(each.split()) for each in said], [[tuple(each.split()) for each in some] for some in right])


def test_a_caption_of_few_words_has_bleu_of_its_own_when_smoothed() -> None:
    right = [[("a", "bright", "six")]]
    assert bleu([("a", "bright", "six")], right)["bleu_4"] == 0
    assert bleu([("a", "bright", "six")], right, smoothed=True)["bleu_4"] == pytest.approx(100)
    # 2 of 3 words, 1 + 1 of 2 + 1 pairs, 0 + 1 of 1 + 1 triples, 0 + 1 of 0 + 1 fours
    measured = bleu([("a", "bright", "two")], right, smoothed=True)["bleu_4"]
    assert measured == pytest.approx(100 * (2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25)
