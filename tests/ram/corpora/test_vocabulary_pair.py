"""Source and target vocabularies, encoded sources and copy ids."""

import io
from collections.abc import Sequence

import pytest
import torch

from envs.errors import InputError
from ram.corpora import Examples, Tokens
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import UNKNOWN, Vocabulary
from ram.corpora.vocabulary_pair import VocabularyPair, target_tokens

CPU = torch.device("cpu")


def pairs(*lines: str) -> Examples:
    """Returns the pairs of lines such as "ein hund: a dog"."""
    sides = [line.split(": ") for line in lines]
    texts, targets = ([tuple(side.split()) for side in each] for each in zip(*sides, strict=True))
    return Examples(tuple(texts), tuple(targets))


TRAIN = pairs("der hund rennt: the dog runs", "der film: the film", "der hund: the dog")
# der 3, hund 2, film 1, rennt 1; the 3, dog 2, film 1, runs 1


def tokens(side: Vocabulary | Subwords) -> Sequence[str]:
    assert isinstance(side, Vocabulary)
    return side.tokens


def test_sources_and_targets_have_separate_vocabularies() -> None:
    pair = VocabularyPair.from_examples(TRAIN)
    assert tokens(pair.source) == ("der", "hund", "film", "rennt")
    assert tokens(pair.target) == ("the", "dog", "film", "runs")
    assert not pair.shared
    assert pair.sizes() == {"source_size": 8, "target_size": 8, "shared": False}


def test_shared_vocabulary_counts_words_of_both_sides() -> None:
    pair = VocabularyPair.from_examples(TRAIN, shared=True)
    assert pair.source is pair.target and pair.shared
    assert tokens(pair.target) == (
        "der",
        "the",
        "dog",
        "film",
        "hund",
        "rennt",
        "runs",
    )  # film: two
    assert pair.sizes() == {"source_size": 11, "target_size": 11, "shared": True}


def test_min_count_drops_rare_words() -> None:
    pair = VocabularyPair.from_examples(TRAIN, min_count=2)
    assert (tokens(pair.source), tokens(pair.target)) == (("der", "hund"), ("the", "dog"))
    shared = VocabularyPair.from_examples(TRAIN, min_count=2, shared=True)
    assert tokens(shared.target) == (
        "der",
        "the",
        "dog",
        "film",
        "hund",
    )
    with pytest.raises(InputError, match=r"^No word occurs task\.min_count=4 times: lower it\.$"):
        VocabularyPair.from_examples(TRAIN, min_count=4)
    rare = pairs("ein hund: yes", "ein hund: no")  # the target vocabulary is empty
    with pytest.raises(InputError, match=r"^No word occurs task\.min_count=2"):
        VocabularyPair.from_examples(rare, min_count=2)


def test_subwords_are_trained_on_each_side_or_on_both() -> None:
    apart = VocabularyPair.from_examples(TRAIN, subwords=20)
    assert isinstance(apart.source, Subwords) and isinstance(apart.target, Subwords)
    assert not apart.shared
    assert apart.sizes() == {"source_size": 20, "target_size": 20, "shared": False}
    german, english = ("der", "film"), ("the", "film")
    assert apart.source.decode(apart.source.encode(german)) == list(german)
    assert UNKNOWN in apart.target.encode(("rennt", "ü")) and UNKNOWN in apart.source.encode(("dog",))
    both = VocabularyPair.from_examples(TRAIN, subwords=20, shared=True)
    assert both.source is both.target
    assert both.source.decode(both.source.encode(german + english)) == [*german, *english]


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"subwords": 20}, {"subwords": 20, "shared": True}])
def test_state_restores_the_pair(options: dict[str, int]) -> None:
    pair = VocabularyPair.from_examples(TRAIN, **options)  # type: ignore[arg-type]
    file = io.BytesIO()
    torch.save(pair.state(), file)
    file.seek(0)
    restored = VocabularyPair.restore(torch.load(file, weights_only=True))
    assert restored.shared == pair.shared
    assert restored.sizes() == pair.sizes()
    assert restored.state() == pair.state()
    for old, new in [(pair.source, restored.source), (pair.target, restored.target)]:
        assert type(old) is type(new)
        assert old.encode(("the", "film", "der")) == new.encode(("the", "film", "der"))


# Encoded sources

DER, HUND = 4, 5
THE, DOG, FILM = 4, 5, 6


def test_sources_are_encoded_with_the_source_vocabulary() -> None:
    texts: list[Tokens] = [("der", "hund", "wau"), ("film",)]
    sources = VocabularyPair.from_examples(TRAIN).source_batch(texts, CPU, copying=False)
    assert sources.token_ids.tolist() == [[DER, HUND, UNKNOWN], [6, 0, 0]]
    assert sources.lengths.tolist() == [3, 1]
    assert sources.copy_ids is None
    assert sources.unknown == ((), ())


def test_copying_gives_unknown_words_the_ids_after_the_last() -> None:
    texts: list[Tokens] = [("der", "film", "wau", "miau", "wau"), ("muh", "film")]
    pair = VocabularyPair.from_examples(TRAIN)
    sources = pair.source_batch(texts, CPU, copying=True)
    assert sources.token_ids.tolist() == [[DER, 6, UNKNOWN, UNKNOWN, UNKNOWN], [UNKNOWN, 6, 0, 0, 0]]
    assert sources.copy_ids is not None
    # of the eight target tokens film is 6; the other words get ids from 8 on, in each row
    assert sources.copy_ids.tolist() == [[8, FILM, 9, 10, 9], [8, FILM, 0, 0, 0]]
    assert sources.unknown == (("der", "wau", "miau"), ("muh",))
    assert pair.target.decode([THE, 10, 8, 9], sources.unknown[0]) == ["the", "miau", "der", "wau"]
    assert pair.target.encode(("the", "miau", "muh"), sources.unknown[0]) == [THE, 10, UNKNOWN]


def test_copying_of_subwords_has_no_unknown_words() -> None:
    pair = VocabularyPair.from_examples(TRAIN, subwords=20, shared=True)
    sources = pair.source_batch([("der", "rund"), ("film",)], CPU, copying=True)
    assert sources.copy_ids is not None
    assert torch.equal(sources.copy_ids, sources.token_ids)
    assert sources.unknown == ((), ())


# Errors


def test_corpus_without_pairs_is_refused() -> None:
    assert target_tokens(TRAIN) == (("the", "dog", "runs"), ("the", "film"), ("the", "dog"))
    for targets in (None, ("plus", "minus")):
        with pytest.raises(InputError, match=r"^task=translate needs a corpus of pairs of texts, such as corpus=rev"):
            VocabularyPair.from_examples(Examples((("one",), ("two",)), targets))


def test_too_many_subwords_are_refused() -> None:
    with pytest.raises(InputError, match=r"^task\.subwords=1000 is too large for the corpus"):
        VocabularyPair.from_examples(TRAIN, subwords=1000)
