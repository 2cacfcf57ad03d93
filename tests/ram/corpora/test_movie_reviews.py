"""MR: ten folds, on small files from a mirror on this machine, and on the published ones."""

import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, movie_reviews
from ram.corpora.movie_reviews import MovieReviews

SENTIMENT = Path(__file__).parents[3] / "../shared/data/sentiment"
needs_data = pytest.mark.skipif(not SENTIMENT.is_dir(), reason="there is no sentiment in ../shared/data")

SPLITS = ("train", "validation", "test")
SMALL = {
    "negative": b"".join(b"dull caf\xe9 , negative%d .\n" % number for number in range(50)),
    "positive": b"".join(b"fine film , positive%d .\n" % number for number in range(50)),
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def _pairs(examples: Examples) -> Counter:
    return Counter(zip(examples.texts, examples.targets, strict=True))


def test_downloads_once(tmp_path: Path, publish: Publish) -> None:
    served, root = publish(movie_reviews, SMALL), tmp_path / "new" / "data"
    first = MovieReviews(str(root)).load("test")
    shutil.rmtree(served)
    assert MovieReviews(str(root)).load("test") == first
    assert sorted(path.name for path in root.iterdir()) == ["rt-polarity.neg", "rt-polarity.pos"]


def test_the_words_stand_as_they_were_published(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    texts = MovieReviews(str(tmp_path)).load("test").texts
    assert {text[:3] for text in texts} == {("dull", "café", ","), ("fine", "film", ",")}
    assert all(len(text) == 5 for text in texts)


def test_every_label_has_its_texts(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    for split in SPLITS:
        examples = MovieReviews(str(tmp_path)).load(split)
        assert all(text[3].startswith(label) for text, label in zip(examples.texts, examples.targets, strict=True))


def test_ten_folds_part_either_class_evenly(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    tests = [MovieReviews(str(tmp_path), fold).load("test") for fold in range(10)]
    assert all(Counter(test.targets) == {"positive": 5, "negative": 5} for test in tests)
    assert len({text for test in tests for text in test.texts}) == 100, "the folds overlap"


@pytest.mark.parametrize("fold", [0, 4, 9])
def test_the_splits_of_a_fold_are_disjoint_and_complete(fold: int, tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    parts = [MovieReviews(str(tmp_path), fold, validation_share=0.4).load(split) for split in SPLITS]
    assert [Counter(part.targets) for part in parts] == [
        {"positive": 27, "negative": 27},
        {"positive": 18, "negative": 18},
        {"positive": 5, "negative": 5},
    ]
    assert len({text for part in parts for text in part.texts}) == 100


def test_the_folds_are_no_stretches_of_the_files(tmp_path: Path, publish: Publish) -> None:
    """The files are sorted by film or author in places: a fold is drawn from everywhere."""
    publish(movie_reviews, SMALL)
    texts = MovieReviews(str(tmp_path)).load("test").texts
    for kind in ("positive", "negative"):
        numbers = sorted(int(text[3].removeprefix(kind)) for text in texts if text[3].startswith(kind))
        assert len({second - first for first, second in pairwise(numbers)}) > 1
        assert numbers[-1] - numbers[0] > 20


def test_other_bytes_are_refused(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    (tmp_path / "rt-polarity.pos").write_bytes(SMALL["positive"] + b"one more\n")
    with pytest.raises(InputError, match=f"{tmp_path / 'rt-polarity.pos'} is not the published file"):
        MovieReviews(str(tmp_path)).load("train")


@pytest.mark.parametrize("fold", [-1, 10])
def test_there_are_ten_folds(fold: int) -> None:
    with pytest.raises(InputError, match=rf"corpus\.fold must be in 0 \.\. 9, got {fold}"):
        MovieReviews(fold=fold)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_the_share_is_checked_on_construction(share: float) -> None:
    with pytest.raises(InputError, match=r"corpus\.validation_share"):
        MovieReviews(validation_share=share)


def test_what_somebody_types_is_told_apart_as_the_reviews_are() -> None:
    typed = 'A well-acted "coming-of-age" film , isn\'t it?'
    words = ("a", "well-acted", '"', "coming-of-age", '"', "film", ",", "isn't", "it", "?")
    assert MovieReviews().tokenize(typed) == words


# The published files.


@cache
def _published() -> Counter:
    """Every sentence with its label, read here in another way."""
    return Counter(
        (tuple(line.split()), label)
        for label, suffix in [("positive", "pos"), ("negative", "neg")]
        for line in (SENTIMENT / f"rt-polarity.{suffix}").read_bytes().decode("cp1252").split("\n")
        if line
    )


@needs_data
def test_ten_folds_of_the_published_reviews() -> None:
    assert _published().total() == 10662
    tests = [MovieReviews(str(SENTIMENT), fold).load("test") for fold in range(10)]
    assert sum(map(_pairs, tests), Counter()) == _published()
    sizes = [Counter(test.targets) for test in tests]
    assert all(size["positive"] == size["negative"] in (533, 534) for size in sizes)
    assert sum(size["positive"] for size in sizes) == 5331


@needs_data
@pytest.mark.parametrize("fold", [0, 7])
def test_the_splits_of_a_fold_of_the_published_reviews(fold: int) -> None:
    parts = [_pairs(MovieReviews(str(SENTIMENT), fold).load(split)) for split in SPLITS]
    assert sum(parts, Counter()) == _published()
    labels = [Counter(label for _, label in part.elements()) for part in parts]
    assert all(count["positive"] == count["negative"] for count in labels)
    assert labels[1]["positive"] == 480  # a tenth of 5331 - 534 or 5331 - 533
    assert parts[0].keys().isdisjoint(parts[1]) and parts[2].keys().isdisjoint(parts[0] | parts[1])


@needs_data
def test_sentences_of_the_published_reviews() -> None:
    every = sum((_pairs(MovieReviews(str(SENTIMENT)).load(split)) for split in SPLITS), Counter())
    assert every[("simplistic", ",", "silly", "and", "tedious", "."), "negative"] == 1
    start = "the rock is destined to be the 21st century's new \" conan \" and that he's going"
    assert [label for text, label in every if " ".join(text).startswith(start)] == ["positive"]
