"""Models of texts: what they compute, what is dropped when, and which encoders a language model refuses."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.scores import General
from ram.attention.selection import Hard
from ram.corpora.vocabulary import PADDING, START, UNKNOWN
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.classifiers import Classifier, Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.encoders import IdentityEncoder
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, LastState, SumPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder

WORDS = 9
hard = partial(AttentionPooling, num_queries=2, select=Hard)
ENCODERS: dict[str, Any] = {
    "words": IdentityEncoder,
    "lstm": partial(RecurrentEncoder, size=5),
    "bigru": partial(RecurrentEncoder, cell="gru", size=3, bidirectional=True),
    "attentive": partial(AttentiveRecurrentEncoder, size=5, select=Hard),
    "transformer": partial(TransformerEncoder, size=6, num_heads=2, score=General, select=Hard),
}
READERS: dict[str, Any] = {
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
    return Classifier(WORDS, classes, vectors(), encoder, pooling, **options).double().eval()


def numbers(*texts: list[int]) -> tuple[Tensor, Tensor]:
    """Padded, and lengths."""
    longest = max(map(len, texts))
    padded = torch.tensor([text + [PADDING] * (longest - len(text)) for text in texts])
    return padded, torch.tensor(list(map(len, texts)))


TEXTS = ([4, 7, 5, 8, 4], [6], [8, 4, 1])


# Word vectors.


def test_words_are_vectors_and_padding_is_none() -> None:
    words = TokenEmbedding(WORDS, 16)
    table = words.table.weight
    assert table.shape == (WORDS, 16)
    read = words(torch.tensor([[5, 7, PADDING]]))
    assert torch.equal(read, torch.stack([table[5], table[7], torch.zeros(16)])[None])
    read.sum().backward()
    assert table.grad is not None
    assert table.grad.any(-1).nonzero().flatten().tolist() == [5, 7]


def test_a_word_vector_is_about_as_long_as_one() -> None:
    torch.manual_seed(0)
    table = TokenEmbedding(2000, 64).table.weight
    assert table[1:].square().sum(1).mean().item() == pytest.approx(1, abs=0.02)


def test_dropped_words_are_taken_for_unknown_in_training_alone() -> None:
    words = TokenEmbedding(WORDS, 4, word_dropout=0.3)
    table, texts = words.table.weight, torch.tensor([[4, 5, 6, PADDING, START]]).expand(5000, -1)
    torch.manual_seed(0)
    table.data[UNKNOWN] = 1
    read = words(texts)
    unknown = (read == table[UNKNOWN]).all(-1)
    assert torch.equal(read[~unknown], table[texts[~unknown]])
    assert unknown[:, :3].float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert not unknown[:, 3:].any()
    assert torch.equal(words.eval()(texts), table[texts])


def test_dropped_numbers_are_zero_in_training_alone() -> None:
    words = TokenEmbedding(WORDS, 4, dropout=0.25)
    texts = torch.tensor([[4, 5, 6]]).expand(5000, -1)
    torch.manual_seed(0)
    read, whole = words(texts), words.table.weight[texts]
    kept = read != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(read[kept], whole[kept] / 0.75)
    assert torch.equal(words.eval()(texts), whole)


# A class for a text.


def test_words_and_their_sum_are_a_logistic_regression() -> None:
    model = classifier(classes=2)
    table, out = model.embedding.table.weight, model.out[0]
    said = model(*numbers([4, 4, 7], [5]))
    for row, text in enumerate(([4, 4, 7], [5])):
        total = [sum(float(table[word, d].detach()) for word in text) for d in range(4)]
        expected = [
            sum(w * t for w, t in zip(weights, total, strict=True)) + bias
            for weights, bias in zip(out.weight.tolist(), out.bias.tolist(), strict=True)
        ]
        assert said.logits[row].tolist() == pytest.approx(expected)
        assert said.features[row].tolist() == pytest.approx([each / len(text) for each in total])
    assert said.log_prob is None and said.weights is None
    assert len(model.out) == 1


def test_a_hidden_layer_is_between_reader_and_answer() -> None:
    model = classifier(hidden_size=5)
    first, _, second = model.out
    total = model.embedding.table.weight[[4, 7]].sum(0)
    hidden = (first.weight @ total + first.bias).clamp(min=0)
    assert 0 < int((hidden > 0).sum()) < 5  # so that the kink is seen
    torch.testing.assert_close(model(*numbers([4, 7])).logits[0], second.weight @ hidden + second.bias)
    assert (first.out_features, second.out_features) == (5, 3)


@pytest.mark.parametrize("pooling", READERS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_is_said_of_a_text_does_not_depend_on_those_beside_it(encoder: str, pooling: str) -> None:
    model = classifier(ENCODERS[encoder], READERS[pooling], hidden_size=5)
    said = model(*numbers(*TEXTS))
    assert said.logits.shape == (3, 3) and said.features.shape == (3, 4)
    queries = {"sum": None, "last": None, "fixed": 2, "contextual": 1}[pooling]
    assert (None if said.weights is None else said.weights.shape) == (queries and (3, queries, 5))
    chooses = encoder in ("attentive", "transformer") or pooling == "fixed"
    assert (None if said.log_prob is None else said.log_prob.shape) == ((3,) if chooses else None)
    for row, text in enumerate(TEXTS):
        alone = model(*numbers(text))
        torch.testing.assert_close(said.logits[row], alone.logits[0])
        torch.testing.assert_close(said.features[row], alone.features[0])
        if said.weights is not None:
            torch.testing.assert_close(said.weights[row, :, : len(text)], alone.weights[0])
        if said.log_prob is not None:
            torch.testing.assert_close(said.log_prob[row], alone.log_prob[0])


def test_the_choices_of_encoder_and_reader_are_scored_together() -> None:
    model = classifier(ENCODERS["attentive"], hard)
    texts, lengths = numbers(*TEXTS)
    said = model(texts, lengths)
    encoded = model.encoder(model.embedding(texts), lengths)
    read = model.pooling(encoded.output, lengths)
    expected = [
        sum(encoded.log_prob[row, :length].tolist()) + float(read.log_prob[row].sum().detach())
        for row, length in enumerate(lengths.tolist())
    ]
    assert said.log_prob is not None
    assert said.log_prob.tolist() == pytest.approx(expected)


def test_what_the_reader_reads_is_dropped_in_training_alone() -> None:
    model = Classifier(WORDS, 2, vectors(), IdentityEncoder, SumPooling, dropout=0.5)
    model.out[0].weight.data, model.out[0].bias.data = torch.eye(4)[:2], torch.zeros(2)
    texts = torch.full((4000, 1), 4)
    torch.manual_seed(0)
    logits, expected = model(texts, torch.ones(4000, dtype=torch.int64)).logits, model.embedding.table.weight[4, :2]
    dropped = logits == 0
    assert dropped.float().mean().item() == pytest.approx(0.5, abs=0.02)
    torch.testing.assert_close(logits[~dropped], (2 * expected).expand_as(logits)[~dropped])
    torch.testing.assert_close(model.eval()(texts[:1], torch.tensor([1])).logits[0], expected)


# A label for a word, and the next word.


@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_is_said_of_words_does_not_depend_on_the_texts_beside_theirs(encoder: str) -> None:
    torch.manual_seed(0)
    model = Tagger(WORDS, 2, vectors(), ENCODERS[encoder]).double().eval()
    said = model(*numbers(*TEXTS))
    assert said.logits.shape == (3, 5, 2)
    for row, text in enumerate(TEXTS):
        alone = model(*numbers(text))
        torch.testing.assert_close(said.logits[row, : len(text)], alone.logits[0])
        torch.testing.assert_close(said.features[row], alone.features[0])
        if said.log_prob is not None:
            torch.testing.assert_close(said.log_prob[row, : len(text)], alone.log_prob[0])
            assert not said.log_prob[row, len(text) :].any()
    encoded = model.encoder(model.embedding(numbers(*TEXTS)[0]), numbers(*TEXTS)[1])
    torch.testing.assert_close(said.logits, encoded.output @ model.out.weight.T + model.out.bias)


def test_what_the_encoder_says_is_dropped_in_training_alone() -> None:
    torch.manual_seed(0)
    model = Tagger(WORDS, 2, vectors(), IdentityEncoder, dropout=0.5)
    texts = numbers([4, 5])
    assert not torch.equal(model(*texts).logits, model(*texts).logits)
    model.eval()
    assert torch.equal(model(*texts).logits, model(*texts).logits)


@pytest.mark.parametrize("encoder", ["words", "lstm", "attentive", "transformer"])
def test_a_language_model_goes_on_where_it_stopped(encoder: str) -> None:
    torch.manual_seed(0)
    how = {"causal": True} if encoder in ("attentive", "transformer") else {}
    model = LanguageModel(WORDS, vectors(), partial(ENCODERS[encoder], **how)).double().eval()
    texts = torch.randint(4, WORDS, (2, 6))
    whole, state, logits = model(texts, torch.tensor([6, 6])), None, []
    assert whole.logits.shape == (2, 6, WORDS)
    for piece in texts.split([1, 3, 1, 1], dim=1):
        said = model(piece, torch.full((2,), piece.shape[1]), state)
        state = said.state
        logits.append(said.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)


@pytest.mark.parametrize("encoder", ["words", "lstm", "attentive", "transformer"])
def test_no_word_is_foretold_from_itself_or_a_later_one(encoder: str) -> None:
    torch.manual_seed(0)
    how = {"causal": True} if encoder in ("attentive", "transformer") else {}
    model = LanguageModel(WORDS, vectors(), partial(ENCODERS[encoder], **how)).double().eval()
    texts = torch.randint(4, WORDS, (1, 6))
    logits = model(texts, torch.tensor([6])).logits
    for place in range(5):
        other = texts.clone()
        other[:, place + 1 :] = torch.randint(4, WORDS, (1, 5 - place))
        torch.testing.assert_close(model(other, torch.tensor([6])).logits[:, : place + 1], logits[:, : place + 1])


@pytest.mark.parametrize(
    "encoder",
    [
        partial(RecurrentEncoder, bidirectional=True),
        TransformerEncoder,
        partial(AttentiveRecurrentEncoder, over="below", causal=False),
    ],
)
def test_a_language_model_must_not_see_what_comes_next(encoder: Any) -> None:
    with pytest.raises(InputError, match=r"must not see what comes next: set encoder\.causal=true or"):
        LanguageModel(WORDS, vectors(), encoder)


def test_tied_weights_are_one() -> None:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, vectors(5), ENCODERS["lstm"], tie_embeddings=True).double()
    assert model.out.weight is model.embedding.table.weight
    plain = LanguageModel(WORDS, vectors(5), ENCODERS["lstm"])
    sizes = [sum(value.numel() for value in each.parameters()) for each in (model, plain)]
    assert sizes[1] - sizes[0] == 5 * WORDS
    texts = numbers([4, 7])
    state = model.encoder(model.embedding(texts[0]), texts[1]).output
    torch.testing.assert_close(model(*texts).logits, state @ model.embedding.table.weight.T + model.out.bias)
    model(*texts).logits[0, 0, 8].backward()  # of a word that was not read
    assert model.embedding.table.weight.grad is not None
    assert model.embedding.table.weight.grad[8].any()


def test_tied_weights_need_one_width() -> None:
    told = r"task\.model\.tie_embeddings=true needs task\.model\.embedding\.size \(4\) to be that of the encoder \(5\)"
    with pytest.raises(InputError, match=told):
        LanguageModel(WORDS, vectors(4), ENCODERS["lstm"], tie_embeddings=True)


# What is refused.


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (partial(TokenEmbedding, WORDS, size=0), r"task\.model\.embedding\.size must be at least 1, got 0"),
        (partial(TokenEmbedding, WORDS, dropout=1.0), r"task\.model\.embedding\.dropout must be in \[0, 1\), got 1\.0"),
        (
            partial(TokenEmbedding, WORDS, dropout=math.nan),
            r"task\.model\.embedding\.dropout must be in \[0, 1\), got nan",
        ),
        (
            partial(TokenEmbedding, WORDS, word_dropout=-0.1),
            r"task\.model\.embedding\.word_dropout must be in \[0, 1\)",
        ),
        (partial(classifier, hidden_size=-1), r"task\.model\.hidden_size must not be negative, got -1"),
        (partial(classifier, dropout=1.5), r"task\.model\.dropout"),
        (partial(Tagger, WORDS, 2, vectors(), IdentityEncoder, dropout=-1.0), r"task\.model\.dropout"),
    ],
)
def test_wrong_options_are_refused_by_name(build: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        build()
