"""Translation tasks: metrics, alignments and pictures."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from torch import Tensor

from ram.attention.selection import Diagonal
from ram.corpora import Examples, parallel_files, reversal
from ram.corpora.vocabulary import END, START
from ram.metrics.translation import bleu_and_chrf
from ram.sequence import interfaces
from ram.sequence.context import CrossAttention
from ram.sequence.recurrent import RecurrentDecoder
from ram.sequence.search import Search
from tests.ram.tasks.text_corpora import InMemoryCorpus, parallel
from tests.ram.tasks.translation_models import (
    ANIMALS,
    MODELS,
    NAMES,
    SENTENCES,
    STOCHASTIC,
    TRANSITIONS,
    A,
    B,
    bilstm,
    build_task,
    generate_texts,
    markov_task,
    repeating_task,
    transformer,
)


def test_perplexity_and_accuracy_match_manual_values() -> None:
    """The targets are a b, b, b a and b; predicted are a at the start, b after a and the end after b."""
    probabilities = [*(0.6, 0.5, 0.9), *(0.4, 0.9), *(0.4, 0.1, 0.25), *(0.4, 0.9)]
    metrics = markov_task(bleu=False).eval().evaluate("test")
    assert metrics.keys() == {"perplexity", "accuracy", "exact"}
    assert metrics["perplexity"] == pytest.approx(math.prod(probabilities) ** (-1 / 10), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(50)  # three, one, none and one are correct


@pytest.mark.parametrize("name", [*MODELS, "stochastic"])
def test_metrics_do_not_depend_on_the_batch_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS.get(name, STOCHASTIC)
    aligned = Examples(ANIMALS.texts, ANIMALS.targets, alignments=((0, 1, 2), (0, 1), (0,), (0, -1, 2)))
    task = build_task(InMemoryCorpus(ANIMALS, test=aligned), **model).eval()
    metrics = task.evaluate("test")
    has_weights = name not in ("no_attention", "decoder_only", "causal")
    assert ("alignment_error" in metrics) == has_weights
    for module in ("ram.tasks.corpus", "ram.inference.translation"):
        monkeypatch.setattr(f"{module}.EVALUATION_BATCH_SIZE", 1)
    assert task.evaluate("test") == pytest.approx(metrics, rel=1e-4)
    assert task.evaluate("validation").keys() == metrics.keys() - {"alignment_error"}


def test_generation_uses_the_beam_size_of_the_search_or_of_the_call() -> None:
    assert markov_task().eval().evaluate("test")["exact"] == 25  # a b
    wide = markov_task(search=Search(beam_size=2, length_penalty=0.0)).eval()
    assert wide.evaluate("test")["exact"] == 50  # b
    assert generate_texts(wide, "x") == [["b"]]
    assert generate_texts(wide, "x", beam_size=1) == [["a b"]]
    assert generate_texts(wide, "x", "y x", n_best=2) == [["b", "a b"]] * 2
    ((_, best), (_, second)) = wide.generate(parallel("x: b"), n_best=2)[0]
    assert best.log_prob == pytest.approx(math.log(0.36), rel=1e-5)
    assert second.log_prob == pytest.approx(math.log(0.27), rel=1e-5)
    mean = markov_task(search=Search(beam_size=2)).eval()  # mean per token: 0.6 = 0.36^(1/2) < 0.646 = 0.27^(1/3)
    assert generate_texts(mean, "x") == [["a b"]]


def test_generation_stops_at_the_maximum_length() -> None:
    endless = markov_task(transitions={**TRANSITIONS, B: {A: 1.0}}).eval()
    assert generate_texts(endless, "x")[0][0].split() == ["a", "b"] * 6  # twice the length of the source plus ten
    assert len(generate_texts(endless, "x y x y x")[0][0].split()) == 20
    short = markov_task(transitions={**TRANSITIONS, B: {A: 1.0}}, search=Search(max_length=3)).eval()
    assert generate_texts(short, "x", "x y x y x") == [["a b a"]] * 2


def test_bleu_and_chrf_of_generated_texts_match_sacrebleu() -> None:
    task = repeating_task(SENTENCES)
    assert SENTENCES.targets is not None
    predictions, targets = ([" ".join(words) for words in side] for side in (SENTENCES.texts, SENTENCES.targets))
    assert generate_texts(task, *predictions) == [[text] for text in predictions]
    metrics = task.evaluate("test")
    assert metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(predictions, [targets], lowercase=True).score)
    lower = [[text.lower() for text in side] for side in (predictions, targets)]
    assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(lower[0], [lower[1]]).score)
    assert metrics["exact"] == 20
    assert 0 < metrics["bleu"] < 100 and 0 < metrics["chrf"] < 100


def test_bleu_matches_manual_values() -> None:
    """The n-gram precisions are 4/5, 3/4, 2/3 and 1/2, without brevity penalty."""
    corpus = InMemoryCorpus(SENTENCES, test=SENTENCES.select([1]))
    metrics = repeating_task(corpus).evaluate("test")
    assert metrics["bleu"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))


def test_predictions_are_compared_with_all_references() -> None:
    several = Examples(
        SENTENCES.texts[:3],
        (SENTENCES.texts[0], ("a", "dog", "flees"), ("two", "men", "are")),
        (("a cat sat", "the cat sat on the mat"), ("a dog runs far off", "a dog runs off"), ("two men",)),
    )
    task = repeating_task(InMemoryCorpus(SENTENCES, test=several))
    metrics = task.evaluate("test")
    assert metrics["exact"] == pytest.approx(100 * 2 / 3)
    predictions = [" ".join(text) for text in several.texts]
    streams: list[Any] = [
        ["a cat sat", "a dog runs far off", "two men"],
        ["the cat sat on the mat", "a dog runs off", None],
    ]
    assert metrics["bleu"] == pytest.approx(sacrebleu.corpus_bleu(predictions, streams, lowercase=True).score)
    assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(predictions, streams).score)
    first = bleu_and_chrf(predictions, [references[:1] for references in several.references or ()])["bleu"]
    assert metrics["bleu"] > first


def test_lowercase_predictions_can_be_exact(tmp_path: Path) -> None:
    path = tmp_path / "sentences"
    path.write_text("A man runs.\nTwo dogs sleep!\nA cat, tired, sits.\n" * 4)
    task = repeating_task(parallel_files.ParallelFiles(str(path), str(path)))
    assert task.evaluate("test")["bleu"] == pytest.approx(100)
    assert task.evaluate("test")["exact"] == 100


# Alignments.


REVERSAL = reversal.Reversal(max_length=6, size=60)


@pytest.mark.parametrize("decoder", ["luong", "bahdanau", "transformer"])
def test_alignment_error_matches_manual_values(decoder: str) -> None:
    """In a reversal, the diagonal from the end is always right; the other one only in the middle of odd lengths."""

    def error(select: Any, corpus: Any) -> float:
        if decoder == "transformer":
            parts = {"encoder": interfaces.IdentityEncoder, "decoder": partial(transformer, select=select)}
        else:
            attend = "after" if decoder == "luong" else "before"
            context = partial(CrossAttention, select=select)
            parts = {
                "encoder": bilstm,
                "decoder": partial(RecurrentDecoder, size=8, context=context, attend=attend),
            }
        return build_task(corpus, **parts).eval().evaluate("validation")["alignment_error"]

    lengths = [len(text) for text in REVERSAL.load("validation").texts]
    assert error(partial(Diagonal, from_end=True), REVERSAL) == 0
    wrong = sum(length - length % 2 for length in lengths) / sum(lengths)
    assert error(Diagonal, REVERSAL) == pytest.approx(100 * wrong, rel=1e-5)
    # Neither unaligned words nor the end count.
    corpus = InMemoryCorpus(parallel("hund der: the dog", "die katze: a cat sleeps", alignments=((1, 0), (-1, 1, 0))))
    assert error(Diagonal, corpus) == pytest.approx(75)
    assert error(partial(Diagonal, from_end=True), corpus) == pytest.approx(25)


def test_models_without_attention_have_no_alignment_error() -> None:
    assert "alignment_error" not in build_task(REVERSAL, **MODELS["no_attention"]).eval().evaluate("validation")


def test_subword_models_have_no_alignment_error() -> None:
    texts = parallel("lupum puella timet: the girl fears the wolf", alignments=((-1, 1, 2, -1, 0),))
    task = build_task(texts, subwords=30, shared_vocabulary=True, **MODELS["luong"]).eval()
    metrics = task.evaluate("test")
    assert math.isfinite(metrics["perplexity"]) and "alignment_error" not in metrics


# Pictures.

Drawn = list[tuple[Tensor, list[str], list[str]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Records weights, queries and keys of every alignment figure."""
    calls: Drawn = []

    def record(weights: Tensor, queries: list[str], keys: list[str]) -> str:
        calls.append((weights, queries, keys))
        return f"{len(calls)}"

    monkeypatch.setattr("ram.tasks.translate.alignment", record)
    return calls


def test_pictures_are_texts_alignments_and_lengths() -> None:
    pictures = repeating_task(NAMES, copy=True).pictures("test")
    images = {"alignment_1.png", "alignment_2.png", "alignment_3.png", "lengths.png"}
    assert pictures.keys() == images | {"translations.txt", "bleu.txt", "lengths.csv"}
    assert str(pictures["bleu.txt"]).startswith("BLEU  nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")
    for name in images:
        image = pictures[name]
        assert isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.std() > 1
    without_attention = build_task(ANIMALS, **MODELS["no_attention"], bleu=False).eval().pictures("test")
    assert without_attention.keys() == {"translations.txt", "lengths.png", "lengths.csv"}


def test_alignments_show_predictions_and_sources(drawn: Drawn) -> None:
    """Three examples from short to long: the queries are the prediction and the end, the keys the source."""
    repeating_task(NAMES, copy=True).pictures("test")
    assert [queries for _, queries, _ in drawn] == [
        ["hello", "<end>"],
        ["am", "[gnu]", "<end>"],
        ["my", "name", "is", "[zorblo]", "<end>"],
    ]
    assert [" ".join(keys) for _, _, keys in drawn] == ["hello", "am gnu", "my name is zorblo"]
    for weights, queries, keys in drawn:
        assert weights.shape == (len(queries), len(keys))
        assert torch.equal(weights[:-1], torch.eye(len(keys))) and not weights[-1].any()


def test_exact_matches_are_counted_by_the_length_of_the_source() -> None:
    test = parallel("no: no", "yes: no", "yes: yes", "a cat: a cat", "two men sat: two men are here")
    task = repeating_task(InMemoryCorpus(SENTENCES, test=test))
    assert task.pictures("test")["lengths.csv"] == "length,correct,texts\n1,2,3\n2,1,1\n3,0,1\n"


def test_at_most_24_translations_are_written() -> None:
    assert SENTENCES.targets is not None
    many = Examples(SENTENCES.texts * 10, SENTENCES.targets * 10)
    written = repeating_task(InMemoryCorpus(SENTENCES, test=many)).pictures("test")["translations.txt"]
    assert written.count("source      ") == written.count("reference   ") == written.count("prediction  ") == 24


def test_pictures_include_empty_predictions() -> None:
    task = markov_task(transitions={**TRANSITIONS, START: {END: 1.0}}).eval()
    assert generate_texts(task, "x") == [[""]]
    assert task.evaluate("test")["exact"] == 0
    assert "prediction  \n" in task.pictures("test")["translations.txt"]
    empty = repeating_task(NAMES, copy=True)
    empty.model.out.bias.data[END], empty.model.gate.bias.data[0] = 1000, 1000
    assert generate_texts(empty, "am gnu") == [[""]]
    assert "prediction  \n" in empty.pictures("test")["translations.txt"]
