"""Dropout of attention weights in every model with attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from envs import InputError
from ram.attention import Attention
from ram.attention.scores import Additive
from ram.sequence.context import CrossAttention
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentDecoder
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder
from tests.ram.sequence.decoder_cases import DISTINCT, make_source, randn

SIZE = 4


def recurrent_decoder(attention_dropout: float, **options: Any) -> RecurrentDecoder:
    return RecurrentDecoder(
        DISTINCT, size=SIZE, context=partial(CrossAttention, attention_dropout=attention_dropout, **options)
    )


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "transformer_encoder": partial(TransformerEncoder, 3, SIZE, num_heads=2, dropout=0.0),
    "transformer_encoder_additive": partial(TransformerEncoder, 3, SIZE, num_heads=2, dropout=0.0, score=Additive),
    "past": partial(AttentiveRecurrentEncoder, 3, size=SIZE),
    "below": partial(AttentiveRecurrentEncoder, 3, over="below", size=SIZE),
    "attention_pooling": partial(AttentionPooling, 3, num_queries=2),
    "contextual_attention_pooling": partial(ContextualAttentionPooling, 3),
    "recurrent_decoder": recurrent_decoder,
    "recurrent_decoder_heads": partial(recurrent_decoder, num_heads=2),
    "transformer_decoder": partial(TransformerDecoder, DISTINCT, SIZE, num_heads=2, dropout=0.0),
}


def build(name: str, attention_dropout: float) -> nn.Module:
    """Builds a module in double precision."""
    torch.manual_seed(0)
    return BUILDERS[name](attention_dropout=attention_dropout).double()


def run(module: nn.Module) -> Tensor:
    """Returns the output for fixed random inputs; dropout is seeded."""
    torch.manual_seed(1)
    lengths = torch.tensor([5, 3])
    if isinstance(module, (RecurrentDecoder, TransformerDecoder)):
        memory, inputs = make_source(DISTINCT, lengths.tolist()), randn(2, 4, DISTINCT.inputs)
        return module(inputs, module.prepare(memory)).output
    output = module(randn(2, 5, 3), lengths)
    return output.context if hasattr(output, "context") else output.output


@pytest.mark.parametrize("name", BUILDERS)
def test_attention_dropout_changes_training_but_not_evaluation(name: str) -> None:
    without, with_dropout = build(name, 0.0), build(name, 0.5)
    expected = run(without.eval())
    assert torch.equal(run(without.train()), expected)
    assert torch.equal(run(with_dropout.eval()), expected)
    assert (run(with_dropout.train()) - expected).abs().max() > 0.01


@pytest.mark.parametrize("name", BUILDERS)
def test_attention_dropout_reaches_every_attention(name: str) -> None:
    attentions = [module for module in build(name, 0.25).modules() if isinstance(module, Attention)]
    assert attentions
    assert {attention.dropout for attention in attentions} == {0.25}


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("transformer_encoder", "encoder"),
        ("past", "encoder"),
        ("attention_pooling", "pooling"),
        ("contextual_attention_pooling", "pooling"),
        ("recurrent_decoder", r"decoder\.context"),
        ("transformer_decoder", "decoder"),
    ],
)
def test_an_attention_dropout_of_1_is_refused(name: str, option: str) -> None:
    with pytest.raises(InputError, match=rf"^{option}\.attention_dropout must be in \[0, 1\), got 1\.0"):
        build(name, 1.0)
