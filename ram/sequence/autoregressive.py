"""Autoregressive models: their protocol, the base class of models with a decoder, and language models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_probability
from ram.corpora.vocabulary import UNKNOWN
from ram.distributions import at_least_float32
from ram.sequence.classifiers import Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import Decoder, DecoderOutput, Encoder, Memory, ModelOutput


class AutoregressiveModel(Protocol):
    """A model that predicts the next token from the preceding ones, step by step."""

    @property
    def max_length(self) -> int | None:
        """Largest number of input tokens; None for any."""

    def decode(self, token_ids: Tensor, memory: Any, state: Any = None) -> ModelOutput:
        """Returns ``logits`` (B, T, K) after each of the tokens (B, T), and the ``state`` after the last.

        Args:
            token_ids: (B, T) int64.
            memory: the encoded source; None without a source.
            state: state after the preceding tokens; None at the start. Dimension 0 of its tensors is B.
        """


class DecoderModel(nn.Module):
    """Base class of autoregressive models: token embeddings, decoder, output projection.

    Args:
        embedding: of the target tokens.
        decoder: computes the features of the next token.
        vocabulary_size: number of target tokens, K.
        dropout: dropout probability of the decoder's outputs.
        tie_embeddings: share the weights of the embeddings and of the output projection; needs equal widths.

    Attributes:
        max_length: largest number of input tokens; None for any.
        feature_size: width of ``features``.
        can_copy: whether the model copies source tokens with the attention weights of the decoder.
    """

    can_copy = False

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
            _tie_weights(self.out, embedding, "decoder")
        else:
            nn.init.xavier_uniform_(self.out.weight)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Returns token embeddings (B, T, D); ids above the vocabulary, of copied tokens, are embedded as UNKNOWN."""
        return self.embedding(token_ids.where(token_ids < self.out.out_features, UNKNOWN))

    def decode(
        self,
        token_ids: Tensor,
        memory: Memory | None,
        state: Any = None,
        need_weights: bool = False,
        mask: Tensor | None = None,
    ) -> ModelOutput:
        """Decodes from tokens (B, T); see :meth:`ram.sequence.interfaces.Decoder.forward`.

        Args:
            token_ids: (B, T) int64.
            memory: from :meth:`ram.sequence.interfaces.Decoder.prepare`.
            state: state after the preceding tokens; None at the start.
            need_weights: return attention weights also where this requires a slower implementation.
            mask: (B, T) bool, True at the first tokens of each row, for which logits are computed; None for all tokens.
        """
        assert memory is not None
        vectors = self.embed(token_ids)
        lengths = None if mask is None else mask.sum(1)
        decoded = self.decoder(vectors, memory, state, need_weights or self.can_copy, lengths)
        return self._output(decoded, self.dropout(decoded.output), vectors, memory, mask)

    def _output(
        self, decoded: DecoderOutput, dropped: Tensor, vectors: Tensor, memory: Memory, mask: Tensor | None
    ) -> ModelOutput:
        """Computes the logits from the decoder's output after dropout (B, T, D), and from its inputs when copying."""
        # The output of the previous step: a baseline must not depend on the choices of its own step.
        previous = torch.cat([torch.zeros_like(decoded.output[:, :1]), decoded.output[:, :-1]], dim=1)
        return ModelOutput(
            logits=at_least_float32(self.out(dropped if mask is None else dropped[mask])),
            features=previous,
            log_prob=decoded.log_prob,
            weights=decoded.weights,
            state=decoded.state,
            patch_features=decoded.patch_features,
        )


class LanguageModel(Tagger):
    """Predicts the next token: a tagger with a causal encoder whose classes are the tokens.

    Args:
        vocabulary_size: number of tokens.
        embedding: builds the token embedding from the vocabulary size.
        encoder: builds the encoder, which must be causal, from the width of the embeddings.
        dropout: dropout probability of the encoder's outputs.
        tie_embeddings: share the weights of the embeddings and of the output projection; needs equal widths.

    Attributes:
        max_length: largest number of input tokens; None for any.
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
                "A language model needs a causal encoder: set encoder.causal=true or encoder.bidirectional=false."
            )
        if tie_embeddings:
            _tie_weights(self.out, self.embedding, "encoder")
        self.max_length = self.encoder.max_length

    def decode(self, token_ids: Tensor, memory: None = None, state: Any = None) -> ModelOutput:
        """Continues from tokens (B, T), without padding."""
        return self(token_ids, torch.full((len(token_ids),), token_ids.shape[1], device=token_ids.device), state)


def _tie_weights(out: nn.Linear, embedding: TokenEmbedding, owner: str) -> None:
    """Makes the output projection use the weights of the embeddings (Press and Wolf 2017)."""
    if out.in_features != embedding.size:
        raise InputError(
            f"task.model.tie_embeddings=true needs task.model.embedding.size ({embedding.size}) to equal the width of "
            f"the {owner} ({out.in_features})."
        )
    out.weight = embedding.table.weight
