"""Examples, tokenization, and properties of every corpus."""

import builtins
import importlib
import io
import os
import socket
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from envs.errors import InputError
from ram.config import build, config_folder
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
LETTERS = ["cmudict", "inflection", "reversal"]  # corpora with characters as tokens
FILES = {"labelled_file": {"path": "reviews.tsv"}, "parallel_files": {"source": "a.de", "target": "a.en"}}


def _factory(name: str) -> Callable[[], Corpus]:
    """Returns a function that builds the corpus of a configuration file with default options."""
    module, class_name = OmegaConf.load(config_folder() / f"corpus/{name}.yaml")["_target_"].rsplit(".", 1)
    return partial(getattr(importlib.import_module(module), class_name), **FILES.get(name, {}))


def _corpus(name: str) -> Corpus:
    return _factory(name)()


class Accessed(AssertionError):
    """Raised at access to disk or network."""


def _refuse_access(*_: Any, **__: Any) -> None:
    raise Accessed


@pytest.mark.parametrize("name", EMBEDDED + READ)
def test_building_a_source_refuse_accesses_neither_disk_nor_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build_corpus = _factory(name)
    build_corpus()  # imports its modules
    with monkeypatch.context() as patch:
        for owner, function in [
            *[(builtins, "open"), (io, "open"), (socket, "socket")],
            *[(os, function) for function in ("open", "stat", "lstat", "mkdir", "listdir", "scandir")],
        ]:
            patch.setattr(owner, function, _refuse_access)
        corpus = build_corpus()
        if name in EMBEDDED:
            corpus.load("train")
        else:
            with pytest.raises(Accessed):
                corpus.load("train")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*EMBEDDED, "arithmetic_results", "scenes"])
def test_training_seed_does_not_change_generated_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 5)
    task, splits = "caption" if name == "scenes" else "translate", []
    for seed in (0, 7):
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("config", [f"task={task}", f"corpus={name}", f"seed={seed}"])
        corpus = build(config.corpus)
        splits.append([corpus.load(split) for split in ("validation", "test")])
    for first, second in zip(*splits, strict=True):
        if name == "scenes":
            assert torch.equal(first.images, second.images) and first.captions == second.captions
        else:
            assert first == second


@pytest.mark.parametrize("name", EMBEDDED + READ)
def test_unknown_splits_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="split must be one of train, validation, test, got 'dev'"):
        _corpus(name).load("dev")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in EMBEDDED + READ if name not in LETTERS])
def test_tokenize_splits_words(name: str) -> None:
    assert _corpus(name).tokenize("  Two\tplus THREE\n") == ("two", "plus", "three")


@pytest.mark.parametrize("name", ["cmudict", "reversal"])
def test_tokenize_splits_characters(name: str) -> None:
    assert _corpus(name).tokenize(" \tAbc\n") == ("a", "b", "c")


# Examples

TEXTS = (("a",), ("b", "c"), ("d",))


def test_length_is_the_number_of_texts() -> None:
    assert len(Examples(TEXTS)) == 3


def test_examples_without_texts_are_refused() -> None:
    with pytest.raises(InputError, match="There are no texts"):
        Examples(())


def test_empty_text_is_refused() -> None:
    with pytest.raises(InputError, match="Text 1 of a corpus has no words"):
        Examples((("a",), ()))


@pytest.mark.parametrize("targets", [(), ("x", "y"), ("x", "y", "x", "y"), (("x",), ("y", "y"))])
def test_another_number_of_targets_is_refused(targets: tuple) -> None:
    with pytest.raises(InputError, match=f"There are 3 texts, but {len(targets)} targets"):
        Examples(TEXTS, targets)


@pytest.mark.parametrize("name", ["references", "alignments"])
@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_references_or_alignments_is_refused(name: str, count: int) -> None:
    values: dict[str, Any] = {"references": ("one reference",), "alignments": (0, -1)}
    with pytest.raises(InputError, match=f"^There are 3 texts, but {count} {name}\\.$"):
        Examples(TEXTS, **{name: (values[name],) * count})


@pytest.mark.parametrize("targets", [("x", "y", "z"), (("x",), ("y", "Y"), ("z",))])
def test_selected_examples_are_in_order_with_their_targets(targets: tuple) -> None:
    selected = Examples(TEXTS, targets).select([2, 0, 2])
    assert selected == Examples((("d",), ("a",), ("d",)), (targets[2], targets[0], targets[2]))


def test_selection_of_texts_without_targets() -> None:
    assert Examples(TEXTS).select([1]) == Examples((("b", "c"),), None)


def test_selection_keeps_references_and_alignments() -> None:
    targets, references = (("x",), ("y", "Y"), ("z",)), (("X", "x"), ("yY",), ("Z",))
    alignments = ((0,), (1, 0), (-1,))
    selected = Examples(TEXTS, targets, references, alignments).select([1, 2])
    assert selected == Examples((("b", "c"), ("d",)), (("y", "Y"), ("z",)), (("yY",), ("Z",)), ((1, 0), (-1,)))
    assert Examples(TEXTS, targets, references).select([0]).alignments is None
    assert Examples(TEXTS, targets, alignments=alignments).select([0]).references is None


# Tokenization


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
def test_tokenize_words_numbers_and_punctuation(text: str, words: list[str]) -> None:
    assert tokenize(text) == tuple(words)


def test_lower_false_keeps_capital_letters() -> None:
    assert tokenize("The USA's best.", lower=False) == ("The", "USA's", "best", ".")


@settings(deadline=None)
@given(st.text(st.sampled_from("aBé1_'\u2019.,-€ \t\n")) | st.text())
def test_tokenize_drops_only_white_space(text: str) -> None:
    words = tokenize(text, lower=False)
    normalized = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    assert "".join(words) == "".join(sign for sign in normalized if not sign.isspace())
    assert all(words)


# Detokenization


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
def test_detokenize_uses_standard_spacing(words: str, written: str) -> None:
    assert detokenize(words.split()) == written


@settings(deadline=None)
@given(st.text(st.sampled_from("aBé1_'\u2019.,;:!?()[]{}%…\"-€ \n")) | st.text())
def test_tokenize_inverts_detokenize(text: str) -> None:
    words = tokenize(text, lower=False)
    assert tokenize(detokenize(words), lower=False) == words
