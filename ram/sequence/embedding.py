"""Token embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.validation import check_positive_integers, check_probability
from ram.corpora.vocabulary import END, PADDING, UNKNOWN


class TokenEmbedding(nn.Module):
    """A learned vector for every token.

    Args:
        vocabulary_size: number of tokens.
        size: width of a vector.
        dropout: probability of zeroing an entry of a vector in training.
        word_dropout: probability of replacing a token by the unknown token in training.
    """

    def __init__(self, vocabulary_size: int, size: int = 64, dropout: float = 0.0, word_dropout: float = 0.0) -> None:
        super().__init__()
        check_positive_integers("task.model.embedding", size=size)
        check_probability("task.model.embedding.dropout", dropout)
        check_probability("task.model.embedding.word_dropout", word_dropout)
        self.size, self.word_dropout = size, word_dropout
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PADDING)
        nn.init.normal_(self.table.weight, std=1 / math.sqrt(size))
        self.table.weight.data[[PADDING, UNKNOWN]] = 0  # without word dropout, UNKNOWN may never occur in training
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids: Tensor) -> Tensor:
        """(B, N) int64 -> (B, N, size)."""
        if self.training and self.word_dropout:
            dropped = torch.rand(token_ids.shape, device=token_ids.device) < self.word_dropout
            token_ids = torch.where(dropped & (token_ids > END), UNKNOWN, token_ids)
        return self.dropout(self.table(token_ids))
