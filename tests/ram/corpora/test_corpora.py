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
from ram.corpora import Corpus, Examples, tokenize

EMBEDDED = ["arithmetic", "negation"]
READ = ["labelled_file", "movie_reviews", "multi30k", "sst2"]


def _source(name: str) -> Corpus:
    options = {"path": "reviews.tsv"} if name == "labelled_file" else {}
    return importlib.import_module(f"ram.corpora.{name}").Source(**options)


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


@pytest.mark.parametrize("name", EMBEDDED + READ)
def test_what_somebody_types_is_told_apart_into_words(name: str) -> None:
    assert _source(name).tokenize("  Two\tplus THREE\n") == ("two", "plus", "three")


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


@pytest.mark.parametrize("targets", [("x", "y", "z"), (("x",), ("y", "Y"), ("z",))])
def test_the_chosen_are_in_their_order_with_their_targets(targets: tuple) -> None:
    chosen = Examples(TEXTS, targets).choose([2, 0, 2])
    assert chosen == Examples((("d",), ("a",), ("d",)), (targets[2], targets[0], targets[2]))


def test_texts_without_targets_are_chosen_without_any() -> None:
    assert Examples(TEXTS).choose([1]) == Examples((("b", "c"),), None)


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
        ("No... 3.50 €?!", ["no", ".", ".", ".", "3", ".", "50", "€", "?", "!"]),
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
