"""Arithmetic in words, read back into figures and worked out by Python."""

import random
from collections import Counter
from functools import cache
from itertools import permutations, product

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.arithmetic import Arithmetic, in_words, value

SPLITS = ("train", "validation", "test")
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = [
    "ten",
    "eleven",
    "twelve",
    *(f"{stem}teen" for stem in ["thir", "four", "fif", "six", "seven", "eigh", "nine"]),
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SPOKEN = [*DIGITS, *TEENS, *(" ".join([ten, one]).strip() for ten in TENS for one in ["", *DIGITS[1:]])]
NUMBER = {words: number for number, words in enumerate(SPOKEN)}
PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97}
SIGNS = {"plus": "+", "times": "*"}


@cache
def _load(split: str, max_operands: int = 3) -> Examples:
    return Arithmetic(max_operands).load(split)  # type: ignore[arg-type]


def _figures(spoken: str) -> str:
    """One plus two times three: 1+2*3."""
    return "".join(SIGNS.get(word) or str(DIGITS.index(word)) for word in spoken.split())


def _equations(split: str, max_operands: int = 3) -> list[tuple[str, str]]:
    """Both sides of every equation: the left in figures, the right in words."""
    texts = [" ".join(text) for text in _load(split, max_operands).texts if "equals" in text]
    sides = [text.split(" equals ") for text in texts]
    return [(_figures(left), right) for left, right in sides]


def _facts() -> Counter:
    return Counter(" ".join(text) for text in _load("train").texts if "equals" not in text)


def _expressions(operands: int) -> set[str]:
    """All sums and products of so many digits that equal 99 at most."""
    spelled = (
        "".join(map("".join, zip(digits, [*signs, ""], strict=True)))
        for digits in product("0123456789", repeat=operands)
        for signs in product("+*", repeat=operands - 1)
    )
    return {expression for expression in spelled if eval(expression) <= 99}


def _orders(expression: str) -> set[str]:
    """The expression with its terms, and the factors of each, in all orders."""
    terms = [["*".join(factors) for factors in permutations(term.split("*"))] for term in expression.split("+")]
    return {"+".join(order) for chosen in product(*terms) for order in permutations(chosen)}


def test_orders_of_the_test() -> None:
    assert _orders("1+2*3") == {"1+2*3", "1+3*2", "2*3+1", "3*2+1"}


@pytest.mark.parametrize(("split", "max_operands"), [*product(SPLITS, (2, 3)), ("validation", 4)])
def test_every_equation_is_right(split: str, max_operands: int) -> None:
    equations = _equations(split, max_operands)
    assert equations
    for left, right in equations:
        assert eval(left) == NUMBER[right], (left, right)


@pytest.mark.parametrize("split", SPLITS)
def test_products_come_before_sums(split: str) -> None:
    """There are equations that reading from left to right gets wrong."""
    assert any(
        left[1] == "+" and left[3] == "*" and NUMBER[right] != (int(left[0]) + int(left[2])) * int(left[4])
        for left, right in _equations(split)
        if len(left) == 5
    )


def test_two_operands_are_parted_over_the_splits() -> None:
    """All 200 of them: digits give 18 and 81 at most."""
    parts = [{left for left, _ in _equations(split, max_operands=2)} for split in SPLITS]
    assert set.union(*parts) == _expressions(2)
    assert sum(map(len, parts)) == len(_expressions(2)) == 200


def test_held_out_expressions_stand_once_and_nowhere_else() -> None:
    train, validation, test = ([left for left, _ in _equations(split)] for split in SPLITS)
    assert len(set(validation)) == len(validation) == len(_load("validation"))
    assert len(set(test)) == len(test) == len(_load("test"))
    assert set(validation).isdisjoint(test) and set(train).isdisjoint(validation + test)
    every = _expressions(2) | _expressions(3)
    assert set(train) | set(validation) | set(test) <= every
    assert 0.05 < len(validation) / len(every) < 0.15 and 0.05 < len(test) / len(every) < 0.15
    assert {len(left) for left in train} == {len(left) for left in validation} == {len(left) for left in test} == {3, 5}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_all_orders_of_an_expression_are_held_out_together(split: str) -> None:
    train, held_out = ({left for left, _ in _equations(each)} for each in ("train", split))
    for left in held_out:
        assert _orders(left) <= held_out
        assert train.isdisjoint(_orders(left))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_no_sentence_held_out_ends_a_longer_one_in_training(split: str) -> None:
    """Such as "two plus three equals five" in "zero plus two plus three equals five": it could be known by heart."""
    ends = {text[-length:] for text in _load("train").texts for length in range(1, len(text))}
    assert not [" ".join(text) for text in _load(split).texts if text in ends]


def test_expressions_of_each_length_are_as_frequent_and_facts_a_tenth() -> None:
    lengths = Counter(len(left) for left, _ in _equations("train"))
    # Of 20,000 draws, within four standard deviations.
    assert abs(_facts().total() - 2000) < 170
    assert abs(lengths[3] - 9000) < 282 and abs(lengths[5] - 9000) < 282


def test_all_facts_are_true_and_no_true_one_is_missing() -> None:
    true = {f"{SPOKEN[number]} is {'odd' if number % 2 else 'even'}" for number in range(100)}
    true |= {f"{SPOKEN[number]} is prime" for number in PRIMES}
    assert _facts().keys() == true


def test_nothing_else_is_held_out() -> None:
    assert all("equals" in text for split in ("validation", "test") for text in _load(split).texts)


def test_the_size_is_that_of_training_alone() -> None:
    assert len(Arithmetic(size=50).load("train")) == 50
    assert len(_load("train")) == 20000
    assert Arithmetic(size=50).load("test") == _load("test")


def test_the_sentences_are_the_same_at_every_call() -> None:
    first = Arithmetic(max_operands=2, size=100).load("train")
    random.seed(3)
    assert Arithmetic(max_operands=2, size=100).load("train") == first
    assert Arithmetic(max_operands=2, size=100, seed=1).load("train") != first


def test_the_seed_orders_what_is_held_out_and_changes_nothing_else() -> None:
    first, second = Arithmetic(2).load("test").texts, Arithmetic(2, seed=1).load("test").texts
    assert first != second and sorted(first) == sorted(second)


def test_training_with_another_seed_shows_nothing_that_is_held_out() -> None:
    assert set(Arithmetic(seed=1).load("train").texts).isdisjoint(_load("validation").texts + _load("test").texts)


@pytest.mark.parametrize("max_operands", [1, 5])
def test_the_operands_are_checked_on_construction(max_operands: int) -> None:
    with pytest.raises(InputError, match=rf"corpus\.max_operands must be 2, 3 or 4, got {max_operands}"):
        Arithmetic(max_operands=max_operands)


def test_the_size_is_checked_on_construction() -> None:
    with pytest.raises(InputError, match=r"corpus\.size must be at least 1, got 0"):
        Arithmetic(size=0)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (1, "one"),
        (7, "seven"),
        (10, "ten"),
        (11, "eleven"),
        (12, "twelve"),
        (13, "thirteen"),
        (14, "fourteen"),
        (15, "fifteen"),
        (18, "eighteen"),
        (19, "nineteen"),
        (20, "twenty"),
        (21, "twenty one"),
        (40, "forty"),
        (42, "forty two"),
        (50, "fifty"),
        (88, "eighty eight"),
        (90, "ninety"),
        (99, "ninety nine"),
    ],
)
def test_numbers_as_they_are_spoken(number: int, words: str) -> None:
    assert in_words(number) == words


def test_all_numbers_as_they_are_spoken() -> None:
    assert [in_words(number) for number in range(100)] == SPOKEN and len(set(SPOKEN)) == 100


@pytest.mark.parametrize(
    ("expression", "equals"), [(((1,), (2, 3)), 7), (((1, 2), (3,)), 5), (((9, 9),), 81), (((4,), (0, 8), (5,)), 9)]
)
def test_the_value_of_an_expression(expression: tuple, equals: int) -> None:
    assert value(expression) == equals


def test_what_somebody_types_is_told_apart_as_the_numbers_are() -> None:
    assert Arithmetic().tokenize("Twenty-one is odd") == ("twenty", "one", "is", "odd")


# Results alone.


@cache
def _results(split: str, max_operands: int = 3) -> Examples:
    return Arithmetic(max_operands, ask="result").load(split)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", SPLITS)
def test_a_result_is_what_the_expression_equals(split: str) -> None:
    examples = _results(split)
    assert examples.targets is not None and examples.references is None and examples.alignments is None
    for text, target in zip(examples.texts, examples.targets, strict=True):
        assert "equals" not in text + target and "is" not in text
        assert eval(_figures(" ".join(text))) == NUMBER[" ".join(target)], (text, target)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_results_are_asked_of_the_expressions_that_are_held_out(split: str) -> None:
    sides = [text.index("equals") for text in _load(split).texts]
    whole = zip(_load(split).texts, sides, strict=True)
    results = _results(split)
    assert results.targets is not None
    pairs = list(zip(results.texts, results.targets, strict=True))
    assert pairs == [(text[:end], text[end + 1 :]) for text, end in whole]
    assert set(_results("train").texts).isdisjoint(results.texts)


def test_results_are_asked_of_expressions_of_each_length_as_often_and_of_no_number_alone() -> None:
    train = _results("train")
    lengths = Counter(map(len, train.texts))
    assert lengths.keys() == {3, 5} and len(train) == 20000
    assert abs(lengths[3] - 10000) < 283  # four deviations of sqrt(20000) / 2
    assert len(Arithmetic(size=50, ask="result").load("train")) == 50


def test_the_results_are_the_same_at_every_call() -> None:
    first = Arithmetic(2, size=100, ask="result").load("train")
    random.seed(3)
    assert Arithmetic(2, size=100, ask="result").load("train") == first
    assert Arithmetic(2, size=100, ask="result", seed=1).load("train") != first


def test_what_is_asked_for_is_checked_on_construction() -> None:
    with pytest.raises(InputError, match=r"^corpus\.ask must be one of words, result, got 'tags'\.$"):
        Arithmetic(ask="tags")  # type: ignore[arg-type]


def test_a_result_is_written_with_spaces() -> None:
    assert Arithmetic(ask="result").detokenize(("twenty", "one")) == "twenty one"
