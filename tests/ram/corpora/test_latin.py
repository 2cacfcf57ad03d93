"""Latin sentences, compared with translations by a second dictionary and grammar."""

import random
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from envs.errors import InputError
from ram.corpora import Examples
from ram.corpora.latin import Latin

SPLITS = ("train", "validation", "test")

GIRLS = {  # of the first declension
    "puella": "girl",
    "femina": "woman",
    "nauta": "sailor",
    "agricola": "farmer",
    "regina": "queen",
    "aquila": "eagle",
}
WOLVES = {  # of the second
    "servus": "servant",
    "equus": "horse",
    "amicus": "friend",
    "lupus": "wolf",
    "medicus": "doctor",
    "discipulus": "pupil",
}
MEN = {"nauta", "agricola"}  # masculine nouns of the first declension
PLURALS = {"woman": "women", "wolf": "wolves"}
QUALITIES = {
    "magnus": "big",
    "parvus": "small",
    "bonus": "good",
    "laetus": "happy",
    "fessus": "tired",
    "novus": "new",
    "clarus": "famous",
}
VERBS = {  # of one and of several, English of one and of several
    "amat amant": "loves love",
    "videt vident": "sees see",
    "laudat laudant": "praises praise",
    "vocat vocant": "calls call",
    "portat portant": "carries carry",
    "timet timent": "fears fear",
    "cantat cantant": "sings sing",
    "dormit dormiunt": "sleeps sleep",
    "currit currunt": "runs run",
}
TRANSITIVE = {"love", "see", "praise", "call", "carry", "fear"}
ADVERBS = {"hodie": "today", "saepe": "often", "nunc": "now"}
FIRST = {"a": ("subject", 1), "ae": ("subject", 2), "am": ("object", 1), "as": ("object", 2)}
SECOND = {"us": ("subject", 1), "i": ("subject", 2), "um": ("object", 1), "os": ("object", 2)}


class Form(NamedTuple):
    """The meaning and morphology of a Latin word."""

    kind: str
    english: str
    case: str = ""
    number: int = 0
    feminine: bool = False


def _dictionary() -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for nouns, endings in [(GIRLS, FIRST), (WOLVES, SECOND)]:
        for noun, english in nouns.items():
            stem = noun.removesuffix("us").removesuffix("a")
            for ending, (case, number) in endings.items():
                meaning = english if number == 1 else PLURALS.get(english, english + "s")
                forms[stem + ending] = Form("noun", meaning, case, number, nouns is GIRLS and noun not in MEN)
    for quality, english in QUALITIES.items():
        for feminine, endings in [(True, FIRST), (False, SECOND)]:
            for ending, (case, number) in endings.items():
                forms[quality.removesuffix("us") + ending] = Form("adjective", english, case, number, feminine)
    for latin, english in VERBS.items():
        for number, (one, other) in enumerate(zip(latin.split(), english.split(), strict=True), start=1):
            forms[one] = Form("verb", other, number=number)
    for latin, english in ADVERBS.items():
        forms[latin] = Form("adverb", english)
    return forms


FORMS = _dictionary()


def _translate(text: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Returns the English words and the index of the Latin word each is aligned to, or -1."""
    names = [position for position, word in enumerate(text) if word not in FORMS and word != "non"]
    nouns = {form.case: position for position, form in _analyzed(text) if form.kind == "noun"}
    adjectives = {form.case: position for position, form in _analyzed(text) if form.kind == "adjective"}
    (verb,) = (position for position, form in _analyzed(text) if form.kind == "verb")
    adverbs = [position for position, form in _analyzed(text) if form.kind == "adverb"]
    assert len(nouns) + len(names) == (2 if _dictionary_form(FORMS[text[verb]]) in TRANSITIVE else 1), text

    def phrase(case: str) -> list[tuple[str, int]]:
        """Returns the noun phrase of a case: article, adjective and noun, or a name."""
        if case not in nouns:
            return [(text[position], position) for position in names]
        noun, words = FORMS[text[nouns[case]]], [("the", -1)]
        if case in adjectives:
            adjective = FORMS[text[adjectives[case]]]
            assert abs(adjectives[case] - nouns[case]) == 1, text
            assert adjective[2:] == noun[2:], f"adjective and noun do not agree: {text}"
            words.append((adjective.english, adjectives[case]))
        return [*words, (noun.english, nouns[case])]

    number = FORMS[text[nouns["subject"]]].number if "subject" in nouns else 1
    assert FORMS[text[verb]].number == number, text
    aligned = phrase("subject")
    if "non" in text:
        assert text.index("non") == verb - 1
        aligned += [
            ("does" if number == 1 else "do", -1),
            ("not", verb - 1),
            (_dictionary_form(FORMS[text[verb]]), verb),
        ]
    else:
        aligned.append((FORMS[text[verb]].english, verb))
    if _dictionary_form(FORMS[text[verb]]) in TRANSITIVE:
        aligned += phrase("object")
    aligned += [(FORMS[text[position]].english, position) for position in adverbs]
    words, positions = zip(*aligned, strict=True)
    return list(words), list(positions)


def _analyzed(text: tuple[str, ...]) -> list[tuple[int, Form]]:
    return [(position, FORMS[word]) for position, word in enumerate(text) if word in FORMS]


def _dictionary_form(verb: Form) -> str:
    return next(each.split()[1] for each in VERBS.values() if verb.english in each.split())


@cache
def _load(split: str, seed: int = 0) -> Examples:
    return Latin(seed=seed).load(split)  # type: ignore[arg-type]


def _names(split: str, seed: int = 0) -> list[str]:
    return [word for text in _load(split, seed).texts for word in text if word not in FORMS and word != "non"]


@pytest.mark.parametrize(
    ("latin", "english", "positions"),
    [
        ("lupum puella non timet", "the girl does not fear the wolf", [-1, 1, -1, 2, 3, -1, 0]),
        ("saepe magnas aquilas videt nauta", "the sailor sees the big eagles often", [-1, 4, 3, -1, 1, 2, 0]),
        ("currunt feminae bonae", "the good women run", [-1, 2, 1, 0]),
        ("nunc zihoje vocant medici", "the doctors call zihoje now", [-1, 3, 2, 1, 0]),
        ("tamilo parvum equum portat", "tamilo carries the small horse", [0, 3, -1, 1, 2]),
    ],
)
def test_reference_grammar_translates_by_hand_examples(latin: str, english: str, positions: list[int]) -> None:
    assert _translate(tuple(latin.split())) == (english.split(), positions)


@pytest.mark.parametrize("split", SPLITS)
def test_every_translation_and_alignment_matches_the_reference_grammar(split: str) -> None:
    examples = _load(split)
    assert examples.targets is not None and examples.alignments is not None
    for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True):
        assert (list(target), list(positions)) == _translate(text), text


def test_all_words_but_articles_and_auxiliaries_are_aligned_once() -> None:
    unaligned: Counter = Counter()
    for split in SPLITS:
        examples = _load(split)
        assert examples.targets is not None and examples.alignments is not None
        for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True):
            assert len(positions) == len(target)
            assert sorted(position for position in positions if position >= 0) == list(range(len(text))), (
                "a Latin word is not aligned once"
            )
            unaligned.update(word for word, position in zip(target, positions, strict=True) if position < 0)
    assert unaligned.keys() == {"the", "do", "does"}


def test_training_contains_all_words_of_the_grammar() -> None:
    assert FORMS.keys() <= {word for text in _load("train").texts for word in text}


def test_objects_precede_and_follow_subjects() -> None:
    """Only the endings distinguish them."""
    orders = Counter(
        tuple(form.case for _, form in _analyzed(text) if form.kind == "noun") for text in _load("train").texts
    )
    assert orders["subject", "object"] > 2000 and orders["object", "subject"] > 500


def test_verbs_are_first_second_and_last() -> None:
    positions = Counter()
    for text in _load("train").texts:
        nouns = [position for position, form in _analyzed(text) if form.kind == "noun"]
        (verb,) = (position for position, form in _analyzed(text) if form.kind == "verb")
        if len(nouns) == 2:
            positions[sum(position < verb for position in nouns)] += 1
    assert positions.keys() == {0, 1, 2}


def test_splits_share_no_sentence() -> None:
    train, validation, test = (set(_load(split).texts) for split in SPLITS)
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)
    assert set(_load("train", seed=1).texts).isdisjoint(validation | test)


def test_splits_share_no_name() -> None:
    train, validation, test = (set(_names(split)) for split in SPLITS)
    assert len(test) > 100
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)
    assert set(_names("train", seed=1)).isdisjoint(validation | test)


def test_one_noun_in_ten_is_a_name() -> None:
    nouns = sum(form.kind == "noun" for text in _load("train").texts for _, form in _analyzed(text))
    assert 0.06 < len(_names("train")) / (nouns + len(_names("train"))) < 0.12


def test_no_name_is_a_latin_word() -> None:
    examples = _load("train", seed=2)
    assert examples.targets is not None and examples.alignments is not None
    kept = {
        word
        for text, target, positions in zip(examples.texts, examples.targets, examples.alignments, strict=True)
        for word, position in zip(target, positions, strict=True)
        if position >= 0 and text[position] == word
    }
    assert len(kept) > 1000 and all(re.fullmatch("([bdfghjklmnprstvz][aeiou]){2,3}[nsr]?", word) for word in kept)
    assert kept.isdisjoint(FORMS)


def test_sentences_are_a_function_of_the_seed() -> None:
    first = Latin(size=100).load("train")
    random.seed(3)
    assert Latin(size=100).load("train") == first
    assert Latin(size=100, seed=1).load("train") != first


def test_size_is_the_number_of_training_sentences() -> None:
    assert [len(_load(split)) for split in SPLITS] == [10000, 500, 1000]
    assert len(Latin(size=7).load("train")) == 7
    assert Latin(size=7).load("test") == _load("test")
    assert _load("test").references is None


def test_tokenize_and_detokenize() -> None:
    assert Latin().tokenize("Lupum puella non timet.") == ("lupum", "puella", "non", "timet", ".")
    assert Latin().detokenize(("the", "girl", "runs", ".")) == "the girl runs."


def test_invalid_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"^corpus\.size must be at least 1, got 0\.$"):
        Latin(size=0)
