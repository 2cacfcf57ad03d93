"""Properties of every encoder, and errors about their options."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.selection import GumbelSoftmax
from ram.sequence.interfaces import EncoderOutput
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder
from tests.ram.sequence.encoder_cases import CAUSAL, EVERY, NONCAUSAL, SIZE, WIDTH, build, randn


def scalar(encoded: EncoderOutput, *index: Any) -> Tensor:
    """A scalar that depends on every entry of a part of the output, and on log_prob."""
    factors = torch.linspace(1, 2, encoded.output.shape[-1], dtype=torch.float64)
    total = (encoded.output[index] * factors).sum()
    return total if encoded.log_prob is None else total + encoded.log_prob[index].sum()


@pytest.mark.parametrize("name", EVERY)
def test_output_shapes_and_attributes(name: str) -> None:
    encoder = build(name)
    encoded = encoder(randn(2, 5, WIDTH), torch.tensor([5, 3]))
    assert encoded.output.shape == (2, 5, encoder.output_size)
    assert (encoded.log_prob is not None) == name.endswith("_hard")
    if encoded.log_prob is not None:
        assert encoded.log_prob.shape == (2, 5)
    assert encoder.num_directions == (2 if "bi" in name else 1)
    assert encoder.causal == (name in CAUSAL)


@pytest.mark.parametrize("name", EVERY)
def test_padding_changes_neither_outputs_nor_gradients(name: str) -> None:
    encoder, lengths = build(name), [1, 3, 5]
    vectors = randn(3, 5, WIDTH)
    padded = torch.cat([vectors, randn(3, 2, WIDTH)], dim=1)
    for row, length in enumerate(lengths):
        padded[row, length:] *= 10
    padded.requires_grad_()
    encoded = encoder(padded, torch.tensor(lengths))
    total = 0
    for row, length in enumerate(lengths):
        alone = encoder(vectors[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(encoded.output[row, :length], alone.output[0])
        if encoded.log_prob is not None:
            torch.testing.assert_close(encoded.log_prob[row, :length], alone.log_prob[0])
        total = total + scalar(encoded, row, slice(length))
    (gradient,) = torch.autograd.grad(total, padded)
    for row, length in enumerate(lengths):
        assert not gradient[row, length:].any()
        assert gradient[row, :length].any(-1).all()


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "deep", "past_lstm", "below_gru", "noncausal_rnn", "bilstm"])
def test_the_state_is_that_at_the_end_of_each_row(name: str) -> None:
    encoder, lengths, vectors = build(name), [4, 1, 3], randn(3, 4, WIDTH)

    def final_state(inputs: Tensor, lengths: list[int]) -> list[Tensor]:
        """The tensors of the state, (B, ...) each."""
        state = encoder(inputs, torch.tensor(lengths)).state
        if isinstance(encoder, AttentiveRecurrentEncoder):
            return list(state[0])
        return list(state) if isinstance(state, tuple) else [state]

    together = final_state(vectors, lengths)
    for row, length in enumerate(lengths):
        alone = final_state(vectors[row : row + 1, :length], [length])
        torch.testing.assert_close([each[row] for each in together], [each[0] for each in alone])


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_encoders_do_not_depend_on_later_inputs(name: str) -> None:
    encoder, lengths = build(name), torch.tensor([5, 5])
    vectors = randn(2, 5, WIDTH).requires_grad_()
    encoded = encoder(vectors, lengths)
    for position in range(5):
        (gradient,) = torch.autograd.grad(scalar(encoded, slice(None), position), vectors, retain_graph=True)
        assert not gradient[:, position + 1 :].any()
        assert gradient[:, position].any()
        other = vectors.detach().clone()
        other[:, position + 1 :] = 10 * randn(2, 4 - position, WIDTH)
        changed = encoder(other, lengths)
        torch.testing.assert_close(changed.output[:, : position + 1], encoded.output[:, : position + 1])
        if encoded.log_prob is not None:
            torch.testing.assert_close(changed.log_prob[:, : position + 1], encoded.log_prob[:, : position + 1])


@pytest.mark.parametrize("name", [name for name in NONCAUSAL if not name.endswith(("_hard", "_gumbel", "_local_m"))])
def test_noncausal_encoders_depend_on_later_inputs(name: str) -> None:
    encoder, vectors = build(name), randn(2, 5, WIDTH).requires_grad_()
    (gradient,) = torch.autograd.grad(scalar(encoder(vectors, torch.tensor([5, 5])), slice(None), 1), vectors)
    assert gradient[:, 2:].any()


@pytest.mark.parametrize("sizes", [[1] * 6, [2, 4], [3, 1, 2]], ids=str)
@pytest.mark.parametrize("name", CAUSAL)
def test_encoding_in_parts_equals_encoding_at_once(name: str, sizes: list[int]) -> None:
    encoder, vectors = build(name), randn(2, 6, WIDTH)
    whole = encoder(vectors, torch.tensor([6, 6]))
    state, outputs, log_probs = None, [], []
    for part in vectors.split(sizes, dim=1):
        encoded = encoder(part, torch.full((2,), part.shape[1]), state)
        state = encoded.state
        outputs.append(encoded.output)
        log_probs.append(encoded.log_prob)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.output)
    if whole.log_prob is not None:
        torch.testing.assert_close(torch.cat(log_probs, dim=1), whole.log_prob)


@pytest.mark.parametrize("name", ["deep", "deep_bigru", "transformer", "noncausal_transformer"])
def test_dropout_is_applied_in_training_only(name: str) -> None:
    encoder, vectors, lengths = build(name), randn(2, 5, WIDTH), torch.tensor([5, 3])
    expected = encoder(vectors, lengths).output
    torch.testing.assert_close(encoder(vectors, lengths).output, expected)
    encoder.train()
    first, second = (encoder(vectors, lengths).output for _ in range(2))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, expected)


def test_the_identity_returns_its_inputs() -> None:
    vectors = randn(2, 5, WIDTH)
    assert torch.equal(build("identity")(vectors, torch.tensor([5, 2])).output, vectors)


@pytest.mark.parametrize("name", [name for name in EVERY if name.endswith("_hard")])
def test_hard_attention_trains_scores_through_log_prob_only(name: str) -> None:
    encoder = build(name)
    encoder.train()
    encoded = encoder(randn(3, 5, WIDTH), torch.tensor([5, 5, 5]))
    attentive = isinstance(encoder, AttentiveRecurrentEncoder)
    layers = [encoder.attention] if attentive else [layer.self_attention for layer in encoder.layers]
    assert encoded.log_prob is not None
    last = layers[-1].score.weight.weight  # scores of earlier layers also change the inputs of later ones
    from_output, from_log_prob = (
        torch.autograd.grad(each.sum(), last, retain_graph=True, allow_unused=True)[0]
        for each in (encoded.output * torch.linspace(1, 2, SIZE), encoded.log_prob)
    )
    assert from_output is None or not from_output.any()
    assert from_log_prob is not None and from_log_prob.any()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (RecurrentEncoder, {"cell": "elman"}, r"encoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (RecurrentEncoder, {"size": 0}, r"encoder\.size must be at least 1, got 0"),
        (RecurrentEncoder, {"num_layers": 0}, r"encoder\.num_layers must be at least 1, got 0"),
        (AttentiveRecurrentEncoder, {"cell": "elman"}, r"encoder\.cell must be one of rnn, gru, lstm, got 'elman'"),
        (AttentiveRecurrentEncoder, {"size": -1}, r"encoder\.size must be at least 1, got -1"),
        (AttentiveRecurrentEncoder, {"over": "above"}, r"encoder\.over must be one of below, past, got 'above'"),
        (TransformerEncoder, {"size": 0}, r"encoder\.size must be at least 1, got 0"),
        (TransformerEncoder, {"num_layers": 0}, r"encoder\.num_layers must be at least 1, got 0"),
        (TransformerEncoder, {"num_heads": 0}, r"encoder\.num_heads must be at least 1, got 0"),
        (TransformerEncoder, {"size": 8, "num_heads": 3}, "num_heads must divide the width of a query, 8; got 3"),
        (TransformerEncoder, {"size": 5, "num_heads": 5}, "Sinusoidal positions need an even width, got 5"),
        (TransformerEncoder, {"select": partial(GumbelSoftmax, temperature=0.0)}, "temperature of GumbelSoftmax"),
        (RecurrentEncoder, {"num_layers": 2, "dropout": 1.5}, r"encoder\.dropout"),
        (TransformerEncoder, {"dropout": 1.5}, r"encoder\.dropout"),
        (TransformerEncoder, {"hidden_size": -1}, r"encoder\.hidden_size"),
        (TransformerEncoder, {"hidden_size": 0}, r"encoder\.hidden_size"),
    ],
)
def test_errors_name_the_wrong_option(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(WIDTH, **options)
    assert kind(WIDTH).output_size == 128  # the defaults are valid
