"""Sequence-to-sequence models: encoder-decoder models and decoder-only language models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from envs.errors import InputError
from ram.attention import AttentionOutput
from ram.attention.selection import Unnormalized
from ram.corpora.vocabulary import PADDING, START
from ram.sequence.autoregressive import DecoderModel, LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import (
    Decoder,
    DecoderOutput,
    DecoderSizes,
    Encoder,
    EncoderOutput,
    Memory,
    ModelOutput,
    build_encoder,
    smallest_limit,
)
from ram.sequence.pooling import LastState, Pooling

Output = TypeVar("Output", EncoderOutput, AttentionOutput, ModelOutput)


class Seq2SeqModel(nn.Module):
    """Base class of models of a target sequence given a source sequence.

    Attributes:
        feature_size: width of ``features``.
        can_copy: whether the model can copy source tokens, also those out of the target vocabulary.
        models_source: whether the model also predicts the source tokens.
        max_source_length: largest length of a source; None for any.
        max_length: largest number of input tokens of :meth:`decode`; None for any.
    """

    feature_size: int
    can_copy = False
    models_source = False
    max_source_length: int | None = None
    max_length: int | None = None

    def forward(
        self,
        token_ids: Tensor,
        lengths: Tensor,
        inputs: Tensor,
        copy_ids: Tensor | None = None,
        need_weights: bool = False,
        mask: Tensor | None = None,
    ) -> ModelOutput:
        """Predicts every token of the target from the source and the preceding target tokens.

        Args:
            token_ids: (B, N) int64, the source.
            lengths: (B,) int64, lengths of the source.
            inputs: (B, T) int64, the start symbol and the target; arbitrary after the end of the target.
            copy_ids: (B, N) int64, ids of the source tokens in the target vocabulary; those out of vocabulary have ids
                above it.
            need_weights: return attention weights also where this requires a slower implementation.
            mask: (B, T) bool, True at the first tokens of each row, for which logits are computed; None for all tokens.

        Returns:
            ``logits`` (B, T, K), or with a mask (n, K), where K includes the ids of ``copy_ids``, and ``features``
            (B, T, D).
        """
        raise TypeError(f"{type(self).__name__} does not implement forward.")

    def prefix_length(self, source_length: int) -> int:
        """Returns the number of tokens before the target in :meth:`decode`."""
        return 1

    def start_decoding(self, token_ids: Tensor, lengths: Tensor, copy_ids: Tensor | None = None) -> tuple[Tensor, Any]:
        """Returns the prefix (B, n) before the target and the memory for :meth:`decode`, for sources of one length."""
        raise TypeError(f"{type(self).__name__} does not implement start_decoding.")

    def decode(self, token_ids: Tensor, memory: Memory | None, state: Any = None) -> ModelOutput:
        """Decodes from tokens (B, T); see :class:`ram.sequence.autoregressive.AutoregressiveModel`."""
        raise TypeError(f"{type(self).__name__} does not implement decode.")


class EncoderDecoder(DecoderModel, Seq2SeqModel):
    """An encoder and a decoder (Sutskever et al. 2014; Bahdanau et al. 2015).

    Args:
        source_size: size of the source vocabulary.
        target_size: size of the target vocabulary, K.
        shared: whether both are one vocabulary, with one token embedding.
        embedding: builds a token embedding from the vocabulary size.
        encoder: builds the encoder from the width of the embeddings.
        decoder: builds the decoder.
        pooling: builds the pooling of the encoder's outputs into the summary of the source.
        dropout: dropout probability of the decoder's outputs.
        tie_embeddings: share the weights of the target embeddings and of the output projection; needs equal widths.
        copy: copy source tokens with the attention weights as probabilities, where a gate mixes generation and copying
            (See et al. 2017, equations 8 and 9); needs a decoder with attention.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        shared: bool,
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[int], Encoder],
        decoder: Callable[[DecoderSizes], Decoder],
        pooling: Callable[[int, int], Pooling] = LastState,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        copy: bool = False,
    ) -> None:
        source_embedding = embedding(source_size)
        target_embedding = source_embedding if shared else embedding(target_size)
        width = target_embedding.size
        built_encoder = build_encoder(encoder, source_embedding.size)
        built_pooling = pooling(built_encoder.output_size, built_encoder.num_directions)
        sizes = DecoderSizes(width, width, built_encoder.output_size, built_pooling.output_size)
        super().__init__(target_embedding, decoder(sizes), target_size, dropout, tie_embeddings)
        self.source_embedding, self.encoder, self.pooling = source_embedding, built_encoder, built_pooling
        self.can_copy = copy
        self.max_source_length = smallest_limit(self.encoder.max_length, self.decoder.max_source_length)
        if copy and any(isinstance(module, Unnormalized) for module in self.decoder.modules()):
            raise InputError("task.model.copy=true needs normalized attention weights: set another select.")
        self.gate = nn.Linear(self.decoder.output_size + width, 1) if copy else None

    def forward(
        self,
        token_ids: Tensor,
        lengths: Tensor,
        inputs: Tensor,
        copy_ids: Tensor | None = None,
        need_weights: bool = False,
        mask: Tensor | None = None,
    ) -> ModelOutput:
        memory = self._encode(token_ids, lengths, copy_ids)
        return self.decode(inputs, memory, need_weights=need_weights, mask=mask)

    def start_decoding(self, token_ids: Tensor, lengths: Tensor, copy_ids: Tensor | None = None) -> tuple[Tensor, Any]:
        return torch.full_like(token_ids[:, :1], START), self._encode(token_ids, lengths, copy_ids)

    def _encode(self, token_ids: Tensor, lengths: Tensor, copy_ids: Tensor | None) -> Memory:
        vectors = self.source_embedding(token_ids)
        encoded = _refuse_hard_choices(self.encoder(vectors, lengths))
        summary = _refuse_hard_choices(self.pooling(encoded.output, lengths)).context
        return self.decoder.prepare(Memory(vectors, encoded.output, lengths, summary, copy_ids))

    def _output(
        self, decoded: DecoderOutput, dropped: Tensor, vectors: Tensor, memory: Memory, mask: Tensor | None
    ) -> ModelOutput:
        if self.gate is None:
            return super()._output(decoded, dropped, vectors, memory, mask)
        output = super()._output(decoded, dropped, vectors, memory, None)
        if decoded.weights is None:
            raise InputError("task.model.copy=true needs a decoder with attention, such as decoder=luong.")
        if memory.copy_ids is None:
            raise InputError("A model with task.model.copy=true needs copy_ids, the target ids of the source tokens.")
        generated = self.gate(torch.cat([dropped, vectors], dim=-1)).sigmoid()  # (B, T, 1)
        logits, copied = copy_distribution(output.logits, decoded.weights, memory.copy_ids, generated)
        if mask is not None:
            logits, copied = logits[mask], copied[mask]
        return replace(output, logits=logits, copied=copied)


class DecoderOnly(Seq2SeqModel):
    """A language model of the sequence: start symbol, source, start symbol, target.

    Args:
        source_size: size of the vocabulary of sources and targets.
        target_size: equal to ``source_size``.
        shared: must be true.
        embedding: builds the token embedding from the vocabulary size.
        encoder: builds the encoder, which must be causal, from the width of the embeddings.
        dropout: dropout probability of the encoder's outputs.
        tie_embeddings: share the weights of the embeddings and of the output projection; needs equal widths.
    """

    models_source = True

    def __init__(
        self,
        source_size: int,
        target_size: int,
        shared: bool,
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[int], Encoder],
        dropout: float = 0.0,
        tie_embeddings: bool = False,
    ) -> None:
        super().__init__()
        if not shared:
            raise InputError("A decoder-only model needs one vocabulary: set task.shared_vocabulary=true.")
        self.model = LanguageModel(target_size, embedding, encoder, dropout, tie_embeddings)
        self.feature_size, self.max_length = self.model.embedding.size, self.model.max_length
        # Two start symbols and one target token take a position each.
        self.max_source_length = None if self.max_length is None else self.max_length - 3

    def forward(
        self,
        token_ids: Tensor,
        lengths: Tensor,
        inputs: Tensor,
        copy_ids: Tensor | None = None,
        need_weights: bool = False,
        mask: Tensor | None = None,
    ) -> ModelOutput:
        source_length, steps = token_ids.shape[1], inputs.shape[1]
        prefix = torch.cat([torch.full_like(token_ids[:, :1], START), token_ids], dim=1)
        position = 1 + lengths[:, None] + torch.arange(steps, device=inputs.device)  # (B, T), of the target tokens
        sequence = torch.cat([prefix, torch.full_like(inputs, PADDING)], dim=1).scatter(1, position, inputs)
        # The longest source and the longest target may be in different rows: cut columns that are padding in all rows.
        trailing_padding = ((inputs != PADDING).flip(1).cumsum(1) == 0).sum(1)
        ends = 1 + lengths + steps - trailing_padding
        longest = int(ends.max())
        output = _refuse_hard_choices(self.model(sequence[:, :longest], ends))
        position = position.clamp(max=longest - 1)
        rows = torch.arange(len(token_ids), device=token_ids.device)[:, None].expand_as(position)
        if mask is not None:
            rows, position = rows[mask], position[mask]
        return ModelOutput(
            logits=output.logits[rows, position],
            features=output.features[:, None].expand(-1, steps, -1),
            source_logits=output.logits[:, :source_length],
        )

    def prefix_length(self, source_length: int) -> int:
        return source_length + 2

    def start_decoding(self, token_ids: Tensor, lengths: Tensor, copy_ids: Tensor | None = None) -> tuple[Tensor, Any]:
        start = torch.full_like(token_ids[:, :1], START)
        return torch.cat([start, token_ids, start], dim=1), None

    def decode(self, token_ids: Tensor, memory: Memory | None, state: Any = None) -> ModelOutput:
        return self.model.decode(token_ids, None, state)


def copy_distribution(logits: Tensor, weights: Tensor, copy_ids: Tensor, generated: Tensor) -> tuple[Tensor, Tensor]:
    """Mixes generation from the vocabulary and copying from the source (See et al. 2017, equation 9).

    Args:
        logits: (B, T, K), of generation.
        weights: (B, T, N), attention weights over the source, with a sum of at most 1.
        copy_ids: (B, N) int64, ids of the source tokens; from K on those out of vocabulary.
        generated: (B, T, 1), the gate: probability of generation, in (0, 1).

    Returns:
        Log-probabilities (B, T, K'), where K' includes the largest of ``copy_ids``, and the copied probability (B, T).
    """
    extra = max(0, int(copy_ids.max()) + 1 - logits.shape[-1])
    copy_probs = (1 - generated) * weights
    copied = copy_probs.sum(-1, keepdim=True)
    probs = torch.cat([(1 - copied) * logits.softmax(-1), logits.new_zeros(*logits.shape[:2], extra)], dim=-1)
    probs = probs.scatter_add(-1, copy_ids[:, None].expand_as(weights), copy_probs)
    log_probs = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    if extra:  # tokens out of vocabulary that only other sources of the batch contain have probability 0
        possible = copy_ids.new_zeros(len(copy_ids), probs.shape[-1]).scatter(1, copy_ids, 1).bool()
        possible[:, : logits.shape[-1]] = True
        log_probs = log_probs.masked_fill(~possible[:, None], -math.inf)
    return log_probs, copied[..., 0]


def _refuse_hard_choices(output: Output) -> Output:
    if output.log_prob is not None:
        raise InputError("The encoder of a source cannot use hard attention: use it in the decoder's context.")
    return output
