"""Inflection letter by letter, on small files from a mirror on this machine, and as published."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, inflection
from ram.corpora.inflection import Inflection

DATA = Path(__file__).parents[3] / "../shared/data/inflection"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="there is no inflection in ../shared/data")

SMALL = {
    "german-train-high": "abbauen\tbaute ab\tV;IND;PST;1;SG\nHahn\tHähne\tN;NOM;PL\n\n".encode(),
    "german-dev": b"sehen\tsah\tV;IND;PST;3;SG\r\n",
    "german-test": "zu Fuß\tzu Fuß\tN;ACC;SG\n".encode(),
    "spanish-dev": b"ir\tno vayan\tV;NEG;IMP;3;PL\n",
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def test_the_tags_and_the_letters_become_letters(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    source = Inflection(str(tmp_path))
    assert source.load("train") == Examples(
        (("<V>", "<IND>", "<PST>", "<1>", "<SG>", *"abbauen"), ("<N>", "<NOM>", "<PL>", *"Hahn")),
        (tuple("baute␣ab"), tuple("Hähne")),
        (("baute ab",), ("Hähne",)),
    )
    assert source.load("validation").targets == (("s", "a", "h"),)
    assert source.load("test").texts == (("<N>", "<ACC>", "<SG>", *"zu␣Fuß"),)
    assert Inflection(str(tmp_path), "spanish").load("validation").references == (("no vayan",),)


def test_what_somebody_types_is_read_as_the_files_are(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    source = Inflection(str(tmp_path))
    assert source.tokenize(" abbauen V;IND;PST;1;SG\n") == source.load("train").texts[0]
    assert source.tokenize("abbauen\tV;IND;PST;1;SG") == source.load("train").texts[0]
    assert source.tokenize("zu Fuß N;ACC;SG") == source.load("test").texts[0]


def test_what_is_said_is_written_as_words(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    train = Inflection(str(tmp_path)).load("train")
    assert train.targets is not None and train.references is not None
    written = [Inflection().detokenize(target) for target in train.targets]
    assert written == ["baute ab", "Hähne"] == [reference for (reference,) in train.references]


def test_only_what_is_asked_for_is_downloaded_and_only_once(tmp_path: Path, publish_by_name: Publish) -> None:
    served, root = publish_by_name(inflection, SMALL), tmp_path / "new" / "data"
    first = Inflection(str(root)).load("validation")
    shutil.rmtree(served)
    assert Inflection(str(root)).load("validation") == first
    assert [path.name for path in root.iterdir()] == ["german-dev"]


def test_other_bytes_are_refused(tmp_path: Path, publish_by_name: Publish) -> None:
    publish_by_name(inflection, SMALL)
    (tmp_path / "german-dev").write_bytes(b"sehen\tsieht\tV;IND;PRS;3;SG\n")
    with pytest.raises(InputError, match=f"^{tmp_path / 'german-dev'} is not the published file"):
        Inflection(str(tmp_path)).load("validation")


def test_the_language_is_checked_on_construction() -> None:
    with pytest.raises(InputError, match=r"^corpus\.language must be one of english, german, spanish, got 'latin'\.$"):
        Inflection(language="latin")  # type: ignore[arg-type]


def test_a_word_without_tags_is_refused() -> None:
    with pytest.raises(InputError, match=r"^'abbauen' does not say which form is asked for: write such as 'abbauen V;"):
        Inflection().tokenize(" abbauen\n")
    assert Inflection().tokenize("\n") == ()


@needs_data
@pytest.mark.parametrize(
    ("language", "lemma", "form", "tags"),
    [
        ("german", "zunehmen", "nahmst zu", "V;IND;PST;2;SG"),
        ("english", "deoptimize", "deoptimized", "V;PST"),
        ("spanish", "viralizar", "no viralice", "V;NEG;IMP;3;SG"),
    ],
)
def test_the_published_words(language: str, lemma: str, form: str, tags: str) -> None:
    source = Inflection(str(DATA), language)  # type: ignore[arg-type]
    parts = [source.load(split) for split in ("train", "validation", "test")]  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [10000, 1000, 1000]
    test = parts[2]
    assert test.targets is not None and test.references is not None
    assert test.texts[0] == (*(f"<{tag}>" for tag in tags.split(";")), *lemma)
    assert (test.targets[0], test.references[0]) == (tuple(form.replace(" ", "␣")), (form,))
    assert [source.detokenize(target) for target in test.targets] == [right for (right,) in test.references]
    assert set(parts[0].texts).isdisjoint(test.texts)
