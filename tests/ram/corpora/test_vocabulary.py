"""Word vocabularies and their token ids."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN, Vocabulary

TEXTS = [("the", "cat", "saw", "the", "dog"), ("a", "dog", "saw", "the", "moon")]
# the 3, dog 2, saw 2, a 1, cat 1, moon 1
CPU = torch.device("cpu")


def test_first_four_ids_are_special_tokens() -> None:
    vocabulary = Vocabulary(["cat", "dog"])
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert vocabulary.all_tokens == ("<padding>", "<unknown>", "<start>", "<end>", "cat", "dog")
    assert vocabulary.tokens == ("cat", "dog")
    assert len(vocabulary) == 6


def test_ids_follow_the_order_of_the_words() -> None:
    assert Vocabulary(["dog", "cat", "ant"]).encode(["cat", "ant", "dog", "cat"]) == [5, 6, 4, 5]


def test_unknown_words_share_one_id() -> None:
    vocabulary = Vocabulary(["cat"])
    assert vocabulary.encode(["Cat", "cat", "cow", ""]) == [1, 4, 1, 1]
    assert vocabulary.decode([1, 4]) == ["<unknown>", "cat"]


def test_unknown_returns_distinct_words_in_order() -> None:
    vocabulary = Vocabulary(["cat", "dog"])
    assert vocabulary.unknown(["cow", "cat", "ant", "cow", "Dog"]) == ("cow", "ant", "Dog")
    assert vocabulary.unknown(["dog", "cat"]) == vocabulary.unknown([]) == ()


def test_given_unknown_words_get_the_ids_after_the_last() -> None:
    vocabulary = Vocabulary(["cat", "dog"])  # up to 5
    assert vocabulary.encode(["cow", "dog", "ant", "ox", "cow"], ("cow", "ant")) == [6, 5, 7, UNKNOWN, 6]
    assert vocabulary.decode([7, 4, 6, UNKNOWN], ("cow", "ant")) == ["ant", "cat", "cow", "<unknown>"]
    assert vocabulary.ids_to_tokens([7, 4, 3], ("cow", "ant")) == ["ant", "cat", "<end>"]
    assert vocabulary.encode(["cat", "cow"], ("cat", "cow")) == [4, 7]  # words of the vocabulary keep their ids
    with pytest.raises(IndexError):
        vocabulary.decode([8], ("cow", "ant"))


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc'é"), min_size=1)), st.lists(st.text(st.sampled_from("abc")), unique=True))
def test_decoding_with_unknown_words_inverts_encoding(text: list[str], words: list[str]) -> None:
    vocabulary = Vocabulary(words)
    unknown = vocabulary.unknown(text)
    assert vocabulary.decode(vocabulary.encode(text, unknown), unknown) == text


def test_state_restores_the_vocabulary() -> None:
    vocabulary = Vocabulary(["dog", "cat"])
    assert vocabulary.state() == ["dog", "cat"]
    assert Vocabulary(vocabulary.state()).all_tokens == vocabulary.all_tokens


def test_decoding_returns_special_tokens() -> None:
    assert Vocabulary(["cat"]).decode([2, 4, 3, 0]) == ["<start>", "cat", "<end>", "<padding>"]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc'é")), unique=True), st.data())
def test_decoding_inverts_encoding(words: list[str], data: st.DataObject) -> None:
    vocabulary = Vocabulary(words)
    text = data.draw(st.lists(st.sampled_from(words))) if words else []
    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.parametrize("words", [["cat", "dog", "cat"], ["cat", "<padding>"], ["<end>"]])
def test_repeated_words_are_refused(words: list[str]) -> None:
    with pytest.raises(InputError, match="contains every word once"):
        Vocabulary(words)


def test_words_are_sorted_by_frequency_then_alphabetically() -> None:
    assert Vocabulary.from_texts(TEXTS).tokens == ("the", "dog", "saw", "a", "cat", "moon")
    assert Vocabulary.from_texts(TEXTS[::-1]).tokens == Vocabulary.from_texts(TEXTS).tokens


@pytest.mark.parametrize(
    ("min_count", "tokens"), [(1, "the dog saw a cat moon"), (2, "the dog saw"), (3, "the"), (4, "")]
)
def test_min_count_drops_rare_words(min_count: int, tokens: str) -> None:
    assert Vocabulary.from_texts(TEXTS, min_count).tokens == tuple(tokens.split())


def test_special_tokens_in_texts_are_not_added_twice() -> None:
    assert Vocabulary.from_texts([("<unknown>", "cat", "<start>")]).tokens == ("cat",)


def test_batches_are_padded_at_the_end() -> None:
    token_ids, lengths = Vocabulary.from_texts(TEXTS).encode_batch([("the", "cat"), ("moo",), ("a", "dog", "saw")], CPU)
    assert token_ids.tolist() == [[4, 8, 0], [1, 0, 0], [7, 5, 6]]
    assert lengths.tolist() == [2, 1, 3]
    assert token_ids.dtype == lengths.dtype == torch.int64
