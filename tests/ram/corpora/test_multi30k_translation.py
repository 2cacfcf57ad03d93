"""Multi30k sentence pairs, on small files from a local server."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, multi30k
from ram.corpora.multi30k import Multi30kTranslation

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


def test_pairs_are_lowercased_and_the_target_line_is_the_reference(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k, SMALL)
    corpus = Multi30kTranslation(str(tmp_path))
    assert corpus.load("train") == Examples(
        (("ein", "hund", "rennt", "."), ("zwei", "müde", "katzen")),
        (("a", "dog", "runs", "."), ("two", "tired", "cats")),
        (("a dog runs.",), ("two tired cats",)),
    )
    assert corpus.load("validation").texts == (("ein", "mann", "."),)
    assert corpus.load("test").targets == (("a", "cow"),)


def test_source_target_and_test_set_are_options(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k, SMALL)
    examples = Multi30kTranslation(str(tmp_path), "en", "fr").load("validation")
    assert examples == Examples((("a", "man", "."),), (("un", "homme", "."),), (("un homme.",),))
    examples = Multi30kTranslation(str(tmp_path), "cs", "en", "test_2018_flickr").load("test")
    assert examples == Examples((("kráva",),), (("one", "cow"),), (("one cow",),))


def test_only_the_loaded_split_is_downloaded_once(tmp_path: Path, publish_by_name: Publish) -> None:
    served, root = publish_by_name(multi30k, SMALL), tmp_path / "new" / "data"
    first = Multi30kTranslation(str(root)).load("test")
    shutil.rmtree(served)
    assert Multi30kTranslation(str(root)).load("test") == first
    assert sorted(path.name for path in root.iterdir()) == ["test_2016_flickr.de.gz", "test_2016_flickr.en.gz"]


@pytest.mark.parametrize("name", ["val.de.gz", "val.en.gz"])
def test_file_with_another_checksum_is_refused(name: str, tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(multi30k, SMALL)
    (tmp_path / name).write_bytes(gzip.compress(b"A dog.\n"))
    with pytest.raises(InputError, match=f"^{tmp_path / name} is not the published file"):
        Multi30kTranslation(str(tmp_path)).load("validation")


def test_tokenize_and_detokenize() -> None:
    assert Multi30kTranslation().tokenize("Zwei Hunde, müde.") == ("zwei", "hunde", ",", "müde", ".")
    assert Multi30kTranslation().detokenize(("two", "dogs", ",", "tired", ".")) == "two dogs, tired."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "it"}, r"^corpus\.source must be one of en, de, fr, cs, got 'it'\.$"),
        ({"target": "English"}, r"^corpus\.target must be one of en, de, fr, cs, got 'English'\.$"),
        ({"test": "val"}, r"^corpus\.test must be one of test_2016_flickr, test_2017_flickr, .*, got 'val'\.$"),
        ({"source": "en"}, r"^corpus\.source and corpus\.target are both en: choose two languages\.$"),
        (
            {"source": "cs", "test": "test_2017_flickr"},
            r"^corpus\.test=test_2017_flickr has no sentences in corpus\.source=cs: choose another\.$",
        ),
        (
            {"target": "cs", "test": "test_2017_mscoco"},
            r"^corpus\.test=test_2017_mscoco has no sentences in corpus\.target=cs: choose another\.$",
        ),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Multi30kTranslation(**options)  # type: ignore[arg-type]
