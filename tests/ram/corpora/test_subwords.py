"""Byte-pair subwords: small vocabularies by hand, lossless encoding and errors."""

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
SUBWORDS = Subwords.train(TEXTS, 24)
LETTERS = "lowernstid"
CPU = torch.device("cpu")


def test_most_frequent_pair_is_merged_first() -> None:
    """Three words begin with a, two of them with ab: the merges are _a, then _ab."""
    texts = [("ab", "ab", "ac")]
    letters = {"_", "a", "b", "c"}
    first = Subwords.train(texts, 9)
    assert len(first) == 9
    assert first.ids_to_tokens([4]) == ["_a"] and set(first.ids_to_tokens(range(5, 9))) == letters
    assert first.ids_to_tokens(first.encode(("ab", "ac", "ba"))) == ["_a", "b", "_a", "c", "_", "b", "a"]
    second = Subwords.train(texts, 10)
    assert second.ids_to_tokens([4, 5]) == ["_a", "_ab"] and set(second.ids_to_tokens(range(6, 10))) == letters
    assert second.ids_to_tokens(second.encode(("ab", "ac", "ba"))) == ["_ab", "_a", "c", "_", "b", "a"]


def test_vocabulary_has_the_requested_size_and_four_special_ids() -> None:
    assert len(SUBWORDS) == 24
    assert [len(Subwords.train(TEXTS, number)) for number in (15, 48)] == [15, 48]
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert [SUBWORDS.decode([number]) for number in (PADDING, START, END)] == [[], [], []]
    token_ids = {token_id for text in TEXTS for token_id in SUBWORDS.encode(text)}
    assert min(token_ids) >= 4 and max(token_ids) < 24
    assert not set(SUBWORDS.encode(("<s>", "</s>", "<pad>"))) & {PADDING, START, END}, (
        "user input was encoded as a special token"
    )


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from(LETTERS), min_size=1)))
def test_decoding_inverts_encoding_without_unknown_words(words: list[str]) -> None:
    token_ids = SUBWORDS.encode(words)
    assert SUBWORDS.decode(token_ids) == words
    assert all(token_id >= 4 for token_id in token_ids)
    assert "".join(SUBWORDS.ids_to_tokens(token_ids)) == "".join(f"_{word}" for word in words)
    assert SUBWORDS.unknown(words) == ()


def test_rare_characters_are_in_the_vocabulary_and_new_ones_are_unknown() -> None:
    subwords = Subwords.train([*TEXTS * 50, ("żółw",)], 24)
    assert subwords.decode(subwords.encode(("żółw", "low"))) == ["żółw", "low"]
    assert UNKNOWN in SUBWORDS.encode(("żółw",))
    assert SUBWORDS.unknown(("żółw",)) == ()  # subwords have no out-of-vocabulary words


def test_characters_are_not_normalized() -> None:
    """Composed accents, ligatures, full-width and capital letters remain distinct."""
    words = ["\u00e1", "a\u0301", "\ufb01", "fi", "\uff21", "A", "a"]
    subwords = Subwords.train([tuple(words)] * 3, 15)
    assert subwords.decode(subwords.encode(words)) == words


# by default, sentencepiece ignores texts of more than 4,192 bytes
def test_long_texts_are_used_for_training() -> None:
    subwords = Subwords.train([*TEXTS, ("zebra",) * 1000], 24)
    assert subwords.decode(subwords.encode(("zebra",))) == ["zebra"]


def test_batches_are_padded_at_the_end() -> None:
    subwords = Subwords.train([("ab", "ab", "ac")], 9)
    a, b, c = (subwords.encode((word,)) for word in ("a", "ab", "ac"))
    token_ids, lengths = subwords.encode_batch([("a",), ("ab", "ac")], CPU)
    assert lengths.tolist() == [1, 4]
    assert token_ids.tolist() == [[*a, 0, 0, 0], [*b, *c]]
    assert token_ids.dtype == lengths.dtype == torch.int64


def test_training_is_deterministic() -> None:
    random.seed(3)
    torch.manual_seed(3)
    again = Subwords.train(TEXTS, 24)
    assert again.state() == SUBWORDS.state()
    assert again.encode(("lowest", "wider")) == SUBWORDS.encode(("lowest", "wider"))


def test_state_restores_the_vocabulary() -> None:
    file = io.BytesIO()
    torch.save({"target": SUBWORDS.state()}, file)  # as in a checkpoint
    file.seek(0)
    restored = Subwords(torch.load(file, weights_only=True)["target"])
    assert len(restored) == len(SUBWORDS)
    assert restored.ids_to_tokens(range(24)) == SUBWORDS.ids_to_tokens(range(24))
    assert restored.encode(("lowest", "newer")) == SUBWORDS.encode(("lowest", "newer"))
    assert restored.state() == SUBWORDS.state()


# Errors


def _error_message(size: int) -> str:
    with pytest.raises(InputError) as error:
        Subwords.train(TEXTS, size)
    return str(error.value)


@pytest.mark.parametrize("size", [-1, 0, 3, 4, 14, 49, 100, 10**6])
def test_too_small_and_too_large_sizes_are_refused(size: int) -> None:
    message = _error_message(size)
    assert message.startswith(f"task.subwords={size} is too {'small' if size < 15 else 'large'} for the corpus: ")
    assert "\n" not in message


@pytest.mark.parametrize(("size", "bound"), [(14, "15"), (100, "48")])
def test_error_message_contains_the_possible_sizes(size: int, bound: str) -> None:
    """Four special tokens and eleven characters, the beginning of a word included; 48 subwords at most."""
    message = _error_message(size)
    assert bound in message
    assert not any(sign in message for sign in ("]", "_spec", "proto", "==", "<=", "--", "required_chars"))
    assert message.endswith(".")


def test_space_sign_of_sentencepiece_is_an_ordinary_character() -> None:
    subwords = Subwords.train([("a_b", "c"), ("\u2581",)], 12)
    assert subwords.decode(subwords.encode(["a\u2581b", "c"])) == ["a_b", "c"]
    assert subwords.encode(["\u2581"])
