"""Spaces between tokens: usual ones are implied, and others are marked, so that a text is restored from its tokens.

In "50€ ." the tokens are "50", "￭€" and "␣.": usually a space precedes a sign, and none precedes a full stop.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

JOINED, SPACED = "\uffed", "\u2423"
"""Prefixes of tokens without a space before them where one is usual, and with a space where none is usual."""

_CJK = "\u3001-\u3003\u3008-\u3011\u3014-\u301b\uff01-\uff0f\uff1a-\uff1e"  # punctuation of texts without spaces
_NO_SPACE_BEFORE = regex.compile(rf" ([\p{{Terminal_Punctuation}}\p{{Pe}}\p{{Pf}}%…{_CJK}])")
_NO_SPACE_AFTER = regex.compile(rf"([\p{{Ps}}\p{{Pi}}¿¡{_CJK}]) ")
_QUOTED = regex.compile(r'(?<!\S)" ([^"]+) "(?![^\s\p{Terminal_Punctuation}\p{Pe}])')


def join_usually(words: Sequence[str]) -> str:
    """Joins words and punctuation marks, none of them marked, with the usual spaces."""
    return _NO_SPACE_AFTER.sub(r"\1", _NO_SPACE_BEFORE.sub(r"\1", _QUOTED.sub(r'"\1"', " ".join(words))))


def mark_spaces(words: Sequence[str], text: str) -> tuple[str, ...]:
    """Returns the words of a text, with a mark where the space before a word is unusual.

    Args:
        words: not marked; consecutive parts of the text, with nothing but white space between them.
        text: the text.
    """
    actual, usual = _spaces_before(words, text), _spaces_before(words, join_usually(words))
    return tuple(
        word if here == there else (SPACED if here else JOINED) + word
        for word, here, there in zip(words, actual, usual, strict=True)
    )


def detokenize(tokens: Sequence[str]) -> str:
    """Joins tokens, marked or not, with the spaces of the text that they come from."""
    words = [token[1:] if len(token) > 1 and token[0] in (JOINED, SPACED) else token for token in tokens]
    usual = _spaces_before(words, join_usually(words))
    parts = []
    for index, (token, word, space) in enumerate(zip(tokens, words, usual, strict=True)):
        if token != word:
            space = token[0] == SPACED
        parts.append(f" {word}" if space and index else word)
    return "".join(parts)


def _spaces_before(words: Sequence[str], text: str) -> list[bool]:
    """Returns whether white space precedes each word in a text; False for the first word."""
    found, position = [], 0
    for index, word in enumerate(words):
        start = text.index(word, position)
        found.append(index > 0 and start > position)
        position = start + len(word)
    return found
