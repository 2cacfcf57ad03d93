"""Autoregressive models: their protocol, language models, and the base class of models with a decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_probability
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence.classifiers import Tagger
from ram.sequence.decoders import Decoder, DecoderOutput, Memory
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.encoders import Encoder
from ram.sequence.output import ModelOutput


class AutoregressiveModel(Protocol):
    """A model that goes on, word by word."""

    @property
    def max_length(self) -> int | None:
        """How many words it may be given; None for any number."""

    def decode(self, words: Tensor, memory: Any, state: Any = None) -> ModelOutput:
        """Goes on by words (B, T); ``logits`` (B, T, K) and a ``state`` whose tensors hold a row a sequence."""


class DecoderModel(nn.Module):
    """Says words, each from those before it and from a memory.

    Args:
        embedding: the vectors of those it has said.
        decoder: what goes on from them.
        vocabulary_size: how many there are, K.
        dropout: share of what the decoder says that is dropped in training.
        tied: the vectors of the words are the weights of the answer too (Press and Wolf 2017); needs one width.

    Attributes:
        max_length: how many words it may be given to go on from; None for any number.
        feature_size: width of what is known before a hard choice.
    """

    def __init__(
        self, embedding: TokenEmbedding, decoder: Decoder, vocabulary_size: int, dropout: float, tie_embeddings: bool
    ) -> None:
        super().__init__()
        check_probability("task.model.dropout", dropout)
        self.embedding, self.decoder = embedding, decoder
        self.max_length, self.feature_size = decoder.max_length, decoder.output_size
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(decoder.output_size, vocabulary_size)
        if tie_embeddings:
            if decoder.output_size != embedding.size:
                raise InputError(
                    f"task.model.tie_embeddings=true needs task.model.embedding.size ({embedding.size}) to be that of the decoder "
                    f"({decoder.output_size})."
                )
            self.out.weight = embedding.table.weight
        else:
            nn.init.xavier_uniform_(self.out.weight)

    def embed(self, words: Tensor) -> Tensor:
        """The vectors of words (B, T), of what can only be copied that of an unknown one."""
        return self.embedding(words.where(words < self.out.out_features, UNKNOWN))

    def decode(
        self, words: Tensor, memory: Memory | None, state: Any = None, need_weights: bool = False
    ) -> ModelOutput:
        """Goes on by words (B, T); see :meth:`ram.sequence.decoders.Decoder.forward`."""
        assert memory is not None
        decoded = self.decoder(self.embed(words), memory, state, need_weights)
        return self._output(decoded, self.dropout(decoded.output))

    def _output(self, decoded: DecoderOutput, output: Tensor) -> ModelOutput:
        """The next words, from what a decoder has said, ``output`` being the part of it that is not dropped."""
        # What was known before each step is what the one before has said.
        known = torch.cat([torch.zeros_like(decoded.output[:, :1]), decoded.output[:, :-1]], dim=1)
        return ModelOutput(
            logits=self.out(output),
            features=known,
            log_prob=decoded.log_prob,
            weights=decoded.weights,
            state=decoded.state,
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
