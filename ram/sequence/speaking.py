"""What every model has that speaks in the light of a memory: words, a decoder, and what tells the next word."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.inputs import check_share
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence.decoders import Decoded, Decoder, Memory
from ram.sequence.models import Said, WordVectors


class Speaking(nn.Module):
    """Says words, each from those before it and from a memory.

    Args:
        words: the vectors of those it has said.
        decoder: what goes on from them.
        vocabulary_size: how many there are, K.
        dropout: share of what the decoder says that is dropped in training.
        tied: the vectors of the words are the weights of the answer too (Press and Wolf 2017); needs one width.

    Attributes:
        max_length: how many words it may be given to go on from; None for any number.
        known_size: width of what is known before a hard choice.
    """

    def __init__(self, words: WordVectors, decoder: Decoder, vocabulary_size: int, dropout: float, tied: bool) -> None:
        super().__init__()
        check_share("task.model.dropout", dropout)
        self.words, self.decoder = words, decoder
        self.max_length, self.known_size = decoder.max_length, decoder.output_size
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(decoder.output_size, vocabulary_size)
        if tied:
            if decoder.output_size != words.size:
                raise InputError(
                    f"task.model.tied=true needs task.model.words.size ({words.size}) to be that of the decoder "
                    f"({decoder.output_size})."
                )
            self.out.weight = words.table.weight
        else:
            nn.init.xavier_uniform_(self.out.weight)

    def look_up(self, words: Tensor) -> Tensor:
        """The vectors of words (B, T), of what can only be copied that of an unknown one."""
        return self.words(words.where(words < self.out.out_features, UNKNOWN))

    def decode(self, words: Tensor, memory: Memory | None, state: Any = None, need_weights: bool = False) -> Said:
        """Goes on by words (B, T); see :meth:`ram.sequence.decoders.Decoder.forward`."""
        assert memory is not None
        decoded = self.decoder(self.look_up(words), memory, state, need_weights)
        return self.tell(decoded, self.dropout(decoded.output))

    def tell(self, decoded: Decoded, output: Tensor) -> Said:
        """The next words, from what a decoder has said, ``output`` being the part of it that is not dropped."""
        # What was known before each step is what the one before has said.
        known = torch.cat([torch.zeros_like(decoded.output[:, :1]), decoded.output[:, :-1]], dim=1)
        return Said(
            logits=self.out(output),
            known=known,
            log_prob=decoded.log_prob,
            weights=decoded.weights,
            state=decoded.state,
        )
