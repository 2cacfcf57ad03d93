"""Pieces of words: what is learnt of a few words by hand, and that no word is lost."""

import io
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN

TEXTS = [("low", "lower", "newest"), ("wide", "widest", "low")] * 10
PIECES = Subwords.of(TEXTS, 24)
LETTERS = "lowernstid"
CPU = torch.device("cpu")


def test_the_commonest_pair_is_the_first_piece() -> None:
    """Of three words that begin with a, two go on with b: what begins a word and a are one, then that and b."""
    texts = [("ab", "ab", "ac")]
    letters = {"_", "a", "b", "c"}
    first = Subwords.of(texts, 9)
    assert len(first) == 9
    assert first.names([4]) == ["_a"] and set(first.names(range(5, 9))) == letters
    assert first.names(first.encode(("ab", "ac", "ba"))) == ["_a", "b", "_a", "c", "_", "b", "a"]
    second = Subwords.of(texts, 10)
    assert second.names([4, 5]) == ["_a", "_ab"] and set(second.names(range(6, 10))) == letters
    assert second.names(second.encode(("ab", "ac", "ba"))) == ["_ab", "_a", "c", "_", "b", "a"]


def test_as_many_pieces_as_are_asked_for_and_the_first_four_are_taken() -> None:
    assert len(PIECES) == 24
    assert [len(Subwords.of(TEXTS, number)) for number in (15, 48)] == [15, 48]
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert [PIECES.decode([number]) for number in (PADDING, START, END)] == [[], [], []]
    numbers = {number for text in TEXTS for number in PIECES.encode(text)}
    assert min(numbers) >= 4 and max(numbers) < 24
    assert not set(PIECES.encode(("<s>", "</s>", "<pad>"))) & {PADDING, START, END}, "somebody typed a start symbol"


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from(LETTERS), min_size=1)))
def test_the_words_are_made_again_of_their_pieces_and_none_is_unknown(words: list[str]) -> None:
    numbers = PIECES.encode(words)
    assert PIECES.decode(numbers) == words
    assert all(number >= 4 for number in numbers)
    assert "".join(PIECES.names(numbers)) == "".join(f"_{word}" for word in words)
    assert PIECES.unknown(words) == ()


def test_the_rarest_letter_is_known_and_letters_never_seen_are_unknown() -> None:
    subwords = Subwords.of([*TEXTS * 50, ("żółw",)], 24)
    assert subwords.decode(subwords.encode(("żółw", "low"))) == ["żółw", "low"]
    assert UNKNOWN in PIECES.encode(("żółw",))
    assert PIECES.unknown(("żółw",)) == ()  # such a word has no number of its own


def test_letters_stand_as_they_are_written() -> None:
    """Accents and ligatures are not taken for others, nor capital letters for small ones."""
    words = ["\u00e1", "a\u0301", "\ufb01", "fi", "\uff21", "A", "a"]
    subwords = Subwords.of([tuple(words)] * 3, 15)
    assert subwords.decode(subwords.encode(words)) == words


# Sentencepiece leaves out texts of more than 4,192 bytes, with their letters, unless it is told otherwise.
def test_a_long_text_is_learnt_from_too() -> None:
    subwords = Subwords.of([*TEXTS, ("zebra",) * 1000], 24)
    assert subwords.decode(subwords.encode(("zebra",))) == ["zebra"]


def test_texts_as_numbers_are_filled_up_at_the_end() -> None:
    subwords = Subwords.of([("ab", "ab", "ac")], 9)
    a, b, c = (subwords.encode((word,)) for word in ("a", "ab", "ac"))
    numbers, lengths = subwords.numbers([("a",), ("ab", "ac")], CPU)
    assert lengths.tolist() == [1, 4]
    assert numbers.tolist() == [[*a, 0, 0, 0], [*b, *c]]
    assert numbers.dtype == lengths.dtype == torch.int64


def test_the_pieces_are_the_same_every_time() -> None:
    random.seed(3)
    torch.manual_seed(3)
    again = Subwords.of(TEXTS, 24)
    assert again.state() == PIECES.state()
    assert again.encode(("lowest", "wider")) == PIECES.encode(("lowest", "wider"))


def test_what_is_restored_is_the_same() -> None:
    file = io.BytesIO()
    torch.save({"target": PIECES.state()}, file)  # as in a checkpoint
    file.seek(0)
    restored = Subwords(torch.load(file, weights_only=True)["target"])
    assert len(restored) == len(PIECES)
    assert restored.names(range(24)) == PIECES.names(range(24))
    assert restored.encode(("lowest", "newer")) == PIECES.encode(("lowest", "newer"))
    assert restored.state() == PIECES.state()


# What is refused.


def _refusal(number: int) -> str:
    with pytest.raises(InputError) as refused:
        Subwords.of(TEXTS, number)
    return str(refused.value)


@pytest.mark.parametrize("number", [-1, 0, 3, 4, 14, 49, 100, 10**6])
def test_too_few_pieces_and_too_many_are_refused(number: int) -> None:
    told = _refusal(number)
    assert told.startswith(f"task.subwords={number} cannot be found in the corpus")
    assert "\n" not in told


@pytest.mark.parametrize(("number", "bound"), [(14, "15"), (100, "48")])
def test_a_refusal_is_a_sentence_that_names_what_is_possible(number: int, bound: str) -> None:
    """Four special ones and eleven letters, one of them the beginning of a word; and 48 in all of these words."""
    told = _refusal(number)
    assert bound in told
    assert not any(sign in told for sign in ("]", "_spec", "proto", "==", "<=", "--", "required_chars"))
    assert told.endswith(".")


def test_the_sign_that_stands_for_a_space_is_a_letter_like_any_other() -> None:
    known = Subwords.of([("a_b", "c"), ("\u2581",)], 12)
    assert known.decode(known.encode(["a\u2581b", "c"])) == ["a_b", "c"]
    assert known.encode(["\u2581"])
