"""Multi30k: descriptions of photographs in four languages (Elliott et al. 2016 and 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from envs.errors import InputError
from envs.splits import Split, check_split
from envs.validation import check_choice
from ram.corpora import Corpus, Examples, PairCorpus, Tokens, tokenize, tokenize_reversibly
from ram.corpora.files import fetch_file, read_lines
from ram.corpora.parallel_files import read_pairs

Language = Literal["en", "de", "fr", "cs"]
TestSet = Literal["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"]

_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_SHA256 = {
    "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2017_mscoco.fr.gz": "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0",
    "test_2018_flickr.cs.gz": "7d0a9db904f94c554a8c58049a9f3a5357c27f46cc3d710d70cb0b4a2585b8c2",
    "test_2018_flickr.de.gz": "ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608",
    "test_2018_flickr.en.gz": "ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d",
    "test_2018_flickr.fr.gz": "fb2b83fcceb937a4f7e3e93c1c51c22aba92f1e342391e6b5ba392b16a920501",
    "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
}


@dataclass(frozen=True)
class Multi30k(Corpus):
    """29,000 training, 1,014 validation and 1,000 test sentences (the Flickr test set of 2016).

    Attributes:
        root: folder of ``train.en.gz``, ``val.en.gz`` and ``test_2016_flickr.en.gz``; downloaded if missing.
        targets: None for lowercased sentences without targets. "tags" also removes the punctuation from the texts; the
            target is one tag per word, "Aa" if it was capitalized and "aa" if not, with the punctuation that followed:
            ",", "." or "…" for any other mark.
    """

    root: str = "data/multi30k"
    targets: Literal["tags"] | None = None

    def __post_init__(self) -> None:
        if self.targets not in (None, "tags"):
            raise InputError(f"corpus.targets must be null or tags, got {self.targets!r}.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        lines = read_lines(_fetch(self.root, split, "en"))
        if self.targets is None:
            return Examples(tuple(map(tokenize, lines)))
        texts, tags = zip(*(_tagged(tokenize(line, lower=False)) for line in lines), strict=True)
        return Examples(tuple(texts), tuple(tags))

    def tokenize(self, text: str) -> Tokens:
        words = tokenize(text)
        return words if self.targets is None else tuple(filter(_is_word, words))


@dataclass(frozen=True)
class Multi30kTranslation(PairCorpus):
    """29,000 training and 1,014 validation pairs and one of four test sets, lowercased.

    Attributes:
        root: folder of ``train.de.gz``, ``val.de.gz``, ``test_2016_flickr.de.gz`` and the same of other languages;
            downloaded if missing.
        source: source language: en, de, fr or cs.
        target: target language: one of the others.
        test: test set; only test_2016_flickr and test_2018_flickr have Czech sentences.
    """

    root: str = "data/multi30k"
    source: Language = "de"
    target: Language = "en"
    test: TestSet = "test_2016_flickr"

    def __post_init__(self) -> None:
        check_choice("corpus.test", self.test, get_args(TestSet))
        for name, value in [("source", self.source), ("target", self.target)]:
            check_choice(f"corpus.{name}", value, get_args(Language))
            if f"{self.test}.{value}.gz" not in _SHA256:
                raise InputError(f"corpus.test={self.test} has no sentences in corpus.{name}={value}: choose another.")
        if self.source == self.target:
            raise InputError(f"corpus.source and corpus.target are both {self.source}: choose two languages.")

    def load(self, split: Split) -> Examples:
        check_split(split)
        source, target = (_fetch(self.root, split, language, self.test) for language in (self.source, self.target))
        return read_pairs(source, target, self.tokenize, lower=True)

    def tokenize(self, text: str) -> Tokens:
        return tokenize_reversibly(text)


def _fetch(root: str, split: Split, language: Language, test: TestSet = "test_2016_flickr") -> Path:
    """Returns the path of the sentences of a split in one language, downloading them if they are missing."""
    stem = {"train": "train", "validation": "val", "test": test}[split]
    name = f"{stem}.{language}.gz"
    return fetch_file(root, name, _URL + name, _SHA256[name])


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
