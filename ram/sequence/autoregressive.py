"""What every model has that speaks in the light of a memory: words, a decoder, and what tells the next word."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_probability
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence.classifiers import ModelOutput, TokenEmbedding
from ram.sequence.decoders import Decoder, DecoderOutput, Memory


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
        return self.tell(decoded, self.dropout(decoded.output))

    def tell(self, decoded: DecoderOutput, output: Tensor) -> ModelOutput:
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
