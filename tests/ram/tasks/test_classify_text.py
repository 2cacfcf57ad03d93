"""Classification of texts, with weights set by hand, and what can be learnt from a negation."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ram.attention.scores import Dot, General
from ram.attention.selection import Unnormalised
from ram.baselines import NoBaseline
from ram.corpora import Examples, Tokens, negation
from ram.corpora.vocabulary import UNKNOWN
from ram.inference.text import TextClassifier
from ram.plots.text import direction_of_words, weights_over_words
from ram.sequence import encoders
from ram.sequence.classifiers import Classifier
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, SumPooling
from ram.tasks import Embedding
from ram.tasks.classify_text import ClassifyTextTask

TRAIN = Examples((("good", "film"), ("bad", "film"), ("bad",), ("film",)), ("pos", "neg", "neg", "pos"))
TEST = Examples(
    (("good", "film"), ("bad",), ("bad", "good", "good"), ("film", "strange")),
    ("pos", "neg", "neg", "pos"),
)
"""Said of them: pos with 3/4, neg with 2/3, pos with 9/11 and neg with 5/6."""

VECTORS = {"film": [0.0, 0.0], "good": [0.0, math.log(3)], "bad": [math.log(2), 0.0]}
UNHEARD_OF = [math.log(5), 0.0]


@dataclass(frozen=True)
class Given:
    train: Examples
    test: Examples

    def load(self, split: str) -> Examples:
        return self.train if split == "train" else self.test

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())


def by_hand(pooling: Any = SumPooling) -> ClassifyTextTask:
    """Logits are the sum of word vectors, or what else is read of them."""
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": encoders.IdentityEncoder, "pooling": pooling}
    task = ClassifyTextTask(Given(TRAIN, TEST), partial(Classifier, **parts), NoBaseline, batch_size=4)
    model = task.model
    model.out[0].weight.data, model.out[0].bias.data = torch.eye(2), torch.zeros(2)
    model.embedding.table.weight.data[UNKNOWN] = torch.tensor(UNHEARD_OF)
    for word, vector in VECTORS.items():
        model.embedding.table.weight.data[task.vocabulary.encode([word])] = torch.tensor(vector)
    return task


def restored(task: ClassifyTextTask, pooling: Any = SumPooling) -> TextClassifier:
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": encoders.IdentityEncoder, "pooling": pooling}
    arguments = {"model": partial(Classifier, **parts), "corpus": Given(TRAIN, TEST), "device": "cpu"}
    return ClassifyTextTask.restore(task.state_dict(), arguments)  # type: ignore[return-value]


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_error_and_loss_by_hand(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.corpus.EVALUATION_BATCH_SIZE", rows)
    measured = by_hand().eval().evaluate("test")
    assert measured.keys() == {"error", "loss"}
    assert measured["error"] == 50
    assert measured["loss"] == pytest.approx(-math.log(3 / 4 * 2 / 3 * 2 / 11 * 1 / 6) / 4)


def test_a_step_by_hand() -> None:
    result = by_hand()(0)
    # All four: good film and film are pos with 3/4 and 1/2, bad film and bad neg with 2/3 each; of equals the first.
    assert result.loss.item() == pytest.approx(-math.log(3 / 4 * 1 / 2 * 2 / 3 * 2 / 3) / 4)
    assert result.metrics() == pytest.approx({"loss/answer": result.loss.item(), "train/accuracy": 75})


def test_a_prediction_by_hand() -> None:
    task = by_hand()
    prediction = restored(task).predict([" ".join(text) for text in TEST.texts])
    assert prediction.label == ("pos", "neg", "pos", "neg")
    expected = [[1 / 4, 3 / 4], [2 / 3, 1 / 3], [2 / 11, 9 / 11], [5 / 6, 1 / 6]]
    torch.testing.assert_close(prediction.probability, torch.tensor(expected))
    assert prediction.tokens == TEST.texts
    assert prediction.weights is None
    assert not prediction.probability.requires_grad


def test_the_weights_of_a_prediction_are_those_of_its_words() -> None:
    pooling = partial(AttentionPooling, num_queries=1, score=Dot)
    task = by_hand(pooling)
    task.model.pooling.attention.query.data = torch.tensor([[1.0, 0.0]])  # badness, unheard-of words being the worst
    weights = restored(task, pooling).predict(["film bad strange", "good film"]).weights
    assert weights is not None
    assert [tuple(each.shape) for each in weights] == [(1, 3), (1, 2)]
    torch.testing.assert_close(weights[0], torch.tensor([[1 / 8, 2 / 8, 5 / 8]]))
    torch.testing.assert_close(weights[1], torch.tensor([[1 / 2, 1 / 2]]))


def test_the_pictures_show_what_each_word_counts() -> None:
    task = by_hand().eval()
    pictures = task.pictures("test")
    assert pictures.keys() == {"attention.png", "words.png", "words"}
    # The gradient of either logit is 1 for every word; what is said is pos, neg, pos, neg.
    said = [("pos", "pos"), ("neg", "neg"), ("pos", "neg"), ("neg", "pos")]
    expected = weights_over_words(TEST.texts, None, torch.ones(4, 3), *zip(*said, strict=True))
    assert np.array_equal(pictures["attention.png"], expected)
    words = ["bad", "film", "good"]
    lean = torch.tensor([-math.log(2), 0, math.log(3)])
    assert np.array_equal(pictures["words.png"], direction_of_words(words, lean, ["neg", "pos"]))
    assert all(value.grad is None for value in task.parameters())


def test_the_pictures_show_what_is_weighed() -> None:
    pooling = partial(AttentionPooling, select=Unnormalised)
    task = by_hand(pooling).eval()
    task.model.pooling.attention.query.data = torch.tensor([[1.0, -1.0]])
    counts = {word: x - y for word, (x, y) in (VECTORS | {"strange": UNHEARD_OF}).items()}
    weights = torch.tensor([[[counts[word] for word in text] + [0.0] * (3 - len(text))] for text in TEST.texts])
    # What is read is the sum of (q . v) v, so that the gradient of logit k is (q . v) e_k + v_k q.
    given, influence = [], torch.zeros(4, 3)
    for row, text in enumerate(TEST.texts):
        seen = [torch.tensor((VECTORS | {"strange": UNHEARD_OF})[word]) for word in text]
        logits = sum(counts[word] * vector for word, vector in zip(text, seen, strict=True))
        best = int(logits.argmax())
        given.append(("neg", "pos")[best])
        for place, (word, vector) in enumerate(zip(text, seen, strict=True)):
            gradient = counts[word] * torch.eye(2)[best] + vector[best] * torch.tensor([1.0, -1.0])
            influence[row, place] = gradient.norm()
    expected = weights_over_words(TEST.texts, weights, influence, given, ["pos", "neg", "neg", "pos"])
    drawn = task.pictures("test")["attention.png"]
    assert isinstance(drawn, np.ndarray)
    assert (abs(drawn.astype(int) - expected.astype(int)) > 1).mean() < 1e-3  # but for rounded shades


def test_the_projector_gets_every_word_with_the_class_it_leans_to(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = by_hand().eval().pictures("test")["words"]
    assert isinstance(embedding, Embedding)
    assert embedding.metadata == {"word": ("film", "bad", "good"), "class": ["neg", "neg", "pos"]}  # of equals the first
    assert embedding.vectors.tolist() == torch.tensor([VECTORS[word] for word in ("film", "bad", "good")]).tolist()
    assert not embedding.vectors.requires_grad
    monkeypatch.setattr("ram.tasks.classify_text._NUM_EMBEDDED", 2)
    embedding = by_hand().eval().pictures("test")["words"]
    assert isinstance(embedding, Embedding)
    assert embedding.metadata["word"] == ("film", "bad")
    assert embedding.vectors.shape == (2, 2)


def test_of_three_classes_no_word_stands_between_two() -> None:
    corpus = Examples(TRAIN.texts, ("a", "b", "c", "a"))
    parts = {"embedding": partial(TokenEmbedding, size=2), "encoder": encoders.IdentityEncoder, "pooling": SumPooling}
    task = ClassifyTextTask(Given(corpus, corpus), partial(Classifier, **parts), NoBaseline).eval()
    assert task.pictures("test").keys() == {"attention.png", "words"}


def test_drawing_needs_no_gradient_of_the_caller() -> None:
    with torch.no_grad():
        assert "attention.png" in by_hand().eval().pictures("test")


def test_a_negation_is_seen_by_context_alone() -> None:
    def error(pooling: Any) -> float:
        parts = {"embedding": partial(TokenEmbedding, size=16), "encoder": encoders.IdentityEncoder, "pooling": pooling}
        task = ClassifyTextTask(negation.Negation(size=2000), partial(Classifier, **parts), NoBaseline)
        optimizer = torch.optim.Adam(task.parameters(), 0.01)
        for step in range(4 * task.steps_per_epoch):
            loss = task(step).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return task.eval().evaluate("test")["error"]

    assert error(partial(ContextualAttentionPooling, score=General, select=Unnormalised)) < 2
    assert error(SumPooling) > 40
