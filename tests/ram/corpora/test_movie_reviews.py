"""Film reviews in ten folds, on small files from a local server."""

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, movie_reviews
from ram.corpora.movie_reviews import MovieReviews

SPLITS = ("train", "validation", "test")
SMALL = {
    "negative": b"".join(b"dull caf\xe9 , negative%d .\n" % number for number in range(50)),
    "positive": b"".join(b"fine film , positive%d .\n" % number for number in range(50)),
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def _pairs(examples: Examples) -> Counter:
    return Counter(zip(examples.texts, examples.targets, strict=True))


def test_files_are_downloaded_once(tmp_path: Path, publish: Publish) -> None:
    served, root = publish(movie_reviews, SMALL), tmp_path / "new" / "data"
    first = MovieReviews(str(root)).load("test")
    shutil.rmtree(served)
    assert MovieReviews(str(root)).load("test") == first
    assert sorted(path.name for path in root.iterdir()) == ["rt-polarity.neg", "rt-polarity.pos"]


def test_texts_are_the_published_tokens(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    texts = MovieReviews(str(tmp_path)).load("test").texts
    assert {text[:3] for text in texts} == {("dull", "café", ","), ("fine", "film", ",")}
    assert all(len(text) == 5 for text in texts)


def test_labels_match_the_files(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    for split in SPLITS:
        examples = MovieReviews(str(tmp_path)).load(split)
        assert all(text[3].startswith(label) for text, label in zip(examples.texts, examples.targets, strict=True))


def test_ten_folds_partition_each_class_evenly(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    tests = [MovieReviews(str(tmp_path), fold).load("test") for fold in range(10)]
    assert all(Counter(test.targets) == {"positive": 5, "negative": 5} for test in tests)
    assert len({text for test in tests for text in test.texts}) == 100, "the folds overlap"


@pytest.mark.parametrize("fold", [0, 4, 9])
def test_splits_of_a_fold_are_disjoint_and_complete(fold: int, tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    parts = [MovieReviews(str(tmp_path), fold, validation_share=0.4).load(split) for split in SPLITS]
    assert [Counter(part.targets) for part in parts] == [
        {"positive": 27, "negative": 27},
        {"positive": 18, "negative": 18},
        {"positive": 5, "negative": 5},
    ]
    assert len({text for part in parts for text in part.texts}) == 100


def test_folds_are_spread_over_the_files(tmp_path: Path, publish: Publish) -> None:
    """Parts of the files are sorted by film or author."""
    publish(movie_reviews, SMALL)
    texts = MovieReviews(str(tmp_path)).load("test").texts
    for kind in ("positive", "negative"):
        numbers = sorted(int(text[3].removeprefix(kind)) for text in texts if text[3].startswith(kind))
        assert len({second - first for first, second in pairwise(numbers)}) > 1
        assert numbers[-1] - numbers[0] > 20


def test_file_with_another_checksum_is_refused(tmp_path: Path, publish: Publish) -> None:
    publish(movie_reviews, SMALL)
    (tmp_path / "rt-polarity.pos").write_bytes(SMALL["positive"] + b"one more\n")
    with pytest.raises(InputError, match=f"{tmp_path / 'rt-polarity.pos'} is not the published file"):
        MovieReviews(str(tmp_path)).load("train")


@pytest.mark.parametrize("fold", [-1, 10])
def test_invalid_fold_is_refused(fold: int) -> None:
    with pytest.raises(InputError, match=rf"corpus\.fold must be in 0 \.\. 9, got {fold}"):
        MovieReviews(fold=fold)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_invalid_share_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=r"corpus\.validation_share"):
        MovieReviews(validation_share=share)


def test_tokenize_matches_the_published_tokens() -> None:
    typed = 'A well-acted "coming-of-age" film , isn\'t it?'
    words = ("a", "well-acted", '"', "coming-of-age", '"', "film", ",", "isn't", "it", "?")
    assert MovieReviews().tokenize(typed) == words
