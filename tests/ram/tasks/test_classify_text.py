"""Classification of texts with weights set by hand, and learning of negations."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ram.attention.scores import Dot, General
from ram.attention.selection import Unnormalized
from ram.baselines import NoBaseline
from ram.corpora import Examples, negation
from ram.corpora.vocabulary import UNKNOWN
from ram.inference.text import TextClassifier
from ram.plots.text import direction_of_words, weights_over_words
from ram.sequence import interfaces
from ram.sequence.classifiers import Classifier
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, SumPooling
from ram.tasks import Embedding
from ram.tasks.classify_text import ClassifyTextTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, train

TRAIN = Examples((("good", "film"), ("bad", "film"), ("bad",), ("film",)), ("pos", "neg", "neg", "pos"))
TEST = Examples(
    (("good", "film"), ("bad",), ("bad", "good", "good"), ("film", "strange")),
    ("pos", "neg", "neg", "pos"),
)
"""Predicted: pos with probability 3/4, neg with 2/3, pos with 9/11 and neg with 5/6."""

VECTORS = {"film": [0.0, 0.0], "good": [0.0, math.log(3)], "bad": [math.log(2), 0.0]}
UNKNOWN_VECTOR = [math.log(5), 0.0]


def build_task(pooling: Any = SumPooling) -> ClassifyTextTask:
    """Builds a task whose logits are the pooled embeddings."""
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": interfaces.IdentityEncoder, "pooling": pooling}
    task = ClassifyTextTask(InMemoryCorpus(TRAIN, TEST, TEST), partial(Classifier, **parts), NoBaseline, batch_size=4)
    model = task.model
    model.out[0].weight.data, model.out[0].bias.data = torch.eye(2), torch.zeros(2)
    model.embedding.table.weight.data[UNKNOWN] = torch.tensor(UNKNOWN_VECTOR)
    for word, vector in VECTORS.items():
        model.embedding.table.weight.data[task.vocabulary.encode([word])] = torch.tensor(vector)
    return task


def restore(task: ClassifyTextTask, pooling: Any = SumPooling) -> TextClassifier:
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": interfaces.IdentityEncoder, "pooling": pooling}
    arguments = {"model": partial(Classifier, **parts), "corpus": InMemoryCorpus(TRAIN, TEST, TEST), "device": "cpu"}
    return ClassifyTextTask.restore(task.state_dict(), arguments)  # type: ignore[return-value]


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_error_and_loss_match_manual_values(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("corpus", "classify_text"):
        monkeypatch.setattr(f"ram.tasks.{module}.EVALUATION_BATCH_SIZE", rows)
    task = build_task().eval()
    measured = task.evaluate("test")
    assert measured.keys() == {"error", "loss"}
    assert measured["error"] == 50
    assert measured["loss"] == pytest.approx(-math.log(3 / 4 * 2 / 3 * 2 / 11 * 1 / 6) / 4)
    found = task.classify("test")
    correct = found.probability.gather(1, found.labels[:, None])[:, 0]
    torch.testing.assert_close(correct, torch.tensor([3 / 4, 2 / 3, 2 / 11, 1 / 6]))
    assert found.inputs == [" ".join(text) for text in task.split("test").texts]


def test_loss_and_accuracy_of_a_step_match_manual_values() -> None:
    result = build_task()(0)
    # Good film and film are pos with 3/4 and 1/2, bad film and bad neg with 2/3 each. A tie predicts the first class.
    assert result.loss.item() == pytest.approx(-math.log(3 / 4 * 1 / 2 * 2 / 3 * 2 / 3) / 4)
    assert result.metrics() == pytest.approx({"loss/answer": result.loss.item(), "train/accuracy": 75})


def test_prediction_matches_manual_values() -> None:
    task = build_task()
    prediction = restore(task).predict([" ".join(text) for text in TEST.texts])
    assert prediction.label == ("pos", "neg", "pos", "neg")
    expected = [[1 / 4, 3 / 4], [2 / 3, 1 / 3], [2 / 11, 9 / 11], [5 / 6, 1 / 6]]
    torch.testing.assert_close(prediction.probability, torch.tensor(expected))
    assert prediction.tokens == TEST.texts
    assert prediction.weights is None
    assert not prediction.probability.requires_grad


def test_prediction_has_attention_weights_without_padding() -> None:
    pooling = partial(AttentionPooling, num_queries=1, score=Dot)
    task = build_task(pooling)
    task.model.pooling.attention.query.data = torch.tensor([[1.0, 0.0]])  # highest for unknown words
    weights = restore(task, pooling).predict(["film bad strange", "good film"]).weights
    assert weights is not None
    assert [tuple(each.shape) for each in weights] == [(1, 3), (1, 2)]
    torch.testing.assert_close(weights[0], torch.tensor([[1 / 8, 2 / 8, 5 / 8]]))
    torch.testing.assert_close(weights[1], torch.tensor([[1 / 2, 1 / 2]]))


def test_pictures_without_attention_show_gradients_and_log_odds() -> None:
    task = build_task().eval()
    pictures = task.pictures("test")
    assert pictures.keys() == {"attention.png", "words.png", "words"}
    # The gradient of either logit is 1 for every word.
    labels = [("pos", "pos"), ("neg", "neg"), ("pos", "neg"), ("neg", "pos")]
    expected = weights_over_words(TEST.texts, None, torch.ones(4, 3), *zip(*labels, strict=True))
    assert np.array_equal(pictures["attention.png"], expected)
    words = ["bad", "film", "good"]
    log_odds = torch.tensor([-math.log(2), 0, math.log(3)])
    assert np.array_equal(pictures["words.png"], direction_of_words(words, log_odds, ["neg", "pos"]))
    assert all(value.grad is None for value in task.parameters())


def test_pictures_show_attention_weights_and_gradients() -> None:
    pooling = partial(AttentionPooling, select=Unnormalized)
    task = build_task(pooling).eval()
    task.model.pooling.attention.query.data = torch.tensor([[1.0, -1.0]])
    scores = {word: x - y for word, (x, y) in (VECTORS | {"strange": UNKNOWN_VECTOR}).items()}
    weights = torch.tensor([[[scores[word] for word in text] + [0.0] * (3 - len(text))] for text in TEST.texts])
    # The logits are the sum of (q . v) v, so that the gradient of logit k is (q . v) e_k + v_k q.
    predicted, gradients = [], torch.zeros(4, 3)
    for row, text in enumerate(TEST.texts):
        vectors = [torch.tensor((VECTORS | {"strange": UNKNOWN_VECTOR})[word]) for word in text]
        logits = sum(scores[word] * vector for word, vector in zip(text, vectors, strict=True))
        best = int(logits.argmax())
        predicted.append(("neg", "pos")[best])
        for position, (word, vector) in enumerate(zip(text, vectors, strict=True)):
            gradient = scores[word] * torch.eye(2)[best] + vector[best] * torch.tensor([1.0, -1.0])
            gradients[row, position] = gradient.norm()
    expected = weights_over_words(TEST.texts, weights, gradients, predicted, ["pos", "neg", "neg", "pos"])
    drawn = task.pictures("test")["attention.png"]
    assert isinstance(drawn, np.ndarray)
    assert (abs(drawn.astype(int) - expected.astype(int)) > 1).mean() < 1e-3  # rounding


def test_embedding_of_words_has_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = build_task().eval().pictures("test")["words"]
    assert isinstance(embedding, Embedding)
    assert embedding.metadata == {
        "word": ("film", "bad", "good"),
        "class": ["neg", "neg", "pos"],
    }  # ties are the first class
    assert embedding.vectors.tolist() == torch.tensor([VECTORS[word] for word in ("film", "bad", "good")]).tolist()
    assert not embedding.vectors.requires_grad
    monkeypatch.setattr("ram.tasks.classify_text._NUM_EMBEDDED", 2)
    embedding = build_task().eval().pictures("test")["words"]
    assert isinstance(embedding, Embedding)
    assert embedding.metadata["word"] == ("film", "bad")
    assert embedding.vectors.shape == (2, 2)


def test_three_classes_have_no_log_odds_figure() -> None:
    corpus = Examples(TRAIN.texts, ("a", "b", "c", "a"))
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": interfaces.IdentityEncoder, "pooling": SumPooling}
    task = ClassifyTextTask(InMemoryCorpus(corpus), partial(Classifier, **parts), NoBaseline).eval()
    assert task.pictures("test").keys() == {"attention.png", "words"}


def test_pictures_work_without_gradients_of_the_caller() -> None:
    with torch.no_grad():
        assert "attention.png" in build_task().eval().pictures("test")


def test_negation_needs_contextual_attention() -> None:
    def error(pooling: Any) -> float:
        parts = {
            "embedding": partial(TokenEmbedding, size=16),
            "encoder": interfaces.IdentityEncoder,
            "pooling": pooling,
        }
        task = ClassifyTextTask(negation.Negation(size=2000), partial(Classifier, **parts), NoBaseline)
        train(task, range(4 * task.steps_per_epoch), torch.optim.Adam(task.parameters(), 0.01))
        return task.eval().evaluate("test")["error"]

    assert error(partial(ContextualAttentionPooling, score=General, select=Unnormalized)) < 2
    assert error(SumPooling) > 40
