"""The pronouncing dictionary, on a small file from a local server."""

import hashlib
import shutil
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.errors import InputError
from ram.corpora import Examples, cmudict
from ram.corpora.cmudict import CMUDict

SPLITS = ("train", "validation", "test")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["".join(pair) for pair in product(LETTERS, LETTERS)]
# three pronunciations per word, the second with a comment and different from the first in stress only
SMALL = "".join(
    f"{word} {word[0].upper()} AH0 {word[1].upper()} OW1\n"
    f"{word}(2) {word[0].upper()} AH1 {word[1].upper()} OW0 # name, {word}\n"
    f"{word}(3) {word[0].upper()} IY2\n"
    for word in WORDS
).encode()


@pytest.fixture
def small(mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Serves the small dictionary as the published file."""
    (mirror.folder / "cmudict.dict").write_bytes(SMALL)
    monkeypatch.setattr(cmudict, "_URL", mirror.url + "cmudict.dict")
    monkeypatch.setattr(cmudict, "_SHA256", hashlib.sha256(SMALL).hexdigest())
    return mirror.folder


def examples_of(word: str, examples: Examples) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the target and the references of every example of a word."""
    assert examples.targets is not None and examples.references is not None
    return [
        (" ".join(target), references)
        for text, target, references in zip(examples.texts, examples.targets, examples.references, strict=True)
        if "".join(text) == word
    ]


def test_training_has_all_pronunciations_as_targets_and_other_splits_the_first(tmp_path: Path, small: Path) -> None:
    parts = {split: CMUDict(str(tmp_path)).load(split) for split in SPLITS}  # type: ignore[arg-type]
    assert {"".join(text) for part in parts.values() for text in part.texts} == set(WORDS)
    for split, part in parts.items():
        for word in {"".join(text) for text in part.texts}:
            first, second = f"{word[0].upper()} AH {word[1].upper()} OW", f"{word[0].upper()} IY"
            expected = [(first, (first, second)), (second, (first, second))]
            assert examples_of(word, part) == (expected if split == "train" else expected[:1])


def test_stress_is_an_option(tmp_path: Path, small: Path) -> None:
    train = CMUDict(str(tmp_path), stress=True).load("train")
    word = "".join(train.texts[0])
    first, second = word.upper()
    references = f"{first} AH0 {second} OW1", f"{first} AH1 {second} OW0", f"{first} IY2"
    assert examples_of(word, train) == [(each, references) for each in references]


def test_splits_share_no_word(tmp_path: Path, small: Path) -> None:
    train, validation, test = (set(CMUDict(str(tmp_path)).load(split).texts) for split in SPLITS)  # type: ignore[arg-type]
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)
    assert len(train | validation | test) == 676
    assert len(test) / 676 == pytest.approx(0.10, abs=0.046)  # four standard deviations of sqrt(0.1 * 0.9 / 676)
    assert len(validation) / 676 == pytest.approx(0.02, abs=0.022)
    assert set(CMUDict(str(tmp_path), stress=True).load("test").texts) == test


def test_dictionary_is_downloaded_once(tmp_path: Path, small: Path) -> None:
    first = CMUDict(str(tmp_path / "data")).load("test")
    shutil.rmtree(small)
    assert CMUDict(str(tmp_path / "data")).load("test") == first
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cmudict.dict"]


def test_file_with_another_checksum_is_refused(tmp_path: Path, small: Path) -> None:
    (tmp_path / "cmudict.dict").write_bytes(SMALL + b"zzz Z IY1\n")
    with pytest.raises(InputError, match=rf"^{tmp_path}/cmudict\.dict is not the published file"):
        CMUDict(str(tmp_path)).load("test")


def test_tokenize_and_detokenize() -> None:
    assert CMUDict().tokenize(" Don't\n") == ("d", "o", "n", "'", "t")
    assert CMUDict().detokenize(("D", "OW", "N", "T")) == "D OW N T"
