"""Trained models of texts: classifier, tagger and text generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from envs.errors import InputError
from ram.corpora import Corpus, Tokens
from ram.corpora.vocabulary import START, Vocabulary
from ram.inference import Row, class_rows
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.search import sample

MAX_SAMPLE_LENGTH = 60


class TextModel:
    """Base class of trained models of texts, as :func:`ram.load` returns them.

    Args:
        model: the network.
        vocabulary: the vocabulary of its input.
        classes: the names of its output classes.
        corpus: a corpus of the kind it was trained on, used to tokenize texts.
        device: where the model computes.
    """

    def __init__(
        self, model: nn.Module, vocabulary: Vocabulary, classes: Sequence[str], corpus: Corpus, device: str
    ) -> None:
        self.model, self.vocabulary, self.classes = model.to(device).eval(), vocabulary, tuple(classes)
        self.corpus, self.device = corpus, torch.device(device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.vocabulary)} tokens, {len(self.classes)} classes)"

    def encode(self, texts: Sequence[str]) -> tuple[tuple[Tokens, ...], Tensor, Tensor]:
        """Returns the tokens of B texts, their token ids (B, N) and lengths (B,).

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        tokens = tokenize_texts(self.corpus, texts)
        return tokens, *self.vocabulary.encode_batch(tokens, self.device)


@dataclass(frozen=True)
class Prediction:
    """The predictions of a classifier for B texts.

    Attributes:
        label: B class names.
        probability: (B, K), of every class.
        tokens: the tokens of each text.
        weights: the attention weights (Q, N) over the tokens of each text; None without attention pooling.
    """

    label: tuple[str, ...]
    probability: Tensor
    tokens: tuple[Tokens, ...]
    weights: tuple[Tensor, ...] | None


class TextClassifier(TextModel):
    """A trained :class:`ram.sequence.classifiers.Classifier`."""

    def tabulate(self, texts: Sequence[str]) -> list[Row]:
        """Predicts the class of every text: ``label``, ``probability`` and ``p(NAME)`` of every class."""
        prediction = self.predict(texts)
        return class_rows(prediction.label, prediction.probability, self.classes)

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> Prediction:
        """Predicts the class of every text.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        tokens, token_ids, lengths = self.encode(texts)
        output = self.model(token_ids, lengths)
        weights = None
        if output.weights is not None:
            weights = tuple(row[:, : len(text)] for row, text in zip(output.weights, tokens, strict=True))
        labels = tuple(self.classes[index] for index in output.logits.argmax(-1).tolist())
        return Prediction(labels, output.logits.softmax(-1), tokens, weights)


class TextTagger(TextModel):
    """A trained :class:`ram.sequence.classifiers.Tagger`."""

    def tabulate(self, texts: Sequence[str]) -> list[Row]:
        """Predicts the label of every word: ``words`` and ``labels``, separated by spaces."""
        return [
            {"words": " ".join(word for word, _ in pairs), "labels": " ".join(label for _, label in pairs)}
            for pairs in self.predict(texts)
        ]

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        """Returns the (word, label) pairs of every text.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        tokens, token_ids, lengths = self.encode(texts)
        predicted = self.model(token_ids, lengths).logits.argmax(-1).tolist()
        return [
            [(word, self.classes[label]) for word, label in zip(text, labels, strict=False)]
            for text, labels in zip(tokens, predicted, strict=True)
        ]


class TextGenerator(TextModel):
    """A trained :class:`ram.sequence.autoregressive.LanguageModel`."""

    def tabulate(self, texts: Sequence[str]) -> list[Row]:
        """Continues every text with the most likely words: ``continued``."""
        return [{"continued": self.sample(prompt=text, temperature=0.0)[0]} for text in texts]

    def sample(
        self,
        count: int = 1,
        prompt: str = "",
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        max_length: int = MAX_SAMPLE_LENGTH,
        seed: int = 0,
    ) -> list[str]:
        """Samples texts that begin with a prompt.

        Args:
            count: number of texts.
            prompt: the beginning of every text.
            temperature: divides the logits; 0 is greedy decoding.
            top_k: sample from the k most likely words only; None for all words.
            top_p: sample from the most likely words whose total probability reaches this share.
            max_length: maximum number of words after the prompt.
            seed: of the samples.
        """
        if count < 1 or max_length < 1:
            raise InputError(f"sample needs a count and a max_length of at least 1, got {count} and {max_length}.")
        words = self.corpus.tokenize(prompt)
        prefix = torch.tensor([[START, *self.vocabulary.encode(words)]] * count, device=self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        assert isinstance(self.model, LanguageModel)
        continuations = sample(self.model, prefix, max_length, None, temperature, top_k, top_p, generator)
        return [" ".join([*words, *self.vocabulary.decode(token_ids)]) for token_ids in continuations]


def tokenize_texts(corpus: Corpus, texts: Sequence[str]) -> tuple[Tokens, ...]:
    """Tokenizes the texts that a user passes to a trained model.

    Raises:
        InputError: if there are no texts, or one has no words.
    """
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError("The model needs a list of at least one text.")
    tokens = tuple(map(corpus.tokenize, texts))
    if () in tokens:
        index = tokens.index(())
        raise InputError(f"Text {index} has no words: {texts[index]!r}.")
    return tokens


def check_length(description: str, text: Tokens, length: int, max_length: int | None) -> None:
    """Refuses a text with more tokens than the model has positions; ``description`` completes "A text ..."."""
    if max_length is not None and length > max_length:
        raise InputError(
            f"A text {description} has {length} tokens, but the model has {max_length} positions: raise its max_length "
            f"or remove the text ({' '.join(text[:8])} ...)."
        )
