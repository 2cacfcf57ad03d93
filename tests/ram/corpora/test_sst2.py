"""SST-2, on small files from a mirror on this machine, and on the published ones."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, sst2
from ram.corpora.sst2 import SST2

SENTIMENT = Path(__file__).parents[3] / "../shared/data/sentiment"
needs_data = pytest.mark.skipif(not SENTIMENT.is_dir(), reason="there is no sentiment in ../shared/data")

SMALL = {
    "train": "1 a fine , fine film .\n0 it does n't work\n1 crème brûlée\n".encode(),
    "validation": b"0 0 of 10\n",
    "test": b"1 1 of 1\n0 dull\n",
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def test_the_label_is_the_first_sign(tmp_path: Path, publish: Publish) -> None:
    publish(sst2, SMALL)
    source = SST2(str(tmp_path))
    assert source.load("train") == Examples(
        (("a", "fine", ",", "fine", "film", "."), ("it", "does", "n't", "work"), ("crème", "brûlée")),
        ("positive", "negative", "positive"),
    )
    assert source.load("validation") == Examples((("0", "of", "10"),), ("negative",))
    assert source.load("test") == Examples((("1", "of", "1"), ("dull",)), ("positive", "negative"))


def test_only_what_is_asked_for_is_downloaded_and_only_once(tmp_path: Path, publish: Publish) -> None:
    served, root = publish(sst2, SMALL), tmp_path / "new" / "data"
    first = SST2(str(root)).load("validation")
    shutil.rmtree(served)
    assert SST2(str(root)).load("validation") == first
    assert [path.name for path in root.iterdir()] == ["stsa.binary.dev"]


def test_other_bytes_are_refused(tmp_path: Path, publish: Publish) -> None:
    publish(sst2, SMALL)
    (tmp_path / "stsa.binary.test").write_bytes(b"1 fine\n")
    with pytest.raises(InputError, match=f"{tmp_path / 'stsa.binary.test'} is not the published file"):
        SST2(str(tmp_path)).load("test")


def test_what_somebody_types_is_told_apart_as_the_reviews_are() -> None:
    typed = "It's heavy-handed, isn't it?"
    assert SST2().tokenize(typed) == ("it", "'s", "heavy-handed", ",", "is", "n't", "it", "?")


@needs_data
@pytest.mark.parametrize(
    ("split", "positive", "negative", "first", "label"),
    [
        ("train", 3610, 3310, "a stirring , funny and finally transporting re-imagining of beauty", "positive"),
        ("validation", 444, 428, "one long string of cliches .", "negative"),
        ("test", 909, 912, "no movement , no yuks , not much of anything .", "negative"),
    ],
)
def test_the_published_reviews(split: str, positive: int, negative: int, first: str, label: str) -> None:
    examples = SST2(str(SENTIMENT)).load(split)  # type: ignore[arg-type]
    assert Counter(examples.targets) == {"positive": positive, "negative": negative}
    words = tuple(first.split())
    assert (examples.texts[0][: len(words)], examples.targets[0]) == (words, label)
    assert all(examples.texts)
