"""Multi30k in pairs of languages, on small files from a mirror on this machine, and as published."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, multi30k_translation
from ram.corpora.multi30k_translation import Multi30kTranslation

DATA = Path(__file__).parents[3] / "../shared/data/multi30k"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="there is no multi30k in ../shared/data")

SMALL = {
    name: gzip.compress(text.encode())
    for name, text in {
        "train.de.gz": "Ein Hund rennt.\nZwei müde Katzen\n",
        "train.en.gz": "A dog runs.\nTwo tired cats\n",
        "val.de.gz": "Ein Mann.\n",
        "val.en.gz": "A man.\n",
        "val.fr.gz": "Un homme.\n",
        "test_2016_flickr.de.gz": "Eine Kuh\n",
        "test_2016_flickr.en.gz": "A cow\n",
        "test_2016_flickr.fr.gz": "Une vache\n",
        "test_2018_flickr.cs.gz": "Kráva\n",
        "test_2018_flickr.en.gz": "One cow\n",
    }.items()
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def test_pairs_in_small_letters_with_the_sentence_as_the_reference(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k_translation, SMALL)
    source = Multi30kTranslation(str(tmp_path))
    assert source.load("train") == Examples(
        (("ein", "hund", "rennt", "."), ("zwei", "müde", "katzen")),
        (("a", "dog", "runs", "."), ("two", "tired", "cats")),
        (("a dog runs.",), ("two tired cats",)),
    )
    assert source.load("validation").texts == (("ein", "mann", "."),)
    assert source.load("test").targets == (("a", "cow"),)


def test_source_target_and_test_set_are_chosen(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k_translation, SMALL)
    examples = Multi30kTranslation(str(tmp_path), "en", "fr").load("validation")
    assert examples == Examples((("a", "man", "."),), (("un", "homme", "."),), (("un homme.",),))
    examples = Multi30kTranslation(str(tmp_path), "cs", "en", "test_2018_flickr").load("test")
    assert examples == Examples((("kráva",),), (("one", "cow"),), (("one cow",),))


def test_only_what_is_asked_for_is_downloaded_and_only_once(tmp_path: Path, publish_by_name: Publish) -> None:
    served, root = publish_by_name(multi30k_translation, SMALL), tmp_path / "new" / "data"
    first = Multi30kTranslation(str(root)).load("test")
    shutil.rmtree(served)
    assert Multi30kTranslation(str(root)).load("test") == first
    assert sorted(path.name for path in root.iterdir()) == ["test_2016_flickr.de.gz", "test_2016_flickr.en.gz"]


@pytest.mark.parametrize("name", ["val.de.gz", "val.en.gz"])
def test_other_bytes_are_refused(name: str, tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k_translation, SMALL)
    (tmp_path / name).write_bytes(gzip.compress(b"A dog.\n"))
    with pytest.raises(InputError, match=f"^{tmp_path / name} is not the published file"):
        Multi30kTranslation(str(tmp_path)).load("validation")


def test_what_somebody_types_and_what_is_written() -> None:
    assert Multi30kTranslation().tokenize("Zwei Hunde, müde.") == ("zwei", "hunde", ",", "müde", ".")
    assert Multi30kTranslation().detokenize(("two", "dogs", ",", "tired", ".")) == "two dogs, tired."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"source": "it"}, r"^corpus\.source must be one of en, de, fr, cs, got 'it'\.$"),
        ({"target": "English"}, r"^corpus\.target must be one of en, de, fr, cs, got 'English'\.$"),
        ({"test": "val"}, r"^corpus\.test must be one of test_2016_flickr, test_2017_flickr, .*, got 'val'\.$"),
        ({"source": "en"}, r"^corpus\.source and corpus\.target are both en: nothing is to be translated\.$"),
        (
            {"source": "cs", "test": "test_2017_flickr"},
            r"^corpus\.test=test_2017_flickr has no sentences in corpus\.source=cs: take another\.$",
        ),
        (
            {"target": "cs", "test": "test_2017_mscoco"},
            r"^corpus\.test=test_2017_mscoco has no sentences in corpus\.target=cs: take another\.$",
        ),
    ],
)
def test_wrong_options_are_refused_on_construction(options: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Multi30kTranslation(**options)  # type: ignore[arg-type]


@needs_data
@pytest.mark.parametrize(
    ("split", "count", "text", "target"),
    [
        ("train", 29000, "zwei junge weiße männer sind im freien", "two young, white males are outside near many bu"),
        (
            "validation",
            1014,
            "eine gruppe von männern lädt baumwolle",
            "a group of men are loading cotton",
        ),
        ("test", 1000, "ein mann mit einem orangefarbenen hut", "a man in an orange hat starring at something."),
    ],
)
def test_the_published_pairs(split: str, count: int, text: str, target: str) -> None:
    examples = Multi30kTranslation(str(DATA)).load(split)  # type: ignore[arg-type]
    assert len(examples) == count
    assert examples.targets is not None and examples.references is not None
    assert " ".join(examples.texts[0]).startswith(text)
    assert examples.references[0][0].startswith(target)
    assert examples.targets[0][0] == target.split()[0]
    assert all(examples.texts) and all(examples.targets)


@needs_data
@pytest.mark.parametrize(
    ("source", "target", "test", "count", "first", "reference"),
    [
        ("cs", "fr", "test_2016_flickr", 1000, "muž", "un homme avec un chapeau orange regardant quelque chose."),
        ("en", "de", "test_2017_flickr", 1000, "a", "ein schlanker gelblicher hund beim absolvieren"),
        ("fr", "en", "test_2017_mscoco", 461, "je", "i cannot see where the green arrow is pointing."),
        ("de", "cs", "test_2018_flickr", 1071, "ein", "mladý muž se účastní závodu"),
    ],
)
def test_the_published_test_sets(source: str, target: str, test: str, count: int, first: str, reference: str) -> None:
    examples = Multi30kTranslation(str(DATA), source, target, test).load("test")  # type: ignore[arg-type]
    assert len(examples) == count and examples.references is not None
    assert examples.texts[0][0] == first
    assert examples.references[0][0].startswith(reference)
