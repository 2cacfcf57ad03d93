"""Examples, the common way to tell words, and what holds of every source."""

import builtins
import importlib
import io
import os
import socket
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.corpora import Corpus, Examples, detokenize, tokenize

EMBEDDED = ["arithmetic", "latin", "names", "negation", "reversal"]
READ = [
    "cmudict",
    "inflection",
    "labelled_file",
    "movie_reviews",
    "multi30k",
    "multi30k_translation",
    "parallel_files",
    "sst2",
]
LETTERS = ["cmudict", "inflection", "reversal"]  # whose words are letters
FILES = {"labelled_file": {"path": "reviews.tsv"}, "parallel_files": {"source": "a.de", "target": "a.en"}}


def _source(name: str) -> Corpus:
    module = importlib.import_module(f"ram.corpora.{name}")
    (corpus,) = (
        each
        for each in vars(module).values()
        if getattr(each, "__module__", "") == module.__name__ and hasattr(each, "load")
    )
    return corpus(**FILES.get(name, {}))


class Touched(AssertionError):
    """Somebody went to the disk or the network."""


def _touch(*_: Any, **__: Any) -> None:
    raise Touched


@pytest.mark.parametrize("name", EMBEDDED + READ)
def test_building_a_source_touches_neither_disk_nor_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _source(name)  # imports what it needs
    with monkeypatch.context() as patch:
        for owner, function in [
            *[(builtins, "open"), (io, "open"), (socket, "socket")],
            *[(os, function) for function in ("open", "stat", "lstat", "mkdir", "listdir", "scandir")],
        ]:
            patch.setattr(owner, function, _touch)
        source = _source(name)
        if name in EMBEDDED:
            source.load("train")
        else:
            with pytest.raises(Touched):
                source.load("train")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EMBEDDED + READ)
def test_unknown_splits_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="split must be one of train, validation, test, got 'dev'"):
        _source(name).load("dev")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in EMBEDDED + READ if name not in LETTERS])
def test_what_somebody_types_is_told_apart_into_words(name: str) -> None:
    assert _source(name).tokenize("  Two\tplus THREE\n") == ("two", "plus", "three")


@pytest.mark.parametrize("name", ["cmudict", "reversal"])
def test_what_somebody_types_is_told_apart_into_letters(name: str) -> None:
    assert _source(name).tokenize(" \tAbc\n") == ("a", "b", "c")


# Examples.

TEXTS = (("a",), ("b", "c"), ("d",))


def test_the_length_is_the_number_of_texts() -> None:
    assert len(Examples(TEXTS)) == 3


def test_no_texts_are_refused() -> None:
    with pytest.raises(InputError, match="There are no texts"):
        Examples(())


def test_a_text_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="Text 1 of a corpus has no words"):
        Examples((("a",), ()))


@pytest.mark.parametrize("targets", [(), ("x", "y"), ("x", "y", "x", "y"), (("x",), ("y", "y"))])
def test_one_target_a_text(targets: tuple) -> None:
    with pytest.raises(InputError, match=f"There are 3 texts, but {len(targets)} targets"):
        Examples(TEXTS, targets)


@pytest.mark.parametrize("name", ["references", "alignments"])
@pytest.mark.parametrize("count", [0, 2, 4])
def test_references_and_alignments_are_as_many_as_texts(name: str, count: int) -> None:
    values: dict[str, Any] = {"references": ("one right",), "alignments": (0, -1)}
    with pytest.raises(InputError, match=f"^There are 3 texts, but {count} {name}\\.$"):
        Examples(TEXTS, **{name: (values[name],) * count})


@pytest.mark.parametrize("targets", [("x", "y", "z"), (("x",), ("y", "Y"), ("z",))])
def test_the_chosen_are_in_their_order_with_their_targets(targets: tuple) -> None:
    chosen = Examples(TEXTS, targets).choose([2, 0, 2])
    assert chosen == Examples((("d",), ("a",), ("d",)), (targets[2], targets[0], targets[2]))


def test_texts_without_targets_are_chosen_without_any() -> None:
    assert Examples(TEXTS).choose([1]) == Examples((("b", "c"),), None)


def test_the_chosen_keep_their_references_and_alignments() -> None:
    targets, references = (("x",), ("y", "Y"), ("z",)), (("X", "x"), ("yY",), ("Z",))
    alignments = ((0,), (1, 0), (-1,))
    chosen = Examples(TEXTS, targets, references, alignments).choose([1, 2])
    assert chosen == Examples((("b", "c"), ("d",)), (("y", "Y"), ("z",)), (("yY",), ("Z",)), ((1, 0), (-1,)))
    assert Examples(TEXTS, targets, references).choose([0]).alignments is None
    assert Examples(TEXTS, targets, alignments=alignments).choose([0]).references is None


# Words.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", ["the", "cat", "sat", "."]),
        ("Don't stop, it's late!", ["don't", "stop", ",", "it's", "late", "!"]),
        ("It\u2019s", ["it's"]),
        ("Cafe\u0301 x\u0302y", ["caf\u00e9", "x\u0302y"]),
        ("rock'n'roll", ["rock'n'roll"]),
        ("the dogs' bowl", ["the", "dogs", "'", "bowl"]),
        ("'tis 'so'", ["'", "tis", "'", "so", "'"]),
        ("a well-known (old) film", ["a", "well-known", "(", "old", ")", "film"]),
        ("No... 3.50 €?!", ["no", ".", ".", ".", "3.50", "€", "?", "!"]),
        ("At 10:30, 1,000 of 3.5km.", ["at", "10:30", ",", "1,000", "of", "3.5km", "."]),
        ("no.1 a.b 5. 6", ["no", ".", "1", "a", ".", "b", "5", ".", "6"]),
        ("Café NAÏVE Straße", ["café", "naïve", "straße"]),
        (" a\tb\u00a0c\r\n", ["a", "b", "c"]),
        (" \t\n", []),
        ("", []),
    ],
)
def test_words_keep_their_apostrophes_and_signs_stand_alone(text: str, words: list[str]) -> None:
    assert tokenize(text) == tuple(words)


def test_capital_letters_are_kept_on_request() -> None:
    assert tokenize("The USA's best.", lower=False) == ("The", "USA's", "best", ".")


@settings(deadline=None)
@given(st.text(st.sampled_from("aBé1_'\u2019.,-€ \t\n")) | st.text())
def test_nothing_but_the_space_is_lost(text: str) -> None:
    words = tokenize(text, lower=False)
    one_way = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    assert "".join(words) == "".join(sign for sign in one_way if not sign.isspace())
    assert all(words)


# Sentences, written.


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("the cat sat .", "the cat sat."),
        ("no , stop ! why ? yes ; or : it …", "no, stop! why? yes; or: it…"),
        ("a ( small ) dog [ or { cat } ] .", "a (small) dog [or {cat}]."),
        ("( ( a ) ) .", "((a))."),
        ("50 % of them", "50% of them"),
        ('he says " hello " , twice', 'he says "hello", twice'),
        ('" a b " and " c " .', '"a b" and "c".'),
        ('5 " and more', '5 " and more'),
        ("well-known dogs ' bowl - don't", "well-known dogs ' bowl - don't"),
        ("3 . 50 €", "3. 50 €"),
        ("word", "word"),
        ("", ""),
    ],
)
def test_words_and_signs_are_written_as_usual(words: str, written: str) -> None:
    assert detokenize(words.split()) == written


@settings(deadline=None)
@given(st.text(st.sampled_from("aBé1_'\u2019.,;:!?()[]{}%…\"-€ \n")) | st.text())
def test_what_is_written_is_told_apart_into_the_same_words(text: str) -> None:
    words = tokenize(text, lower=False)
    assert tokenize(detokenize(words), lower=False) == words
