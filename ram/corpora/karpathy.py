"""Pictures in a folder with captions in one file, as Karpathy and Fei-Fei (2015) have parted Flickr8k and COCO."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from envs.errors import InputError
from envs.images.image_io import each_picture, fitted
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Tokens, detokenize, tokenize
from ram.corpora.captions import Captions

_SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class KarpathyCaptions:
    """Pictures of any size, scaled to fit a square, and the words of their captions in small letters.

    The file holds ``images``, a list of ``{"filename", "split", "sentences": [{"tokens" or "raw"}]}``, perhaps with
    ``"filepath"``, a folder within that of the pictures. A split is "train" or "restval", "val" or "test"; pictures of
    another are left out. So are captions without a word, and pictures that have no other; a warning tells how many. A
    picture is found under another suffix too.

    Attributes:
        root: the folder of both.
        file: of the captions, within it.
        images: the folder of the pictures, within it.
        size: pixels a side.
        channels: 1 for grey, 3 for colour.
    """

    root: str
    file: str = "dataset.json"
    images: str = "images"
    size: int = 128
    channels: int = 3

    def __post_init__(self) -> None:
        check_positive_integers("corpus", size=self.size)
        if self.channels not in (1, 3):
            raise InputError(f"corpus.channels must be 1 or 3, got {self.channels}.")

    def load(self, split: Split) -> Captions:
        check_split(split)
        path = Path(self.root).expanduser() / self.file
        entries = _read(path)
        others = sum(entry.get("split") not in _SPLITS for entry in entries)
        if others and split == "train":
            warnings.warn(f"{path}: {others} images of no split but {', '.join(_SPLITS)} are left out.", stacklevel=2)
        entries = [entry for entry in entries if _SPLITS.get(entry.get("split", "")) == split]
        if not entries:
            raise InputError(f"{path} has no image of the {split} split: give it some.")
        captions = [tuple(filter(None, map(self._words, entry["sentences"]))) for entry in entries]
        empty = sum(len(entry["sentences"]) - len(some) for entry, some in zip(entries, captions, strict=True))
        if empty or () in captions:
            warnings.warn(
                f"{path}: in the {split} split {empty} captions without a word are left out, and {captions.count(())} "
                "images without a caption.",
                stacklevel=2,
            )
        if not any(captions):
            raise InputError(f"{path} has no caption of the {split} split with a word.")
        paths = self._find(path, [entry for entry, some in zip(entries, captions, strict=True) if some])
        read = partial(fitted, channels=self.channels, size=(self.size, self.size))
        images = torch.stack(list(each_picture(read, paths)))
        return Captions(images, tuple(some for some in captions if some))

    def tokenize(self, text: str) -> Tokens:
        return tuple(word for word in tokenize(text) if any(map(str.isalnum, word)))

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)

    def _words(self, sentence: dict[str, Any]) -> Tokens:
        if "tokens" in sentence:
            return tuple(word for token in sentence["tokens"] for word in token.lower().split())
        return self.tokenize(sentence.get("raw", ""))

    def _find(self, path: Path, entries: Sequence[dict[str, Any]]) -> list[Path]:
        """The file of every picture."""
        folder = path.parent / self.images
        found = []
        for entry in entries:
            named = folder / entry.get("filepath", "") / entry["filename"]
            if not named.is_file():
                named = next(iter(sorted(named.parent.glob(f"{named.stem}.*"))), named)
            if not named.is_file():
                raise InputError(f"{named} is missing, though {path} has captions of it: add it, or take them out.")
            found.append(named)
        return found


def _read(path: Path) -> list[dict[str, Any]]:
    """The entries of all images."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["images"]
        wrong = next((fault for entry in entries for fault in _faults(entry)), None)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): corpus.root must be its folder.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no JSON with images, filenames and sentences ({error!r}).") from error
    if wrong is not None:
        raise InputError(f"{path}: {wrong}.")
    return entries


def _faults(entry: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the entry of an image."""
    name, split, sentences = entry["filename"], entry.get("split", ""), entry["sentences"]
    if not isinstance(name, str):
        yield f"the filename {name!r} is no text"
    if not isinstance(entry.get("filepath", ""), str):
        yield f"the filepath of {name} is no text"
    if not isinstance(split, str):
        yield f"the split of {name} must be a text, such as train, got {split!r}"
    if not isinstance(sentences, list):
        yield f"the sentences of {name} are no list"
        return
    for sentence in sentences:
        told = sentence if isinstance(sentence, dict) else {"raw": None}
        tokens = told.get("tokens", [told.get("raw", "")])
        if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
            yield f"a sentence of {name} has neither a list of words as tokens nor a text as raw"
