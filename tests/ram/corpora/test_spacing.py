"""Texts in any script are restored from their tokens, with their spaces."""

# ruff: noqa: RUF001

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ram.corpora import detokenize_letters, tokenize_letters, tokenize_reversibly
from ram.corpora.spacing import JOINED, SPACED, detokenize, join_usually, mark_spaces

SCRIPTS = {
    "Latin": "He said: \u201cno (50% of 3.5\u00a0km)!\u201d ¿qué? 50\u20ac and 50 \u20ac, « mot » \u201eWort\u201c.",
    "Greek": "Τι κάνεις; Καλά· εσύ;",
    "Cyrillic": "Он сказал: «нет» \u2014 да.",
    "Arabic": "ما هذا؟ كتاب، كبير.",
    "Hebrew": "מה זה? ספר גדול.",
    "Devanagari": "यह क्या है? यह किताब है।",
    "Bengali": "এটা কী? এটা বই।",
    "Tamil": "இது என்ன? இது புத்தகம்.",
    "Thai": "นี่คืออะไร หนังสือ",
    "Japanese": "彼は犬だ。「猫」、と 3.5 km！",
    "Chinese": "他是谁？他（狗）说：\u201c不\u201d。",
    "Korean": "그는 개이다. 뭐야? \u201c고양이\u201d!",
    "Ethiopic": "ይህ ምንድን ነው፦ መጽሐፍ።",
}


def written(text: str) -> str:
    """Returns a text with single spaces, in the normal form that tokens have."""
    return " ".join(unicodedata.normalize("NFC", text).replace("\u2019", "'").split())


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_text_of_each_script_is_restored(text: str) -> None:
    for tokenize, join in ((tokenize_reversibly, detokenize), (tokenize_letters, detokenize_letters)):
        assert join(tokenize(text, lower=False)) == written(text)


@settings(deadline=None)
@given(st.text(st.sampled_from(sorted(set("".join(SCRIPTS.values())) | set("\"'()[]-/ \n\uffed")))) | st.text())
def test_any_text_is_restored(text: str) -> None:
    assert detokenize(tokenize_reversibly(text, lower=False)) == written(text)
    if SPACED not in text:
        assert detokenize_letters(tokenize_letters(text, lower=False)) == written(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Two dogs, (a cat) and 50% of it.", "two dogs , ( a cat ) and 50 % of it ."),
        ("彼は犬だ。猫だ。", "彼は犬だ 。 猫だ 。"),
        ("¿qué? sí", "¿ qué ? sí"),
        ("50\u20ac, 50 \u20ac", f"50 {JOINED}\u20ac , 50 \u20ac"),
        ("no !", f"no {SPACED}!"),
        ("and/or", f"and {JOINED}/ {JOINED}or"),
    ],
)
def test_only_unusual_spaces_are_marked(text: str, tokens: str) -> None:
    assert tokenize_reversibly(text) == tuple(tokens.split())


def test_a_mark_is_a_word_if_it_stands_alone() -> None:
    assert detokenize([JOINED, "a", JOINED + JOINED, SPACED]) == f"{JOINED} a{JOINED} {SPACED}"
    assert mark_spaces(["a", "b"], "a  b") == ("a", "b")
    assert join_usually(["a", ",", "b"]) == "a, b"
