"""Models that classify texts or their tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from envs.validation import check_probability
from ram.distributions import at_least_float32
from ram.networks import output_layers
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import Encoder, ModelOutput, build_encoder, masked_log_prob
from ram.sequence.pooling import Pooling, mean_over_time


class Classifier(nn.Module):
    """Classifies texts: token embeddings, encoder, pooling, and an output layer.

    Args:
        vocabulary_size: number of tokens.
        num_classes: K.
        embedding: builds the token embedding from the vocabulary size.
        encoder: builds the encoder from the width of the embeddings.
        pooling: builds the pooling from the output width and the number of directions of the encoder.
        hidden_size: width of a hidden ReLU layer before the output layer; 0 for none.
        dropout: dropout probability of the pooled vector.
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
        check_probability("task.model.dropout", dropout)
        self.embedding = embedding(vocabulary_size)
        self.encoder = build_encoder(encoder, self.embedding.size)
        self.pooling = pooling(self.encoder.output_size, self.encoder.num_directions)
        self.dropout = nn.Dropout(dropout)
        self.out = output_layers(self.pooling.output_size, num_classes, hidden_size, "task.model")

    def forward(self, token_ids: Tensor, lengths: Tensor) -> ModelOutput:
        """Token ids (B, N) int64 and lengths (B,) int64 -> ``logits`` (B, K)."""
        return self.forward_embedded(self.embedding(token_ids), lengths)

    def forward_embedded(self, vectors: Tensor, lengths: Tensor) -> ModelOutput:
        """Like :meth:`forward`, from token embeddings (B, N, D)."""
        encoded = self.encoder(vectors, lengths)
        pooled = self.pooling(encoded.output, lengths)
        log_probs = [] if pooled.log_prob is None else [pooled.log_prob.flatten(1).sum(1)]  # (B,) each
        log_probs += [] if encoded.log_prob is None else [masked_log_prob(encoded.log_prob, lengths).sum(1)]
        return ModelOutput(
            logits=at_least_float32(self.out(self.dropout(pooled.context))),
            features=mean_over_time(vectors, lengths),
            log_prob=torch.stack(log_probs).sum(0) if log_probs else None,
            weights=pooled.weights,
        )


class Tagger(nn.Module):
    """Classifies every token: token embeddings, encoder, and an output layer.

    Args:
        vocabulary_size: number of tokens.
        num_classes: K.
        embedding: builds the token embedding from the vocabulary size.
        encoder: builds the encoder from the width of the embeddings.
        dropout: dropout probability of the encoder's outputs.
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
        self.encoder = build_encoder(encoder, self.embedding.size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(self.encoder.output_size, num_classes)

    def forward(self, token_ids: Tensor, lengths: Tensor, state: Any = None) -> ModelOutput:
        """Token ids (B, N) int64 and lengths (B,) int64 -> ``logits`` (B, N, K), arbitrary after the end of a row."""
        vectors = self.embedding(token_ids)
        encoded = self.encoder(vectors, lengths, state)
        return ModelOutput(
            logits=at_least_float32(self.out(self.dropout(encoded.output))),
            features=mean_over_time(vectors, lengths),
            log_prob=None if encoded.log_prob is None else masked_log_prob(encoded.log_prob, lengths),
            state=encoded.state,
        )
