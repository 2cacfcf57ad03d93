"""Sequence-to-sequence models of every kind, and small batches for them."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ram.attention.scores import Additive
from ram.attention.selection import Hard, LocalMonotonic, LocalPredictive
from ram.corpora.vocabulary import PADDING, START
from ram.sequence.context import CrossAttention, ReencodedContext
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import IdentityEncoder, ModelOutput
from ram.sequence.pooling import AttentionPooling, LastState, SumPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentDecoder, RecurrentEncoder
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder, Seq2SeqModel
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder

SOURCE_SIZE, TARGET_SIZE, WIDTH, SIZE = 11, 9, 4, 6
embedding = partial(TokenEmbedding, size=WIDTH)
recurrent_decoder = partial(RecurrentDecoder, size=SIZE, bridge="network")
ENCODERS: dict[str, Any] = {
    "identity": IdentityEncoder,
    "gru": partial(RecurrentEncoder, cell="gru", size=5),
    "bilstm": partial(RecurrentEncoder, size=3, num_layers=2, bidirectional=True),
    "attentive": partial(AttentiveRecurrentEncoder, size=5, over="below", causal=False),
    "transformer": partial(TransformerEncoder, size=6, num_heads=2),
}
POOLINGS: dict[str, Any] = {
    "last": LastState,
    "mean": partial(SumPooling, mean=True),
    "fixed": partial(AttentionPooling, num_queries=2),
}
WITHOUT_ATTENTION: dict[str, Any] = {
    "lstm": recurrent_decoder,
    "state": partial(recurrent_decoder, bridge="state"),
    "reencoding": partial(
        recurrent_decoder, attend="before", context=partial(ReencodedContext, encoder=ENCODERS["bilstm"])
    ),
}
"""Decoders without attention weights."""
WITH_ATTENTION: dict[str, Any] = {
    "luong": partial(recurrent_decoder, context=CrossAttention),
    "bahdanau": partial(
        recurrent_decoder, cell="gru", attend="before", context=partial(CrossAttention, score=Additive)
    ),
    "over_vectors": partial(
        recurrent_decoder, bridge="none", context=partial(CrossAttention, over="vectors", num_heads=2)
    ),
    "parallel_local": partial(
        recurrent_decoder, input_feeding=False, context=partial(CrossAttention, select=LocalPredictive)
    ),
    "hard": partial(recurrent_decoder, context=partial(CrossAttention, select=Hard)),
    "transformer": partial(TransformerDecoder, size=SIZE, num_heads=2),
    "transformer_local": partial(
        TransformerDecoder,
        size=SIZE,
        num_heads=2,
        select=partial(LocalMonotonic, half_width=1, gaussian=True),
    ),
}
DECODERS = WITHOUT_ATTENTION | WITH_ATTENTION
CAUSAL_ENCODERS: dict[str, Any] = {
    "identity": IdentityEncoder,
    "lstm": partial(RecurrentEncoder, size=SIZE, num_layers=2),
    "past": partial(AttentiveRecurrentEncoder, size=SIZE),
    "below": partial(AttentiveRecurrentEncoder, size=SIZE, over="below", cell="gru"),
    "transformer": partial(TransformerEncoder, size=SIZE, num_heads=2, causal=True),
}
SOURCES = ([4, 7, 10, 8, 5], [6], [8, 4, 1])
TARGETS = ([4, 8, 5, 6], [5, 5, 7, 4], [7, 1, 4, 8])
COPY_IDS = ([4, 9, 7, 10, 9], [6], [9, 4, 10])
"""Source tokens in the target vocabulary; ids from 9 are out of vocabulary."""


def make_encoder_decoder(
    decoder: str, encoder: str = "bilstm", copy: bool = False, shared: bool = False, **options: Any
) -> EncoderDecoder:
    """Builds a model in double precision and evaluation mode."""
    torch.manual_seed(0)
    source = TARGET_SIZE if shared else SOURCE_SIZE
    model = EncoderDecoder(
        source, TARGET_SIZE, shared, embedding, ENCODERS[encoder], DECODERS[decoder], copy=copy, **options
    )
    return model.double().eval()


def build(decoder: Any = recurrent_decoder, **options: Any) -> EncoderDecoder:
    """Builds a model with given options."""
    encoder = options.pop("encoder", ENCODERS["gru"])
    return EncoderDecoder(SOURCE_SIZE, TARGET_SIZE, False, embedding, encoder, decoder, **options)


def make_decoder_only(encoder: str, **options: Any) -> DecoderOnly:
    torch.manual_seed(0)
    return DecoderOnly(SOURCE_SIZE, SOURCE_SIZE, True, embedding, CAUSAL_ENCODERS[encoder], **options).double().eval()


def padded(*texts: list[int]) -> Tensor:
    longest = max(map(len, texts))
    return torch.tensor([text + [PADDING] * (longest - len(text)) for text in texts])


def lengths(*texts: list[int]) -> Tensor:
    return torch.tensor([len(text) for text in texts])


def make_inputs(*targets: list[int]) -> Tensor:
    return padded(*[[START, *text] for text in targets])


def run(model: Seq2SeqModel, rows: list[int], copy: bool = False, **options: Any) -> ModelOutput:
    """Runs a model on a batch of some of the sources and targets."""
    texts = [SOURCES[row] for row in rows]
    copy_ids = padded(*[COPY_IDS[row] for row in rows]) if copy else None
    return model(padded(*texts), lengths(*texts), make_inputs(*[TARGETS[row] for row in rows]), copy_ids, **options)


SOURCE_IDS = torch.tensor([[4, 7, 10, 8], [6, 5, 1, 9]])
TARGET_IDS = torch.tensor([[START, 8, 5, 5, 4], [START, 5, 6, 1, 7]])
