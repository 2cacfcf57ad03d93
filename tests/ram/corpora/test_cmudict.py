"""The pronouncing dictionary, on a small one from a mirror on this machine, and as published."""

import hashlib
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.errors import InputError
from ram.corpora import Examples, cmudict
from ram.corpora.cmudict import CMUDict

DATA = Path(__file__).parents[3] / "../shared/data/cmudict"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="there is no cmudict in ../shared/data")

SPLITS = ("train", "validation", "test")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["".join(pair) for pair in product(LETTERS, LETTERS)]
# Of every word two ways to say it, and one of them with another stress; the second with a note.
SMALL = "".join(
    f"{word} {word[0].upper()} AH0 {word[1].upper()} OW1\n"
    f"{word}(2) {word[0].upper()} AH1 {word[1].upper()} OW0 # name, {word}\n"
    f"{word}(3) {word[0].upper()} IY2\n"
    for word in WORDS
).encode()


@pytest.fixture
def small(mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Serves the small dictionary as the published one."""
    (mirror.folder / "cmudict.dict").write_bytes(SMALL)
    monkeypatch.setattr(cmudict, "_URL", mirror.url + "cmudict.dict")
    monkeypatch.setattr(cmudict, "_SHA256", hashlib.sha256(SMALL).hexdigest())
    return mirror.folder


@cache
def _published(split: str) -> Examples:
    return CMUDict(str(DATA)).load(split)  # type: ignore[arg-type]


def _of(word: str, examples: Examples) -> list[tuple[str, tuple[str, ...]]]:
    """What is to be said of a word, and what is right too, for each time it comes up."""
    assert examples.targets is not None and examples.references is not None
    return [
        (" ".join(target), references)
        for text, target, references in zip(examples.texts, examples.targets, examples.references, strict=True)
        if "".join(text) == word
    ]


def test_training_sees_every_pronunciation_and_the_others_one_of_which_any_is_right(
    tmp_path: Path, small: Path
) -> None:
    parts = {split: CMUDict(str(tmp_path)).load(split) for split in SPLITS}  # type: ignore[arg-type]
    assert {"".join(text) for part in parts.values() for text in part.texts} == set(WORDS)
    for split, part in parts.items():
        for word in {"".join(text) for text in part.texts}:
            first, second = f"{word[0].upper()} AH {word[1].upper()} OW", f"{word[0].upper()} IY"
            expected = [(first, (first, second)), (second, (first, second))]
            assert _of(word, part) == (expected if split == "train" else expected[:1])


def test_the_stress_is_kept_on_request(tmp_path: Path, small: Path) -> None:
    train = CMUDict(str(tmp_path), stress=True).load("train")
    word = "".join(train.texts[0])
    first, second = word.upper()
    right = f"{first} AH0 {second} OW1", f"{first} AH1 {second} OW0", f"{first} IY2"
    assert _of(word, train) == [(each, right) for each in right]


def test_no_word_is_in_two_splits(tmp_path: Path, small: Path) -> None:
    train, validation, test = (set(CMUDict(str(tmp_path)).load(split).texts) for split in SPLITS)  # type: ignore[arg-type]
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)
    assert len(train | validation | test) == 676
    assert set(CMUDict(str(tmp_path), stress=True).load("test").texts) == test


def test_the_dictionary_is_downloaded_once(tmp_path: Path, small: Path) -> None:
    first = CMUDict(str(tmp_path / "data")).load("test")
    shutil.rmtree(small)
    assert CMUDict(str(tmp_path / "data")).load("test") == first
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cmudict.dict"]


def test_other_bytes_are_refused(tmp_path: Path, small: Path) -> None:
    (tmp_path / "cmudict.dict").write_bytes(SMALL + b"zzz Z IY1\n")
    with pytest.raises(InputError, match=rf"^{tmp_path}/cmudict\.dict is not the published file"):
        CMUDict(str(tmp_path)).load("test")


def test_what_somebody_types_is_told_apart_letter_by_letter() -> None:
    assert CMUDict().tokenize(" Don't\n") == ("d", "o", "n", "'", "t")
    assert CMUDict().detokenize(("D", "OW", "N", "T")) == "D OW N T"


@needs_data
def test_the_published_words_are_parted_into_a_tenth_and_a_fiftieth() -> None:
    words = {split: set(_published(split).texts) for split in SPLITS}
    assert words["train"].isdisjoint(words["validation"] | words["test"])
    assert words["validation"].isdisjoint(words["test"])
    total = sum(map(len, words.values()))
    assert total == 126052
    assert len(words["test"]) / total == pytest.approx(0.10, abs=0.004)  # four deviations of sqrt(0.1 * 0.9 / total)
    assert len(words["validation"]) / total == pytest.approx(0.02, abs=0.002)
    assert len(_published("test")) == len(words["test"]), "a word is asked for twice"
    assert len(_published("train")) > len(words["train"])
    assert {letter for text in words["train"] for letter in text} == {*LETTERS, *"'-."}


@needs_data
@pytest.mark.parametrize(
    ("word", "split", "right"),
    [
        ("tomato", "train", ("T AH M EY T OW", "T AH M AA T OW")),
        ("'bout", "train", ("B AW T",)),
        ("read", "test", ("R EH D", "R IY D")),
        ("d'artagnan", "train", ("D AH R T AE NG Y AH N",)),  # with a note in the file
        ("route", "validation", ("R UW T", "R AW T")),
    ],
)
def test_the_published_pronunciations(word: str, split: str, right: tuple[str, ...]) -> None:
    said = [(each, right) for each in (right if split == "train" else right[:1])]
    found = {each: _of(word, _published(each)) for each in SPLITS}
    assert found == {each: said if each == split else [] for each in SPLITS}


@needs_data
def test_the_published_phonemes_are_39() -> None:
    targets = _published("train").targets
    assert targets is not None
    phonemes = {phoneme for target in targets for phoneme in target}
    assert len(phonemes) == 39 and all(phoneme.isalpha() for phoneme in phonemes)
