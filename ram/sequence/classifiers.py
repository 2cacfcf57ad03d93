"""Models of texts: what a whole text is, what each of its words is, and which word comes next."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_factory, check_positive_integers, check_probability
from ram.corpora.vocabulary import END, PADDING, UNKNOWN
from ram.networks import output_layers
from ram.sequence.encoders import Encoder, masked_log_prob
from ram.sequence.pooling import Pooling, mean


@dataclass(frozen=True)
class ModelOutput:
    """What a model says.

    Attributes:
        logits: (B, K) of a text, or (B, N, K) of its words.
        features: (B, D), of the text before any choice is made, or (B, T, D) before each; what baselines judge by.
        log_prob: (B,), of all hard choices on the way, or (B, T), of those of a step; with gradient, None where there
            are none.
        weights: (B, Q, N), of the reading; None where nothing is weighed.
        state: of the encoder or the decoder, to go on with.
        copied: (B, T), the share of each answer that is copied from the source; None where nothing can be.
        source_logits: (B, N, K), of the source's words, where they are told too.
    """

    logits: Tensor
    features: Tensor
    log_prob: Tensor | None = None
    weights: Tensor | None = None
    state: Any = None
    copied: Tensor | None = None
    source_logits: Tensor | None = None


class TokenEmbedding(nn.Module):
    """A learned vector for every word.

    Args:
        vocabulary_size: how many words there are.
        size: width of a vector.
        dropout: share of the vectors' numbers that is dropped in training.
        word_dropout: share of the words that is taken for unknown in training.
    """

    def __init__(self, vocabulary_size: int, size: int = 128, dropout: float = 0.0, word_dropout: float = 0.0) -> None:
        super().__init__()
        check_positive_integers("task.model.embedding", size=size)
        check_probability("task.model.embedding.dropout", dropout)
        check_probability("task.model.embedding.word_dropout", word_dropout)
        self.size, self.word_dropout = size, word_dropout
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PADDING)
        nn.init.normal_(self.table.weight, std=1 / math.sqrt(size))
        self.table.weight.data[[PADDING, UNKNOWN]] = 0  # without word dropout training may never see the unknown one
        self.dropout = nn.Dropout(dropout)

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, N) int64 -> (B, N, size)."""
        if self.training and self.word_dropout:
            dropped = torch.rand(numbers.shape, device=numbers.device) < self.word_dropout
            numbers = torch.where(dropped & (numbers > END), UNKNOWN, numbers)
        return self.dropout(self.table(numbers))


class Classifier(nn.Module):
    """The class of a text: words, an encoder, a reader, and a logistic regression, perhaps through a hidden layer.

    Args:
        vocabulary_size: how many words there are.
        num_classes: K.
        embedding: builds the vectors of words from their number.
        encoder: builds what sees them in context from their width.
        reader: builds what reads one vector from the encoder's width and directions.
        hidden_size: width of a hidden ReLU layer, or 0 for none.
        dropout: share of what the reader reads that is dropped in training.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_classes: int,
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[int], Encoder],
        pooling: Callable[[int, int], Pooling],
        hidden_size: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if hidden_size < 0:
            raise InputError(f"task.model.hidden_size must not be negative, got {hidden_size}.")
        check_probability("task.model.dropout", dropout)
        self.embedding = embedding(vocabulary_size)
        check_factory("encoder", encoder, Encoder, "texts, such as encoder=lstm")
        self.encoder = encoder(self.embedding.size)
        self.pooling = pooling(self.encoder.output_size, self.encoder.directions)
        self.dropout = nn.Dropout(dropout)
        self.out = output_layers(self.pooling.output_size, num_classes, hidden_size)

    def forward(self, numbers: Tensor, lengths: Tensor) -> ModelOutput:
        """(B, N) int64 and (B,) int64 -> ``logits`` (B, K)."""
        return self.read(self.embedding(numbers), lengths)

    def read(self, vectors: Tensor, lengths: Tensor) -> ModelOutput:
        """As :meth:`forward`, from the vectors of the words (B, N, D)."""
        encoded = self.encoder(vectors, lengths)
        read = self.pooling(encoded.output, lengths)
        log_probs = [] if read.log_prob is None else [read.log_prob.flatten(1).sum(1)]
        log_probs += [] if encoded.log_prob is None else [masked_log_prob(encoded.log_prob, lengths).sum(1)]
        return ModelOutput(
            logits=self.out(self.dropout(read.context)),
            features=mean(vectors, lengths),
            log_prob=torch.stack(log_probs).sum(0) if log_probs else None,
            weights=read.weights,
        )


class Tagger(nn.Module):
    """A label for every word: words, an encoder and a logistic regression.

    Args:
        vocabulary_size: how many words there are.
        num_classes: K.
        embedding: builds the vectors of words from their number.
        encoder: builds what sees them in context from their width.
        dropout: share of what the encoder says that is dropped in training.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_classes: int,
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[int], Encoder],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_probability("task.model.dropout", dropout)
        self.embedding = embedding(vocabulary_size)
        check_factory("encoder", encoder, Encoder, "texts, such as encoder=lstm")
        self.encoder = encoder(self.embedding.size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(self.encoder.output_size, num_classes)

    def forward(self, numbers: Tensor, lengths: Tensor, state: Any = None) -> ModelOutput:
        """(B, N) int64 and (B,) int64 -> ``logits`` (B, N, K); anything after a row's end."""
        vectors = self.embedding(numbers)
        encoded = self.encoder(vectors, lengths, state)
        return ModelOutput(
            logits=self.out(self.dropout(encoded.output)),
            features=mean(vectors, lengths),
            log_prob=None if encoded.log_prob is None else masked_log_prob(encoded.log_prob, lengths),
            state=encoded.state,
        )


class LanguageModel(Tagger):
    """Which word comes next: a tagger whose labels are the words, and whose encoder looks back alone.

    Args:
        vocabulary_size: how many words there are.
        embedding: builds the vectors of words from their number.
        encoder: builds what sees them in context from their width.
        dropout: share of what the encoder says that is dropped in training.
        tied: the vectors of words are the weights of the regression too (Press and Wolf 2017); needs one width.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[int], Encoder],
        dropout: float = 0.0,
        tie_embeddings: bool = False,
    ) -> None:
        super().__init__(vocabulary_size, vocabulary_size, embedding, encoder, dropout)
        if not self.encoder.causal:
            raise InputError(
                "A language model must not see what comes next: set encoder.causal=true or encoder.bidirectional=false."
            )
        if tie_embeddings:
            if self.encoder.output_size != self.embedding.size:
                raise InputError(
                    f"task.model.tie_embeddings=true needs task.model.embedding.size ({self.embedding.size}) to be that of the encoder "
                    f"({self.encoder.output_size})."
                )
            self.out.weight = self.embedding.table.weight

    def decode(self, words: Tensor, memory: None = None, state: Any = None) -> ModelOutput:
        """Goes on by words (B, T), all rows being of one length."""
        return self(words, torch.full((len(words),), words.shape[1], device=words.device), state)

    @property
    def max_length(self) -> int | None:
        """How many words it may be given; None for any number."""
        return self.encoder.max_length
