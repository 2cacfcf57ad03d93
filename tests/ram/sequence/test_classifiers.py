"""Classifiers and taggers."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.scores import General
from ram.attention.selection import Hard
from ram.corpora.vocabulary import PADDING
from ram.sequence.classifiers import Classifier, Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import IdentityEncoder
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, LastState, SumPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder

VOCABULARY_SIZE = 9
hard = partial(AttentionPooling, num_queries=2, select=Hard)
ENCODERS: dict[str, Any] = {
    "identity": IdentityEncoder,
    "lstm": partial(RecurrentEncoder, size=5),
    "bigru": partial(RecurrentEncoder, cell="gru", size=3, bidirectional=True),
    "attentive": partial(AttentiveRecurrentEncoder, size=5, select=Hard),
    "transformer": partial(TransformerEncoder, size=6, num_heads=2, score=General, select=Hard),
}
POOLINGS: dict[str, Any] = {
    "sum": SumPooling,
    "last": LastState,
    "fixed": hard,
    "contextual": ContextualAttentionPooling,
}


def vectors(size: int = 4, **options: float) -> Any:
    return partial(TokenEmbedding, size=size, **options)


def classifier(
    encoder: Any = IdentityEncoder, pooling: Any = SumPooling, classes: int = 3, **options: Any
) -> Classifier:
    torch.manual_seed(0)
    return Classifier(VOCABULARY_SIZE, classes, vectors(), encoder, pooling, **options).double().eval()


def pad_texts(*texts: list[int]) -> tuple[Tensor, Tensor]:
    """Returns padded token ids and lengths."""
    longest = max(map(len, texts))
    padded = torch.tensor([text + [PADDING] * (longest - len(text)) for text in texts])
    return padded, torch.tensor(list(map(len, texts)))


TEXTS = ([4, 7, 5, 8, 4], [6], [8, 4, 1])


def test_a_sum_of_embeddings_is_logistic_regression() -> None:
    model = classifier(classes=2)
    table, out = model.embedding.table.weight, model.out[0]
    output = model(*pad_texts([4, 4, 7], [5]))
    for row, text in enumerate(([4, 4, 7], [5])):
        total = [sum(float(table[token, d].detach()) for token in text) for d in range(4)]
        expected = [
            sum(w * t for w, t in zip(weights, total, strict=True)) + bias
            for weights, bias in zip(out.weight.tolist(), out.bias.tolist(), strict=True)
        ]
        assert output.logits[row].tolist() == pytest.approx(expected)
        assert output.features[row].tolist() == pytest.approx([each / len(text) for each in total])
    assert output.log_prob is None and output.weights is None
    assert len(model.out) == 1


def test_the_hidden_layer_is_before_the_output_layer() -> None:
    model = classifier(hidden_size=5)
    first, _, second = model.out
    total = model.embedding.table.weight[[4, 7]].sum(0)
    hidden = (first.weight @ total + first.bias).clamp(min=0)
    assert 0 < int((hidden > 0).sum()) < 5  # both sides of the ReLU
    torch.testing.assert_close(model(*pad_texts([4, 7])).logits[0], second.weight @ hidden + second.bias)
    assert (first.out_features, second.out_features) == (5, 3)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_texts_do_not_depend_on_the_batch(encoder: str, pooling: str) -> None:
    model = classifier(ENCODERS[encoder], POOLINGS[pooling], hidden_size=5)
    output = model(*pad_texts(*TEXTS))
    assert output.logits.shape == (3, 3) and output.features.shape == (3, 4)
    queries = {"sum": None, "last": None, "fixed": 2, "contextual": 1}[pooling]
    assert (None if output.weights is None else output.weights.shape) == (queries and (3, queries, 5))
    is_hard = encoder in ("attentive", "transformer") or pooling == "fixed"
    assert (None if output.log_prob is None else output.log_prob.shape) == ((3,) if is_hard else None)
    for row, text in enumerate(TEXTS):
        alone = model(*pad_texts(text))
        torch.testing.assert_close(output.logits[row], alone.logits[0])
        torch.testing.assert_close(output.features[row], alone.features[0])
        if output.weights is not None:
            torch.testing.assert_close(output.weights[row, :, : len(text)], alone.weights[0])
        if output.log_prob is not None:
            torch.testing.assert_close(output.log_prob[row], alone.log_prob[0])


def test_the_log_prob_sums_over_encoder_and_pooling() -> None:
    model = classifier(ENCODERS["attentive"], hard)
    texts, lengths = pad_texts(*TEXTS)
    output = model(texts, lengths)
    encoded = model.encoder(model.embedding(texts), lengths)
    pooled = model.pooling(encoded.output, lengths)
    expected = [
        sum(encoded.log_prob[row, :length].tolist()) + float(pooled.log_prob[row].sum().detach())
        for row, length in enumerate(lengths.tolist())
    ]
    assert output.log_prob is not None
    assert output.log_prob.tolist() == pytest.approx(expected)


def test_the_dropout_of_the_pooled_vector_is_applied_in_training_only() -> None:
    model = Classifier(VOCABULARY_SIZE, 2, vectors(), IdentityEncoder, SumPooling, dropout=0.5)
    model.out[0].weight.data, model.out[0].bias.data = torch.eye(4)[:2], torch.zeros(2)
    texts = torch.full((4000, 1), 4)
    torch.manual_seed(0)
    logits, expected = model(texts, torch.ones(4000, dtype=torch.int64)).logits, model.embedding.table.weight[4, :2]
    dropped = logits == 0
    assert dropped.float().mean().item() == pytest.approx(0.5, abs=0.02)
    torch.testing.assert_close(logits[~dropped], (2 * expected).expand_as(logits)[~dropped])
    torch.testing.assert_close(model.eval()(texts[:1], torch.tensor([1])).logits[0], expected)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_tags_do_not_depend_on_the_batch(encoder: str) -> None:
    torch.manual_seed(0)
    model = Tagger(VOCABULARY_SIZE, 2, vectors(), ENCODERS[encoder]).double().eval()
    output = model(*pad_texts(*TEXTS))
    assert output.logits.shape == (3, 5, 2)
    for row, text in enumerate(TEXTS):
        alone = model(*pad_texts(text))
        torch.testing.assert_close(output.logits[row, : len(text)], alone.logits[0])
        torch.testing.assert_close(output.features[row], alone.features[0])
        if output.log_prob is not None:
            torch.testing.assert_close(output.log_prob[row, : len(text)], alone.log_prob[0])
            assert not output.log_prob[row, len(text) :].any()
    encoded = model.encoder(model.embedding(pad_texts(*TEXTS)[0]), pad_texts(*TEXTS)[1])
    torch.testing.assert_close(output.logits, encoded.output @ model.out.weight.T + model.out.bias)


def test_the_dropout_of_a_tagger_is_applied_in_training_only() -> None:
    torch.manual_seed(0)
    model = Tagger(VOCABULARY_SIZE, 2, vectors(), IdentityEncoder, dropout=0.5)
    texts = pad_texts([4, 5])
    assert not torch.equal(model(*texts).logits, model(*texts).logits)
    model.eval()
    assert torch.equal(model(*texts).logits, model(*texts).logits)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(TokenEmbedding, VOCABULARY_SIZE, size=0), r"task\.model\.embedding\.size must be at least 1, got 0"),
        (
            partial(TokenEmbedding, VOCABULARY_SIZE, dropout=1.0),
            r"task\.model\.embedding\.dropout must be in \[0, 1\), got 1\.0",
        ),
        (
            partial(TokenEmbedding, VOCABULARY_SIZE, dropout=math.nan),
            r"task\.model\.embedding\.dropout must be in \[0, 1\), got nan",
        ),
        (
            partial(TokenEmbedding, VOCABULARY_SIZE, word_dropout=-0.1),
            r"task\.model\.embedding\.word_dropout must be in \[0, 1\)",
        ),
        (partial(classifier, hidden_size=-1), r"task\.model\.hidden_size must not be negative, got -1"),
        (partial(classifier, dropout=1.5), r"task\.model\.dropout"),
        (partial(Tagger, VOCABULARY_SIZE, 2, vectors(), IdentityEncoder, dropout=-1.0), r"task\.model\.dropout"),
    ],
)
def test_errors_name_the_wrong_option(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()
