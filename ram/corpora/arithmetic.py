"""Arithmetic in words: "one plus two times three equals seven", "seven is prime"; or "one plus two" -> "three"."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from envs.errors import InputError
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, PairCorpus, Tokens, assign_split, tokenize

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_UNITS = (*_ONES.split(), "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBERS = (*_UNITS, *(f"{ten} {unit}".rstrip() for ten in _TENS for unit in ("", *_UNITS[1:10])))
_LARGEST = 99


@dataclass(frozen=True)
class Arithmetic(PairCorpus):
    """Equations of sums and products of digits, and properties of numbers: even, odd, prime.

    Products come before sums. No expression of validation or test occurs in training, in any order of its terms and
    factors, with added zeros or with factors of one. Properties, such as "seven is prime", are in training only.

    Attributes:
        max_operands: largest number of operands of an expression, 2 to 4; results above 99 are left out.
        size: number of training texts, drawn with repetition; validation and test contain each expression once.
        seed: of the generated data; independent of the training seed.
        targets: None for whole sentences as texts; "result" for expressions as texts and their values as targets.
    """

    max_operands: int = 3
    size: int = 20000
    seed: int = 0
    targets: Literal["result"] | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.max_operands <= 4:
            raise InputError(f"corpus.max_operands must be 2, 3 or 4, got {self.max_operands}.")
        if self.targets not in (None, "result"):
            raise InputError(f"corpus.targets must be null or result, got {self.targets!r}.")
        check_positive_integers("corpus", size=self.size)

    def load(self, split: Split) -> Examples:
        check_split(split)
        by_length = [_expressions(operands, split) for operands in range(2, self.max_operands + 1)]
        rng = random.Random(f"{self.seed} {split}")
        if split != "train":
            texts = [_equation(each) for expressions in by_length for each in expressions]
            rng.shuffle(texts)
            return self._examples(texts)
        properties = [text for number in range(_LARGEST + 1) for text in _properties(number)]
        texts = []
        for _ in range(self.size):  # a tenth are properties; equations of every length are equally frequent
            is_property = self.targets is None and rng.random() < 0.1
            texts.append(rng.choice(properties) if is_property else _equation(rng.choice(rng.choice(by_length))))
        return self._examples(texts)

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text.replace("-", " "))

    def _examples(self, texts: list[Tokens]) -> Examples:
        if self.targets is None:
            return Examples(tuple(texts))
        sides = [(text[: text.index("equals")], text[text.index("equals") + 1 :]) for text in texts]
        return Examples(tuple(left for left, _ in sides), tuple(right for _, right in sides))


def in_words(number: int) -> str:
    """Spells a number in 0 .. 99."""
    return _NUMBERS[number]


Expression = tuple[tuple[int, ...], ...]
"""A sum of products of digits: ((1,), (2, 3)) is one plus two times three."""


def value(expression: Expression) -> int:
    """Evaluates an expression."""
    return sum(map(prod, expression))


def _expressions(operands: int, split: Split) -> list[Expression]:
    """Returns all expressions of a split with a number of operands and a value of at most 99."""
    expressions = []
    for digits in product(range(10), repeat=operands):
        for signs in product((False, True), repeat=operands - 1):
            terms = [[digits[0]]]
            for digit, times in zip(digits[1:], signs, strict=True):
                if times:
                    terms[-1].append(digit)
                else:
                    terms.append([digit])
            expression = tuple(map(tuple, terms))
            if value(expression) <= _LARGEST and _split_of(expression) == split:
                expressions.append(expression)
    return expressions


def _split_of(expression: Expression) -> Split:
    """Assigns the same split to all orders of terms and factors, with or without zero terms and factors of one."""
    terms = [tuple(sorted(digit for digit in term if digit != 1)) for term in expression if prod(term)]
    return assign_split(repr(sorted(terms)))


def _equation(expression: Expression) -> Tokens:
    left = " plus ".join(" times ".join(map(in_words, term)) for term in expression)
    return tuple(f"{left} equals {in_words(value(expression))}".split())


def _properties(number: int) -> list[Tokens]:
    kinds = ["odd" if number % 2 else "even"]
    if number > 1 and all(number % divisor for divisor in range(2, number)):
        kinds.append("prime")
    return [tuple(f"{in_words(number)} is {kind}".split()) for kind in kinds]
