"""The CMU Pronouncing Dictionary: spelling to phonemes of English words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from envs.splits import Split, check_split
from ram.corpora import Examples, PairCorpus, Tokens, assign_split
from ram.corpora.files import fetch_file, read_lines

_NAME = "cmudict.dict"
_URL = "https://raw.githubusercontent.com/cmusphinx/cmudict/master/" + _NAME
_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
_STRESS = re.compile("[012]")


@dataclass(frozen=True)
class CMUDict(PairCorpus):
    """126,000 words as characters with their phonemes; 10 % in test, 2 % in validation.

    Training has one example per pronunciation of a word. Validation and test have the first one as target and all as
    references.

    Attributes:
        root: folder of ``cmudict.dict``; downloaded if missing.
        stress: keep the digits that mark the stress of vowels.
    """

    root: str = "data/cmudict"
    stress: bool = False

    def load(self, split: Split) -> Examples:
        check_split(split)
        pronunciations: dict[str, list[str]] = defaultdict(list)
        for line in read_lines(fetch_file(self.root, _NAME, _URL, _SHA256)):
            word, _, phonemes = line.split("#")[0].strip().partition(" ")
            word = word.split("(")[0]
            if assign_split(word, validation=2) == split:
                phonemes = phonemes if self.stress else _STRESS.sub("", phonemes)
                pronunciations[word] += [] if phonemes in pronunciations[word] else [phonemes]
        rows = [
            (tuple(word), tuple(target.split()), tuple(references))
            for word, references in pronunciations.items()
            for target in (references if split == "train" else references[:1])
        ]
        return Examples(*(tuple(column) for column in zip(*rows, strict=True)))

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.strip().lower())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)
