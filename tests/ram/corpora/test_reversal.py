"""Reversed letter sequences and their alignments."""

import random
from collections import Counter
from functools import cache

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.reversal import Reversal

SPLITS = ("train", "validation", "test")
LETTERS = set("abcdefghijklmnopqrstuvwxyz")


@cache
def _load(split: str) -> Examples:
    return Reversal().load(split)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", SPLITS)
def test_targets_are_reversed_texts_with_alignments(split: str) -> None:
    examples = _load(split)
    assert examples.targets is not None and examples.alignments is not None
    for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        assert "".join(target) == "".join(text)[::-1]
        assert [text[position] for position in positions] == list(target)
        assert sorted(positions) == list(range(len(text)))
    assert examples.references is None


def test_lengths_and_letters_are_uniformly_distributed() -> None:
    texts = _load("train").texts
    lengths = Counter(map(len, texts))
    assert lengths.keys() == set(range(1, 11))
    assert all(abs(count - 1000) < 120 for count in lengths.values())  # four standard deviations of sqrt(1000 * 0.9)
    letters = Counter(letter for text in texts if len(text) > 2 for letter in text)  # short ones are partly held out
    assert letters.keys() == LETTERS
    each = letters.total() / 26
    assert all(abs(count - each) < 4 * each**0.5 for count in letters.values())


def test_held_out_lengths_are_uniformly_distributed() -> None:
    lengths = Counter(map(len, _load("test").texts))
    assert lengths.keys() == set(range(1, 11))
    assert all(abs(count - 100) < 38 for count in lengths.values())  # four standard deviations of sqrt(100 * 0.9)


def test_sizes_and_lengths_are_options() -> None:
    assert [len(_load(split)) for split in SPLITS] == [10000, 500, 1000]
    small = Reversal(max_length=3, size=20)
    assert len(small.load("train")) == 20
    assert len(small.load("validation")) == 500 and len(small.load("test")) == 1000
    assert {len(text) for text in small.load("test").texts} == {1, 2, 3}


def test_test_max_length_changes_only_the_test_split() -> None:
    longer = Reversal(max_length=4, test_max_length=9, size=500)
    assert max(map(len, longer.load("test").texts)) == 9
    plain = Reversal(max_length=4, size=500)
    assert longer.load("train") == plain.load("train")
    assert longer.load("validation") == plain.load("validation")
    shorter = Reversal(max_length=4, test_max_length=2)
    assert {len(text) for text in shorter.load("test").texts} == {1, 2}


def test_sequences_are_a_function_of_the_seed() -> None:
    first = Reversal(size=100).load("train")
    random.seed(3)
    assert Reversal(size=100).load("train") == first
    assert Reversal(size=100, seed=1).load("train") != first
    assert Reversal(seed=1).load("test") != _load("test")


def test_splits_share_no_sequence() -> None:
    train, validation, test = (set(_load(split).texts) for split in SPLITS)
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)
    assert set(Reversal(seed=1).load("train").texts).isdisjoint(validation | test)
    longer = Reversal(max_length=4, test_max_length=9)
    assert set(longer.load("test").texts).isdisjoint(longer.load("train").texts)


def test_tokenize_splits_letters_and_detokenize_joins_them() -> None:
    assert Reversal().tokenize("Ab c") == ("a", "b", "c")
    assert Reversal().detokenize(("c", "b", "a")) == "cba"


@pytest.mark.parametrize("option", ["max_length", "test_max_length", "size"])
def test_invalid_options_are_refused(option: str) -> None:
    with pytest.raises(InputError, match=rf"^corpus\.{option} must be at least 1, got 0\.$"):
        Reversal(**{option: 0})
