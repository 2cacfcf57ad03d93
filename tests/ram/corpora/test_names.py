"""Names in sentences, against the six forms written here once more."""

import random
import re
from collections import Counter
from functools import cache

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.names import Names, invented_name

SPLITS = ("train", "validation", "test")

# What is said, the names being letters in brackets, and the answer with the same.
FORMS = {
    "my name is (?P<A>[a-z]+)": "hello A",
    "i am (?P<A>[a-z]+) and this is (?P<B>[a-z]+)": "hello A and B",
    "(?P<A>[a-z]+) , this is my friend (?P<B>[a-z]+)": "welcome B , friend of A",
    "my name is (?P<A>[a-z]+) , i come from (?P<B>[a-z]+)": "welcome A of B",
    "in (?P<B>[a-z]+) they call me (?P<A>[a-z]+)": "here we call you A of B",
    "(?P<A>[a-z]+) sends greetings to (?P<B>[a-z]+) and (?P<C>[a-z]+)": "B and C , greetings from A",
}
ORDINARY = set(re.sub(r"\(.*?\)|[A-C]", "", " ".join([*FORMS, *FORMS.values()])).split())


@cache
def _load(split: str, seed: int = 0) -> Examples:
    return Names(seed=seed).load(split)  # type: ignore[arg-type]


def _read(text: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The answer that a text asks for, with letters in place of names, and which names they stand for."""
    for form, answer in FORMS.items():
        found = re.fullmatch(form, " ".join(text))
        if found:
            return answer, found.groupdict()
    raise AssertionError(text)


def _names(split: str, seed: int = 0) -> set[str]:
    return {name for text in _load(split, seed).texts for name in _read(text)[1].values()}


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_greets_those_who_were_named_and_its_alignment_names_them(split: str) -> None:
    examples = _load(split)
    assert examples.targets is not None and examples.alignments is not None
    for text, target, places in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        answer, names = _read(text)
        assert target == tuple(names.get(word, word) for word in answer.split())
        for form, word, place in zip(answer.split(), target, places, strict=True):
            assert (place == -1) == (form not in names)
            assert place == -1 or text[place] == word


def test_an_answer_and_its_alignment_by_hand() -> None:
    """The name said last is said first."""
    examples = _load("train")
    assert examples.targets is not None and examples.alignments is not None
    for text, target, places in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        if text[1:6] == (",", "this", "is", "my", "friend"):
            assert target == ("welcome", text[6], ",", "friend", "of", text[0])
            assert places == (-1, 6, -1, -1, -1, 0)
            return
    raise AssertionError("no such sentence")


def test_every_form_is_as_often() -> None:
    answers = Counter(_read(text)[0] for text in Names(size=6000).load("train").texts)
    assert answers.keys() == set(FORMS.values())
    assert all(abs(count - 1000) < 116 for count in answers.values())  # four deviations of sqrt(6000 * 5) / 6


def test_no_name_of_a_split_comes_up_in_another() -> None:
    train, validation, test = (_names(split) for split in SPLITS)
    assert len(train) > 5000 and len(validation) > 500 and len(test) > 1000
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)


def test_other_seeds_do_not_carry_a_name_into_another_split() -> None:
    assert _names("train", seed=1).isdisjoint(_names("test") | _names("validation"))


def test_no_invented_name_is_a_word_of_the_sentences() -> None:
    for split in SPLITS:
        assert _names(split).isdisjoint(ORDINARY)


def test_names_are_two_or_three_syllables() -> None:
    chance = random.Random(0)
    names = [invented_name(chance, "train", frozenset()) for _ in range(2000)]
    assert all(re.fullmatch("([bdfghjklmnprstvz][aeiou]){2,3}[nsr]?", name) for name in names)
    assert {len(name) for name in names} == {4, 5, 6, 7}
    assert len(set(names)) > 1800
    taken = frozenset(names[:1000])
    chance = random.Random(0)
    assert taken.isdisjoint(invented_name(chance, "train", taken) for _ in range(1000))


def test_the_sentences_are_the_same_at_every_call() -> None:
    first = Names(size=100).load("train")
    random.seed(3)
    assert Names(size=100).load("train") == first
    assert Names(size=100, seed=1).load("train") != first


def test_the_size_is_that_of_training_alone() -> None:
    assert [len(_load(split)) for split in SPLITS] == [10000, 500, 1000]
    assert len(Names(size=7).load("train")) == 7
    assert Names(size=7).load("test") == _load("test")


def test_what_somebody_types_and_what_is_answered() -> None:
    typed = "My name is Tamilo, I come from Resa"
    assert Names().tokenize(typed) == ("my", "name", "is", "tamilo", ",", "i", "come", "from", "resa")
    answer = ("welcome", "resa", ",", "friend", "of", "tamilo")
    assert Names().detokenize(answer) == "welcome resa, friend of tamilo"


def test_the_size_is_checked_on_construction() -> None:
    with pytest.raises(InputError, match=r"^corpus\.size must be at least 1, got 0\.$"):
        Names(size=0)
