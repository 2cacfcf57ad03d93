"""A little Latin and its English, aligned: "lupum puella non timet" -> "the girl does not fear the wolf"."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Examples, Tokens, detokenize, split_of, tokenize
from ram.corpora.names import invented_name

_HELD_OUT = {"validation": 500, "test": 1000}

# Stem, whether of the first declension, whether feminine, English singular and plural.
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
_WHEN = (("hodie", "today"), ("saepe", "often"), ("nunc", "now"))

_FORMS = frozenset(
    [stem + ending for stem, *_ in (*_NOUNS, *_ADJECTIVES) for endings in _ENDINGS.values() for ending in endings]
    + [form for verb in (*_TRANSITIVE, *_INTRANSITIVE) for form in verb[:2]]
    + [adverb for adverb, _ in _WHEN]
)

Part = tuple[list[str], list[tuple[str, int]]]
"""Latin words; and English ones, each with the place of the Latin one it stands for, or -1."""


@dataclass(frozen=True)
class Latin:
    """Sentences of a subject, mostly an object, and a verb at the end, in front or in the middle.

    Latin tells the object by its ending, in any order, has no article and needs no "do" to deny; one noun in ten is an
    invented name, which stays as it is and comes up in one split alone. So do all sentences.

    Attributes:
        size: of the training split; validation has 500 sentences, test 1,000.
        seed: of all.
    """

    size: int = 10000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_integers("corpus", size=self.size)

    def load(self, split: Split) -> Examples:
        check_split(split)
        chance = random.Random(f"{self.seed} {split}")
        texts: list[Tokens] = []
        targets: list[Tokens] = []
        alignments: list[tuple[int, ...]] = []
        while len(texts) < _HELD_OUT.get(split, self.size):
            latin, english = _sentence(chance, split)
            if split_of(" ".join(latin)) == split:
                texts.append(tuple(latin))
                targets.append(tuple(word for word, _ in english))
                alignments.append(tuple(place for _, place in english))
        return Examples(tuple(texts), tuple(targets), alignments=tuple(alignments))

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text)

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)


def _sentence(chance: random.Random, split: Split) -> Part:
    plural = chance.random() < 0.4
    subject = _noun(chance, split, False, plural)
    verbs, has_object = (_TRANSITIVE, True) if chance.random() < 0.8 else (_INTRANSITIVE, False)
    verb = _verb(chance, verbs, plural)
    # Where the subject is a name, which has no ending, the object must have one.
    named = len(subject[1]) == 1
    object_ = _noun(chance, split, True, chance.random() < 0.4, may_be_name=not named) if has_object else ([], [])
    when: Part = ([], [])
    if chance.random() < 0.3:
        latin, english = chance.choice(_WHEN)
        when = [latin], [(english, 0)]
    orders = [[subject, object_, verb]] * 3
    orders += [[object_, subject, verb], [verb, subject, object_], [subject, verb, object_]]
    said = [when, *chance.choice(orders)]
    meant = [subject, verb, object_, when]
    start, words = {}, list[str]()
    for part in said:
        start[id(part)] = len(words)
        words += part[0]
    return words, [(word, place if place < 0 else start[id(part)] + place) for part in meant for word, place in part[1]]


def _noun(chance: random.Random, split: Split, is_object: bool, plural: bool, may_be_name: bool = True) -> Part:
    if may_be_name and not plural and chance.random() < 0.15:
        name = invented_name(chance, split, _FORMS)
        return [name], [(name, 0)]
    stem, first, feminine, one, many = chance.choice(_NOUNS)
    ending = _ENDINGS[is_object, plural]
    noun, english = stem + ending[not first], many if plural else one
    if chance.random() < 0.6:
        return [noun], [("the", -1), (english, 0)]
    adjective, quality = chance.choice(_ADJECTIVES)
    adjective += ending[not feminine]
    if chance.random() < 0.7:
        return [noun, adjective], [("the", -1), (quality, 1), (english, 0)]
    return [adjective, noun], [("the", -1), (quality, 0), (english, 1)]


def _verb(chance: random.Random, verbs: Sequence[tuple[str, str, str]], plural: bool) -> Part:
    one, many, english = chance.choice(verbs)
    latin = many if plural else one
    if chance.random() < 0.3:
        return ["non", latin], [("do" if plural else "does", -1), ("not", 0), (english, 1)]
    if not plural:
        english = english[:-1] + "ies" if english.endswith("ry") else english + "s"
    return [latin], [(english, 0)]
