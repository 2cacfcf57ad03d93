"""Tagging with weights set by hand, and learning of labels that depend on the next word."""

import math
import random
from functools import partial
from typing import Any

import pytest
import torch

from ram.baselines import NoBaseline
from ram.corpora import Examples
from ram.corpora.vocabulary import UNKNOWN
from ram.inference.text import TextTagger
from ram.sequence import interfaces
from ram.sequence.classifiers import Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import RecurrentEncoder
from ram.tasks.tag import TagTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, train

TRAIN = Examples(
    (("dogs", "run"), ("big", "dogs", "run", "fast"), ("run",)), (("N", "V"), ("A", "N", "V", "A"), ("V",))
)
TEST = Examples((("dogs", "run", "strange"), ("run", "run", "dogs", "dogs")), (("N", "V", "N"), ("N", "V", "V", "N")))
"""Predicted: N V A and V V N N."""

LOGITS = {"dogs": [0.0, math.log(6), 0.0], "run": [0.0, 0.0, math.log(2)], "big": [9.0, 0.0, 0.0], "fast": [0.0] * 3}
UNKNOWN_LOGITS = [math.log(3), 0.0, 0.0]


MODEL = partial(Tagger, embedding=partial(TokenEmbedding, size=3), encoder=interfaces.IdentityEncoder)


def build_task(test: Examples = TEST, **options: Any) -> TagTask:
    """Builds a task whose embeddings are the logits of the labels."""
    task = TagTask(InMemoryCorpus(TRAIN, test, test), MODEL, NoBaseline, **({"batch_size": 3} | options))
    model = task.model
    model.out.weight.data, model.out.bias.data = torch.eye(3), torch.zeros(3)
    model.embedding.table.weight.data[UNKNOWN] = torch.tensor(UNKNOWN_LOGITS)
    for word, logits in LOGITS.items():
        model.embedding.table.weight.data[task.vocabulary.encode([word])] = torch.tensor(logits)
    return task


def test_classes_are_the_sorted_labels_of_training() -> None:
    assert build_task().classes == ("A", "N", "V")


def test_padding_has_no_target() -> None:
    token_ids, lengths, targets = build_task().make_batch(TRAIN)
    assert token_ids.shape == (3, 4)
    assert lengths.tolist() == [2, 4, 1]
    assert targets.tolist() == [[1, 2, -100, -100], [0, 1, 2, 0], [2, -100, -100, -100]]


@pytest.mark.parametrize("rows", [1, 256])
def test_error_and_f1_match_manual_values(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.corpus.EVALUATION_BATCH_SIZE", rows)
    measured = build_task().eval().evaluate("test")
    # N V A for N V N, and V V N N for N V V N: three of seven are wrong. N is predicted 3 times, a target 4 times and
    # correct 2 times; V is predicted 3 times, a target 3 times and correct 2 times. A is no target.
    assert measured.keys() == {"error", "f1"}
    assert measured["error"] == pytest.approx(100 * 3 / 7)
    assert measured["f1"] == pytest.approx(100 * (2 * 2 / (3 + 4) + 2 * 2 / (3 + 3)) / 2)


def test_f1_is_averaged_over_the_labels() -> None:
    rare = Examples((("run",) * 9 + ("big",),), (("V",) * 9 + ("A",),))
    assert build_task(rare).eval().evaluate("test") == pytest.approx({"error": 0, "f1": 100})
    missed = Examples((("run",) * 9 + ("fast", "run"),), (("V",) * 9 + ("N", "V"),))
    # V has F1 1; N is never predicted, because "fast" is predicted as A.
    assert build_task(missed).eval().evaluate("test") == pytest.approx({"error": 100 / 11, "f1": 50})


def test_loss_is_the_mean_over_words() -> None:
    result = build_task()(0)
    probabilities = {"dogs": 6 / 8, "run": 2 / 4, "big": math.exp(9) / (math.exp(9) + 2), "fast": 1 / 3}
    expected = -sum(math.log(probabilities[word]) for text in TRAIN.texts for word in text) / 7
    assert result.loss.item() == pytest.approx(expected, rel=1e-5)
    assert result.metrics() == pytest.approx({"loss/answer": expected, "train/accuracy": 100}, rel=1e-5)


def test_written_tags_show_predictions_and_differing_targets() -> None:
    expected = "dogs/N run/V strange/A(N)\nrun/V(N) run/V dogs/N(V) dogs/N\n"
    assert build_task().eval().pictures("test") == {"tags.txt": expected}


def test_at_most_12_texts_are_written() -> None:
    many = Examples(TEST.texts * 10, TEST.targets * 10)  # type: ignore[operator]
    assert build_task(many).eval().pictures("test")["tags.txt"].count("\n") == 12


def test_prediction_matches_manual_values() -> None:
    task = build_task()
    model = TagTask.restore(
        task.state_dict(), {"model": MODEL, "corpus": InMemoryCorpus(TRAIN, TEST, TEST), "device": "cpu"}
    )
    assert isinstance(model, TextTagger)
    assert model.predict(["dogs run strange", "big", "run dogs"]) == [
        [("dogs", "N"), ("run", "V"), ("strange", "A")],
        [("big", "A")],
        [("run", "V"), ("dogs", "N")],
    ]


def next_words(count: int, seed: int) -> Examples:
    """Builds texts whose labels are the next word, and the word itself at the end."""
    generator = random.Random(seed)
    texts = tuple(tuple(generator.choice("ab") for _ in range(generator.randint(3, 6))) for _ in range(count))
    return Examples(texts, tuple((*text[1:], text[-1]) for text in texts))


def test_labels_of_the_next_word_need_a_bidirectional_encoder() -> None:
    def error(bidirectional: bool) -> float:
        encoder = partial(RecurrentEncoder, cell="gru", size=8, bidirectional=bidirectional)
        model = partial(Tagger, embedding=partial(TokenEmbedding, size=8), encoder=encoder)
        task = TagTask(InMemoryCorpus(next_words(256, 0), test=next_words(128, 1)), model, NoBaseline, seed=1)
        train(task, range(150), torch.optim.Adam(task.parameters(), 0.02))
        return task.eval().evaluate("test")["error"]

    assert error(bidirectional=True) < 1
    assert error(bidirectional=False) > 25
