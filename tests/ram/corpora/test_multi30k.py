"""Multi30k: sentences and how their words were written, from a mirror on this machine, and as published."""

import gzip
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, multi30k
from ram.corpora.multi30k import Multi30k

DATA = Path(__file__).parents[3] / "../shared/data/multi30k"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="there is no multi30k in ../shared/data")

# Every sentence with its words in small letters and how each was written.
TAGGED = [
    ("A man runs.", "a/Aa man/aa runs/aa."),
    ("A man runs", "a/Aa man/aa runs/aa"),
    ("Two young, White males are outside.", "two/Aa young/aa, white/Aa males/aa are/aa outside/aa."),
    ("A kid at McDonald's, in the USA!", "a/Aa kid/aa at/aa mcdonald's/Aa, in/aa the/aa usa/Aa…"),
    ("Why? Because: NO; yes.", "why/Aa… because/Aa… no/Aa… yes/aa."),
    # Of several signs the first counts.
    ('He says "hello," and sits...', "he/Aa says/aa… hello/aa, and/aa sits/aa."),
    ('A "STOP" sign ,.', "a/Aa… stop/Aa… sign/aa,"),
    # Signs before the first word are lost.
    ('"...So", (he) said', "so/Aa… he/aa… said/aa"),
    ("- a well-known iPhone", "a/aa well-known/aa iphone/aa"),
    # What has no small letters is not written with a capital.
    ("5 men on the 3rd floor, No.7", "5/aa men/aa on/aa the/aa 3rd/aa floor/aa, no/Aa. 7/aa"),
    ("École d'Été", "école/Aa d'été/aa"),
]
SMALL = {
    "train": gzip.compress("".join(f"{sentence}\n" for sentence, _ in TAGGED).encode()),
    "validation": gzip.compress(b"A dog.\r\nA cat,\r\n"),
    "test": gzip.compress(b"A cow\n"),
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def _tagged(expected: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words, tags = zip(*(each.split("/") for each in expected.split()), strict=True)
    return words, tags


@pytest.mark.parametrize("number", range(len(TAGGED)))
def test_tags_tell_how_a_word_was_written(number: int, tmp_path: Path, publish: Publish) -> None:
    publish(multi30k, SMALL)
    examples = Multi30k(str(tmp_path), ask="tags").load("train")
    assert examples.targets is not None
    assert (examples.texts[number], examples.targets[number]) == _tagged(TAGGED[number][1])


def test_what_somebody_types_gets_the_words_that_are_tagged() -> None:
    tokenize = Multi30k(ask="tags").tokenize
    assert [tokenize(sentence) for sentence, _ in TAGGED] == [_tagged(expected)[0] for _, expected in TAGGED]


def test_sentences_stand_in_small_letters_with_their_signs(tmp_path: Path, publish: Publish) -> None:
    publish(multi30k, SMALL)
    source = Multi30k(str(tmp_path))
    texts = source.load("train").texts
    assert texts[2] == ("two", "young", ",", "white", "males", "are", "outside", ".")
    assert texts[3] == ("a", "kid", "at", "mcdonald's", ",", "in", "the", "usa", "!")
    assert len(texts) == len(TAGGED)
    assert source.load("validation") == Examples((("a", "dog", "."), ("a", "cat", ",")), None)
    assert source.load("test") == Examples((("a", "cow"),), None)
    assert source.tokenize("Two young, White males") == ("two", "young", ",", "white", "males")


def test_only_what_is_asked_for_is_downloaded_and_only_once(tmp_path: Path, publish: Publish) -> None:
    served, root = publish(multi30k, SMALL), tmp_path / "new" / "data"
    first = Multi30k(str(root)).load("test")
    shutil.rmtree(served)
    assert Multi30k(str(root)).load("test") == first
    assert [path.name for path in root.iterdir()] == ["test_2016_flickr.en.gz"]


def test_other_bytes_are_refused(tmp_path: Path, publish: Publish) -> None:
    publish(multi30k, SMALL)
    (tmp_path / "val.en.gz").write_bytes(gzip.compress(b"A dog.\n"))
    with pytest.raises(InputError, match=f"{tmp_path / 'val.en.gz'} is not the published file"):
        Multi30k(str(tmp_path)).load("validation")


def test_one_asks_for_words_or_tags() -> None:
    with pytest.raises(InputError, match=r"corpus\.ask must be one of words, tags, got 'labels'"):
        Multi30k(ask="labels")  # type: ignore[arg-type]


@needs_data
@pytest.mark.parametrize(
    ("split", "count", "first"),
    [
        ("train", 29000, "two young , white males are outside near many bushes ."),
        ("validation", 1014, "a group of men are loading cotton onto a truck"),
        ("test", 1000, "a man in an orange hat starring at something ."),
    ],
)
def test_the_published_sentences(split: str, count: int, first: str) -> None:
    load = partial(Multi30k(str(DATA)).load, split)
    sentences, tagged = load(), Multi30k(str(DATA), ask="tags").load(split)  # type: ignore[arg-type]
    assert len(sentences) == len(tagged) == count
    assert sentences.texts[0] == tuple(first.split()) and sentences.targets is None
    assert tagged.targets is not None
    assert [len(text) for text in tagged.texts] == [len(tags) for tags in tagged.targets]
    assert all(tagged.texts)
    signs = Counter(word for text in sentences.texts for word in text if not word[0].isalnum())
    words = Counter(word for text in sentences.texts for word in text) - signs
    assert Counter(word for text in tagged.texts for word in text) == words
    tags = Counter(tag for row in tagged.targets for tag in row)
    assert tags.keys() == {how + sign for how in ("Aa", "aa") for sign in ("", ",", ".", "…")}
    assert 0.9 * signs["."] < tags["aa."] + tags["Aa."] <= signs["."]
