"""The vocabulary: which words it knows, and their numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN, Vocabulary

TEXTS = [("the", "cat", "saw", "the", "dog"), ("a", "dog", "saw", "the", "moon")]
# the 3, dog 2, saw 2, a 1, cat 1, moon 1
CPU = torch.device("cpu")


def test_the_first_four_numbers_are_taken() -> None:
    vocabulary = Vocabulary(["cat", "dog"])
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert vocabulary.words == ("<padding>", "<unknown>", "<start>", "<end>", "cat", "dog")
    assert vocabulary.known == ("cat", "dog")
    assert len(vocabulary) == 6


def test_words_are_numbered_in_their_order() -> None:
    assert Vocabulary(["dog", "cat", "ant"]).encode(["cat", "ant", "dog", "cat"]) == [5, 6, 4, 5]


def test_unknown_words_are_one_word() -> None:
    vocabulary = Vocabulary(["cat"])
    assert vocabulary.encode(["Cat", "cat", "cow", ""]) == [1, 4, 1, 1]
    assert vocabulary.decode([1, 4]) == ["<unknown>", "cat"]


def test_unknown_words_are_told_each_once_in_their_order() -> None:
    vocabulary = Vocabulary(["cat", "dog"])
    assert vocabulary.unknown(["cow", "cat", "ant", "cow", "Dog"]) == ("cow", "ant", "Dog")
    assert vocabulary.unknown(["dog", "cat"]) == vocabulary.unknown([]) == ()


def test_unknown_words_may_have_numbers_after_all_others() -> None:
    vocabulary = Vocabulary(["cat", "dog"])  # up to 5
    assert vocabulary.encode(["cow", "dog", "ant", "ox", "cow"], ("cow", "ant")) == [6, 5, 7, UNKNOWN, 6]
    assert vocabulary.decode([7, 4, 6, UNKNOWN], ("cow", "ant")) == ["ant", "cat", "cow", "<unknown>"]
    assert vocabulary.names([7, 4, 3], ("cow", "ant")) == ["ant", "cat", "<end>"]
    assert vocabulary.encode(["cat", "cow"], ("cat", "cow")) == [4, 7]  # what is known keeps its number
    with pytest.raises(IndexError):
        vocabulary.decode([8], ("cow", "ant"))


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc'é"), min_size=1)), st.lists(st.text(st.sampled_from("abc")), unique=True))
def test_decoding_with_the_unknown_words_undoes_encoding(text: list[str], words: list[str]) -> None:
    vocabulary = Vocabulary(words)
    unknown = vocabulary.unknown(text)
    assert vocabulary.decode(vocabulary.encode(text, unknown), unknown) == text


def test_what_is_restored_is_the_same() -> None:
    vocabulary = Vocabulary(["dog", "cat"])
    assert vocabulary.state() == ["dog", "cat"]
    assert Vocabulary(vocabulary.state()).words == vocabulary.words


def test_decoding_names_the_special_ones() -> None:
    assert Vocabulary(["cat"]).decode([2, 4, 3, 0]) == ["<start>", "cat", "<end>", "<padding>"]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc'é")), unique=True), st.data())
def test_decoding_undoes_encoding(words: list[str], data: st.DataObject) -> None:
    vocabulary = Vocabulary(words)
    text = data.draw(st.lists(st.sampled_from(words))) if words else []
    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize("words", [["cat", "dog", "cat"], ["cat", "<padding>"], ["<end>"]])
def test_every_word_once(words: list[str]) -> None:
    with pytest.raises(InputError, match="every word once"):
        Vocabulary(words)


def test_the_commonest_words_first_and_equals_by_letter() -> None:
    assert Vocabulary.of(TEXTS).known == ("the", "dog", "saw", "a", "cat", "moon")
    assert Vocabulary.of(TEXTS[::-1]).known == Vocabulary.of(TEXTS).known


@pytest.mark.parametrize(
    ("min_count", "known"), [(1, "the dog saw a cat moon"), (2, "the dog saw"), (3, "the"), (4, "")]
)
def test_rare_words_are_left_out(min_count: int, known: str) -> None:
    assert Vocabulary.of(TEXTS, min_count).known == tuple(known.split())


def test_special_words_of_the_texts_are_not_counted_twice() -> None:
    assert Vocabulary.of([("<unknown>", "cat", "<start>")]).known == ("cat",)


def test_texts_as_numbers_are_filled_up_at_the_end() -> None:
    numbers, lengths = Vocabulary.of(TEXTS).numbers([("the", "cat"), ("moo",), ("a", "dog", "saw")], CPU)
    assert numbers.tolist() == [[4, 8, 0], [1, 0, 0], [7, 5, 6]]
    assert lengths.tolist() == [2, 1, 3]
    assert numbers.dtype == lengths.dtype == torch.int64
