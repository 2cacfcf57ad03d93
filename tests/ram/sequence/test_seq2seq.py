"""Models that turn one sequence into another: all at once as word by word, copying by hand, and what they refuse."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.attention.scores import Additive, General, Location
from ram.attention.selection import Hard, LocalMonotonic, LocalPredictive, Unnormalised
from ram.corpora.vocabulary import PADDING, START, UNKNOWN
from ram.sequence import decoders, encoders, recurrent, transformer
from ram.sequence.context import CrossAttention, ReencodedContext
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.output import ModelOutput
from ram.sequence.pooling import AttentionPooling, ContextualAttentionPooling, LastState, SumPooling
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder, Seq2SeqModel, copy_distribution

SOURCES, TARGETS, WIDTH, SIZE = 11, 9, 4, 6
words = partial(TokenEmbedding, size=WIDTH)
rnn_decoder = partial(recurrent.RecurrentDecoder, size=SIZE, bridge="network")
ENCODERS: dict[str, Any] = {
    "words": encoders.IdentityEncoder,
    "gru": partial(recurrent.RecurrentEncoder, cell="gru", size=5),
    "bilstm": partial(recurrent.RecurrentEncoder, size=3, num_layers=2, bidirectional=True),
    "attentive": partial(recurrent.AttentiveRecurrentEncoder, size=5, over="below", causal=False),
    "transformer": partial(transformer.TransformerEncoder, size=6, num_heads=2),
}
READERS: dict[str, Any] = {
    "last": LastState,
    "mean": partial(SumPooling, mean=True),
    "fixed": partial(AttentionPooling, num_queries=2),
}
BLIND: dict[str, Any] = {
    "lstm": rnn_decoder,
    "state": partial(rnn_decoder, bridge="state"),
    "reencoding": partial(rnn_decoder, attend="before", context=partial(ReencodedContext, encoder=ENCODERS["bilstm"])),
}
"""Decoders that weigh nothing."""
WEIGHING: dict[str, Any] = {
    "luong": partial(rnn_decoder, context=CrossAttention),
    "bahdanau": partial(rnn_decoder, cell="gru", attend="before", context=partial(CrossAttention, score=Additive)),
    "over_vectors": partial(rnn_decoder, bridge="none", context=partial(CrossAttention, over="vectors", num_heads=2)),
    "unfed_local": partial(rnn_decoder, input_feeding=False, context=partial(CrossAttention, select=LocalPredictive)),
    "hard": partial(rnn_decoder, context=partial(CrossAttention, select=Hard)),
    "transformer": partial(transformer.TransformerDecoder, size=SIZE, num_heads=2),
    "transformer_local": partial(
        transformer.TransformerDecoder,
        size=SIZE,
        num_heads=2,
        select=partial(LocalMonotonic, half_width=1, gaussian=True),
    ),
}
BOTH = BLIND | WEIGHING
BACK: dict[str, Any] = {
    "words": encoders.IdentityEncoder,
    "lstm": partial(recurrent.RecurrentEncoder, size=SIZE, num_layers=2),
    "past": partial(recurrent.AttentiveRecurrentEncoder, size=SIZE),
    "below": partial(recurrent.AttentiveRecurrentEncoder, size=SIZE, over="below", cell="gru"),
    "transformer": partial(transformer.TransformerEncoder, size=SIZE, num_heads=2, causal=True),
}

TEXTS = ([4, 7, 10, 8, 5], [6], [8, 4, 1])
SAID = ([4, 8, 5, 6], [5, 5, 7, 4], [7, 1, 4, 8])
COPIES = ([4, 9, 7, 10, 9], [6], [9, 4, 10])
"""The unknown words of each text have numbers of their own from 9 on."""


def translator(
    decoder: str, encoder: str = "bilstm", copy: bool = False, shared: bool = False, **options: Any
) -> EncoderDecoder:
    """Of double precision, in evaluation."""
    torch.manual_seed(0)
    source = TARGETS if shared else SOURCES
    model = EncoderDecoder(source, TARGETS, shared, words, ENCODERS[encoder], BOTH[decoder], copy=copy, **options)
    return model.double().eval()


def build(decoder: Any = rnn_decoder, **options: Any) -> EncoderDecoder:
    """With an encoder of its own, perhaps."""
    encoder = options.pop("encoder", ENCODERS["gru"])
    return EncoderDecoder(SOURCES, TARGETS, False, words, encoder, decoder, **options)


def continuation(encoder: str, **options: Any) -> DecoderOnly:
    torch.manual_seed(0)
    return DecoderOnly(SOURCES, SOURCES, True, words, BACK[encoder], **options).double().eval()


def padded(*texts: list[int]) -> Tensor:
    longest = max(map(len, texts))
    return torch.tensor([text + [PADDING] * (longest - len(text)) for text in texts])


def lengths(*texts: list[int]) -> Tensor:
    return torch.tensor([len(text) for text in texts])


def inputs(*said: list[int]) -> Tensor:
    return padded(*[[START, *text] for text in said])


def told(model: Seq2SeqModel, rows: list[int], copies: bool = False, **options: Any) -> ModelOutput:
    """Of some of the texts, side by side."""
    texts = [TEXTS[row] for row in rows]
    copied = padded(*[COPIES[row] for row in rows]) if copies else None
    return model(padded(*texts), lengths(*texts), inputs(*[SAID[row] for row in rows]), copied, **options)


def word_by_word(model: Seq2SeqModel, numbers: Tensor, said: Tensor, copies: Tensor | None = None) -> list[ModelOutput]:
    """From sources of one length, and so that the first word comes with what stands before it."""
    prefix, memory = model.start_decoding(numbers, torch.full((len(numbers),), numbers.shape[1]), copies)
    each = [model.decode(prefix, memory)]
    for place in range(1, said.shape[1]):
        each.append(model.decode(said[:, place : place + 1], memory, each[-1].state))
    return each


NUMBERS = torch.tensor([[4, 7, 10, 8], [6, 5, 1, 9]])
WRITTEN = torch.tensor([[START, 8, 5, 5, 4], [START, 5, 6, 1, 7]])


# All at once and word by word.


@pytest.mark.parametrize(
    ("decoder", "copy"), [(decoder, False) for decoder in BOTH] + [(decoder, True) for decoder in WEIGHING]
)
def test_what_is_told_at_once_is_told_word_by_word(decoder: str, copy: bool) -> None:
    model = translator(decoder, copy=copy)
    copies = torch.tensor([[4, 9, 10, 8], [6, 5, 9, 9]]) if copy else None
    whole = model(NUMBERS, torch.tensor([4, 4]), WRITTEN, copies, need_weights=True)
    assert whole.logits.shape == (2, 5, TARGETS + 2 * copy)
    each = word_by_word(model, NUMBERS, WRITTEN, copies)
    torch.testing.assert_close(torch.cat([said.logits for said in each], dim=1), whole.logits)
    assert (whole.copied is None) == (not copy)
    if whole.copied is not None:
        assert whole.copied.shape == (2, 5)
        torch.testing.assert_close(torch.cat([said.copied for said in each], dim=1), whole.copied)  # type: ignore[misc]
    assert (whole.log_prob is None) == (decoder != "hard")
    if whole.log_prob is not None:
        torch.testing.assert_close(torch.cat([said.log_prob for said in each], dim=1), whole.log_prob)  # type: ignore[misc]


@pytest.mark.parametrize("encoder", BACK)
def test_a_continuation_told_at_once_is_told_word_by_word(encoder: str) -> None:
    model = continuation(encoder)
    whole = model(NUMBERS, torch.tensor([4, 4]), WRITTEN)
    assert whole.logits.shape == (2, 5, SOURCES)
    each = word_by_word(model, NUMBERS, WRITTEN)
    assert each[0].logits.shape == (2, 6, SOURCES)  # of what stands before it too
    torch.testing.assert_close(torch.cat([said.logits[:, -1:] for said in each], dim=1), whole.logits)


@pytest.mark.parametrize("model", [translator("luong"), translator("transformer"), continuation("lstm")])
def test_no_word_is_told_from_itself_or_a_later_one(model: Seq2SeqModel) -> None:
    whole = model(NUMBERS, torch.tensor([4, 4]), WRITTEN)
    other = WRITTEN.clone()
    other[:, 3:] = torch.tensor([[7, 8], [4, 4]])
    changed = model(NUMBERS, torch.tensor([4, 4]), other)
    torch.testing.assert_close(changed.logits[:, :3], whole.logits[:, :3])
    assert not torch.allclose(changed.logits[:, 3], whole.logits[:, 3])


# Beside others.


READ_BY = {"words": "mean", "gru": "last", "bilstm": "last", "attentive": "fixed", "transformer": "fixed"}


@pytest.mark.parametrize(
    ("decoder", "encoder"),
    [(decoder, encoder) for decoder in BOTH for encoder in ENCODERS if decoder != "state" or encoder == "bilstm"],
)
def test_a_sentence_alone_and_beside_others_is_the_same(decoder: str, encoder: str) -> None:
    copy = decoder in WEIGHING and encoder in ("bilstm", "transformer")
    model = translator(decoder, encoder, copy, pooling=READERS[READ_BY[encoder]])
    together = told(model, [0, 1, 2], copy, need_weights=True)
    for row, text in enumerate(TEXTS):
        alone = told(model, [row], copy, need_weights=True)
        number = alone.logits.shape[-1]  # a word that only another source has cannot be copied
        torch.testing.assert_close(together.logits[row, :, :number], alone.logits[0])
        assert (together.logits[row, :, number:].exp() < 1e-30).all()
        torch.testing.assert_close(together.features[row], alone.features[0])
        if together.weights is not None:
            assert alone.weights is not None
            torch.testing.assert_close(together.weights[row, :, : len(text)], alone.weights[0])
        if together.copied is not None:
            assert alone.copied is not None
            torch.testing.assert_close(together.copied[row], alone.copied[0])


@pytest.mark.parametrize("encoder", BACK)
def test_a_continuation_alone_and_beside_others_is_the_same(encoder: str) -> None:
    model = continuation(encoder)
    together = told(model, [0, 1, 2])
    assert together.source_logits is not None
    assert together.logits.shape == (3, 5, SOURCES) and together.source_logits.shape == (3, 5, SOURCES)
    for row, text in enumerate(TEXTS):
        alone = told(model, [row])
        assert alone.source_logits is not None
        torch.testing.assert_close(together.logits[row], alone.logits[0])
        torch.testing.assert_close(together.source_logits[row, : len(text)], alone.source_logits[0])


@pytest.mark.parametrize("encoder", BACK)
def test_a_continuation_is_the_language_model_of_source_and_target(encoder: str) -> None:
    model = continuation(encoder)
    together = told(model, [0, 1, 2])
    assert together.source_logits is not None
    for row, (text, said) in enumerate(zip(TEXTS, SAID, strict=True)):
        whole = torch.tensor([[START, *text, START, *said]])
        logits = model.model(whole, torch.tensor([whole.shape[1]])).logits[0]
        torch.testing.assert_close(together.logits[row], logits[len(text) + 1 :])
        torch.testing.assert_close(together.source_logits[row, : len(text)], logits[: len(text)])
        # A word of the source is foretold by those before it alone.
        for place in range(len(text)):
            before = torch.tensor([[START, *text[:place]]])
            expected = model.model(before, torch.tensor([place + 1])).logits[0, -1]
            torch.testing.assert_close(together.source_logits[row, place], expected)


@pytest.mark.parametrize("encoder", BACK)
def test_a_continuation_goes_on_after_padding_that_was_said(encoder: str) -> None:
    model, said = continuation(encoder), [5, PADDING, 6, 7]
    logits = model(torch.tensor([[4, 7]]), torch.tensor([2]), inputs(said)).logits[0]
    whole = torch.tensor([[START, 4, 7, START, *said]])
    torch.testing.assert_close(logits, model.model(whole, torch.tensor([8])).logits[0, 3:])


def test_targets_of_different_lengths_do_not_touch_one_another() -> None:
    for model in (translator("luong"), translator("transformer"), continuation("lstm"), continuation("transformer")):
        said = [[4, 8, 5, 6], [5], [7, 1]]
        together = model(padded(*TEXTS), lengths(*TEXTS), inputs(*said)).logits
        for row, (text, target) in enumerate(zip(TEXTS, said, strict=True)):
            alone = model(padded(text), lengths(text), inputs(target)).logits
            torch.testing.assert_close(together[row, : len(target) + 1], alone[0])


# What an encoder with a decoder is made of.


def test_what_the_decoder_is_given() -> None:
    model, said = translator("luong", "bilstm"), told(translator("luong", "bilstm"), [0, 1, 2], need_weights=True)
    numbers, sizes = padded(*TEXTS), lengths(*TEXTS)
    vectors = model.source_embedding.table.weight[numbers]
    encoded = model.encoder(vectors, sizes).output
    summary = torch.stack([torch.cat([row[n - 1, :3], row[0, 3:]]) for row, n in zip(encoded, sizes, strict=True)])
    memory = model.decoder.prepare(decoders.Memory(vectors, encoded, sizes, summary))
    decoded = model.decoder(model.embedding.table.weight[inputs(*SAID)], memory)
    torch.testing.assert_close(said.logits, decoded.output @ model.out.weight.T + model.out.bias)
    torch.testing.assert_close(said.weights, decoded.weights)
    # What is known before a word is what came out with the one before it.
    assert not said.features[:, 0].any()
    torch.testing.assert_close(said.features[:, 1:], decoded.output[:, :-1])
    assert said.features.shape[-1] == model.feature_size == SIZE


def test_weights_are_told_when_asked_for() -> None:
    model = translator("transformer")
    weights = told(model, [0, 2], need_weights=True).weights
    assert weights is not None and weights.shape == (2, 5, 5)
    assert told(model, [0, 2]).weights is None


@pytest.mark.parametrize("decoder", BOTH)
def test_every_parameter_learns_through_what_is_said(decoder: str) -> None:
    model = translator(decoder, "bilstm", copy=decoder in WEIGHING)
    said = told(model, [0, 1, 2], decoder in WEIGHING)
    loss = -said.logits.log_softmax(-1)[..., 4].sum() - said.logits.log_softmax(-1)[..., 5].sum()
    if said.log_prob is not None:
        loss = loss + said.log_prob.sum()
    loss.backward()
    for name, value in model.named_parameters():
        used = value.grad is not None and bool(value.grad.any())
        assert used != (decoder == "over_vectors" and name.startswith("encoder.")), name


@pytest.mark.parametrize("score", [General, Additive])
def test_gradients_reach_the_encoder_through_what_is_read_alone(score: Any) -> None:
    model = build(partial(rnn_decoder, bridge="none", context=partial(CrossAttention, score=score)))
    told(model, [0, 1, 2]).logits.square().sum().backward()
    assert all(value.grad is not None and value.grad.any() for value in model.encoder.parameters())


def test_what_the_decoder_says_is_dropped_in_training_alone() -> None:
    for model in (translator("luong", dropout=0.5), continuation("lstm", dropout=0.5)):
        expected = told(model, [0, 1, 2]).logits
        assert torch.equal(told(model, [0, 1, 2]).logits, expected)
        model.train()
        first, second = told(model, [0, 1, 2]).logits, told(model, [0, 1, 2]).logits
        assert not torch.allclose(first, second)


def test_a_word_that_can_only_be_copied_is_read_as_unknown() -> None:
    model = translator("luong", copy=True)
    one, other = (
        model(padded(*TEXTS), lengths(*TEXTS), inputs(*[[4, word, 5]] * 3), padded(*COPIES)).logits
        for word in (TARGETS + 1, UNKNOWN)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("shared", [False, True])
def test_shared_vocabularies_share_their_vectors(shared: bool) -> None:
    model = translator("luong", shared=shared)
    assert (model.source_embedding is model.embedding) == shared
    tables = {value.data_ptr() for name, value in model.named_parameters() if "table" in name}
    assert len(tables) == (1 if shared else 2)
    assert model.embedding.table.num_embeddings == TARGETS
    assert model.source_embedding.table.num_embeddings == (TARGETS if shared else SOURCES)


@pytest.mark.parametrize("shared", [False, True])
def test_tied_weights_are_one(shared: bool) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(
        TARGETS if shared else SOURCES,
        TARGETS,
        shared,
        words,
        ENCODERS["gru"],
        partial(recurrent.RecurrentDecoder, size=WIDTH, bridge="network"),
        tie_embeddings=True,
    )
    assert model.out.weight is model.embedding.table.weight
    assert (model.out.weight is model.source_embedding.table.weight) == shared
    model.double().eval()
    said = model(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[START, 6]]))
    said.logits[0, 0, 8].backward()  # of a word that was not read
    assert model.embedding.table.weight.grad is not None and model.embedding.table.weight.grad[8].any()


def test_tied_weights_of_a_continuation_are_one() -> None:
    model = DecoderOnly(
        SOURCES, SOURCES, True, words, partial(recurrent.RecurrentEncoder, size=WIDTH), tie_embeddings=True
    )
    assert model.model.out.weight is model.model.embedding.table.weight
    assert model.feature_size == WIDTH


# How long sources and targets may be.


def test_an_encoder_and_a_decoder_have_limits_of_their_own() -> None:
    placed = partial(
        transformer.TransformerEncoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=7)
    )
    speaking = partial(
        transformer.TransformerDecoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=5)
    )
    model = build(speaking, encoder=placed)
    assert (model.max_source_length, model.max_length) == (7, 5)
    assert (translator("luong").max_source_length, translator("luong").max_length) == (None, None)
    located = partial(rnn_decoder, context=partial(CrossAttention, score=partial(Location, max_length=6)))
    assert build(located, encoder=placed).max_source_length == build(located).max_source_length == 6


def test_of_the_longest_source_a_continuation_has_room_for_a_word() -> None:
    placed = partial(
        transformer.TransformerEncoder,
        size=6,
        num_heads=2,
        causal=True,
        positions=partial(LearnedPositions, max_length=8),
    )
    model = DecoderOnly(SOURCES, SOURCES, True, words, placed).eval()
    assert (model.max_source_length, model.max_length) == (5, 8)
    sources = torch.full((1, 5), 4)
    assert model(sources, torch.tensor([5]), torch.tensor([[START, 6]])).logits.shape == (1, 2, SOURCES)
    with pytest.raises(InputError, match="A sequence has length 9, but LearnedPositions has max_length=8"):
        model(torch.full((1, 6), 4), torch.tensor([6]), torch.tensor([[START, 6]]))
    assert (continuation("lstm").max_source_length, continuation("lstm").max_length) == (None, None)
    # The longest source and the longest target need not be those of one row: 1 + 5 + 2 and 1 + 1 + 5 places.
    texts, said = ([4, 5, 6, 7, 8], [9]), ([6], [7, 8, 9, 10])
    together = model(padded(*texts), lengths(*texts), inputs(*said)).logits
    for row in range(2):
        alone = model(padded(texts[row]), lengths(texts[row]), inputs(said[row])).logits
        torch.testing.assert_close(together[row, : len(said[row]) + 1], alone[0])


def test_how_many_places_are_taken_before_the_target() -> None:
    for model, expected in ((translator("luong"), 1), (continuation("lstm"), 6)):
        assert model.prefix_length(4) == model.start_decoding(NUMBERS, torch.tensor([4, 4]))[0].shape[1] == expected


# Copying.


def shares(*rows: list[float]) -> Tensor:
    """(1, T, ...)."""
    return torch.tensor([rows], dtype=torch.float64)


def test_words_of_ones_own_and_of_the_source_are_mixed_by_hand() -> None:
    own, weights = shares([0.6], [0.9]), shares([0.2, 0.3, 0.5], [1.0, 0.0, 0.0])
    logits = shares([0.5, 0.25, 0.25], [0.2, 0.2, 0.6]).log() + 7  # of any scale
    mixture, copied = copy_distribution(logits, weights, torch.tensor([[1, 4, 1]]), own)
    expected = [
        [0.6 * 0.5, 0.6 * 0.25 + 0.4 * (0.2 + 0.5), 0.6 * 0.25, 0, 0.4 * 0.3],  # the first and the last are one word
        [0.9 * 0.2, 0.9 * 0.2 + 0.1, 0.9 * 0.6, 0, 0],
    ]
    torch.testing.assert_close(mixture.exp(), shares(*expected), atol=1e-12, rtol=1e-6)
    assert copied[0].tolist() == pytest.approx([0.4, 0.1])
    assert mixture[0, :, [0, 1, 2, 4]].isfinite().all()


def test_what_local_weights_leave_is_ones_own() -> None:
    own, weights = shares([0.6]), shares([0.1, 0.0, 0.4])
    mixture, copied = copy_distribution(shares([0.5, 0.25, 0.25]).log(), weights, torch.tensor([[3, 0, 2]]), own)
    # Of 0.4 to be copied half is weighed: 0.8 are left.
    expected = [0.8 * 0.5, 0.8 * 0.25, 0.8 * 0.25 + 0.4 * 0.4, 0.4 * 0.1]
    torch.testing.assert_close(mixture.exp(), shares(expected))
    assert copied[0].tolist() == pytest.approx([0.2])


def test_of_known_words_alone_none_is_added() -> None:
    mixture, _ = copy_distribution(
        shares([0.5, 0.25, 0.25]).log(), shares([0.5, 0.5]), torch.tensor([[2, 0]]), shares([0.5])
    )
    torch.testing.assert_close(mixture.exp(), shares([0.5, 0.125, 0.375]))


def test_every_row_has_unknown_words_of_its_own() -> None:
    logits = shares([0.5, 0.5]).log().expand(2, 1, 2)
    weights = torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]], dtype=torch.float64)
    own = torch.tensor([[[0.2]], [[0.6]]], dtype=torch.float64)
    mixture, copied = copy_distribution(logits, weights, torch.tensor([[2, 3], [0, 2]]), own)
    expected = [[[0.1, 0.1, 0.2, 0.6]], [[0.5, 0.3, 0.2, 0]]]
    torch.testing.assert_close(mixture.exp(), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(copied, torch.tensor([[0.8], [0.4]], dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    steps=st.integers(1, 3),
    number=st.integers(1, 5),
    known=st.integers(1, 4),
    extra=st.integers(0, 3),
    local=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_mixture_is_its_formula(
    batch: int, steps: int, number: int, known: int, extra: int, local: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    logits, own = torch.randn(batch, steps, known, dtype=torch.float64), torch.rand(batch, steps, 1).double()
    weights = torch.randn(batch, steps, number, dtype=torch.float64).softmax(-1)
    if local:
        weights = weights * torch.rand(batch, steps, number)
    copies = torch.randint(0, known + extra, (batch, number))
    mixture, copied = copy_distribution(logits, weights, copies, own)
    size = max(known, int(copies.max()) + 1)
    assert mixture.shape == (batch, steps, size)
    for b in range(batch):
        for t in range(steps):
            left = (1 - float(own[b, t])) * float(weights[b, t].sum())
            expected = [(1 - left) * share for share in logits[b, t].softmax(-1).tolist()] + [0.0] * (size - known)
            for place, word in enumerate(copies[b].tolist()):
                expected[word] += (1 - float(own[b, t])) * float(weights[b, t, place])
            assert mixture[b, t].exp().tolist() == pytest.approx(expected)
            assert float(copied[b, t]) == pytest.approx(left)
    torch.testing.assert_close(mixture.exp().sum(-1), torch.ones(batch, steps, dtype=torch.float64))


def test_the_gradient_of_a_mixture_is_that_of_its_differences() -> None:
    torch.manual_seed(0)
    copies = torch.tensor([[1, 4, 1, 0], [2, 2, 3, 5]])
    logits, raw, gate = (torch.randn(2, 3, size, dtype=torch.float64, requires_grad=True) for size in (3, 4, 1))

    def likely(logits: Tensor, raw: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        mixture, copied = copy_distribution(logits, raw.softmax(-1) * 0.9, copies, gate.sigmoid())
        reached = torch.cat([mixture[0, :, [0, 1, 2, 4]], mixture[1, :, [0, 1, 2, 3, 5]]], dim=1)
        return reached, copied

    assert torch.autograd.gradcheck(likely, (logits, raw, gate))


def test_a_word_that_only_another_text_has_cannot_be_copied() -> None:
    mixture, _ = copy_distribution(
        torch.zeros(2, 1, 2), torch.ones(2, 1, 1), torch.tensor([[2], [3]]), torch.full((2, 1, 1), 0.5)
    )
    assert mixture.exp().tolist() == [[[0.25, 0.25, 0.5, 0]], [[0.25, 0.25, 0, 0.5]]]


def test_weights_that_are_no_shares_are_not_copied_with() -> None:
    with pytest.raises(InputError, match=r"^task\.model\.copy=true needs weights that are shares, not"):
        build(partial(rnn_decoder, context=partial(CrossAttention, select=Unnormalised)), copy=True)


def test_what_nobody_says_costs_much_and_teaches_nothing() -> None:
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    mixture, _ = copy_distribution(
        logits, torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0, 3]]), torch.tensor([[[0.5]]])
    )
    assert mixture[0, 0, 3].item() == pytest.approx(math.log(torch.finfo(torch.float32).tiny))
    mixture[0, 0, 3].backward()
    assert logits.grad is not None and not logits.grad.any()


@pytest.mark.parametrize("decoder", WEIGHING)
def test_a_copied_share_follows_weights_and_gate(decoder: str) -> None:
    model = translator(decoder, copy=True)
    said = told(model, [0, 1, 2], copies=True, need_weights=True)
    plain = translator(decoder)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "gate" not in name})
    own = told(plain, [0, 1, 2], need_weights=True)
    assert said.weights is not None and own.weights is not None and said.copied is not None
    torch.testing.assert_close(said.weights, own.weights)
    copied = said.copied / said.weights.sum(-1)  # what the gate leaves
    assert model.gate is not None
    output = said.features[:, 1:]  # what came out with every word but the last
    vectors = model.embedding.table.weight[inputs(*SAID)][:, :-1]
    gate = (torch.cat([output, vectors], dim=-1) @ model.gate.weight.T + model.gate.bias)[..., 0].sigmoid()
    torch.testing.assert_close(copied[:, :-1], 1 - gate)
    mixture, _ = copy_distribution(own.logits, own.weights, padded(*COPIES), 1 - copied[..., None])
    torch.testing.assert_close(said.logits, mixture)
    torch.testing.assert_close(said.logits.exp().sum(-1), torch.ones(3, 5, dtype=torch.float64))


def test_a_word_that_can_only_be_copied_trains_attention_encoder_and_gate() -> None:
    model = translator("luong", copy=True)
    (-told(model, [0, 1, 2], copies=True).logits[0, 1, TARGETS]).backward()
    attending: Any = model.decoder
    for module in (attending.context, model.encoder, model.gate, model.source_embedding):
        assert module is not None
        assert all(value.grad is not None and value.grad.any() for value in module.parameters())
    assert model.out.weight.grad is None or not model.out.weight.grad.any()  # which had no part in it


def test_gradient_ascent_on_a_copied_word_copies_it() -> None:
    model = translator("luong", copy=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(15):
        optimizer.zero_grad()
        loss = -told(model, [0, 1, 2], copies=True).logits[0, :, TARGETS + 1].mean()
        loss.backward()
        optimizer.step()
    said = told(model, [0, 1, 2], copies=True, need_weights=True)
    assert said.copied is not None and said.weights is not None
    assert (said.copied[0] > 0.8).all()
    assert (said.weights[0].argmax(-1) == COPIES[0].index(TARGETS + 1)).all()


# What is refused.


@pytest.mark.parametrize(
    "encoder",
    [
        partial(recurrent.AttentiveRecurrentEncoder, over="below", size=SIZE, causal=False, select=Hard),
        partial(transformer.TransformerEncoder, size=SIZE, num_heads=2, select=Hard),
    ],
)
def test_an_encoder_of_sources_makes_no_hard_choices(encoder: Any) -> None:
    match = "An encoder of sources makes no hard choices: leave them to the decoder's attention"
    with pytest.raises(InputError, match=match):
        told(build(encoder=encoder), [0, 1])
    looking_back = partial(encoder, causal=True)
    with pytest.raises(InputError, match=match):
        told(DecoderOnly(SOURCES, SOURCES, True, words, looking_back), [0, 1])


@pytest.mark.parametrize(
    "pooling", [partial(AttentionPooling, select=Hard), partial(ContextualAttentionPooling, select=Hard)]
)
def test_a_reader_of_sources_makes_no_hard_choices(pooling: Any) -> None:
    with pytest.raises(InputError, match="An encoder of sources makes no hard choices"):
        told(build(pooling=pooling), [0, 1])


@pytest.mark.parametrize("decoder", BLIND)
def test_a_decoder_that_weighs_nothing_copies_nothing(decoder: str) -> None:
    model = translator(decoder, copy=True)
    with pytest.raises(InputError, match=r"task\.model\.copy=true needs a decoder that weighs the source, such as"):
        told(model, [0, 1], copies=True)


def test_to_copy_the_numbers_of_the_source_must_be_told() -> None:
    with pytest.raises(InputError, match="give it copies"):
        told(translator("luong", copy=True), [0, 1])


def test_tied_weights_need_one_width() -> None:
    told = r"task\.model\.tie_embeddings=true needs task\.model\.embedding\.size \(4\) to be that of the decoder \(6\)"
    with pytest.raises(InputError, match=told):
        build(tie_embeddings=True)
    told = r"task\.model\.tie_embeddings=true needs task\.model\.embedding\.size \(4\) to be that of the encoder \(6\)"
    with pytest.raises(InputError, match=told):
        continuation("lstm", tie_embeddings=True)


def test_a_continuation_needs_one_vocabulary() -> None:
    with pytest.raises(InputError, match=r"needs one vocabulary: set task\.shared_vocabulary=true\."):
        DecoderOnly(SOURCES, TARGETS, False, words, BACK["lstm"])


def test_a_continuation_must_not_see_what_comes_next() -> None:
    with pytest.raises(InputError, match="must not see what comes next"):
        DecoderOnly(SOURCES, SOURCES, True, words, ENCODERS["bilstm"])


@pytest.mark.parametrize("dropout", [1.0, -0.1, math.nan])
def test_a_dropout_that_is_no_share_is_refused(dropout: float) -> None:
    with pytest.raises(InputError, match=rf"task\.model\.dropout must be in \[0, 1\), got {dropout}"):
        build(dropout=dropout)
    with pytest.raises(InputError, match=rf"task\.model\.dropout must be in \[0, 1\), got {dropout}"):
        continuation("lstm", dropout=dropout)


def test_a_translator_without_a_rule_says_so() -> None:
    model = Seq2SeqModel()
    with pytest.raises(TypeError, match="Seq2SeqModel does not say how it translates"):
        model(NUMBERS, torch.tensor([4, 4]), WRITTEN)
    with pytest.raises(TypeError, match="Seq2SeqModel does not say how it begins"):
        model.start_decoding(NUMBERS, torch.tensor([4, 4]))
    with pytest.raises(TypeError, match="Seq2SeqModel does not say how it goes on"):
        model.decode(WRITTEN, None)
