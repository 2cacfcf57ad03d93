"""Inflection (CoNLL-SIGMORPHON 2018, task 1): "abbauen V;IND;PST;1;SG" -> "baute ab" (Cotterell et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.errors import InputError
from envs.splits import Split, check_split
from ram.corpora import Examples, PairCorpus, Tokens
from ram.corpora.files import fetch_file, read_lines

_URL = "https://raw.githubusercontent.com/sigmorphon/conll2018/master/task1/all/"
_FILES = {"train": "train-high", "validation": "dev", "test": "test"}
_SHA256 = {
    "english-dev": "643e43b2acb3cfa01b9439c430abb5c8e64d790df092aca096b14ade3ca38631",
    "english-test": "25ade78755ad5a038b986e8aa5539def93bd8ae5716a51a975ba67fdaebb6e69",
    "english-train-high": "f5a7cdddb857be47f3a225fcd53edc4ac62843d994cc7407ba121e146c9d4a3a",
    "german-dev": "9bb375f58a6b4acaf3e1dca778dddd40a611edff9ba6a70ee3bf9e2f6b143926",
    "german-test": "49816123840335ea9f65e45cb86ab56a180049ae42a2caa7091c454725748624",
    "german-train-high": "2c073f9dd942519f0ae05c5b2740fcbb104a15ba817c8d760133fbd096066d6b",
    "spanish-dev": "42b25b87a2381a083a77ab658a5caeadf54d7c123dd729316c8ac0d1aae38e29",
    "spanish-test": "052e1231fd7bdca3b0a3f51a99771f16f7505daedb6712f04d5d8ff185a44aeb",
    "spanish-train-high": "41cdf10b69e99a0d2b3011d01b823acab2155ec6a4da3a8f3492d8fe35dcd95b",
}
_SPACE = "␣"


@dataclass(frozen=True)
class Inflection(PairCorpus):
    """Lemmas with morphological tags and their inflected forms, as characters; 10,000, 1,000 and 1,000 examples.

    Attributes:
        root: folder of ``german-train-high``, ``german-dev``, ``german-test`` and the same of other languages;
            downloaded if missing.
        language: english, german or spanish; or any other whose three files are in the folder.
    """

    root: str = "data/inflection"
    language: str = "german"

    def load(self, split: Split) -> Examples:
        check_split(split)
        name = f"{self.language}-{_FILES[split]}"
        if name in _SHA256:
            path = fetch_file(self.root, name, _URL + name, _SHA256[name])
        else:
            path = Path(self.root).expanduser() / name
        rows = [line.split("\t") for line in read_lines(path) if line]
        for number, row in enumerate(rows, start=1):
            if len(row) != 3:
                raise InputError(f"{path}, line {number}: expected lemma, form and tags, separated by tabs, got {row}.")
        return Examples(
            tuple(self.tokenize(f"{lemma} {tags}") for lemma, _, tags in rows),
            tuple(tuple(form.replace(" ", _SPACE)) for _, form, _ in rows),
            tuple((form,) for _, form, _ in rows),
        )

    def tokenize(self, text: str) -> Tokens:
        """Splits a lemma followed by its tags into tags, such as <V>, and the characters of the lemma.

        Raises:
            InputError: if the tags are missing.
        """
        lemma, _, tags = text.strip().replace("\t", " ").rpartition(" ")
        if tags and not lemma:
            raise InputError(f"{tags!r} lacks a lemma or its tags: write both, such as 'abbauen V;IND;PST;1;SG'.")
        return (*(f"<{tag}>" for tag in tags.split(";") if tag), *lemma.strip().replace(" ", _SPACE))

    def detokenize(self, words: Sequence[str]) -> str:
        return "".join(words).replace(_SPACE, " ")
