"""Invented names to copy: "my name is tamilo , i come from resa" -> "welcome tamilo of resa"."""

from __future__ import annotations

import random
from dataclasses import dataclass

from envs.splits import Split
from ram.corpora import Tokens, assign_split
from ram.corpora.generated import GeneratedPairs

_TEMPLATES = (
    ("my name is {0}", "hello {0}"),
    ("i am {0} and this is {1}", "hello {0} and {1}"),
    ("{0} , this is my friend {1}", "welcome {1} , friend of {0}"),
    ("my name is {0} , i come from {1}", "welcome {0} of {1}"),
    ("in {1} they call me {0}", "here we call you {0} of {1}"),
    ("{0} sends greetings to {1} and {2}", "{1} and {2} , greetings from {0}"),
)
_WORDS = frozenset(word for template in _TEMPLATES for side in template for word in side.split())


@dataclass(frozen=True)
class Names(GeneratedPairs):
    """Sentences from six templates with one to three names; the splits share no name."""

    def draw(self, rng: random.Random, split: Split) -> tuple[Tokens, Tokens, tuple[int, ...]]:
        source, target = (side.split() for side in rng.choice(_TEMPLATES))
        names = [invented_name(rng, split, _WORDS) for _ in range(3)]
        text, output = (tuple(word.format(*names) for word in side) for side in (source, target))
        return text, output, tuple(source.index(word) if "{" in word else -1 for word in target)


def invented_name(rng: random.Random, split: Split, taken: frozenset[str]) -> str:
    """Draws a name of two or three syllables that is assigned to ``split`` and not in ``taken``."""
    while True:
        syllables = (rng.choice("bdfghjklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3)))
        name = "".join(syllables) + rng.choice(["", "", "n", "s", "r"])
        if name not in taken and assign_split(name) == split:
            return name
