"""Sentences with invented names, compared with a second list of the templates."""

import random
import re
from collections import Counter
from functools import cache

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.names import Names, invented_name

SPLITS = ("train", "validation", "test")

# sources, with the names as groups, and targets with the group names
TEMPLATES = {
    "my name is (?P<A>[a-z]+)": "hello A",
    "i am (?P<A>[a-z]+) and this is (?P<B>[a-z]+)": "hello A and B",
    "(?P<A>[a-z]+) , this is my friend (?P<B>[a-z]+)": "welcome B , friend of A",
    "my name is (?P<A>[a-z]+) , i come from (?P<B>[a-z]+)": "welcome A of B",
    "in (?P<B>[a-z]+) they call me (?P<A>[a-z]+)": "here we call you A of B",
    "(?P<A>[a-z]+) sends greetings to (?P<B>[a-z]+) and (?P<C>[a-z]+)": "B and C , greetings from A",
}
ORDINARY = set(re.sub(r"\(.*?\)|[A-C]", "", " ".join([*TEMPLATES, *TEMPLATES.values()])).split())


@cache
def _load(split: str, seed: int = 0) -> Examples:
    return Names(seed=seed).load(split)  # type: ignore[arg-type]


def _match(text: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Matches a source; returns the template of its target and the names by group."""
    for template, answer in TEMPLATES.items():
        found = re.fullmatch(template, " ".join(text))
        if found:
            return answer, found.groupdict()
    raise AssertionError(text)


def _names(split: str, seed: int = 0) -> set[str]:
    return {name for text in _load(split, seed).texts for name in _match(text)[1].values()}


@pytest.mark.parametrize("split", SPLITS)
def test_targets_and_alignments_match_the_templates(split: str) -> None:
    examples = _load(split)
    assert examples.targets is not None and examples.alignments is not None
    for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        answer, names = _match(text)
        assert target == tuple(names.get(word, word) for word in answer.split())
        for slot, word, position in zip(answer.split(), target, positions, strict=True):
            assert (position == -1) == (slot not in names)
            assert position == -1 or text[position] == word


def test_target_and_alignment_by_hand() -> None:
    """The target mentions the last name of the source first."""
    examples = _load("train")
    assert examples.targets is not None and examples.alignments is not None
    for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        if text[1:6] == (",", "this", "is", "my", "friend"):
            assert target == ("welcome", text[6], ",", "friend", "of", text[0])
            assert positions == (-1, 6, -1, -1, -1, 0)
            return
    raise AssertionError("no such sentence")


def test_templates_are_equally_frequent() -> None:
    answers = Counter(_match(text)[0] for text in Names(size=6000).load("train").texts)
    assert answers.keys() == set(TEMPLATES.values())
    assert all(abs(count - 1000) < 116 for count in answers.values())  # four standard deviations of sqrt(6000 * 5) / 6


def test_splits_share_no_name() -> None:
    train, validation, test = (_names(split) for split in SPLITS)
    assert len(train) > 5000 and len(validation) > 500 and len(test) > 1000
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)


def test_names_of_other_seeds_stay_in_their_split() -> None:
    assert _names("train", seed=1).isdisjoint(_names("test") | _names("validation"))


def test_no_name_is_a_word_of_the_templates() -> None:
    for split in SPLITS:
        assert _names(split).isdisjoint(ORDINARY)


def test_names_have_two_or_three_syllables() -> None:
    rng = random.Random(0)
    names = [invented_name(rng, "train", frozenset()) for _ in range(2000)]
    assert all(re.fullmatch("([bdfghjklmnprstvz][aeiou]){2,3}[nsr]?", name) for name in names)
    assert {len(name) for name in names} == {4, 5, 6, 7}
    assert len(set(names)) > 1800
    taken = frozenset(names[:1000])
    rng = random.Random(0)
    assert taken.isdisjoint(invented_name(rng, "train", taken) for _ in range(1000))


def test_sentences_are_a_function_of_the_seed() -> None:
    first = Names(size=100).load("train")
    random.seed(3)
    assert Names(size=100).load("train") == first
    assert Names(size=100, seed=1).load("train") != first


def test_size_is_the_number_of_training_sentences() -> None:
    assert [len(_load(split)) for split in SPLITS] == [10000, 500, 1000]
    assert len(Names(size=7).load("train")) == 7
    assert Names(size=7).load("test") == _load("test")


def test_tokenize_and_detokenize() -> None:
    typed = "My name is Tamilo, I come from Resa"
    assert Names().tokenize(typed) == ("my", "name", "is", "tamilo", ",", "i", "come", "from", "resa")
    answer = ("welcome", "resa", ",", "friend", "of", "tamilo")
    assert Names().detokenize(answer) == "welcome resa, friend of tamilo"


def test_invalid_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"^corpus\.size must be at least 1, got 0\.$"):
        Names(size=0)
