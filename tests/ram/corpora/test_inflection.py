"""Morphological inflection, on small files from a local server."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, inflection
from ram.corpora.inflection import Inflection

SMALL = {
    "german-train-high": "abbauen\tbaute ab\tV;IND;PST;1;SG\nHahn\tHähne\tN;NOM;PL\n\n".encode(),
    "german-dev": b"sehen\tsah\tV;IND;PST;3;SG\r\n",
    "german-test": "zu Fuß\tzu Fuß\tN;ACC;SG\n".encode(),
    "spanish-dev": b"ir\tno vayan\tV;NEG;IMP;3;PL\n",
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def test_texts_are_tags_and_characters(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    corpus = Inflection(str(tmp_path))
    assert corpus.load("train") == Examples(
        (("<V>", "<IND>", "<PST>", "<1>", "<SG>", *"abbauen"), ("<N>", "<NOM>", "<PL>", *"Hahn")),
        (tuple("baute␣ab"), tuple("Hähne")),
        (("baute ab",), ("Hähne",)),
    )
    assert corpus.load("validation").targets == (("s", "a", "h"),)
    assert corpus.load("test").texts == (("<N>", "<ACC>", "<SG>", *"zu␣Fuß"),)
    assert Inflection(str(tmp_path), "spanish").load("validation").references == (("no vayan",),)


def test_tokenize_matches_the_file_format(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    corpus = Inflection(str(tmp_path))
    assert corpus.tokenize(" abbauen V;IND;PST;1;SG\n") == corpus.load("train").texts[0]
    assert corpus.tokenize("abbauen\tV;IND;PST;1;SG") == corpus.load("train").texts[0]
    assert corpus.tokenize("zu Fuß N;ACC;SG") == corpus.load("test").texts[0]


def test_detokenize_restores_the_written_form(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    train = Inflection(str(tmp_path)).load("train")
    assert train.targets is not None and train.references is not None
    written = [Inflection().detokenize(target) for target in train.targets]
    assert written == ["baute ab", "Hähne"] == [reference for (reference,) in train.references]


def test_only_the_loaded_split_is_downloaded_once(tmp_path: Path, publish_by_name: Publish) -> None:
    served, root = publish_by_name(inflection, SMALL), tmp_path / "new" / "data"
    first = Inflection(str(root)).load("validation")
    shutil.rmtree(served)
    assert Inflection(str(root)).load("validation") == first
    assert [path.name for path in root.iterdir()] == ["german-dev"]


def test_file_with_another_checksum_is_refused(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    (tmp_path / "german-dev").write_bytes(b"sehen\tsieht\tV;IND;PRS;3;SG\n")
    with pytest.raises(InputError, match=f"^{tmp_path / 'german-dev'} is not the published file"):
        Inflection(str(tmp_path)).load("validation")


def test_any_language_is_read_from_its_files(tmp_path: Path) -> None:
    corpus = Inflection(str(tmp_path), "finnish")
    with pytest.raises(InputError, match=r"finnish-train-high cannot be read"):
        corpus.load("train")
    (tmp_path / "finnish-train-high").write_text("talo\ttalossa\tN;IN+ESS;SG\n", encoding="utf-8")
    examples = corpus.load("train")
    assert examples.texts == (("<N>", "<IN+ESS>", "<SG>", *"talo"),) and examples.references == (("talossa",),)
    (tmp_path / "finnish-dev").write_text("talo talossa\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"finnish-dev, line 1: expected lemma, form and tags"):
        corpus.load("validation")


def test_missing_tags_are_refused() -> None:
    with pytest.raises(InputError, match=r"^'abbauen' lacks a lemma or its tags: write both, such as 'abbauen V;"):
        Inflection().tokenize(" abbauen\n")
    assert Inflection().tokenize("\n") == ()
