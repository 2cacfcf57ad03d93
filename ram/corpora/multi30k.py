"""Multi30k: sentences that describe photographs (Elliott et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from envs.errors import InputError
from envs.splits import Split, check_split
from ram.corpora import Examples, Tokens, tokenize
from ram.corpora.files import fetch, read_lines

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_FILES = {
    "train": ("train.en.gz", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "validation": ("val.en.gz", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "test": ("test_2016_flickr.en.gz", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
}

Ask = Literal["words", "tags"]


@dataclass(frozen=True)
class Multi30k:
    """29,000 English sentences to train on, 1,014 for validation and 1,000 to test (the Flickr test set of 2016).

    Attributes:
        root: the folder of ``train.en.gz``, ``val.en.gz`` and ``test_2016_flickr.en.gz``, downloaded there where they
            are missing.
        ask: "words" gives the sentences in small letters. "tags" takes the signs out of them too, and asks for every
            word how it was written: "Aa" with a capital or "aa" without, and the comma, full stop or other sign, "…",
            that followed: "aa,".
    """

    root: str = "data/multi30k"
    ask: Ask = "words"

    def __post_init__(self) -> None:
        if self.ask not in get_args(Ask):
            raise InputError(f"corpus.ask must be one of {', '.join(get_args(Ask))}, got {self.ask!r}.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        name, sha256 = _FILES[split]
        lines = read_lines(fetch(self.root, name, URL + name, sha256))
        if self.ask == "words":
            return Examples(tuple(map(tokenize, lines)))
        texts, tags = zip(*(_tagged(tokenize(line, lower=False)) for line in lines), strict=True)
        return Examples(tuple(texts), tuple(tags))

    def tokenize(self, text: str) -> Tokens:
        words = tokenize(text)
        return words if self.ask == "words" else tuple(filter(_is_word, words))


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _tagged(tokens: Tokens) -> tuple[Tokens, Tokens]:
    """The words in small letters, and how each was written; signs before the first word are lost."""
    words: list[str] = []
    tags: list[str] = []
    for token in tokens:
        if _is_word(token):
            words.append(token.lower())
            tags.append("Aa" if token[0].isupper() else "aa")
        elif tags and len(tags[-1]) == 2:  # of several signs, the first
            tags[-1] += token if token in ",." else "…"
    return tuple(words), tuple(tags)
