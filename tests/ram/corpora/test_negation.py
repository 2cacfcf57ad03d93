"""Negated sentences, compared with a second analysis of their words."""

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.negation import Negation

SPLITS = ("train", "validation", "test")
GOOD = {"good", "great", "fine", "lovely", "brilliant", "charming", "funny", "wonderful", "clever", "moving"}
BAD = {"bad", "awful", "dull", "boring", "poor", "dreadful", "silly", "terrible", "weak", "stale"}
NEGATIONS = {"not", "never", "hardly"}
LARGEST = 16000


@cache
def _load(split: str, size: int = LARGEST, seed: int = 0) -> Examples:
    return Negation(size, seed).load(split)  # type: ignore[arg-type]


def _analyze(text: Sequence[str]) -> tuple[str, str | None]:
    """Returns the adjective of a sentence and its negation, or None."""
    adjectives = [position for position, word in enumerate(text) if word in GOOD | BAD]
    negations = [position for position, word in enumerate(text) if word in NEGATIONS]
    assert len(adjectives) == 1, text
    assert len(negations) <= 1 and all(position < adjectives[0] for position in negations), text
    return text[adjectives[0]], text[negations[0]] if negations else None


def _cells(examples: Examples) -> list[tuple[bool, bool]]:
    """Returns for every sentence whether its adjective is positive, and whether it is negated."""
    return [(word in GOOD, negation is not None) for word, negation in map(_analyze, examples.texts)]


def _information(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Returns the mutual information of two columns in nats."""
    n, ones, twos = len(first), Counter(first), Counter(second)
    return sum(
        count / n * math.log(count * n / ones[one] / twos[two])
        for (one, two), count in Counter(zip(first, second, strict=True)).items()
    )


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("size", [16, 4000])
def test_all_four_combinations_are_equally_frequent(split: str, size: int) -> None:
    examples = _load(split, size)
    assert len(examples) == (size if split == "train" else size // 4)
    counts = Counter(_cells(examples))
    assert len(counts) == 4 and set(counts.values()) == {len(examples) // 4}


@pytest.mark.parametrize("split", SPLITS)
def test_labels_are_correct(split: str) -> None:
    examples = _load(split)
    assert examples.targets is not None
    for text, label in zip(examples.texts, examples.targets, strict=True):
        word, negation = _analyze(text)
        labels = {"good": "positive", "not good": "negative", "bad": "negative", "not bad": "positive"}
        assert label == labels[("not " if negation else "") + ("good" if word in GOOD else "bad")], text


def test_splits_share_no_sentence() -> None:
    train, validation, test = (set(_load(split).texts) for split in SPLITS)
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)


def test_sentences_of_other_seeds_stay_in_their_split() -> None:
    assert set(_load("train").texts).isdisjoint(_load("test", seed=1).texts)


def test_held_out_pairs_of_negation_and_adjective_are_not_in_training() -> None:
    pairs = {split: {_analyze(text) for text in _load(split).texts} for split in SPLITS}
    negated = {split: {pair for pair in pairs[split] if pair[1]} for split in SPLITS}
    assert negated["train"].isdisjoint(negated["validation"] | negated["test"])
    for split in SPLITS:
        assert {word for word, _ in negated[split]} == GOOD | BAD, "an adjective is never negated"
        assert {negation for _, negation in negated[split]} == NEGATIONS
        assert {word for word, negation in pairs[split] if negation is None} == GOOD | BAD


@pytest.mark.parametrize("split", SPLITS)
def test_adjective_and_negation_are_each_independent_of_the_label(split: str) -> None:
    examples = _load(split, 4000)
    assert examples.targets is not None
    cells = _cells(examples)
    good, negated = zip(*cells, strict=True)
    assert _information(good, examples.targets) == pytest.approx(0, abs=1e-12)
    assert _information(negated, examples.targets) == pytest.approx(0, abs=1e-12)
    assert _information(cells, examples.targets) == pytest.approx(math.log(2))


@pytest.mark.parametrize("split", SPLITS)
def test_every_single_word_is_independent_of_the_label(split: str) -> None:
    """Under independence 2 N times the information is chi-squared with one degree of freedom."""
    examples = _load(split)
    assert examples.targets is not None
    for word in sorted({word for text in examples.texts for word in text}):
        present = [word in text for text in examples.texts]
        assert 2 * len(examples) * _information(present, examples.targets) < 20, word


@pytest.mark.parametrize("split", SPLITS)
def test_every_negation_negates_as_many_positive_as_negative_adjectives(split: str) -> None:
    """Otherwise the choice of the negation would predict the label."""
    pairs = {_analyze(text) for text in _load(split).texts}
    for negation in NEGATIONS:
        words = {word for word, each in pairs if each == negation}
        assert len(words & GOOD) == len(words & BAD), negation


def test_sentences_are_a_function_of_the_seed() -> None:
    first = Negation(400).load("train")
    random.seed(3)
    assert Negation(400).load("train") == first
    assert Negation(400, seed=1).load("train") != first


@pytest.mark.parametrize("size", [15, 16001])
def test_invalid_size_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=rf"corpus\.size must be in 16 \.\. 16000, got {size}"):
        Negation(size=size)
