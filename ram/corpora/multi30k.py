"""Multi30k: English descriptions of photographs (Elliott et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from envs.errors import InputError
from envs.splits import Split, check_split
from ram.corpora import Examples, Tokens, tokenize
from ram.corpora.files import fetch_file, read_lines

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_FILES = {
    "train": ("train.en.gz", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "validation": ("val.en.gz", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "test": ("test_2016_flickr.en.gz", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
}

Targets = Literal["tags"]


@dataclass(frozen=True)
class Multi30k:
    """29,000 training, 1,014 validation and 1,000 test sentences (the Flickr test set of 2016).

    Attributes:
        root: folder of ``train.en.gz``, ``val.en.gz`` and ``test_2016_flickr.en.gz``; downloaded if missing.
        targets: None for lowercased sentences without targets. "tags" also removes the punctuation from the texts; the
            target is one tag per word, "Aa" if it was capitalized and "aa" if not, with the punctuation that followed:
            ",", "." or "…" for any other mark.
    """

    root: str = "data/multi30k"
    targets: Targets | None = None

    def __post_init__(self) -> None:
        if self.targets not in (None, *get_args(Targets)):
            raise InputError(f"corpus.targets must be null or tags, got {self.targets!r}.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        name, sha256 = _FILES[split]
        lines = read_lines(fetch_file(self.root, name, URL + name, sha256))
        if self.targets is None:
            return Examples(tuple(map(tokenize, lines)))
        texts, tags = zip(*(_tagged(tokenize(line, lower=False)) for line in lines), strict=True)
        return Examples(tuple(texts), tuple(tags))

    def tokenize(self, text: str) -> Tokens:
        words = tokenize(text)
        return words if self.targets is None else tuple(filter(_is_word, words))


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _tagged(tokens: Tokens) -> tuple[Tokens, Tokens]:
    """Returns the lowercased words and their tags; punctuation before the first word is dropped."""
    words: list[str] = []
    tags: list[str] = []
    for token in tokens:
        if _is_word(token):
            words.append(token.lower())
            tags.append("Aa" if token[0].isupper() else "aa")
        elif tags and len(tags[-1]) == 2:  # the first of several punctuation marks
            tags[-1] += token if token in ",." else "…"
    return tuple(words), tuple(tags)
