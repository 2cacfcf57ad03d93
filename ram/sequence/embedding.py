"""Token embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.validation import check_positive_integers, check_probability
from ram.corpora.vocabulary import END, PADDING, UNKNOWN


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
