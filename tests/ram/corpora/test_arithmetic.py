"""Arithmetic in words, compared with Python's own evaluation."""

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
SPELLED = [*DIGITS, *TEENS, *(" ".join([ten, one]).strip() for ten in TENS for one in ["", *DIGITS[1:]])]
NUMBER = {words: number for number, words in enumerate(SPELLED)}
PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97}
SIGNS = {"plus": "+", "times": "*"}


@cache
def _load(split: str, max_operands: int = 3) -> Examples:
    return Arithmetic(max_operands).load(split)  # type: ignore[arg-type]


def _expression(spelled: str) -> str:
    """Converts "one plus two times three" to "1+2*3"."""
    return "".join(SIGNS.get(word) or str(DIGITS.index(word)) for word in spelled.split())


def _equations(split: str, max_operands: int = 3) -> list[tuple[str, str]]:
    """Returns both sides of every equation: the left one as an expression of digits, the right one in words."""
    texts = [" ".join(text) for text in _load(split, max_operands).texts if "equals" in text]
    sides = [text.split(" equals ") for text in texts]
    return [(_expression(left), right) for left, right in sides]


def _properties() -> Counter:
    return Counter(" ".join(text) for text in _load("train").texts if "equals" not in text)


def _expressions(operands: int) -> set[str]:
    """Returns all sums and products of ``operands`` digits with values up to 99."""
    spelled = (
        "".join(map("".join, zip(digits, [*signs, ""], strict=True)))
        for digits in product("0123456789", repeat=operands)
        for signs in product("+*", repeat=operands - 1)
    )
    return {expression for expression in spelled if eval(expression) <= 99}


def _orders(expression: str) -> set[str]:
    """Returns the expression in all orders of its terms and factors."""
    terms = [["*".join(factors) for factors in permutations(term.split("*"))] for term in expression.split("+")]
    return {"+".join(order) for chosen in product(*terms) for order in permutations(chosen)}


def test_helper_permutes_terms_and_factors() -> None:
    assert _orders("1+2*3") == {"1+2*3", "1+3*2", "2*3+1", "3*2+1"}


@pytest.mark.parametrize(("split", "max_operands"), [*product(SPLITS, (2, 3)), ("validation", 4)])
def test_every_equation_is_correct(split: str, max_operands: int) -> None:
    equations = _equations(split, max_operands)
    assert equations
    for left, right in equations:
        assert eval(left) == NUMBER[right], (left, right)


@pytest.mark.parametrize("split", SPLITS)
def test_products_come_before_sums(split: str) -> None:
    """Some equations are false when evaluated from left to right."""
    assert any(
        left[1] == "+" and left[3] == "*" and NUMBER[right] != (int(left[0]) + int(left[2])) * int(left[4])
        for left, right in _equations(split)
        if len(left) == 5
    )


def test_splits_partition_all_expressions_of_two_operands() -> None:
    """There are 200, as no value of two digits exceeds 99."""
    parts = [{left for left, _ in _equations(split, max_operands=2)} for split in SPLITS]
    assert set.union(*parts) == _expressions(2)
    assert sum(map(len, parts)) == len(_expressions(2)) == 200


def test_held_out_expressions_occur_once_and_in_one_split() -> None:
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
def test_no_held_out_equation_is_the_end_of_a_training_equation(split: str) -> None:
    """Such as "two plus three equals five" in "zero plus two plus three equals five", which could be memorized."""
    ends = {text[-length:] for text in _load("train").texts for length in range(1, len(text))}
    assert not [" ".join(text) for text in _load(split).texts if text in ends]


def test_lengths_are_equally_frequent_and_a_tenth_are_properties() -> None:
    lengths = Counter(len(left) for left, _ in _equations("train"))
    # of 20,000 draws; within four standard deviations
    assert abs(_properties().total() - 2000) < 170
    assert abs(lengths[3] - 9000) < 282 and abs(lengths[5] - 9000) < 282


def test_properties_are_exactly_the_true_ones() -> None:
    true = {f"{SPELLED[number]} is {'odd' if number % 2 else 'even'}" for number in range(100)}
    true |= {f"{SPELLED[number]} is prime" for number in PRIMES}
    assert _properties().keys() == true


def test_held_out_texts_are_equations() -> None:
    assert all("equals" in text for split in ("validation", "test") for text in _load(split).texts)


def test_size_is_the_number_of_training_texts() -> None:
    assert len(Arithmetic(size=50).load("train")) == 50
    assert len(_load("train")) == 20000
    assert Arithmetic(size=50).load("test") == _load("test")


def test_texts_are_a_function_of_the_seed() -> None:
    first = Arithmetic(max_operands=2, size=100).load("train")
    random.seed(3)
    assert Arithmetic(max_operands=2, size=100).load("train") == first
    assert Arithmetic(max_operands=2, size=100, seed=1).load("train") != first


def test_seed_changes_only_the_order_of_the_held_out_texts() -> None:
    first, second = Arithmetic(2).load("test").texts, Arithmetic(2, seed=1).load("test").texts
    assert first != second and sorted(first) == sorted(second)


def test_training_texts_of_another_seed_are_not_held_out() -> None:
    assert set(Arithmetic(seed=1).load("train").texts).isdisjoint(_load("validation").texts + _load("test").texts)


@pytest.mark.parametrize("max_operands", [1, 5])
def test_invalid_max_operands_is_refused(max_operands: int) -> None:
    with pytest.raises(InputError, match=rf"corpus\.max_operands must be 2, 3 or 4, got {max_operands}"):
        Arithmetic(max_operands=max_operands)


def test_invalid_size_is_refused() -> None:
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
def test_numbers_are_spelled(number: int, words: str) -> None:
    assert in_words(number) == words


def test_all_numbers_are_spelled_differently() -> None:
    assert [in_words(number) for number in range(100)] == SPELLED and len(set(SPELLED)) == 100


@pytest.mark.parametrize(
    ("expression", "equals"), [(((1,), (2, 3)), 7), (((1, 2), (3,)), 5), (((9, 9),), 81), (((4,), (0, 8), (5,)), 9)]
)
def test_the_value_of_an_expression(expression: tuple, equals: int) -> None:
    assert value(expression) == equals


def test_tokenize_splits_hyphenated_numbers() -> None:
    assert Arithmetic().tokenize("Twenty-one is odd") == ("twenty", "one", "is", "odd")


# Results as targets


@cache
def _results(split: str, max_operands: int = 3) -> Examples:
    return Arithmetic(max_operands, targets="result").load(split)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", SPLITS)
def test_target_is_the_value_of_the_expression(split: str) -> None:
    examples = _results(split)
    assert examples.targets is not None and examples.references is None and examples.alignments is None
    for text, target in zip(examples.texts, examples.targets, strict=True):
        assert "equals" not in text + target and "is" not in text
        assert eval(_expression(" ".join(text))) == NUMBER[" ".join(target)], (text, target)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_expressions_are_the_same_with_result_targets(split: str) -> None:
    results = _results(split)
    assert results.targets is not None
    pairs = list(zip(results.texts, results.targets, strict=True))
    equations = [" ".join(text).split(" equals ") for text in _load(split).texts]
    assert pairs == [(tuple(left.split()), tuple(right.split())) for left, right in equations]
    assert set(_results("train").texts).isdisjoint(results.texts)


def test_lengths_are_equally_frequent_with_result_targets() -> None:
    train = _results("train")
    lengths = Counter(map(len, train.texts))
    assert lengths.keys() == {3, 5} and len(train) == 20000
    assert abs(lengths[3] - 10000) < 283  # four standard deviations of sqrt(20000) / 2
    assert len(Arithmetic(size=50, targets="result").load("train")) == 50


def test_result_targets_are_a_function_of_the_seed() -> None:
    first = Arithmetic(2, size=100, targets="result").load("train")
    random.seed(3)
    assert Arithmetic(2, size=100, targets="result").load("train") == first
    assert Arithmetic(2, size=100, targets="result", seed=1).load("train") != first


def test_invalid_targets_are_refused() -> None:
    with pytest.raises(InputError, match=r"^corpus\.targets must be null or result, got 'tags'\.$"):
        Arithmetic(targets="tags")  # type: ignore[arg-type]


def test_detokenize_joins_number_words_with_spaces() -> None:
    assert Arithmetic(targets="result").detokenize(("twenty", "one")) == "twenty one"
