"""Names never heard before, to be repeated: "my name is tamilo , i come from resa" -> "welcome tamilo of resa"."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, Tokens, detokenize, split_of, tokenize

_HELD_OUT = {"validation": 500, "test": 1000}

# {0}, {1} and {2} are names.
_FORMS = (
    ("my name is {0}", "hello {0}"),
    ("i am {0} and this is {1}", "hello {0} and {1}"),
    ("{0} , this is my friend {1}", "welcome {1} , friend of {0}"),
    ("my name is {0} , i come from {1}", "welcome {0} of {1}"),
    ("in {1} they call me {0}", "here we call you {0} of {1}"),
    ("{0} sends greetings to {1} and {2}", "{1} and {2} , greetings from {0}"),
)
_WORDS = frozenset(word for form in _FORMS for side in form for word in side.split())


@dataclass(frozen=True)
class Names:
    """Sentences of six forms, with one to three names; no name of a split comes up in another.

    Attributes:
        size: of the training split; validation has 500 sentences, test 1,000.
        seed: of all.
    """

    size: int = 10000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_integers("corpus", size=self.size)

    def load(self, split: Split) -> Examples:
        check_split(split)
        chance = random.Random(f"{self.seed} {split}")
        texts, targets, alignments = [], [], []
        for _ in range(_HELD_OUT.get(split, self.size)):
            said, answer = (form.split() for form in chance.choice(_FORMS))
            names = [invented_name(chance, split, _WORDS) for _ in range(3)]
            texts.append(tuple(word.format(*names) for word in said))
            targets.append(tuple(word.format(*names) for word in answer))
            alignments.append(tuple(said.index(word) if "{" in word else -1 for word in answer))
        return Examples(tuple(texts), tuple(targets), alignments=tuple(alignments))

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text)

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)


def invented_name(chance: random.Random, split: Split, taken: frozenset[str]) -> str:
    """Two or three syllables, no word that is taken; which split a name belongs to is a matter of its letters."""
    while True:
        syllables = (chance.choice("bdfghjklmnprstvz") + chance.choice("aeiou") for _ in range(chance.randint(2, 3)))
        name = "".join(syllables) + chance.choice(["", "", "n", "s", "r"])
        if name not in taken and split_of(name) == split:
            return name
