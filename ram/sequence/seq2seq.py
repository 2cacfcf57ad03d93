"""Models that turn one sequence into another: an encoder with a decoder, or a language model that goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_factory
from ram.attention import AttentionOutput
from ram.attention.selection import Unnormalised
from ram.corpora.vocabulary import PADDING, START
from ram.sequence.autoregressive import DecoderModel, LanguageModel
from ram.sequence.decoders import Decoder, DecoderSizes, Memory
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.encoders import Encoder, EncoderOutput, shortest
from ram.sequence.output import ModelOutput
from ram.sequence.pooling import LastState, Pooling

ReadOrSaid = TypeVar("ReadOrSaid", EncoderOutput, AttentionOutput, ModelOutput)


class Seq2SeqModel(nn.Module):
    """Says a target in the light of a source.

    Attributes:
        feature_size: width of what is known before a choice.
        copies: whether it may say a word of the source that is not known.
        models_source: whether it also says the source.
        max_source_length: how many words a source may have; None for any number.
        max_length: how many words it may be given to go on from; None for any number.
    """

    feature_size: int
    can_copy = False
    models_source = False
    max_source_length: int | None = None
    max_length: int | None = None

    def forward(
        self, numbers: Tensor, lengths: Tensor, inputs: Tensor, copies: Tensor | None = None, need_weights: bool = False
    ) -> ModelOutput:
        """What comes after every word of the target, the words before it being known.

        Args:
            numbers: (B, N) int64, of the source.
            lengths: (B,) int64, how many of each row count.
            inputs: (B, T) int64, the start symbol and the target; anything after its end.
            copies: (B, N) int64, the numbers of the source's words among those of the target; the unknown ones have
                numbers above them.
            need_weights: tell the weights, where a faster way could do without.

        Returns:
            ``logits`` (B, T, K), K counting what can be copied; ``known`` (B, T, D).
        """
        raise TypeError(f"{type(self).__name__} does not say how it translates.")

    def prefix_length(self, source_length: int) -> int:
        """How many of its positions are taken before a target's first word, after a source of so many."""
        return 1

    def start_decoding(
        self, numbers: Tensor, lengths: Tensor, copies: Tensor | None = None
    ) -> tuple[Tensor, Memory | None]:
        """What stands before the first word (B, n), of sources of one length, and what to read while going on."""
        raise TypeError(f"{type(self).__name__} does not say how it begins.")

    def decode(self, words: Tensor, memory: Memory | None, state: Any = None) -> ModelOutput:
        """Goes on by words (B, T)."""
        raise TypeError(f"{type(self).__name__} does not say how it goes on.")


class EncoderDecoder(DecoderModel, Seq2SeqModel):
    """An encoder, and a decoder that is given what it has read (Sutskever et al. 2014; Bahdanau et al. 2015).

    Args:
        source_size: how many words a source is made of.
        target_size: how many words can be said, K.
        shared: whether both are the same words, which then have the same vectors.
        embedding: builds the vectors of words from their number.
        encoder: builds what reads the source from the words' width.
        reader: builds what makes one vector of it from the encoder's width and directions.
        decoder: builds what speaks.
        dropout: share of what the decoder says that is dropped in training.
        tied: the vectors of target words are the weights of the answer too (Press and Wolf 2017); needs one width.
        copy: say words of the source with the weight that attention gives them, in the share that a gate leaves (See et
            al. 2017, equations 8 and 9); needs a decoder that weighs the source.
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
        source_words = embedding(source_size)
        target_words = source_words if shared else embedding(target_size)
        check_factory("encoder", encoder, Encoder, "texts, such as encoder=lstm")
        read_by, width = encoder(source_words.size), target_words.size
        output_layers = pooling(read_by.output_size, read_by.directions)
        said_by = decoder(DecoderSizes(width, width, read_by.output_size, output_layers.output_size))
        super().__init__(target_words, said_by, target_size, dropout, tie_embeddings)
        self.source_embedding, self.encoder, self.pooling, self.can_copy = source_words, read_by, output_layers, copy
        self.max_source_length = shortest(self.encoder.max_length, self.decoder.max_source_length)
        if copy and any(isinstance(module, Unnormalised) for module in self.decoder.modules()):
            raise InputError("task.model.copy=true needs weights that are shares, not attention=unnormalised.")
        self.gate = nn.Linear(self.decoder.output_size + width, 1) if copy else None

    def forward(
        self, numbers: Tensor, lengths: Tensor, inputs: Tensor, copies: Tensor | None = None, need_weights: bool = False
    ) -> ModelOutput:
        return self.decode(inputs, self._encode(numbers, lengths, copies), need_weights=need_weights)

    def start_decoding(
        self, numbers: Tensor, lengths: Tensor, copies: Tensor | None = None
    ) -> tuple[Tensor, Memory | None]:
        return torch.full_like(numbers[:, :1], START), self._encode(numbers, lengths, copies)

    def _encode(self, numbers: Tensor, lengths: Tensor, copies: Tensor | None) -> Memory:
        vectors = self.source_embedding(numbers)
        encoded = _soft(self.encoder(vectors, lengths))
        summary = _soft(self.pooling(encoded.output, lengths)).context
        return self.decoder.prepare(Memory(vectors, encoded.output, lengths, summary, copies))

    def decode(
        self, words: Tensor, memory: Memory | None, state: Any = None, need_weights: bool = False
    ) -> ModelOutput:
        assert memory is not None
        vectors = self.embed(words)
        decoded = self.decoder(vectors, memory, state, need_weights or self.can_copy)
        output = self.dropout(decoded.output)
        said = self._output(decoded, output)
        if self.gate is None:
            return said
        if decoded.weights is None:
            raise InputError("task.model.copy=true needs a decoder that weighs the source, such as decoder=luong.")
        if memory.copies is None:
            raise InputError("A model that copies must be told the numbers of the source's words: give it copies.")
        own = self.gate(torch.cat([output, vectors], dim=-1)).sigmoid()
        logits, copied = copy_distribution(said.logits, decoded.weights, memory.copies, own)
        return replace(said, logits=logits, copied=copied)


class DecoderOnly(Seq2SeqModel):
    """One language model over the source, the start symbol and the target.

    Args:
        source_size: how many words there are, of sources and targets alike.
        target_size: the same.
        shared: true, for both are the same words.
        embedding: builds the vectors of words from their number.
        encoder: builds what sees them in context from their width; it looks back alone.
        dropout: share of what the encoder says that is dropped in training.
        tied: the vectors of words are the weights of the answer too; needs one width.
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
            raise InputError(
                "A language model that goes on from the source needs one vocabulary: set task.shared_vocabulary=true."
            )
        self.model = LanguageModel(target_size, embedding, encoder, dropout, tie_embeddings)
        self.feature_size, self.max_length = self.model.embedding.size, self.model.max_length
        self.max_source_length = None if self.max_length is None else self.max_length - 3  # two starts and a word

    def forward(
        self, numbers: Tensor, lengths: Tensor, inputs: Tensor, copies: Tensor | None = None, need_weights: bool = False
    ) -> ModelOutput:
        number, steps = numbers.shape[1], inputs.shape[1]
        ahead = torch.cat([torch.full_like(numbers[:, :1], START), numbers], dim=1)
        place = 1 + lengths[:, None] + torch.arange(steps, device=inputs.device)  # of the target's words
        whole = torch.cat([ahead, torch.full_like(inputs, PADDING)], dim=1).scatter(1, place, inputs)
        # The longest source and the longest target need not be those of one row.
        filled_up = ((inputs != PADDING).flip(1).cumsum(1) == 0).sum(1)
        ends = 1 + lengths + steps - filled_up
        longest = int(ends.max())
        said = _soft(self.model(whole[:, :longest], ends))
        place = place.clamp(max=longest - 1)
        rows = torch.arange(len(numbers), device=numbers.device)[:, None]
        return ModelOutput(
            logits=said.logits[rows, place],
            features=said.features[:, None].expand(-1, steps, -1),
            source_logits=said.logits[:, :number],
        )

    def prefix_length(self, source_length: int) -> int:
        return source_length + 2

    def start_decoding(
        self, numbers: Tensor, lengths: Tensor, copies: Tensor | None = None
    ) -> tuple[Tensor, Memory | None]:
        start = torch.full_like(numbers[:, :1], START)
        return torch.cat([start, numbers, start], dim=1), None

    def decode(self, words: Tensor, memory: Memory | None, state: Any = None) -> ModelOutput:
        return self.model.decode(words, None, state)


def copy_distribution(logits: Tensor, weights: Tensor, copies: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Words of the model's own, and words of the source (See et al. 2017, equation 9).

    Args:
        logits: (B, T, K), of its own words.
        weights: (B, T, N), what each word of the source counts, at most 1 together.
        copies: (B, N) int64, the number of each; from K on those that are not known.
        own: (B, T, 1), the share of its own words, in (0, 1).

    Returns:
        (B, T, K'), the logarithms of the shares of all words, the same word's added; and (B, T), the share copied.
    """
    extra = max(0, int(copies.max()) + 1 - logits.shape[-1])
    taken = (1 - own) * weights
    copied = taken.sum(-1, keepdim=True)
    share = torch.cat([(1 - copied) * logits.softmax(-1), logits.new_zeros(*logits.shape[:2], extra)], dim=-1)
    share = share.scatter_add(-1, copies[:, None].expand_as(weights), taken)
    logarithms = share.clamp(min=torch.finfo(share.dtype).tiny).log()
    if extra:  # of what only other texts of the batch hold nothing can be copied
        held = copies.new_zeros(len(copies), share.shape[-1]).scatter(1, copies, 1).bool()
        held[:, : logits.shape[-1]] = True
        logarithms = logarithms.masked_fill(~held[:, None], -math.inf)
    return logarithms, copied[..., 0]


def _soft(read: ReadOrSaid) -> ReadOrSaid:
    """What reads a source makes no hard choices."""
    if read.log_prob is not None:
        raise InputError("An encoder of sources makes no hard choices: leave them to the decoder's attention.")
    return read
