"""The published data sets, collected only where the folder ``data`` of the checkout has them all."""

from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest

from ram.corpora import Examples
from ram.corpora.cmudict import CMUDict
from ram.corpora.inflection import Inflection
from ram.corpora.karpathy import KarpathyCaptions
from ram.corpora.movie_reviews import MovieReviews
from ram.corpora.multi30k import Multi30k, Multi30kTranslation
from ram.corpora.sst2 import SST2

DATA = Path(__file__).parents[3] / "data"
SPLITS = ("train", "validation", "test")

# CMUdict


@cache
def _cmudict(split: str) -> Examples:
    return CMUDict(str(DATA / "cmudict")).load(split)  # type: ignore[arg-type]


def _pronunciations(word: str, examples: Examples) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the target and the references of every example of a word."""
    assert examples.targets is not None and examples.references is not None
    return [
        (" ".join(target), references)
        for text, target, references in zip(examples.texts, examples.targets, examples.references, strict=True)
        if "".join(text) == word
    ]


def test_cmudict_words_are_split_by_10_and_2_percent() -> None:
    words = {split: set(_cmudict(split).texts) for split in SPLITS}
    assert words["train"].isdisjoint(words["validation"] | words["test"])
    assert words["validation"].isdisjoint(words["test"])
    total = sum(map(len, words.values()))
    assert total == 126052
    assert len(words["test"]) / total == pytest.approx(0.10, abs=0.004)  # four standard deviations
    assert len(words["validation"]) / total == pytest.approx(0.02, abs=0.002)
    assert len(_cmudict("test")) == len(words["test"]), "a word occurs twice"
    assert len(_cmudict("train")) > len(words["train"])
    assert {letter for text in words["train"] for letter in text} == {*"abcdefghijklmnopqrstuvwxyz", *"'-."}


@pytest.mark.parametrize(
    ("word", "split", "references"),
    [
        ("tomato", "train", ("T AH M EY T OW", "T AH M AA T OW")),
        ("'bout", "train", ("B AW T",)),
        ("read", "test", ("R EH D", "R IY D")),
        ("d'artagnan", "train", ("D AH R T AE NG Y AH N",)),  # with a comment in the file
        ("route", "validation", ("R UW T", "R AW T")),
    ],
)
def test_cmudict_pronunciations(word: str, split: str, references: tuple[str, ...]) -> None:
    expected = [(target, references) for target in (references if split == "train" else references[:1])]
    found = {each: _pronunciations(word, _cmudict(each)) for each in SPLITS}
    assert found == {each: expected if each == split else [] for each in SPLITS}


def test_cmudict_has_39_phonemes() -> None:
    targets = _cmudict("train").targets
    assert targets is not None
    phonemes = {phoneme for target in targets for phoneme in target}
    assert len(phonemes) == 39 and all(phoneme.isalpha() for phoneme in phonemes)


# Inflection


@pytest.mark.parametrize(
    ("language", "lemma", "form", "tags"),
    [
        ("german", "zunehmen", "nahmst zu", "V;IND;PST;2;SG"),
        ("english", "deoptimize", "deoptimized", "V;PST"),
        ("spanish", "viralizar", "no viralice", "V;NEG;IMP;3;SG"),
    ],
)
def test_inflection(language: str, lemma: str, form: str, tags: str) -> None:
    corpus = Inflection(str(DATA / "inflection"), language)  # type: ignore[arg-type]
    parts = [corpus.load(split) for split in SPLITS]  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [10000, 1000, 1000]
    test = parts[2]
    assert test.targets is not None and test.references is not None
    assert test.texts[0] == (*(f"<{tag}>" for tag in tags.split(";")), *lemma)
    assert (test.targets[0], test.references[0]) == (tuple(form.replace(" ", "␣")), (form,))
    assert [corpus.detokenize(target) for target in test.targets] == [reference for (reference,) in test.references]
    assert set(parts[0].texts).isdisjoint(test.texts)


# Movie reviews


@cache
def _reviews() -> Counter:
    """Reads every sentence with its label from the files."""
    return Counter(
        (tuple(line.split()), label)
        for label, suffix in [("positive", "pos"), ("negative", "neg")]
        for line in (DATA / f"sentiment/rt-polarity.{suffix}").read_bytes().decode("cp1252").split("\n")
        if line
    )


def _load_reviews(split: str, fold: int) -> Counter:
    examples = MovieReviews(str(DATA / "sentiment"), fold).load(split)  # type: ignore[arg-type]
    return Counter(zip(examples.texts, examples.targets or (), strict=True))


def _labels(reviews: Counter) -> Counter:
    return Counter(label for _, label in reviews.elements())


def test_ten_folds_of_movie_reviews_partition_the_files() -> None:
    assert _reviews().total() == 10662
    tests = [_load_reviews("test", fold) for fold in range(10)]
    assert sum(tests, Counter()) == _reviews()
    sizes = [_labels(test) for test in tests]
    assert all(size["positive"] == size["negative"] in (533, 534) for size in sizes)
    assert sum(size["positive"] for size in sizes) == 5331


@pytest.mark.parametrize("fold", [0, 7])
def test_splits_of_a_fold_of_movie_reviews(fold: int) -> None:
    parts = [_load_reviews(split, fold) for split in SPLITS]
    assert sum(parts, Counter()) == _reviews()
    labels = list(map(_labels, parts))
    assert all(count["positive"] == count["negative"] for count in labels)
    assert labels[1]["positive"] == 480  # a tenth of 5331 - 534 or 5331 - 533
    assert parts[0].keys().isdisjoint(parts[1]) and parts[2].keys().isdisjoint(parts[0] | parts[1])


def test_sentences_of_movie_reviews() -> None:
    reviews = sum((_load_reviews(split, 0) for split in SPLITS), Counter())
    assert reviews[("simplistic", ",", "silly", "and", "tedious", "."), "negative"] == 1
    start = "the rock is destined to be the 21st century's new \" conan \" and that he's going"
    assert [label for text, label in reviews if " ".join(text).startswith(start)] == ["positive"]


# SST-2


@pytest.mark.parametrize(
    ("split", "positive", "negative", "first", "label"),
    [
        ("train", 3610, 3310, "a stirring , funny and finally transporting re-imagining of beauty", "positive"),
        ("validation", 444, 428, "one long string of cliches .", "negative"),
        ("test", 909, 912, "no movement , no yuks , not much of anything .", "negative"),
    ],
)
def test_sst2(split: str, positive: int, negative: int, first: str, label: str) -> None:
    examples = SST2(str(DATA / "sentiment")).load(split)  # type: ignore[arg-type]
    assert examples.targets is not None
    assert Counter(examples.targets) == {"positive": positive, "negative": negative}
    words = tuple(first.split())
    assert (examples.texts[0][: len(words)], examples.targets[0]) == (words, label)
    assert all(examples.texts)


# Multi30k


@pytest.mark.parametrize(
    ("split", "count", "first"),
    [
        ("train", 29000, "two young , white males are outside near many bushes ."),
        ("validation", 1014, "a group of men are loading cotton onto a truck"),
        ("test", 1000, "a man in an orange hat starring at something ."),
    ],
)
def test_multi30k(split: str, count: int, first: str) -> None:
    root = str(DATA / "multi30k")
    load = partial(Multi30k(root).load, split)
    sentences, tagged = load(), Multi30k(root, targets="tags").load(split)  # type: ignore[arg-type]
    assert len(sentences) == len(tagged) == count
    assert sentences.texts[0] == tuple(first.split()) and sentences.targets is None
    assert tagged.targets is not None
    assert [len(text) for text in tagged.texts] == [len(tags) for tags in tagged.targets]
    assert all(tagged.texts)
    punctuation = Counter(word for text in sentences.texts for word in text if not word[0].isalnum())
    words = Counter(word for text in sentences.texts for word in text) - punctuation
    assert Counter(word for text in tagged.texts for word in text) == words
    tags = Counter(tag for row in tagged.targets for tag in row)
    assert tags.keys() == {case + mark for case in ("Aa", "aa") for mark in ("", ",", ".", "…")}
    assert 0.9 * punctuation["."] < tags["aa."] + tags["Aa."] <= punctuation["."]


@pytest.mark.parametrize(
    ("split", "count", "text", "target"),
    [
        ("train", 29000, "zwei junge weiße männer sind im freien", "two young, white males are outside near many bu"),
        ("validation", 1014, "eine gruppe von männern lädt baumwolle", "a group of men are loading cotton"),
        ("test", 1000, "ein mann mit einem orangefarbenen hut", "a man in an orange hat starring at something."),
    ],
)
def test_multi30k_translation(split: str, count: int, text: str, target: str) -> None:
    examples = Multi30kTranslation(str(DATA / "multi30k")).load(split)  # type: ignore[arg-type]
    assert len(examples) == count
    assert examples.targets is not None and examples.references is not None
    assert " ".join(examples.texts[0]).startswith(text)
    assert examples.references[0][0].startswith(target)
    assert examples.targets[0][0] == target.split()[0]
    assert all(examples.texts) and all(examples.targets)


@pytest.mark.parametrize(
    ("source", "target", "test", "count", "first", "reference"),
    [
        ("cs", "fr", "test_2016_flickr", 1000, "muž", "un homme avec un chapeau orange regardant quelque chose."),
        ("en", "de", "test_2017_flickr", 1000, "a", "ein schlanker gelblicher hund beim absolvieren"),
        ("fr", "en", "test_2017_mscoco", 461, "je", "i cannot see where the green arrow is pointing."),
        ("de", "cs", "test_2018_flickr", 1071, "ein", "mladý muž se účastní závodu"),
    ],
)
def test_multi30k_test_sets(source: str, target: str, test: str, count: int, first: str, reference: str) -> None:
    examples = Multi30kTranslation(str(DATA / "multi30k"), source, target, test).load("test")  # type: ignore[arg-type]
    assert len(examples) == count and examples.references is not None
    assert examples.texts[0][0] == first
    assert examples.references[0][0].startswith(reference)


# UCM-captions


def test_ucm_captions() -> None:
    validation = KarpathyCaptions(str(DATA / "ucm_captions"), size=32).load("validation")
    assert validation.images.shape == (210, 3, 32, 32)
    assert all(len(captions) == 5 for captions in validation.captions)
    assert 20 < float(validation.images.float().std()) < 100
