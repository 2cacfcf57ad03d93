"""Small files in the formats of the published data sets, at the paths where the experiments look for them."""

import gzip
import json
import random
import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from envs.images.glyphs import Glyphs


def use_data_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder of :func:`write_data_sets` the current one, and accepts its files in place of the published."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("ram.corpora.files._has_checksum", lambda path, sha256: True)
    monkeypatch.setattr("envs.images.torchvision_sets.check_integrity", lambda path, md5: True)


def write_data_sets(folder: Path) -> None:
    """Writes every data set to ``folder / "data"``."""
    for write in (
        _write_mnist,
        _write_pictures,
        _write_multi30k,
        _write_captions,
        _write_reviews,
        _write_cmudict,
        _write_inflection,
    ):
        write(folder / "data")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_lines(path: Path, *lines: str, encoding: str = "utf-8") -> None:
    data = "".join(f"{line}\n" for line in lines).encode(encoding)
    _write(path, gzip.compress(data) if path.suffix == ".gz" else data)


def _write_mnist(folder: Path) -> None:
    """IDX files of 60 training and 20 test images."""
    digits = Glyphs(size=28, num_train=60, num_test=20)
    for stem, split in (("train", "train"), ("t10k", "test")):
        loaded = digits.load(split)  # type: ignore[arg-type]
        for kind, values in (("images-idx3", loaded.images[:, 0].numpy()), ("labels-idx1", loaded.labels.numpy())):
            header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            _write(folder / f"MNIST/raw/{stem}-{kind}-ubyte", header + values.astype(np.uint8).tobytes())


def _write_pictures(folder: Path) -> None:
    """30 colored squares in each of two class folders."""
    for name, color in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(30):
            Image.new("RGB", (16 + number, 32), color).save(folder / f"pictures/{name}/{number}.png")


def _write_multi30k(folder: Path) -> None:
    """Gzipped parallel lines, some with commas and inner capitals for the tags."""
    subjects = [("Ein Hund", "A dog"), ("Ein alter Mann", "An old man"), ("Zwei Kinder", "Two children")]
    verbs = [("rennen", "run"), ("spielen", "play"), ("schlafen, müde", "sleep, tired"), ("lesen", "read")]
    places = [("im Park", "in the park"), ("in Berlin", "in Berlin"), ("am Meer", "at the sea!"), ("hier", "here")]
    pairs = [tuple(" ".join(side) for side in zip(*parts, strict=True)) for parts in product(subjects, verbs, places)]
    random.Random(0).shuffle(pairs)
    for name, some in (("train", pairs), ("val", pairs[:10]), ("test_2016_flickr", pairs[10:20])):
        for language, lines in zip(("de", "en"), zip(*some, strict=True), strict=True):
            _write_lines(folder / f"multi30k/{name}.{language}.gz", *(f"{line}." for line in lines))


def _write_captions(folder: Path) -> None:
    """Karpathy's JSON with TIFF names; half of the images are JPEG files, as in UCM-captions."""
    images = []
    for number in range(40):
        split = ("train", "train", "val", "test")[number % 4]
        shade = (number * 37) % 200
        image = Image.fromarray(np.full((24, 24, 3), (shade, 255 - shade, 90), np.uint8))
        image.paste((255, 255, 0), (number % 16, 4, number % 16 + 8, 12))
        path = folder / f"ucm_captions/images/{number}.{'jpg' if number % 2 else 'tif'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        nouns = ("tree", "house", "road")[number % 3]
        captions = [f"there is a {nouns}", f"a {nouns} and a pond", f"a {nouns} here"]
        sentences = [{"tokens": caption.split(), "raw": caption} for caption in captions]
        images.append({"filename": f"{number}.tif", "split": split, "sentences": sentences})
    _write(folder / "ucm_captions/dataset.json", json.dumps({"images": images, "dataset": "ucm"}).encode())


def _write_reviews(folder: Path) -> None:
    """MR in Windows-1252 with one file per class, and SST-2 with labels at the line starts."""
    words = {"neg": ("dull", "bad", "cliché"), "pos": ("fine", "good", "naïve")}
    for kind, adjectives in words.items():
        lines = [f"a {adjectives[n % 3]} film , number {n} ." for n in range(30)]
        _write_lines(folder / f"sentiment/rt-polarity.{kind}", *lines, encoding="cp1252")
    for name, count in (("train", 32), ("dev", 8), ("test", 8)):
        lines = [f"{n % 2} it 's a {words[('neg', 'pos')[n % 2]][n % 3]} film {n}" for n in range(count)]
        _write_lines(folder / f"sentiment/stsa.binary.{name}", *lines)


def _write_cmudict(folder: Path) -> None:
    """Words of two letters with stressed vowels, every fourth with a second pronunciation and a comment."""
    lines = []
    for number, (first, second) in enumerate(product("bdfgklmnprst", "aeiou")):
        lines.append(f"{first}{second} {first.upper()} {second.upper()}H0")
        if number % 4 == 0:
            lines.append(f"{first}{second}(2) {first.upper()} {second.upper()}W1 # variant")
    _write_lines(folder / "cmudict/cmudict.dict", *lines)


def _write_inflection(folder: Path) -> None:
    """Lemma, form and tags in three columns."""
    rows = [f"{stem}{ending}en\t{stem}{ending}te ab\tV;PST" for stem, ending in product("bdfgklmnprst", "aeiou")]
    rows += [f"{row.split('te ab')[0]}t\tV;PRS" for row in rows]
    random.Random(0).shuffle(rows)
    for name, some in (("train-high", rows), ("dev", rows[:10]), ("test", rows[10:20])):
        _write_lines(folder / f"inflection/german-{name}", *some, "")
