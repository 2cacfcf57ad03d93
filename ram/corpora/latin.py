"""Aligned Latin and English sentences: "lupum puella non timet" -> "the girl does not fear the wolf"."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.splits import Split
from ram.corpora import Tokens, assign_split
from ram.corpora.generated import GeneratedPairs
from ram.corpora.names import invented_name

# Stem, whether of the first declension, whether feminine, English singular and plural
_NOUNS = (
    ("puell", True, True, "girl", "girls"),
    ("femin", True, True, "woman", "women"),
    ("naut", True, False, "sailor", "sailors"),
    ("agricol", True, False, "farmer", "farmers"),
    ("regin", True, True, "queen", "queens"),
    ("aquil", True, True, "eagle", "eagles"),
    ("serv", False, False, "servant", "servants"),
    ("equ", False, False, "horse", "horses"),
    ("amic", False, False, "friend", "friends"),
    ("lup", False, False, "wolf", "wolves"),
    ("medic", False, False, "doctor", "doctors"),
    ("discipul", False, False, "pupil", "pupils"),
)
_ADJECTIVES = (
    ("magn", "big"),
    ("parv", "small"),
    ("bon", "good"),
    ("laet", "happy"),
    ("fess", "tired"),
    ("nov", "new"),
    ("clar", "famous"),
)
_ENDINGS = {  # first and second declension, by (object, plural)
    (False, False): ("a", "us"),
    (False, True): ("ae", "i"),
    (True, False): ("am", "um"),
    (True, True): ("as", "os"),
}
_TRANSITIVE = (
    ("amat", "amant", "love"),
    ("videt", "vident", "see"),
    ("laudat", "laudant", "praise"),
    ("vocat", "vocant", "call"),
    ("portat", "portant", "carry"),
    ("timet", "timent", "fear"),
)
_INTRANSITIVE = (("cantat", "cantant", "sing"), ("dormit", "dormiunt", "sleep"), ("currit", "currunt", "run"))
_WHEN = {"hodie": "today", "saepe": "often", "nunc": "now"}

_FORMS = frozenset(
    [stem + ending for stem, *_ in (*_NOUNS, *_ADJECTIVES) for endings in _ENDINGS.values() for ending in endings]
    + [form for verb in (*_TRANSITIVE, *_INTRANSITIVE) for form in verb[:2]]
    + [*_WHEN]
)

Part = tuple[list[str], list[tuple[str, int]]]
"""Latin words, and English words with the index of the Latin word each is aligned to, or -1."""


@dataclass(frozen=True)
class Latin(GeneratedPairs):
    """Sentences of a subject, a verb and mostly an object in free word order, and their translations.

    Latin marks the object by its ending, and has no article and no auxiliary of negation. One noun in ten is an
    invented name, copied to the translation. The splits share no sentence and no name.
    """

    def draw(self, rng: random.Random, split: Split) -> tuple[Tokens, Tokens, tuple[int, ...]]:
        while True:
            latin, english = _sentence(rng, split)
            if assign_split(" ".join(latin)) == split:
                words, indices = zip(*english, strict=True)
                return tuple(latin), words, indices


def _sentence(rng: random.Random, split: Split) -> Part:
    plural = rng.random() < 0.4
    subject = _noun(rng, split, False, plural)
    verbs, has_object = (_TRANSITIVE, True) if rng.random() < 0.8 else (_INTRANSITIVE, False)
    verb = _verb(rng, verbs, plural)
    is_name = len(subject[1]) == 1  # then the object must have an ending, as a name has none
    object_ = _noun(rng, split, True, rng.random() < 0.4, may_be_name=not is_name) if has_object else ([], [])
    adverbs = [rng.choice(list(_WHEN))] if rng.random() < 0.3 else []
    when = adverbs, [(_WHEN[adverb], 0) for adverb in adverbs]
    orders = [[subject, object_, verb]] * 3
    orders += [[object_, subject, verb], [verb, subject, object_], [subject, verb, object_]]
    latin_parts = [when, *rng.choice(orders)]
    english_parts = [subject, verb, object_, when]
    start, words = {}, list[str]()
    for part in latin_parts:
        start[id(part)] = len(words)
        words += part[0]
    return words, [
        (word, index if index < 0 else start[id(part)] + index) for part in english_parts for word, index in part[1]
    ]


def _noun(rng: random.Random, split: Split, is_object: bool, plural: bool, may_be_name: bool = True) -> Part:
    if may_be_name and not plural and rng.random() < 0.15:
        name = invented_name(rng, split, _FORMS)
        return [name], [(name, 0)]
    stem, first, feminine, one, many = rng.choice(_NOUNS)
    ending = _ENDINGS[is_object, plural]
    noun, english = stem + ending[not first], many if plural else one
    if rng.random() < 0.6:
        return [noun], [("the", -1), (english, 0)]
    adjective, quality = rng.choice(_ADJECTIVES)
    adjective += ending[not feminine]
    if rng.random() < 0.7:
        return [noun, adjective], [("the", -1), (quality, 1), (english, 0)]
    return [adjective, noun], [("the", -1), (quality, 0), (english, 1)]


def _verb(rng: random.Random, verbs: Sequence[tuple[str, str, str]], plural: bool) -> Part:
    one, many, english = rng.choice(verbs)
    latin = many if plural else one
    if rng.random() < 0.3:
        return ["non", latin], [("do" if plural else "does", -1), ("not", 0), (english, 1)]
    if not plural:
        english = english[:-1] + "ies" if english.endswith("ry") else english + "s"
    return [latin], [(english, 0)]
