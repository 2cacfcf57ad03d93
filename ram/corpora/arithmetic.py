"""Arithmetic in words: "one plus two times three equals seven", "seven is prime"; or "one plus two" -> "three"."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal, get_args

from envs.errors import InputError
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, Tokens, detokenize, split_of, tokenize

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_UNITS = (*_ONES.split(), "seventeen", "eighteen", "nineteen")
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_LARGEST = 99

Ask = Literal["words", "result"]


@dataclass(frozen=True)
class Arithmetic:
    """Sums and products of digits, the products first, and what holds of a number: even, odd, prime.

    An expression of validation or test stands nowhere in training, nor does the same one in another order, nor with
    zeros added to it or ones multiplied with it. What is said of a number, "seven is prime", is in training alone.

    Attributes:
        max_operands: in an expression, from two on; results above 99 are left out.
        ask: "words" gives whole sentences; "result" gives expressions and asks for what they equal.
        size: of the training split, drawn with repetition; every expression held out stands once in its split.
        seed: of the order.
    """

    max_operands: int = 3
    size: int = 20000
    seed: int = 0
    ask: Ask = "words"

    def __post_init__(self) -> None:
        if not 2 <= self.max_operands <= 4:
            raise InputError(f"corpus.max_operands must be 2, 3 or 4, got {self.max_operands}.")
        if self.ask not in get_args(Ask):
            raise InputError(f"corpus.ask must be one of {', '.join(get_args(Ask))}, got {self.ask!r}.")
        check_positive_integers("corpus", size=self.size)

    def load(self, split: Split) -> Examples:
        check_split(split)
        kinds = [
            [each for each in _expressions(n) if _split_of(each) == split] for n in range(2, self.max_operands + 1)
        ]
        chance = random.Random(f"{self.seed} {split}")
        if split != "train":
            texts = [_equation(each) for kind in kinds for each in kind]
            chance.shuffle(texts)
            return self._examples(texts)
        annotations = [fact for number in range(_LARGEST + 1) for fact in _facts(number)]
        texts = []
        for _ in range(self.size):  # one sentence in ten of numbers alone, and of expressions each length as often
            fact = self.ask == "words" and chance.random() < 0.1
            texts.append(chance.choice(annotations) if fact else _equation(chance.choice(chance.choice(kinds))))
        return self._examples(texts)

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text.replace("-", " "))

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)

    def _examples(self, texts: list[Tokens]) -> Examples:
        if self.ask == "words":
            return Examples(tuple(texts))
        middle = [text.index("equals") for text in texts]
        return Examples(
            tuple(text[:end] for text, end in zip(texts, middle, strict=True)),
            tuple(text[end + 1 :] for text, end in zip(texts, middle, strict=True)),
        )


def in_words(number: int) -> str:
    """A number in 0 .. 99, as it is spoken."""
    if number < len(_UNITS):
        return _UNITS[number]
    return f"{_TENS[number // 10]} {_UNITS[number % 10] if number % 10 else ''}".strip()


Expression = tuple[tuple[int, ...], ...]
"""A sum of products of digits: ((1,), (2, 3)) is one plus two times three."""


def value(expression: Expression) -> int:
    """What an expression equals."""
    return sum(map(prod, expression))


def _expressions(operands: int) -> list[Expression]:
    every = []
    for digits in product(range(10), repeat=operands):
        for signs in product((False, True), repeat=operands - 1):
            terms = [[digits[0]]]
            for digit, times in zip(digits[1:], signs, strict=True):
                if times:
                    terms[-1].append(digit)
                else:
                    terms.append([digit])
            expression = tuple(map(tuple, terms))
            if value(expression) <= _LARGEST:
                every.append(expression)
    return every


def _split_of(expression: Expression) -> Split:
    """The same for all orders of its terms and factors, and where nothing is added or nothing multiplied."""
    terms = [tuple(sorted(digit for digit in term if digit != 1)) for term in expression if prod(term)]
    return split_of(repr(sorted(terms)))


def _equation(expression: Expression) -> Tokens:
    spoken = " plus ".join(" times ".join(map(in_words, term)) for term in expression)
    return tuple(f"{spoken} equals {in_words(value(expression))}".split())


def _facts(number: int) -> list[Tokens]:
    kinds = ["odd" if number % 2 else "even"]
    if number > 1 and all(number % divisor for divisor in range(2, number)):
        kinds.append("prime")
    return [tuple(f"{in_words(number)} is {kind}".split()) for kind in kinds]
