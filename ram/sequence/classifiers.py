"""Models that classify texts or their tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_factory, check_probability
from ram.networks import output_layers
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.encoders import Encoder, masked_log_prob
from ram.sequence.output import ModelOutput
from ram.sequence.pooling import Pooling, mean


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
        return self.forward_embedded(self.embedding(numbers), lengths)

    def forward_embedded(self, vectors: Tensor, lengths: Tensor) -> ModelOutput:
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
