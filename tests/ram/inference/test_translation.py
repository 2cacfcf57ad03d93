"""Restored translators: greedy decoding, beam search and sampling."""

import math
from collections import Counter
from functools import partial

import pytest
import torch

from envs import InputError
from ram.inference.translation import TextTranslator
from ram.sequence.search import Search
from ram.sequence.seq2seq import EncoderDecoder
from ram.tasks.translate import TranslateTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, UnavailableCorpus
from tests.ram.tasks.translation_models import (
    ANIMALS,
    MARKOV_MODEL,
    MARKOV_TRAIN,
    MODELS,
    build_task,
    generate_texts,
    markov_task,
    restore,
)


@pytest.mark.parametrize("subwords", [None, 30])
@pytest.mark.parametrize("name", ["luong", "copy", "transformer", "causal"])
def test_restored_model_equals_the_trained_model_and_needs_no_corpus(name: str, subwords: int | None) -> None:
    parts = {key: value for key, value in MODELS[name].items() if key != "shared_vocabulary"}
    task = build_task(ANIMALS, subwords=subwords, shared_vocabulary=True, seed=3, **parts).eval()
    model = restore(task, UnavailableCorpus(ANIMALS), Search(beam_size=2), **parts)
    assert isinstance(model, TextTranslator) and not model.model.training
    weights = model.model.state_dict()
    assert weights.keys() == task.model.state_dict().keys()
    assert all(torch.equal(value, weights[key]) for key, value in task.model.state_dict().items())
    texts = ["der hund rennt", "katze", "eine katze"]
    expected = generate_texts(task, *texts, beam_size=3, n_best=3)
    assert model.n_best(texts, 3) == [list(dict.fromkeys(best)) for best in expected]
    assert model.translate(texts, beam_size=1) == [best for (best,) in generate_texts(task, *texts)]
    assert model.translate(texts) == [best for (best,) in generate_texts(task, *texts, beam_size=2)]


def test_search_of_the_run_is_the_default() -> None:
    model = restore(markov_task(), search=Search(beam_size=2, length_penalty=0.0), **MARKOV_MODEL)
    assert model.translate(["x", "y"]) == ["b", "b"]
    assert model.translate(["x"], beam_size=1) == ["a b"]
    assert model.n_best(["x"], 2) == [["b", "a b"]]
    assert model.n_best(["x"], 1, beam_size=1) == [["a b"]]
    assert restore(markov_task(), **MARKOV_MODEL).translate(["x"]) == ["a b"]
    assert len(restore(markov_task(), **MARKOV_MODEL).n_best(["x"], 3)[0]) == 3  # the beam size grows with the count


def test_samples_follow_the_distribution_of_the_model() -> None:
    model = restore(markov_task(), **MARKOV_MODEL)
    sampled = Counter(model.sample(["x"] * 4000))
    for text, probability in {"b": 0.4 * 0.9, "a": 0.6 * 0.25, "a b": 0.6 * 0.5 * 0.9}.items():
        assert sampled[text] / 4000 == pytest.approx(
            probability, abs=4 * math.sqrt(probability * (1 - probability) / 4000)
        )
    assert model.sample(["x"] * 40) == model.sample(["x"] * 40) != model.sample(["x"] * 40, seed=1)
    for greedy in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.3}):
        assert model.sample(["x", "y x"], **greedy) == ["a b", "a b"]
    with pytest.raises(InputError, match="temperature must be"):
        model.sample(["x"], temperature=-1)
    with pytest.raises(InputError, match="at least one text"):
        model.sample([])


def test_empty_texts_and_wrong_counts_are_refused() -> None:
    model = restore(build_task(ANIMALS, **MODELS["luong"]), **MODELS["luong"])
    for texts in ([], (), "der hund"):
        with pytest.raises(InputError, match=r"^The model needs a list of at least one text\.$"):
            model.translate(texts)
    with pytest.raises(InputError, match=r"^Text 1 has no words: '  '\.$"):
        model.translate(["der", "  "])
    assert len(model.translate(["nie gehört"])) == 1
    with pytest.raises(InputError, match=r"^n_best must be in 1 \.\. beam_size \(2\), got 3\.$"):
        model.n_best(["der"], 3, beam_size=2)
    for count in (0, -1):
        with pytest.raises(InputError, match=rf"^n_best must be in 1 \.\. beam_size \(1\), got {count}\.$"):
            model.n_best(["der"], count)


def test_runs_without_a_search_are_restored() -> None:
    task = markov_task(search=None)
    arguments = {
        "model": partial(EncoderDecoder, **MARKOV_MODEL),
        "corpus": InMemoryCorpus(MARKOV_TRAIN),
        "search": None,
        "device": "cpu",
    }
    assert TranslateTask.restore(task.state_dict(), arguments).translate(["x"]) == ["a b"]


def test_beam_size_zero_is_refused() -> None:
    model = restore(build_task(ANIMALS, **MODELS["luong"]), **MODELS["luong"])
    with pytest.raises(InputError, match=r"^beam_size must be at least 1, got 0\.$"):
        model.translate(["der"], beam_size=0)


def test_n_best_texts_are_distinct() -> None:
    short = Search(max_length=2)
    task = build_task(ANIMALS, subwords=40, shared_vocabulary=True, search=short, **MODELS["luong"]).eval()
    generated = generate_texts(task, "katze", beam_size=900, n_best=900)[0]
    distinct = restore(task, search=short, **MODELS["luong"]).n_best(["katze"], 900)[0]
    assert distinct == list(dict.fromkeys(generated)) != generated
