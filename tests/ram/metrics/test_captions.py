"""BLEU, ROUGE-L and CIDEr-D, against values by hand and of the COCO evaluation (pycocoevalcap 1.2)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ram.corpora import Tokens
from ram.metrics.captions import Cider, bleu, rouge_l, sentence_bleu

EXAMPLES = [
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
CAPTIONS = [tuple(caption.split()) for caption, *_ in EXAMPLES]
REFERENCES = [[tuple(each.split()) for each in references] for _, *references in EXAMPLES]

words = st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map(tuple)
examples = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=5)


def tokenized(captions: list[str]) -> list[Tokens]:
    return [tuple(caption.split()) for caption in captions]


def bleu_of(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    return bleu(tokenized(captions), list(map(tokenized, references)))


def test_all_metrics_equal_those_of_the_coco_evaluation() -> None:
    expected = [0.8333333333055556, 0.6831300510389252, 0.6057068642529594, 0.5605976101444056]
    scores = bleu(CAPTIONS, REFERENCES)
    assert list(scores) == ["bleu_1", "bleu_2", "bleu_3", "bleu_4"]
    assert list(scores.values()) == pytest.approx([100 * each for each in expected], rel=1e-6)
    expected = [1.0, 0.45864661654135336, 0.3577712609970674, 0.5285961871750434, 0.22021660649819494]
    assert rouge_l(CAPTIONS, REFERENCES) == pytest.approx([100 * each for each in expected])
    expected = [4.852114077578786, 1.2525853923264942, 0.2236608214999716, 2.0672869225122232, 0.32857799852665537]
    assert Cider.from_references(REFERENCES)(CAPTIONS, REFERENCES) == pytest.approx(expected)


def test_bleu_clips_the_counts_of_repeated_words() -> None:
    """Papineni et al. (2002), section 2.1: of seven "the", two count."""
    scores = bleu_of(["the " * 7], [["the cat is on the mat", "there is a cat on the mat"]])
    assert scores == pytest.approx({"bleu_1": 100 * 2 / 7, "bleu_2": 0, "bleu_3": 0, "bleu_4": 0})


def test_the_brevity_penalty_uses_the_closest_reference_and_the_shorter_on_ties() -> None:
    short = bleu_of(["a b c d"], [["a b c d e", "a b c d e f g h"]])
    assert short == pytest.approx(dict.fromkeys(short, 100 * math.exp(1 - 5 / 4)))
    for references in (["a b c d e f g", "a b c"], ["a b c", "a b c d e f g"]):
        tied = bleu_of(["a b c d e"], [references])
        assert tied["bleu_1"] == pytest.approx(100, rel=1e-12)
    assert bleu_of([""], [["a"]]) == dict.fromkeys(short, 0)


def test_bleu_is_that_of_the_corpus_and_not_the_mean_of_sentences() -> None:
    scores = bleu_of(["a b", "c"], [["a b"], ["d", "e f g"]])
    assert scores["bleu_1"] == pytest.approx(100 * 2 / 3)
    assert scores["bleu_2"] == pytest.approx(100 * (2 / 3 * 1) ** 0.5)
    assert scores["bleu_3"] == 0


def test_sentence_bleu_adds_one_to_the_counts_above_unigrams() -> None:
    references = [[("a", "bright", "six")]]
    assert bleu([("a", "bright", "six")], references)["bleu_4"] == 0
    assert sentence_bleu([("a", "bright", "six")], references) == pytest.approx([100])
    # 2 of 3 words, 1 + 1 of 2 + 1 bigrams, 0 + 1 of 1 + 1 trigrams, 0 + 1 of 0 + 1 4-grams
    expected = 100 * (2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25
    assert sentence_bleu([("a", "bright", "two")], references) == pytest.approx([expected])
    assert sentence_bleu([("two",), ()], references * 2) == [0, 0]
    assert sentence_bleu([("a",)], [[("a", "b")]]) == pytest.approx([100 * math.exp(1 - 2)])  # brevity penalty


def test_rouge_l_by_hand() -> None:
    """Lin (2004), section 3.1: police the gunman, three of four words in order."""
    caption, reference = ("police", "kill", "the", "gunman"), ("police", "killed", "the", "gunman")
    assert rouge_l([caption], [[reference]]) == pytest.approx([75])
    precision, recall = 2 / 4, 2 / 2
    expected = 100 * 2.44 * precision * recall / (recall + 1.44 * precision)
    assert rouge_l([tuple("axby")], [[tuple("ab")]]) == pytest.approx([expected])
    assert rouge_l([(), ("a",)], [[("a",)], [("b",)]]) == [0, 0]


def test_cider_by_hand() -> None:
    """Of two images, "a" occurs in both and has weight 0; "b" and "c" occur in one and have equal weights."""
    references = [[("a", "b")], [("a", "c")]]
    cider, first = Cider.from_references(references), references[:1]
    assert cider.num_images == 2
    assert cider.document_frequency[("a",)] == 2 and cider.document_frequency[("a", "b")] == 1
    assert cider([("a", "b")], first) == pytest.approx([10 * 2 / 4])  # unigrams and bigrams, of four orders
    assert cider([("a", "c")], first) == [0]
    assert cider([("b",)], first) == pytest.approx([10 / 4 * math.exp(-1 / 72)])  # one word too short
    assert cider([("b", "b")], first) == pytest.approx([10 / 4 * 0.5])  # the weights are clipped, their norm is not


@given(examples)
def test_metrics_are_in_range_and_largest_for_the_reference_itself(drawn: list) -> None:
    captions, references = zip(*drawn, strict=True)
    cider = Cider.from_references(references)
    assert all(0 <= value <= 100 + 1e-9 for value in bleu(captions, references).values())
    assert all(0 <= value <= 100 + 1e-9 for value in sentence_bleu(captions, references))
    assert all(0 <= value <= 100 for value in rouge_l(captions, references))
    assert all(0 <= value <= 10 + 1e-9 for value in cider(captions, references))
    own = [each[0] for each in references]
    assert bleu(own, references)["bleu_1"] == pytest.approx(100)
    assert sentence_bleu(own, references) == pytest.approx([100] * len(own))
    assert rouge_l(own, references) == pytest.approx([100] * len(own))
    single = [[each] for each in own]
    for best, other in zip(cider(own, single), cider(captions, single), strict=True):
        assert best >= other - 1e-9
