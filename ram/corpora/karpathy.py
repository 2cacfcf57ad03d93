"""Captioned images in the JSON format of Karpathy and Fei-Fei (2015), as for Flickr8k and COCO."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from envs.errors import InputError
from envs.images.image_io import map_image_files, read_image
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import CaptionCorpus, Captions, Tokens, tokenize

_SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class KarpathyCaptions(CaptionCorpus):
    """Images, scaled to fit a square and padded, with lowercased captions.

    The JSON file has ``images``, a list of ``{"filename", "split", "sentences": [{"tokens" or "raw"}]}``, optionally
    with ``"filepath"``, a subfolder of the image folder. ``split`` is "train" or "restval", "val" or "test"; images of
    other splits are skipped. Empty captions, and images without other captions, are skipped with a warning. If a file
    is missing, one of the same name with another suffix is used.

    Attributes:
        root: folder of the JSON file and the images.
        file: name of the JSON file.
        images: name of the image folder.
        size: height and width in pixels.
        channels: 1 for grayscale, 3 for color.
    """

    root: str
    file: str = "dataset.json"
    images: str = "images"
    size: int = 64
    channels: int = 3

    def __post_init__(self) -> None:
        check_positive_integers("corpus", size=self.size)
        if self.channels not in (1, 3):
            raise InputError(f"corpus.channels must be 1 or 3, got {self.channels}.")

    def load(self, split: Split) -> Captions:
        check_split(split)
        path = Path(self.root).expanduser() / self.file
        entries = _read_entries(path)
        others = sum(entry.get("split") not in _SPLITS for entry in entries)
        if others and split == "train":
            warnings.warn(f"{path}: skipped {others} images of splits other than {', '.join(_SPLITS)}.", stacklevel=2)
        entries = [entry for entry in entries if _SPLITS.get(entry.get("split", "")) == split]
        if not entries:
            raise InputError(f"{path} has no image of the {split} split.")
        captions = [tuple(filter(None, map(self._words, entry["sentences"]))) for entry in entries]
        empty = sum(len(entry["sentences"]) - len(kept) for entry, kept in zip(entries, captions, strict=True))
        if empty or () in captions:
            warnings.warn(
                f"{path}: skipped {empty} empty captions and {captions.count(())} images without captions in the "
                f"{split} split.",
                stacklevel=2,
            )
        if not any(captions):
            raise InputError(f"{path} has only empty captions in the {split} split.")
        paths = [self._find(path, entry) for entry, kept in zip(entries, captions, strict=True) if kept]
        read = partial(read_image, channels=self.channels, size=(self.size, self.size))
        images = torch.stack(list(map_image_files(read, paths)))
        return Captions(images, tuple(filter(None, captions)))

    def tokenize(self, text: str) -> Tokens:
        return tuple(word for word in tokenize(text) if any(map(str.isalnum, word)))

    def _words(self, sentence: dict[str, Any]) -> Tokens:
        if "tokens" in sentence:
            return tuple(word for token in sentence["tokens"] for word in token.lower().split())
        return self.tokenize(sentence.get("raw", ""))

    def _find(self, path: Path, entry: dict[str, Any]) -> Path:
        """Returns the image file of an entry."""
        image = path.parent / self.images / entry.get("filepath", "") / entry["filename"]
        if not image.is_file():
            image = min(image.parent.glob(f"{image.stem}.*"), default=image)
        if not image.is_file():
            raise InputError(f"{image} is missing, but {path} has captions of it: add the image or remove them.")
        return image


def _read_entries(path: Path) -> list[dict[str, Any]]:
    """Reads and checks the entries of all images."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["images"]
        problem = next((problem for entry in entries for problem in _problems(entry)), None)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): set corpus.root to its folder.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not JSON with images, filenames and sentences ({error!r}).") from error
    if problem is not None:
        raise InputError(f"{path}: {problem}.")
    return entries


def _problems(entry: dict[str, Any]) -> Iterator[str]:
    """Yields a description of every invalid field of an image's entry."""
    name, split, sentences = entry["filename"], entry.get("split", ""), entry["sentences"]
    if not isinstance(name, str):
        yield f"the filename {name!r} is not a string"
    if not isinstance(entry.get("filepath", ""), str):
        yield f"the filepath of {name} is not a string"
    if not isinstance(split, str):
        yield f"the split of {name} must be a string, such as train, got {split!r}"
    if not isinstance(sentences, list):
        yield f"the sentences of {name} are not a list"
    for sentence in sentences:
        fields = sentence if isinstance(sentence, dict) else {"raw": None}
        tokens = fields.get("tokens", [fields.get("raw", "")])
        if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
            yield f"a sentence of {name} has neither a list of strings as tokens nor a string as raw"
