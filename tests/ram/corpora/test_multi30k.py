"""Multi30k sentences and word tags, on small files from a local server."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, multi30k
from ram.corpora.multi30k import Multi30k

# sentences, and their lowercased words with tags
TAGGED = [
    ("A man runs.", "a/Aa man/aa runs/aa."),
    ("A man runs", "a/Aa man/aa runs/aa"),
    ("Two young, White males are outside.", "two/Aa young/aa, white/Aa males/aa are/aa outside/aa."),
    ("A kid at McDonald's, in the USA!", "a/Aa kid/aa at/aa mcdonald's/Aa, in/aa the/aa usa/Aa…"),
    ("Why? Because: NO; yes.", "why/Aa… because/Aa… no/Aa… yes/aa."),
    # the first of several punctuation marks counts
    ('He says "hello," and sits...', "he/Aa says/aa… hello/aa, and/aa sits/aa."),
    ('A "STOP" sign ,.', "a/Aa… stop/Aa… sign/aa,"),
    # punctuation before the first word is dropped
    ('"...So", (he) said', "so/Aa… he/aa… said/aa"),
    ("- a well-known iPhone", "a/aa well-known/aa iphone/aa"),
    # digits are not capitalized
    ("5 men on the 3rd floor, No.7", "5/aa men/aa on/aa the/aa 3rd/aa floor/aa, no/Aa. 7/aa"),
    ("École d'Été", "école/Aa d'été/aa"),
]
SMALL = {
    "train.en.gz": gzip.compress("".join(f"{sentence}\n" for sentence, _ in TAGGED).encode()),
    "val.en.gz": gzip.compress(b"A dog.\r\nA cat,\r\n"),
    "test_2016_flickr.en.gz": gzip.compress(b"A cow\n"),
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def _tagged(expected: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words, tags = zip(*(each.split("/") for each in expected.split()), strict=True)
    return words, tags


@pytest.mark.parametrize("number", range(len(TAGGED)))
def test_tags_are_capitalization_and_following_punctuation(
    number: int, tmp_path: Path, publish_by_name: Publish
) -> None:
    publish_by_name(multi30k, SMALL)
    examples = Multi30k(str(tmp_path), targets="tags").load("train")
    assert examples.targets is not None
    assert (examples.texts[number], examples.targets[number]) == _tagged(TAGGED[number][1])


def test_tokenize_returns_the_tagged_words() -> None:
    tokenize = Multi30k(targets="tags").tokenize
    assert [tokenize(sentence) for sentence, _ in TAGGED] == [_tagged(expected)[0] for _, expected in TAGGED]


def test_sentences_are_lowercased_and_keep_punctuation(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k, SMALL)
    corpus = Multi30k(str(tmp_path))
    texts = corpus.load("train").texts
    assert texts[2] == ("two", "young", ",", "white", "males", "are", "outside", ".")
    assert texts[3] == ("a", "kid", "at", "mcdonald's", ",", "in", "the", "usa", "!")
    assert len(texts) == len(TAGGED)
    assert corpus.load("validation") == Examples((("a", "dog", "."), ("a", "cat", ",")), None)
    assert corpus.load("test") == Examples((("a", "cow"),), None)
    assert corpus.tokenize("Two young, White males") == ("two", "young", ",", "white", "males")


def test_only_the_loaded_split_is_downloaded_once(tmp_path: Path, publish_by_name: Publish) -> None:
    served, root = publish_by_name(multi30k, SMALL), tmp_path / "new" / "data"
    first = Multi30k(str(root)).load("test")
    shutil.rmtree(served)
    assert Multi30k(str(root)).load("test") == first
    assert [path.name for path in root.iterdir()] == ["test_2016_flickr.en.gz"]


def test_file_with_another_checksum_is_refused(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k, SMALL)
    (tmp_path / "val.en.gz").write_bytes(gzip.compress(b"A dog.\n"))
    with pytest.raises(InputError, match=f"{tmp_path / 'val.en.gz'} is not the published file"):
        Multi30k(str(tmp_path)).load("validation")


def test_invalid_targets_are_refused() -> None:
    with pytest.raises(InputError, match=r"corpus\.targets must be null or tags, got 'labels'"):
        Multi30k(targets="labels")  # type: ignore[arg-type]
