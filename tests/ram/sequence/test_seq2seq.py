"""Encoder-decoder and decoder-only models, and errors about their options."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.attention.scores import Additive, General, Location
from ram.attention.selection import Hard
from ram.corpora.vocabulary import PADDING, START
from ram.sequence.context import CrossAttention
from ram.sequence.interfaces import Memory, ModelOutput
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentDecoder, RecurrentEncoder
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder, Seq2SeqModel
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder
from tests.ram.sequence.seq2seq_cases import (
    CAUSAL_ENCODERS,
    DECODERS,
    ENCODERS,
    POOLINGS,
    SIZE,
    SOURCE_IDS,
    SOURCE_SIZE,
    SOURCES,
    TARGET_IDS,
    TARGET_SIZE,
    TARGETS,
    WIDTH,
    WITH_ATTENTION,
    build,
    embedding,
    lengths,
    make_decoder_only,
    make_encoder_decoder,
    make_inputs,
    padded,
    recurrent_decoder,
    run,
)


def decode_stepwise(
    model: Seq2SeqModel, token_ids: Tensor, targets: Tensor, copy_ids: Tensor | None = None
) -> list[ModelOutput]:
    """Decodes sources of one length token by token, the first one together with the prefix."""
    prefix, memory = model.start_decoding(token_ids, torch.full((len(token_ids),), token_ids.shape[1]), copy_ids)
    outputs = [model.decode(prefix, memory)]
    for position in range(1, targets.shape[1]):
        outputs.append(model.decode(targets[:, position : position + 1], memory, outputs[-1].state))
    return outputs


@pytest.mark.parametrize(
    ("decoder", "copy"), [(decoder, False) for decoder in DECODERS] + [(decoder, True) for decoder in WITH_ATTENTION]
)
def test_stepwise_decoding_equals_the_forward_pass(decoder: str, copy: bool) -> None:
    model = make_encoder_decoder(decoder, copy=copy)
    copy_ids = torch.tensor([[4, 9, 10, 8], [6, 5, 9, 9]]) if copy else None
    whole = model(SOURCE_IDS, torch.tensor([4, 4]), TARGET_IDS, copy_ids, need_weights=True)
    assert whole.logits.shape == (2, 5, TARGET_SIZE + 2 * copy)
    steps = decode_stepwise(model, SOURCE_IDS, TARGET_IDS, copy_ids)
    torch.testing.assert_close(torch.cat([output.logits for output in steps], dim=1), whole.logits)
    assert (whole.copied is None) == (not copy)
    if whole.copied is not None:
        assert whole.copied.shape == (2, 5)
        torch.testing.assert_close(torch.cat([output.copied for output in steps], dim=1), whole.copied)  # type: ignore[misc]
    assert (whole.log_prob is None) == (decoder != "hard")
    if whole.log_prob is not None:
        torch.testing.assert_close(torch.cat([output.log_prob for output in steps], dim=1), whole.log_prob)  # type: ignore[misc]


@pytest.mark.parametrize("encoder", CAUSAL_ENCODERS)
def test_stepwise_decoding_of_a_decoder_only_model_equals_the_forward_pass(encoder: str) -> None:
    model = make_decoder_only(encoder)
    whole = model(SOURCE_IDS, torch.tensor([4, 4]), TARGET_IDS)
    assert whole.logits.shape == (2, 5, SOURCE_SIZE)
    steps = decode_stepwise(model, SOURCE_IDS, TARGET_IDS)
    assert steps[0].logits.shape == (2, 6, SOURCE_SIZE)  # with those of the prefix
    torch.testing.assert_close(torch.cat([output.logits[:, -1:] for output in steps], dim=1), whole.logits)


@pytest.mark.parametrize(
    "model", [make_encoder_decoder("luong"), make_encoder_decoder("transformer"), make_decoder_only("lstm")]
)
def test_logits_do_not_depend_on_the_predicted_or_later_tokens(model: Seq2SeqModel) -> None:
    whole = model(SOURCE_IDS, torch.tensor([4, 4]), TARGET_IDS)
    other = TARGET_IDS.clone()
    other[:, 3:] = torch.tensor([[7, 8], [4, 4]])
    changed = model(SOURCE_IDS, torch.tensor([4, 4]), other)
    torch.testing.assert_close(changed.logits[:, :3], whole.logits[:, :3])
    assert not torch.allclose(changed.logits[:, 3], whole.logits[:, 3])


POOLING_OF = {"identity": "mean", "gru": "last", "bilstm": "last", "attentive": "fixed", "transformer": "fixed"}


@pytest.mark.parametrize(
    ("decoder", "encoder"),
    [(decoder, encoder) for decoder in DECODERS for encoder in ENCODERS if decoder != "state" or encoder == "bilstm"],
)
def test_rows_do_not_depend_on_the_batch(decoder: str, encoder: str) -> None:
    copy = decoder in WITH_ATTENTION and encoder in ("bilstm", "transformer")
    model = make_encoder_decoder(decoder, encoder, copy, pooling=POOLINGS[POOLING_OF[encoder]])
    together = run(model, [0, 1, 2], copy, need_weights=True)
    for row, text in enumerate(SOURCES):
        alone = run(model, [row], copy, need_weights=True)
        size = alone.logits.shape[-1]  # tokens out of vocabulary of other sources are impossible
        torch.testing.assert_close(together.logits[row, :, :size], alone.logits[0])
        assert (together.logits[row, :, size:].exp() < 1e-30).all()
        torch.testing.assert_close(together.features[row], alone.features[0])
        if together.weights is not None:
            assert alone.weights is not None
            torch.testing.assert_close(together.weights[row, :, : len(text)], alone.weights[0])
        if together.copied is not None:
            assert alone.copied is not None
            torch.testing.assert_close(together.copied[row], alone.copied[0])


@pytest.mark.parametrize("encoder", CAUSAL_ENCODERS)
def test_rows_of_a_decoder_only_model_do_not_depend_on_the_batch(encoder: str) -> None:
    model = make_decoder_only(encoder)
    together = run(model, [0, 1, 2])
    assert together.source_logits is not None
    assert together.logits.shape == (3, 5, SOURCE_SIZE) and together.source_logits.shape == (3, 5, SOURCE_SIZE)
    for row, text in enumerate(SOURCES):
        alone = run(model, [row])
        assert alone.source_logits is not None
        torch.testing.assert_close(together.logits[row], alone.logits[0])
        torch.testing.assert_close(together.source_logits[row, : len(text)], alone.source_logits[0])


@pytest.mark.parametrize("encoder", CAUSAL_ENCODERS)
def test_a_decoder_only_model_is_a_language_model_of_source_and_target(encoder: str) -> None:
    model = make_decoder_only(encoder)
    together = run(model, [0, 1, 2])
    assert together.source_logits is not None
    for row, (text, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        whole = torch.tensor([[START, *text, START, *target]])
        logits = model.model(whole, torch.tensor([whole.shape[1]])).logits[0]
        torch.testing.assert_close(together.logits[row], logits[len(text) + 1 :])
        torch.testing.assert_close(together.source_logits[row, : len(text)], logits[: len(text)])
        # A source token is predicted from the preceding ones only.
        for position in range(len(text)):
            before = torch.tensor([[START, *text[:position]]])
            expected = model.model(before, torch.tensor([position + 1])).logits[0, -1]
            torch.testing.assert_close(together.source_logits[row, position], expected)


@pytest.mark.parametrize("encoder", CAUSAL_ENCODERS)
def test_a_padding_token_within_the_target_is_an_input(encoder: str) -> None:
    model, target = make_decoder_only(encoder), [5, PADDING, 6, 7]
    logits = model(torch.tensor([[4, 7]]), torch.tensor([2]), make_inputs(target)).logits[0]
    whole = torch.tensor([[START, 4, 7, START, *target]])
    torch.testing.assert_close(logits, model.model(whole, torch.tensor([8])).logits[0, 3:])


def test_targets_of_different_lengths_do_not_affect_each_other() -> None:
    for model in (
        make_encoder_decoder("luong"),
        make_encoder_decoder("transformer"),
        make_decoder_only("lstm"),
        make_decoder_only("transformer"),
    ):
        targets = [[4, 8, 5, 6], [5], [7, 1]]
        together = model(padded(*SOURCES), lengths(*SOURCES), make_inputs(*targets)).logits
        for row, (text, target) in enumerate(zip(SOURCES, targets, strict=True)):
            alone = model(padded(text), lengths(text), make_inputs(target)).logits
            torch.testing.assert_close(together[row, : len(target) + 1], alone[0])


def test_the_memory_and_the_output_of_an_encoder_decoder() -> None:
    model = make_encoder_decoder("luong", "bilstm")
    output = run(model, [0, 1, 2], need_weights=True)
    token_ids, sizes = padded(*SOURCES), lengths(*SOURCES)
    vectors = model.source_embedding.table.weight[token_ids]
    encoded = model.encoder(vectors, sizes).output
    summary = torch.stack([torch.cat([row[n - 1, :3], row[0, 3:]]) for row, n in zip(encoded, sizes, strict=True)])
    memory = model.decoder.prepare(Memory(vectors, encoded, sizes, summary))
    decoded = model.decoder(model.embedding.table.weight[make_inputs(*TARGETS)], memory)
    torch.testing.assert_close(output.logits, decoded.output @ model.out.weight.T + model.out.bias)
    torch.testing.assert_close(output.weights, decoded.weights)
    # The features of a step are the decoder output of the previous step.
    assert not output.features[:, 0].any()
    torch.testing.assert_close(output.features[:, 1:], decoded.output[:, :-1])
    assert output.features.shape[-1] == model.feature_size == SIZE


def test_need_weights_returns_the_weights() -> None:
    model = make_encoder_decoder("transformer")
    weights = run(model, [0, 2], need_weights=True).weights
    assert weights is not None and weights.shape == (2, 5, 5)
    assert run(model, [0, 2]).weights is None


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_parameter_gets_a_gradient_from_the_loss(decoder: str) -> None:
    model = make_encoder_decoder(decoder, "bilstm", copy=decoder in WITH_ATTENTION)
    output = run(model, [0, 1, 2], decoder in WITH_ATTENTION)
    loss = -output.logits.log_softmax(-1)[..., 4].sum() - output.logits.log_softmax(-1)[..., 5].sum()
    if output.log_prob is not None:
        loss = loss + output.log_prob.sum()
    loss.backward()
    for name, value in model.named_parameters():
        used = value.grad is not None and bool(value.grad.any())
        assert used != (decoder == "over_vectors" and name.startswith("encoder.")), name


@pytest.mark.parametrize("score", [General, Additive])
def test_gradients_reach_the_encoder_through_attention_alone(score: Any) -> None:
    model = build(partial(recurrent_decoder, bridge="none", context=partial(CrossAttention, score=score)))
    run(model, [0, 1, 2]).logits.square().sum().backward()
    assert all(value.grad is not None and value.grad.any() for value in model.encoder.parameters())


def test_dropout_is_applied_in_training_only() -> None:
    for model in (make_encoder_decoder("luong", dropout=0.5), make_decoder_only("lstm", dropout=0.5)):
        expected = run(model, [0, 1, 2]).logits
        assert torch.equal(run(model, [0, 1, 2]).logits, expected)
        model.train()
        first, second = run(model, [0, 1, 2]).logits, run(model, [0, 1, 2]).logits
        assert not torch.allclose(first, second)


@pytest.mark.parametrize("shared", [False, True])
def test_a_shared_vocabulary_has_one_embedding(shared: bool) -> None:
    model = make_encoder_decoder("luong", shared=shared)
    assert (model.source_embedding is model.embedding) == shared
    tables = {value.data_ptr() for name, value in model.named_parameters() if "table" in name}
    assert len(tables) == (1 if shared else 2)
    assert model.embedding.table.num_embeddings == TARGET_SIZE
    assert model.source_embedding.table.num_embeddings == (TARGET_SIZE if shared else SOURCE_SIZE)


@pytest.mark.parametrize("shared", [False, True])
def test_tied_weights_are_one_parameter(shared: bool) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(
        TARGET_SIZE if shared else SOURCE_SIZE,
        TARGET_SIZE,
        shared,
        embedding,
        ENCODERS["gru"],
        partial(RecurrentDecoder, size=WIDTH, bridge="network"),
        tie_embeddings=True,
    )
    assert model.out.weight is model.embedding.table.weight
    assert (model.out.weight is model.source_embedding.table.weight) == shared
    model.double().eval()
    output = model(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[START, 6]]))
    output.logits[0, 0, 8].backward()  # of a token that is not an input
    assert model.embedding.table.weight.grad is not None and model.embedding.table.weight.grad[8].any()


def test_tied_weights_of_a_decoder_only_model_are_one_parameter() -> None:
    model = DecoderOnly(
        SOURCE_SIZE, SOURCE_SIZE, True, embedding, partial(RecurrentEncoder, size=WIDTH), tie_embeddings=True
    )
    assert model.model.out.weight is model.model.embedding.table.weight
    assert model.feature_size == WIDTH


def test_maximum_lengths_of_encoder_and_decoder() -> None:
    encoder = partial(TransformerEncoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=7))
    decoder = partial(TransformerDecoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=5))
    model = build(decoder, encoder=encoder)
    assert (model.max_source_length, model.max_length) == (7, 5)
    assert (make_encoder_decoder("luong").max_source_length, make_encoder_decoder("luong").max_length) == (None, None)
    located = partial(recurrent_decoder, context=partial(CrossAttention, score=partial(Location, max_length=6)))
    assert build(located, encoder=encoder).max_source_length == build(located).max_source_length == 6


def test_the_longest_source_of_a_decoder_only_model_leaves_one_target_token() -> None:
    encoder = partial(
        TransformerEncoder,
        size=6,
        num_heads=2,
        causal=True,
        positions=partial(LearnedPositions, max_length=8),
    )
    model = DecoderOnly(SOURCE_SIZE, SOURCE_SIZE, True, embedding, encoder).eval()
    assert (model.max_source_length, model.max_length) == (5, 8)
    longest = torch.full((1, 5), 4)
    assert model(longest, torch.tensor([5]), torch.tensor([[START, 6]])).logits.shape == (1, 2, SOURCE_SIZE)
    with pytest.raises(InputError, match="A sequence has length 9, but LearnedPositions has max_length=8"):
        model(torch.full((1, 6), 4), torch.tensor([6]), torch.tensor([[START, 6]]))
    assert (make_decoder_only("lstm").max_source_length, make_decoder_only("lstm").max_length) == (None, None)
    # The longest source and the longest target are in different rows: 1 + 5 + 2 and 1 + 1 + 5 positions.
    sources, targets = ([4, 5, 6, 7, 8], [9]), ([6], [7, 8, 9, 10])
    together = model(padded(*sources), lengths(*sources), make_inputs(*targets)).logits
    for row in range(2):
        alone = model(padded(sources[row]), lengths(sources[row]), make_inputs(targets[row])).logits
        torch.testing.assert_close(together[row, : len(targets[row]) + 1], alone[0])


def test_prefix_length_is_the_length_of_the_prefix() -> None:
    for model, expected in ((make_encoder_decoder("luong"), 1), (make_decoder_only("lstm"), 6)):
        assert model.prefix_length(4) == model.start_decoding(SOURCE_IDS, torch.tensor([4, 4]))[0].shape[1] == expected


@pytest.mark.parametrize(
    "encoder",
    [
        partial(AttentiveRecurrentEncoder, over="below", size=SIZE, causal=False, select=Hard),
        partial(TransformerEncoder, size=SIZE, num_heads=2, select=Hard),
    ],
)
def test_an_encoder_with_hard_attention_is_refused(encoder: Any) -> None:
    match = "The encoder of a source cannot use hard attention: use it in the decoder's context"
    with pytest.raises(InputError, match=match):
        run(build(encoder=encoder), [0, 1])
    causal = partial(encoder, causal=True)
    with pytest.raises(InputError, match=match):
        run(DecoderOnly(SOURCE_SIZE, SOURCE_SIZE, True, embedding, causal), [0, 1])


@pytest.mark.parametrize(
    "pooling", [partial(AttentionPooling, select=Hard), partial(ContextualAttentionPooling, select=Hard)]
)
def test_a_pooling_with_hard_attention_is_refused(pooling: Any) -> None:
    with pytest.raises(InputError, match="The encoder of a source cannot use hard attention"):
        run(build(pooling=pooling), [0, 1])


def test_tied_weights_need_equal_widths() -> None:
    message = r"^task\.model\.tie_embeddings=true needs task\.model\.embedding\.size \(4\) to equal the width of the "
    with pytest.raises(InputError, match=message + r"decoder \(6\)\.$"):
        build(tie_embeddings=True)
    with pytest.raises(InputError, match=message + r"encoder \(6\)\.$"):
        make_decoder_only("lstm", tie_embeddings=True)


def test_a_decoder_only_model_needs_one_vocabulary() -> None:
    with pytest.raises(InputError, match=r"needs one vocabulary: set task\.shared_vocabulary=true\."):
        DecoderOnly(SOURCE_SIZE, TARGET_SIZE, False, embedding, CAUSAL_ENCODERS["lstm"])


def test_a_decoder_only_model_needs_a_causal_encoder() -> None:
    with pytest.raises(InputError, match="needs a causal encoder"):
        DecoderOnly(SOURCE_SIZE, SOURCE_SIZE, True, embedding, ENCODERS["bilstm"])


@pytest.mark.parametrize("dropout", [1.0, -0.1, math.nan])
def test_a_dropout_outside_the_unit_interval_is_refused(dropout: float) -> None:
    with pytest.raises(InputError, match=rf"task\.model\.dropout must be in \[0, 1\), got {dropout}"):
        build(dropout=dropout)
    with pytest.raises(InputError, match=rf"task\.model\.dropout must be in \[0, 1\), got {dropout}"):
        make_decoder_only("lstm", dropout=dropout)


def test_the_base_class_implements_no_method() -> None:
    model = Seq2SeqModel()
    with pytest.raises(TypeError, match="Seq2SeqModel does not implement forward"):
        model(SOURCE_IDS, torch.tensor([4, 4]), TARGET_IDS)
    with pytest.raises(TypeError, match="Seq2SeqModel does not implement start_decoding"):
        model.start_decoding(SOURCE_IDS, torch.tensor([4, 4]))
    with pytest.raises(TypeError, match="Seq2SeqModel does not implement decode"):
        model.decode(TARGET_IDS, None)
