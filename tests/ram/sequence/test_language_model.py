"""Language models."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.scores import General
from ram.attention.selection import Hard
from ram.corpora.vocabulary import PADDING
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import IdentityEncoder
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder

VOCABULARY_SIZE = 9
ENCODERS: dict[str, Any] = {
    "identity": IdentityEncoder,
    "lstm": partial(RecurrentEncoder, size=5),
    "attentive": partial(AttentiveRecurrentEncoder, size=5, select=Hard),
    "transformer": partial(TransformerEncoder, size=6, num_heads=2, score=General, select=Hard),
}


def vectors(size: int = 4, **options: float) -> Any:
    return partial(TokenEmbedding, size=size, **options)


def pad_texts(*texts: list[int]) -> tuple[Tensor, Tensor]:
    """Returns padded token ids and lengths."""
    longest = max(map(len, texts))
    padded = torch.tensor([text + [PADDING] * (longest - len(text)) for text in texts])
    return padded, torch.tensor(list(map(len, texts)))


@pytest.mark.parametrize("encoder", ["identity", "lstm", "attentive", "transformer"])
def test_a_language_model_continues_from_its_state(encoder: str) -> None:
    torch.manual_seed(0)
    options = {"causal": True} if encoder in ("attentive", "transformer") else {}
    model = LanguageModel(VOCABULARY_SIZE, vectors(), partial(ENCODERS[encoder], **options)).double().eval()
    texts = torch.randint(4, VOCABULARY_SIZE, (2, 6))
    whole, state, logits = model(texts, torch.tensor([6, 6])), None, []
    assert whole.logits.shape == (2, 6, VOCABULARY_SIZE)
    for part in texts.split([1, 3, 1, 1], dim=1):
        output = model(part, torch.full((2,), part.shape[1]), state)
        state = output.state
        logits.append(output.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)


@pytest.mark.parametrize("encoder", ["identity", "lstm", "attentive", "transformer"])
def test_logits_do_not_depend_on_later_tokens(encoder: str) -> None:
    torch.manual_seed(0)
    options = {"causal": True} if encoder in ("attentive", "transformer") else {}
    model = LanguageModel(VOCABULARY_SIZE, vectors(), partial(ENCODERS[encoder], **options)).double().eval()
    texts = torch.randint(4, VOCABULARY_SIZE, (1, 6))
    logits = model(texts, torch.tensor([6])).logits
    for position in range(5):
        other = texts.clone()
        other[:, position + 1 :] = torch.randint(4, VOCABULARY_SIZE, (1, 5 - position))
        torch.testing.assert_close(model(other, torch.tensor([6])).logits[:, : position + 1], logits[:, : position + 1])


@pytest.mark.parametrize(
    "encoder",
    [
        partial(RecurrentEncoder, bidirectional=True),
        TransformerEncoder,
        partial(AttentiveRecurrentEncoder, over="below", causal=False),
    ],
)
def test_a_language_model_needs_a_causal_encoder(encoder: Any) -> None:
    with pytest.raises(InputError, match=r"needs a causal encoder: set encoder\.causal=true or"):
        LanguageModel(VOCABULARY_SIZE, vectors(), encoder)


def test_tied_weights_are_one_parameter() -> None:
    torch.manual_seed(0)
    model = LanguageModel(VOCABULARY_SIZE, vectors(5), ENCODERS["lstm"], tie_embeddings=True).double()
    assert model.out.weight is model.embedding.table.weight
    plain = LanguageModel(VOCABULARY_SIZE, vectors(5), ENCODERS["lstm"])
    sizes = [sum(value.numel() for value in each.parameters()) for each in (model, plain)]
    assert sizes[1] - sizes[0] == 5 * VOCABULARY_SIZE
    texts = pad_texts([4, 7])
    state = model.encoder(model.embedding(texts[0]), texts[1]).output
    torch.testing.assert_close(model(*texts).logits, state @ model.embedding.table.weight.T + model.out.bias)
    model(*texts).logits[0, 0, 8].backward()  # of a token that is not an input
    assert model.embedding.table.weight.grad is not None
    assert model.embedding.table.weight.grad[8].any()


def test_tied_weights_need_equal_widths() -> None:
    message = r"^task\.model\.tie_embeddings=true needs task\.model\.embedding\.size \(4\) to equal the width of the "
    with pytest.raises(InputError, match=message + r"encoder \(5\)\.$"):
        LanguageModel(VOCABULARY_SIZE, vectors(4), ENCODERS["lstm"], tie_embeddings=True)
