"""Sampling and search, on models whose every probability is known."""

import math
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.attention.scores import Additive
from ram.attention.selection import LocalPredictive
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN
from ram.sequence import recurrent, transformer
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.encoders import IdentityEncoder
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.search import Hypothesis, beam_search, index_rows, sample, truncated_probabilities
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder
from ram.sequence.transformer import TransformerEncoder

SHARES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def shares(**options: Any) -> list[float]:
    return truncated_probabilities(SHARES.log(), **options).tolist()


def test_nothing_is_truncated_unless_asked_for() -> None:
    assert shares() == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_nothing_is_lost_to_rounding() -> None:
    unlikely = truncated_probabilities(torch.tensor([0.0, -15.0, -20.0, -30.0]))
    assert (unlikely > 0).all()


def test_temperature_by_hand() -> None:
    assert shares(temperature=0.5) == pytest.approx([0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3])
    roots = [math.sqrt(share) for share in SHARES.tolist()]
    assert shares(temperature=2.0) == pytest.approx([root / sum(roots) for root in roots])
    assert shares(temperature=0) == [0, 1, 0, 0]
    assert shares(temperature=1e-4) == pytest.approx([0, 1, 0, 0])


def test_however_low_the_temperature_the_likeliest_is_left() -> None:
    assert shares(temperature=1e-40) == pytest.approx([0, 1, 0, 0])


def test_top_k_by_hand() -> None:
    assert shares(top_k=1) == [0, 1, 0, 0]
    assert shares(top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert shares(top_k=3) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert shares(top_k=4) == shares(top_k=50) == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_top_p_by_hand() -> None:
    assert shares(top_p=0.01) == shares(top_p=0.39) == [0, 1, 0, 0]
    assert shares(top_p=0.41) == shares(top_p=0.69) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert shares(top_p=0.71) == shares(top_p=0.89) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert shares(top_p=0.91) == shares(top_p=1.0) == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_a_share_that_is_reached_exactly_is_enough() -> None:
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    assert truncated_probabilities(logits, top_p=0.5).tolist() == [1, 0, 0]
    assert truncated_probabilities(logits, top_p=0.75).tolist() == pytest.approx(
        [2 / 3, 1 / 3, 0]
    )  # of equals, the first


def test_all_of_them_by_hand() -> None:
    # At temperature 1/2 as 16, 9, 4, 1; of the first three, the first two have 25/29.
    assert shares(temperature=0.5, top_k=3, top_p=0.85) == pytest.approx([0, 16 / 25, 0, 9 / 25])
    assert shares(temperature=0.5, top_k=3, top_p=0.87) == pytest.approx([0, 16 / 29, 4 / 29, 9 / 29])
    assert shares(temperature=0, top_k=3, top_p=0.9) == [0, 1, 0, 0]


def test_the_likeliest_of_equals_is_the_first() -> None:
    assert truncated_probabilities(torch.zeros(3), temperature=0).tolist() == [1, 0, 0]
    assert truncated_probabilities(torch.zeros(3), top_k=2).tolist() == pytest.approx([1 / 2, 1 / 2, 0])


def test_rows_are_truncated_one_by_one_and_what_cannot_be_stays_so() -> None:
    logits = torch.stack([SHARES.log(), SHARES.flip(0).log(), torch.tensor([-math.inf, 0, 0, -math.inf])])
    expected = [[0, 4 / 7, 0, 3 / 7], [3 / 7, 0, 4 / 7, 0], [0, 1 / 2, 1 / 2, 0]]
    torch.testing.assert_close(truncated_probabilities(logits, top_k=2), torch.tensor(expected))
    torch.testing.assert_close(truncated_probabilities(logits[:, None], top_k=2), torch.tensor(expected)[:, None])
    assert truncated_probabilities(logits)[2].tolist() == [0, 1 / 2, 1 / 2, 0]


def test_the_logits_are_left_alone() -> None:
    logits = SHARES.log()
    truncated_probabilities(logits, temperature=0.5, top_k=2, top_p=0.5)
    assert torch.equal(logits, SHARES.log())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"temperature": -1.0}, "temperature must be a finite number of at least 0, got -1"),
        ({"temperature": math.nan}, "temperature must be a finite number of at least 0, got nan"),
        ({"temperature": math.inf}, "temperature must be a finite number of at least 0, got inf"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0"),
        ({"top_p": 1.1}, r"top_p must be in \(0, 1\], got 1\.1"),
        ({"top_p": math.nan}, r"top_p must be in \(0, 1\], got nan"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        truncated_probabilities(SHARES.log(), **options)


# Texts.

A, B, C = range(END + 1, END + 4)
NEXT = {  # of every word, what may follow and how likely
    START: {A: 0.5, B: 0.3, END: 0.2},
    A: {B: 0.6, C: 0.4},
    B: {C: 0.7, END: 0.3},
    C: {END: 0.9, A: 0.1},
}


def chain(following: dict[int, dict[int, float]]) -> LanguageModel:
    """A model whose every next word depends on the one before alone, with the given probabilities."""
    model = LanguageModel(C + 1, partial(TokenEmbedding, size=C + 1), IdentityEncoder).eval()
    model.out.weight.data, model.out.bias.data = torch.eye(C + 1), torch.zeros(C + 1)
    model.embedding.table.weight.data.fill_(-1e9)
    for word, shares in following.items():
        for after, share in shares.items():
            model.embedding.table.weight.data[word, after] = math.log(share)
    return model


def prefix(*prompts: list[int]) -> Tensor:
    return torch.tensor([[START, *prompt] for prompt in prompts])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_likeliest_words_by_hand() -> None:
    assert sample(chain(NEXT), prefix([], []), 9, temperature=0) == [[A, B, C]] * 2
    assert sample(chain(NEXT), prefix([A], [C], [B]), 9, temperature=0) == [[B, C], [], [C]]
    assert sample(chain(NEXT), prefix([C, A]), 9, top_k=1) == [[B, C]]
    assert sample(chain(NEXT), prefix([C, A]), 9, top_p=1e-6) == [[B, C]]


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_no_more_is_written_than_asked_for(max_length: int) -> None:
    endless = chain({START: {A: 1.0}, A: {B: 1.0}, B: {A: 1.0}})
    assert sample(endless, prefix([], []), max_length) == [[A, B, A, B, A][:max_length]] * 2


def test_a_text_that_has_ended_stays_so_while_others_sample() -> None:
    model = chain({START: {A: 1.0}, A: {B: 1.0}, B: {C: 1.0}, C: {END: 1.0}, END: {A: 1.0}})
    assert sample(model, prefix([C], [A], [B]), 9) == [[], [B, C], [C]]


def test_nothing_is_computed_once_all_have_ended() -> None:
    model, calls = chain(NEXT), []
    model.register_forward_hook(lambda *_: calls.append(1))
    sample(model, prefix([], []), 50, temperature=0)
    assert len(calls) == 4


def test_texts_come_up_as_often_as_they_are_likely() -> None:
    texts = sample(chain(NEXT), prefix(*[[]] * 20_000), 3, generator=seeded(0))
    count = {text: sum(each == list(text) for each in texts) / len(texts) for text in {tuple(each) for each in texts}}
    expected = {
        (): 0.2,
        (A, B): 0.5 * 0.6 * 0.3,
        (A, B, C): 0.5 * 0.6 * 0.7,
        (A, C): 0.5 * 0.4 * 0.9,
        (A, C, A): 0.5 * 0.4 * 0.1,
        (B,): 0.3 * 0.3,
        (B, C): 0.3 * 0.7 * 0.9,
        (B, C, A): 0.3 * 0.7 * 0.1,
    }
    assert count == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("options", "share"), [({"temperature": 0.5}, 0.36 / 0.52), ({"top_k": 1}, 1.0), ({"top_p": 0.5}, 1.0)]
)
def test_samples_are_truncated_as_asked(options: dict[str, Any], share: float) -> None:
    texts = sample(chain(NEXT), prefix(*[[A]] * 10_000), 1, generator=seeded(0), **options)
    assert {word for (word,) in texts} <= {B, C}
    assert sum(text == [B] for text in texts) / len(texts) == pytest.approx(share, abs=0.015)


def test_the_same_seed_writes_the_same_texts() -> None:
    prompts = prefix(*[[]] * 50)
    torch.manual_seed(0)
    texts = sample(chain(NEXT), prompts, 9, generator=seeded(1))
    torch.manual_seed(5)  # of no use where a generator is given
    assert sample(chain(NEXT), prompts, 9, generator=seeded(1)) == texts
    assert sample(chain(NEXT), prompts, 9, generator=seeded(2)) != texts


def test_what_is_no_word_is_never_written() -> None:
    model = chain({})
    model.embedding.table.weight.data.zero_()
    model.out.bias.data[[PADDING, UNKNOWN, START]] = 50.0  # all but certain, were they allowed
    texts = sample(model, prefix(*[[]] * 2000), 1, generator=seeded(0))
    count = torch.tensor([word for text in texts for word in text]).bincount(minlength=C + 1) / 2000
    assert count[[PADDING, UNKNOWN, START]].tolist() == [0, 0, 0]
    assert sum(not text for text in texts) / 2000 == pytest.approx(1 / 4, abs=0.04)
    assert count[[A, B, C]].tolist() == pytest.approx([1 / 4] * 3, abs=0.04)


@pytest.mark.parametrize(
    "encoder",
    [
        partial(RecurrentEncoder, size=8),
        partial(AttentiveRecurrentEncoder, over="below", size=8),
        partial(AttentiveRecurrentEncoder, size=8),
        partial(TransformerEncoder, size=8, num_heads=2, causal=True),
    ],
    ids=["lstm", "below", "past", "transformer"],
)
def test_going_on_word_by_word_equals_reading_all_again(encoder: Any) -> None:
    torch.manual_seed(0)
    model = LanguageModel(12, partial(TokenEmbedding, size=8), encoder).eval()
    for value in model.parameters():
        value.data *= 4  # so that what was read long before matters
    prompts = torch.randint(4, 12, (6, 3))
    written = sample(model, prefix(*prompts.tolist()), 8, temperature=0)
    assert len({tuple(text) for text in written}) > 2
    for prompt, text in zip(prompts.tolist(), written, strict=True):
        expected: list[int] = []
        while len(expected) < 8:
            words = torch.tensor([[START, *prompt, *expected]])
            logits = model(words, torch.tensor([words.shape[1]])).logits[0, -1].clone()
            logits[[PADDING, UNKNOWN, START]] = -math.inf
            if int(logits.argmax()) == END:
                break
            expected.append(int(logits.argmax()))
        assert text == expected


# Beams, by hand.


def told(hypotheses: list[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


def logs(*shares: float) -> float:
    return sum(map(math.log, shares))


GARDEN_PATH = {
    START: {A: 0.6, B: 0.4},
    A: {A: 0.35, C: 0.35, END: 0.3},
    B: {END: 0.9, C: 0.1},
    C: {END: 1.0},
}


def test_a_wider_beam_leaves_the_garden_path() -> None:
    model = chain(GARDEN_PATH)
    # The likeliest word is A; but of A nothing is likelier than 0.6 * 0.35, whereas B alone has 0.4 * 0.9.
    (greedy,), (wide,) = (beam_search(model, prefix([]), 9, beam_size=size, length_penalty=0) for size in (1, 2))
    assert told(greedy)[0][0] == A
    assert told(wide) == [(B,)]
    assert wide[0].log_prob == wide[0].score == pytest.approx(logs(0.4, 0.9))
    assert wide[0].ended


LATE = {START: {END: 0.45, A: 0.55}, A: {B: 0.9, C: 0.1}, B: {END: 0.9, C: 0.1}, C: {END: 1.0}}


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, ()), (0.5, (A, B)), (1.0, (A, B))])
def test_the_search_goes_on_after_one_has_ended(length_penalty: float, best: tuple[int, ...]) -> None:
    (found,) = beam_search(chain(LATE), prefix([]), 9, beam_size=2, length_penalty=length_penalty, n_best=2)
    expected = {
        (): Hypothesis((), logs(0.45), logs(0.45) / 1, True),
        (A, B): Hypothesis((A, B), logs(0.55, 0.9, 0.9), logs(0.55, 0.9, 0.9) / 3**length_penalty, True),
    }
    assert told(found) == [best, *(words for words in expected if words != best)]
    for hypothesis in found:
        right = expected[hypothesis.token_ids]
        assert (hypothesis.log_prob, hypothesis.score) == pytest.approx((right.log_prob, right.score), rel=1e-5)
        assert hypothesis.ended


def test_what_has_ended_keeps_its_place_in_the_beam() -> None:
    # After the first word a beam of two is full with the end and A. A B takes the place that is left: A C, which would
    # have been second, is lost.
    model = chain({START: {END: 0.4, A: 0.5, B: 0.1}, A: {B: 0.55, C: 0.45}, B: {C: 1.0}, C: {END: 1.0}})
    (found,) = beam_search(model, prefix([]), 9, beam_size=2, n_best=2)
    assert told(found) == [(A, B, C), ()]
    (found,) = beam_search(model, prefix([]), 9, beam_size=3, n_best=3)
    assert told(found) == [(A, B, C), (A, C), ()]
    assert [each.score for each in found] == pytest.approx([logs(0.275) / 4, logs(0.225) / 3, logs(0.4)], rel=1e-5)


def test_the_largest_length_is_respected() -> None:
    endless = chain({START: {A: 0.6, B: 0.4}, A: {B: 1.0}, B: {A: 1.0}})
    (found,) = beam_search(endless, prefix([]), 3, beam_size=2, n_best=2)
    assert told(found) == [(A, B, A), (B, A, B)]
    assert not any(hypothesis.ended for hypothesis in found)
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([logs(0.6), logs(0.4)], abs=1e-5)
    assert [hypothesis.score for hypothesis in found] == pytest.approx([logs(0.6) / 3, logs(0.4) / 3], abs=1e-5)


def test_an_end_at_the_largest_length_is_an_end() -> None:
    model = chain({START: {A: 1.0}, A: {END: 0.6, B: 0.4}, B: {A: 1.0}})
    (found,) = beam_search(model, prefix([]), 2, beam_size=2, n_best=2)
    assert [(each.token_ids, each.ended) for each in found] == [((A,), True), ((A, B), False)]
    assert [each.score for each in found] == pytest.approx([logs(0.6) / 2, logs(0.4) / 2], abs=1e-5)


def test_where_there_is_no_more_fewer_are_told() -> None:
    model = chain({START: {A: 0.6, B: 0.4}})
    (found,) = beam_search(model, prefix([]), 1, beam_size=50, n_best=50)
    assert len(found) == 4  # three words and the end
    assert told(found)[:2] == [(A,), (B,)]


def test_what_is_no_word_is_never_said() -> None:
    model = chain({})
    model.embedding.table.weight.data.zero_()
    model.out.bias.data[[PADDING, UNKNOWN, START]] = 50.0  # all but certain, were they allowed
    model.out.bias.data[END] = -1.0
    (found,) = beam_search(model, prefix([]), 3, beam_size=60, n_best=60)
    assert len(found) == 1 + 3 + 9 + 27
    assert {word for hypothesis in found for word in hypothesis.token_ids} == {A, B, C}
    # The rest share what there is: the words 1 / (3 + 1 / e) each.
    word = -math.log(3 + math.exp(-1))
    expected = {word - 1, 2 * word - 1, 3 * word - 1, 3 * word}
    assert {round(each.log_prob, 4) for each in found} == {round(each, 4) for each in expected}


def test_prompts_are_gone_on_from() -> None:
    found = beam_search(chain(NEXT), prefix([A], [C], [B]), 9, beam_size=3)
    assert [told(each) for each in found] == [[(B, C)], [()], [(C,)]]
    assert found[1][0].log_prob == pytest.approx(logs(0.9), abs=1e-5)


def test_nothing_is_computed_once_all_have_ended_and_never_of_what_has() -> None:
    model, seen = chain(NEXT), []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    beam_search(model, prefix([C], [A], [B]), 50, beam_size=1)
    assert seen == [3, 2, 1]
    seen.clear()
    beam_search(model, prefix([C], [A]), 50, beam_size=2)
    assert seen == [4, 4, 4, 2]  # A B C, after C, ends last


# Beams of models of every kind.

small = partial(TokenEmbedding, size=6)
speaking = partial(recurrent.RecurrentDecoder, size=6, bridge="network")
LANGUAGE: dict[str, Any] = {
    "lstm": partial(RecurrentEncoder, size=8),
    "below": partial(AttentiveRecurrentEncoder, over="below", cell="gru", size=8),
    "past": partial(AttentiveRecurrentEncoder, size=8),
    "transformer": partial(TransformerEncoder, size=8, num_heads=2, causal=True),
}
SPEAKING: dict[str, Any] = {
    "plain": partial(speaking, num_layers=2),
    "luong": partial(speaking, context=CrossAttention),
    "bahdanau": partial(speaking, cell="gru", attend="before", context=partial(CrossAttention, score=Additive)),
    "local": partial(
        speaking, cell="rnn", input_feeding=False, context=partial(CrossAttention, select=LocalPredictive)
    ),
    "heads": partial(transformer.TransformerDecoder, size=6, num_heads=2),
}
COPYING = ("luong", "local", "heads")
MODELS = [*LANGUAGE, *SPEAKING, *(f"{name}_copies" for name in COPYING), "continuation", "continuing_transformer"]
KNOWN = 10


def spoken(name: str, rows: int = 6, known: int = KNOWN, seed: int = 6) -> tuple[Any, Tensor, Any]:
    """A model of random weights that often ends, what is begun and what it reads in."""
    torch.manual_seed(seed)
    kind, copy = name.removesuffix("_copies"), name.endswith("_copies")
    sources = torch.randint(4, known, (rows, 4))
    if kind in LANGUAGE:
        model: Any = LanguageModel(known, small, LANGUAGE[kind])
    elif kind in SPEAKING:
        model = EncoderDecoder(known, known, True, small, partial(RecurrentEncoder, size=6), SPEAKING[kind], copy=copy)
    else:
        encoder = LANGUAGE["transformer" if kind == "continuing_transformer" else "lstm"]
        model = DecoderOnly(known, known, True, small, encoder)
    model.double().eval().requires_grad_(False)
    for part, value in model.named_parameters():
        value *= 6 if "out." in part or "table" in part else 2  # so that what was said before matters
    start, memory = torch.cat([torch.full((rows, 1), START), sources[:, :2]], dim=1), None
    if kind not in LANGUAGE:
        copies = sources.clone()
        copies[:, 0] = known + torch.arange(rows) % 3  # that only this source has, and some of the others
        start, memory = model.start_decoding(sources, torch.full((rows,), 4), copies if copy else None)
    # Of random texts a third goes on to the end.
    logits = model.decode(torch.cat([start, torch.randint(4, known, (rows, 8))], dim=1), memory).logits[:, -9:]
    behind = logits[..., END + 1 :].max(-1).values - logits[..., END]
    getattr(model, "model", model).out.bias[END] += behind.quantile(1 / 3)
    return model, start, memory


@cache
def varied(name: str) -> tuple[Any, Tensor, Any]:
    """Such a model whose rows end at different lengths, likeliest word by word and in a beam of two."""
    for seed in range(6, 50):
        model, start, memory = spoken(name, rows=8, seed=seed)
        greedy = sample(model, start, 8, memory, temperature=0)
        beams = beam_search(model, start, 8, memory, beam_size=2, n_best=2)
        last = {max(len(each.token_ids) for each in found) for found in beams}
        if min(len({len(text) for text in greedy}), len(last)) > 1:
            return model, start, memory
    raise AssertionError(f"no {name} of fifty ends at different lengths")


def teacher_forcing_batch(model: Any, prefix: Tensor, memory: Any, row: int, hypothesis: Hypothesis) -> float:
    """Its log-probability, from one pass over all of it."""
    said = [*hypothesis.token_ids, *([END] if hypothesis.ended else [])]
    before, one = prefix.shape[1], torch.tensor([row])
    words = torch.cat([prefix[row], torch.tensor(said[:-1], dtype=torch.int64)])[None]
    logits = model.decode(words, index_rows(memory, one)).logits[0, before - 1 :]
    log_probs = logits[:, END:].log_softmax(-1)  # the first three are no words
    return float(log_probs[torch.arange(len(said)), torch.tensor(said) - END].sum())


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_takes_the_likeliest_word_at_every_step(name: str) -> None:
    model, start, memory = varied(name)
    greedy = sample(model, start, 8, memory, temperature=0)
    for length_penalty in (0.0, 1.0):
        beams = beam_search(model, start, 8, memory, beam_size=1, length_penalty=length_penalty)
        assert [list(best.token_ids) for (best,) in beams] == greedy
        assert [best.ended for (best,) in beams] == [len(text) < 8 for text in greedy]


@pytest.mark.parametrize("name", MODELS)
def test_a_hypothesis_is_as_likely_as_the_model_says(name: str) -> None:
    model, start, memory = spoken(name, rows=3)
    for row, found in enumerate(beam_search(model, start, 6, memory, beam_size=4, length_penalty=0.7, n_best=4)):
        assert len(found) == 4
        for hypothesis in found:
            length = len(hypothesis.token_ids) + hypothesis.ended
            assert length == 6 or hypothesis.ended
            expected = teacher_forcing_batch(model, start, memory, row, hypothesis)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-6)
            assert hypothesis.score == pytest.approx(expected / length**0.7, abs=1e-6)
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len(set(told(found))) == 4


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_searched_as_row_by_row(name: str) -> None:
    model, start, memory = varied(name)
    together = beam_search(model, start, 8, memory, beam_size=2, n_best=2)
    for row, found in enumerate(together):
        one = torch.tensor([row])
        (alone,) = beam_search(model, start[one], 8, index_rows(memory, one), beam_size=2, n_best=2)
        assert told(found) == told(alone)
        assert [each.ended for each in found] == [each.ended for each in alone]
        for part in ("log_prob", "score"):
            expected = [getattr(each, part) for each in alone]
            assert [getattr(each, part) for each in found] == pytest.approx(expected, abs=1e-6)


def test_a_word_that_only_the_source_has_is_copied() -> None:
    model, start, memory = spoken("luong_copies")
    model.gate.bias.data -= 50  # nothing of its own
    for row, found in enumerate(beam_search(model, start, 5, memory, beam_size=3, n_best=3)):
        assert set(found[0].token_ids) <= set(memory.copies[row].tolist())
    assert any(word >= KNOWN for found in beam_search(model, start, 5, memory) for word in found[0].token_ids)


def every_sequence(model: Any, start: Tensor, memory: Any, words: list[int], longest: int) -> dict[Any, float]:
    """The log-probability of all that may be said of one row: by words and whether they ended."""
    found = {}
    for number in range(longest + 1):
        for text in product(words, repeat=number):
            ended = number < longest
            hypothesis = Hypothesis(text, 0.0, 0.0, ended)
            found[text, ended] = teacher_forcing_batch(model, start, memory, 0, hypothesis)
    return found


@pytest.mark.parametrize("name", ["lstm", "transformer", "bahdanau", "luong", "heads", "continuation"])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all(name: str) -> None:
    model, start, memory = spoken(name, rows=1, known=END + 4)
    everything = every_sequence(model, start, memory, [A, B, C], 4)
    assert len(everything) == 1 + 3 + 9 + 27 + 81
    assert sum(map(math.exp, everything.values())) == pytest.approx(1)
    for length_penalty in (0.0, 0.5, 1.0):
        scores = {key: log_prob / (len(key[0]) + key[1]) ** length_penalty for key, log_prob in everything.items()}
        expected = sorted(scores, key=lambda key: -scores[key])
        (found,) = beam_search(model, start, 4, memory, 121, length_penalty, n_best=121)
        assert {(each.token_ids, each.ended) for each in found} == set(everything)
        for each, key in zip(found[:10], expected, strict=False):
            assert (each.token_ids, each.ended) == key
            assert (each.log_prob, each.score) == pytest.approx((everything[key], scores[key]), abs=1e-6)


def plainly(model: Any, start: Tensor, memory: Any, row: int, beam_size: int, longest: int) -> set[tuple[Any, float]]:
    """A beam search over lists: what it finds of one row, and how likely that is."""
    one, found = torch.tensor([row]), set[tuple[Any, float]]()
    alive: list[tuple[Any, float]] = [((), 0.0)]
    for length in range(1, longest + 1):
        longer = []
        for text, log_prob in alive:
            read = torch.cat([start[row], torch.tensor(text, dtype=torch.int64)])[None]
            logits = model.decode(read, index_rows(memory, one)).logits[0, -1, END:]
            longer += [((*text, END + number), log_prob + float(x)) for number, x in enumerate(logits.log_softmax(-1))]
        kept = sorted(longer, key=lambda each: -each[1])[: beam_size - len(found)]
        ended = [each for each in kept if each[0][-1] == END or length == longest]
        found |= {(text, round(log_prob, 6)) for text, log_prob in ended}
        alive = [each for each in kept if each not in ended]
    return found


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("name", ["lstm", "luong_copies"])
def test_a_narrow_beam_finds_what_a_plain_one_does(name: str, beam_size: int) -> None:
    model, start, memory = varied(name)
    found = beam_search(model, start, 5, memory, beam_size, n_best=beam_size)
    for row in range(4):
        texts = {((*each.token_ids, *[END][: each.ended]), round(each.log_prob, 6)) for each in found[row]}
        assert texts == plainly(model, start, memory, row, beam_size, 5)


def test_a_model_with_fewer_places_ends_before() -> None:
    torch.manual_seed(0)
    encoder = partial(
        TransformerEncoder, size=8, num_heads=2, causal=True, positions=partial(LearnedPositions, max_length=5)
    )
    model = LanguageModel(KNOWN, small, encoder).eval()
    model.out.bias.data[END] = -20.0
    start = prefix([A, B], [C, A])
    for found in beam_search(model, start, 50, beam_size=3, n_best=3):
        # Three are begun: the next word is told from all of them, the last of three from five.
        assert [len(each.token_ids) for each in found] == [3, 3, 3]
        assert not any(each.ended for each in found)
    assert [len(text) for text in sample(model, start, 50, temperature=0)] == [3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1, got 0"),
        ({"beam_size": -1}, "beam_size must be at least 1, got -1"),
        ({"n_best": 0}, r"n_best must be in 1 \.\. beam_size \(5\), got 0"),
        ({"n_best": 6}, r"n_best must be in 1 \.\. beam_size \(5\), got 6"),
        ({"beam_size": 2, "n_best": 3}, r"n_best must be in 1 \.\. beam_size \(2\), got 3"),
        ({"length_penalty": -0.5}, r"length_penalty must be in \[0, 10\], got -0\.5"),
        ({"length_penalty": math.nan}, r"length_penalty must be in \[0, 10\], got nan"),
        ({"length_penalty": math.inf}, r"length_penalty must be in \[0, 10\], got inf"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
    ],
)
def test_wrong_options_of_a_beam_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        beam_search(chain(NEXT), prefix([]), **({"max_length": 9} | options))


def test_a_sample_of_no_words_is_refused() -> None:
    with pytest.raises(InputError, match="max_length must be at least 1, got 0"):
        sample(chain(NEXT), prefix([]), 0)


# Rows of whatever holds tensors.


@dataclass(frozen=True)
class Leaf:
    values: Tensor
    name: str
    inner: Any = None


def test_rows_are_taken_of_tensors_wherever_they_are() -> None:
    one, two = torch.arange(3), torch.arange(12).view(3, 2, 2)
    tree = Leaf(one, "leaf", [(two, None, 7), Leaf(two, "inner", (one, [two])), "text"])
    rows = torch.tensor([2, 0, 0, 1])
    taken = index_rows(tree, rows)
    assert isinstance(taken, Leaf) and taken.name == "leaf"
    assert taken.values.tolist() == [2, 0, 0, 1]
    (first, nothing, number), inner, text = taken.inner
    assert isinstance(taken.inner, list) and isinstance(taken.inner[0], tuple)
    assert (nothing, number, text) == (None, 7, "text")
    assert torch.equal(first, two[[2, 0, 0, 1]])
    assert isinstance(inner, Leaf) and inner.name == "inner"
    assert isinstance(inner.inner, tuple) and isinstance(inner.inner[1], list)
    assert inner.inner[0].tolist() == [2, 0, 0, 1] and torch.equal(inner.inner[1][0], two[rows])
    assert torch.equal(tree.values, torch.arange(3))  # what it was taken of stays


def test_what_holds_no_tensor_stays_as_it_is() -> None:
    assert index_rows(None, torch.tensor([0])) is None
    assert index_rows(5, torch.tensor([0])) == 5
    assert index_rows((), torch.tensor([0])) == ()
    assert index_rows(Leaf, torch.tensor([0])) is Leaf  # the kind itself is no leaf
