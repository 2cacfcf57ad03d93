"""The CMU Pronouncing Dictionary: English words, letter by letter, and their phonemes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from envs.splits import Split, check_split
from ram.corpora import Examples, Tokens, split_of
from ram.corpora.files import fetch, read_lines

_NAME = "cmudict.dict"
_URL = "https://raw.githubusercontent.com/cmusphinx/cmudict/master/" + _NAME
_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
_STRESS = re.compile("[012]")


@dataclass(frozen=True)
class CMUDict:
    """126,000 words of letters, apostrophes and the like; a tenth to test on, a fiftieth for validation.

    Of a word with several pronunciations training sees each, and any of them is right in the other splits.

    Attributes:
        root: the folder of ``cmudict.dict``, downloaded there where it is missing.
        stress: keep the digits that mark the stress of a vowel.
    """

    root: str = "data/cmudict"
    stress: bool = False

    def load(self, split: Split) -> Examples:
        check_split(split)
        spoken: dict[str, list[str]] = defaultdict(list)
        for line in read_lines(fetch(self.root, _NAME, _URL, _SHA256)):
            word, _, phonemes = line.split("#")[0].strip().partition(" ")
            word = word.split("(")[0]
            if split_of(word, validation=2) == split:
                written = phonemes if self.stress else _STRESS.sub("", phonemes)
                spoken[word] += [] if written in spoken[word] else [written]
        pairs = [
            (tuple(word), tuple(one.split()), tuple(all_))
            for word, all_ in spoken.items()
            for one in (all_ if split == "train" else all_[:1])
        ]
        return Examples(*(tuple(each) for each in zip(*pairs, strict=True)))

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.strip().lower())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)
