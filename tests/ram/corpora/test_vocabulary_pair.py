"""Two languages: which words or pieces they are made of, and the numbers of sources and of what is copied."""

import io
from collections.abc import Sequence

import pytest
import torch

from envs.errors import InputError
from ram.corpora import Examples, Tokens
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import UNKNOWN, Vocabulary
from ram.corpora.vocabulary_pair import VocabularyPair, targets_of

CPU = torch.device("cpu")


def pairs(*lines: str) -> Examples:
    """Of lines such as "ein hund: a dog"."""
    sides = [line.split(": ") for line in lines]
    texts, targets = ([tuple(side.split()) for side in each] for each in zip(*sides, strict=True))
    return Examples(tuple(texts), tuple(targets))


TRAIN = pairs("der hund rennt: the dog runs", "der film: the film", "der hund: the dog")
# der 3, hund 2, film 1, rennt 1; the 3, dog 2, film 1, runs 1


def known(side: Vocabulary | Subwords) -> Sequence[str]:
    assert isinstance(side, Vocabulary)
    return side.known


def test_sources_and_targets_have_words_of_their_own() -> None:
    languages = VocabularyPair.of(TRAIN)
    assert known(languages.source) == ("der", "hund", "film", "rennt")
    assert known(languages.target) == ("the", "dog", "film", "runs")
    assert not languages.shared
    assert languages.sizes() == {"source_size": 8, "target_size": 8, "shared": False}


def test_shared_words_are_one_vocabulary_counted_in_both() -> None:
    languages = VocabularyPair.of(TRAIN, shared=True)
    assert languages.source is languages.target and languages.shared
    assert known(languages.target) == ("der", "the", "dog", "film", "hund", "rennt", "runs")  # film twice: as often
    assert languages.sizes() == {"source_size": 11, "target_size": 11, "shared": True}


def test_rare_words_are_left_out() -> None:
    languages = VocabularyPair.of(TRAIN, min_count=2)
    assert (known(languages.source), known(languages.target)) == (("der", "hund"), ("the", "dog"))
    assert known(VocabularyPair.of(TRAIN, min_count=2, shared=True).target) == ("der", "the", "dog", "film", "hund")
    with pytest.raises(InputError, match=r"^No word comes up as often as task\.min_count=4: lower it\.$"):
        VocabularyPair.of(TRAIN, min_count=4)
    lonely = pairs("ein hund: yes", "ein hund: no")  # of one side alone none is left
    with pytest.raises(InputError, match=r"^No word comes up as often as task\.min_count=2"):
        VocabularyPair.of(lonely, min_count=2)


def test_pieces_are_learnt_of_either_side_or_of_both() -> None:
    apart = VocabularyPair.of(TRAIN, subwords=20)
    assert isinstance(apart.source, Subwords) and isinstance(apart.target, Subwords)
    assert not apart.shared
    assert apart.sizes() == {"source_size": 20, "target_size": 20, "shared": False}
    german, english = ("der", "film"), ("the", "film")
    assert apart.source.decode(apart.source.encode(german)) == list(german)
    assert UNKNOWN in apart.target.encode(("rennt", "ü")) and UNKNOWN in apart.source.encode(("dog",))
    both = VocabularyPair.of(TRAIN, subwords=20, shared=True)
    assert both.source is both.target
    assert both.source.decode(both.source.encode(german + english)) == [*german, *english]


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"pieces": 20}, {"pieces": 20, "shared": True}])
def test_what_is_restored_is_the_same(options: dict[str, int]) -> None:
    languages = VocabularyPair.of(TRAIN, **options)  # type: ignore[arg-type]
    file = io.BytesIO()
    torch.save(languages.state(), file)
    file.seek(0)
    restored = VocabularyPair.restore(torch.load(file, weights_only=True))
    assert restored.shared == languages.shared
    assert restored.sizes() == languages.sizes()
    assert restored.state() == languages.state()
    for old, new in [(languages.source, restored.source), (languages.target, restored.target)]:
        assert type(old) is type(new)
        assert old.encode(("the", "film", "der")) == new.encode(("the", "film", "der"))


# Sources as numbers.

DER, HUND = 4, 5
THE, DOG, FILM = 4, 5, 6


def test_sources_are_read_by_the_words_of_sources() -> None:
    texts: list[Tokens] = [("der", "hund", "wau"), ("film",)]
    sources = VocabularyPair.of(TRAIN).read(texts, CPU, copying=False)
    assert sources.numbers.tolist() == [[DER, HUND, UNKNOWN], [6, 0, 0]]
    assert sources.lengths.tolist() == [3, 1]
    assert sources.copies is None
    assert sources.unknown == ((), ())


def test_where_words_are_copied_unknown_ones_have_numbers_after_all_others() -> None:
    texts: list[Tokens] = [("der", "film", "wau", "miau", "wau"), ("muh", "film")]
    languages = VocabularyPair.of(TRAIN)
    sources = languages.read(texts, CPU, copying=True)
    assert sources.numbers.tolist() == [[DER, 6, UNKNOWN, UNKNOWN, UNKNOWN], [UNKNOWN, 6, 0, 0, 0]]
    assert sources.copies is not None
    # Among the eight words of targets film is 6; the others are not among them, each row's own from 8 on.
    assert sources.copies.tolist() == [[8, FILM, 9, 10, 9], [8, FILM, 0, 0, 0]]
    assert sources.unknown == (("der", "wau", "miau"), ("muh",))
    assert languages.target.decode([THE, 10, 8, 9], sources.unknown[0]) == ["the", "miau", "der", "wau"]
    assert languages.target.encode(("the", "miau", "muh"), sources.unknown[0]) == [THE, 10, UNKNOWN]


def test_where_pieces_are_copied_none_is_unknown() -> None:
    languages = VocabularyPair.of(TRAIN, subwords=20, shared=True)
    sources = languages.read([("der", "rund"), ("film",)], CPU, copying=True)
    assert sources.copies is not None
    assert torch.equal(sources.copies, sources.numbers)
    assert sources.unknown == ((), ())


# What is refused.


def test_a_corpus_without_words_to_say_is_refused() -> None:
    assert targets_of(TRAIN) == (("the", "dog", "runs"), ("the", "film"), ("the", "dog"))
    for targets in (None, ("plus", "minus")):
        with pytest.raises(InputError, match=r"^task=translate needs a corpus of pairs of texts, such as corpus=rev"):
            VocabularyPair.of(Examples((("one",), ("two",)), targets))


def test_more_pieces_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match=r"^task\.subwords=1000 cannot be found in the corpus"):
        VocabularyPair.of(TRAIN, subwords=1000)
