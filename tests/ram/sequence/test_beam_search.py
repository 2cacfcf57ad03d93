"""Beam search by hand, and against an exhaustive search."""

import math
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
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentDecoder, RecurrentEncoder
from ram.sequence.search import Hypothesis, beam_search, index_rows, sample
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder
from tests.ram.sequence.search_cases import TRANSITIONS, A, B, C, make_markov_model, make_prefix


def tokens_of(hypotheses: list[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


def log_product(*probabilities: float) -> float:
    return sum(map(math.log, probabilities))


GARDEN_PATH = {
    START: {A: 0.6, B: 0.4},
    A: {A: 0.35, C: 0.35, END: 0.3},
    B: {END: 0.9, C: 0.1},
    C: {END: 1.0},
}


def test_a_wider_beam_recovers_from_a_greedy_mistake() -> None:
    model = make_markov_model(GARDEN_PATH)
    # The most probable first token is A, but no sequence with A exceeds 0.6 * 0.35, whereas B has 0.4 * 0.9.
    (greedy,), (wide,) = (beam_search(model, make_prefix([]), 9, beam_size=size, length_penalty=0) for size in (1, 2))
    assert tokens_of(greedy)[0][0] == A
    assert tokens_of(wide) == [(B,)]
    assert wide[0].log_prob == wide[0].score == pytest.approx(log_product(0.4, 0.9))
    assert wide[0].ended


EARLY_END = {START: {END: 0.45, A: 0.55}, A: {B: 0.9, C: 0.1}, B: {END: 0.9, C: 0.1}, C: {END: 1.0}}


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, ()), (0.5, (A, B)), (1.0, (A, B))])
def test_the_search_continues_after_a_hypothesis_has_ended(length_penalty: float, best: tuple[int, ...]) -> None:
    (found,) = beam_search(
        make_markov_model(EARLY_END), make_prefix([]), 9, beam_size=2, length_penalty=length_penalty, n_best=2
    )
    expected = {
        (): Hypothesis((), log_product(0.45), log_product(0.45) / 1, True),
        (A, B): Hypothesis((A, B), log_product(0.55, 0.9, 0.9), log_product(0.55, 0.9, 0.9) / 3**length_penalty, True),
    }
    assert tokens_of(found) == [best, *(token_ids for token_ids in expected if token_ids != best)]
    for hypothesis in found:
        reference = expected[hypothesis.token_ids]
        assert (hypothesis.log_prob, hypothesis.score) == pytest.approx((reference.log_prob, reference.score), rel=1e-5)
        assert hypothesis.ended


def test_ended_hypotheses_keep_their_place_in_the_beam() -> None:
    # After the first token a beam of two has END and A. A B takes the remaining place: A C is lost.
    model = make_markov_model({START: {END: 0.4, A: 0.5, B: 0.1}, A: {B: 0.55, C: 0.45}, B: {C: 1.0}, C: {END: 1.0}})
    (found,) = beam_search(model, make_prefix([]), 9, beam_size=2, n_best=2)
    assert tokens_of(found) == [(A, B, C), ()]
    (found,) = beam_search(model, make_prefix([]), 9, beam_size=3, n_best=3)
    assert tokens_of(found) == [(A, B, C), (A, C), ()]
    assert [each.score for each in found] == pytest.approx(
        [log_product(0.275) / 4, log_product(0.225) / 3, log_product(0.4)], rel=1e-5
    )


def test_max_length_limits_the_hypotheses() -> None:
    endless = make_markov_model({START: {A: 0.6, B: 0.4}, A: {B: 1.0}, B: {A: 1.0}})
    (found,) = beam_search(endless, make_prefix([]), 3, beam_size=2, n_best=2)
    assert tokens_of(found) == [(A, B, A), (B, A, B)]
    assert not any(hypothesis.ended for hypothesis in found)
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx(
        [log_product(0.6), log_product(0.4)], abs=1e-5
    )
    assert [hypothesis.score for hypothesis in found] == pytest.approx(
        [log_product(0.6) / 3, log_product(0.4) / 3], abs=1e-5
    )


def test_the_end_symbol_at_the_maximum_length_counts_as_ended() -> None:
    model = make_markov_model({START: {A: 1.0}, A: {END: 0.6, B: 0.4}, B: {A: 1.0}})
    (found,) = beam_search(model, make_prefix([]), 2, beam_size=2, n_best=2)
    assert [(each.token_ids, each.ended) for each in found] == [((A,), True), ((A, B), False)]
    assert [each.score for each in found] == pytest.approx([log_product(0.6) / 2, log_product(0.4) / 2], abs=1e-5)


def test_fewer_hypotheses_are_returned_if_there_are_no_more() -> None:
    model = make_markov_model({START: {A: 0.6, B: 0.4}})
    (found,) = beam_search(model, make_prefix([]), 1, beam_size=50, n_best=50)
    assert len(found) == 4  # three tokens and END
    assert tokens_of(found)[:2] == [(A,), (B,)]


def test_special_tokens_are_never_generated() -> None:
    model = make_markov_model({})
    model.embedding.table.weight.data.zero_()
    model.out.bias.data[[PADDING, UNKNOWN, START]] = 50.0  # probability almost 1 without the mask
    model.out.bias.data[END] = -1.0
    (found,) = beam_search(model, make_prefix([]), 3, beam_size=60, n_best=60)
    assert len(found) == 1 + 3 + 9 + 27
    assert {token for hypothesis in found for token in hypothesis.token_ids} == {A, B, C}
    # Each token has probability 1 / (3 + 1 / e), END 1 / e of that.
    each_token = -math.log(3 + math.exp(-1))
    expected = {each_token - 1, 2 * each_token - 1, 3 * each_token - 1, 3 * each_token}
    assert {round(each.log_prob, 4) for each in found} == {round(each, 4) for each in expected}


def test_prompts_are_continued() -> None:
    found = beam_search(make_markov_model(TRANSITIONS), make_prefix([A], [C], [B]), 9, beam_size=3)
    assert [tokens_of(each) for each in found] == [[(B, C)], [()], [(C,)]]
    assert found[1][0].log_prob == pytest.approx(log_product(0.9), abs=1e-5)


def test_finished_rows_are_removed_from_the_batch() -> None:
    model, batch_sizes = make_markov_model(TRANSITIONS), []
    model.register_forward_pre_hook(lambda module, arguments: batch_sizes.append(len(arguments[0])))
    beam_search(model, make_prefix([C], [A], [B]), 50, beam_size=1)
    assert batch_sizes == [3, 2, 1]
    batch_sizes.clear()
    beam_search(model, make_prefix([C], [A]), 50, beam_size=2)
    assert batch_sizes == [4, 4, 4, 2]  # A B C after C ends last


small = partial(TokenEmbedding, size=6)
recurrent_decoder = partial(RecurrentDecoder, size=6, bridge="network")
LANGUAGE_ENCODERS: dict[str, Any] = {
    "lstm": partial(RecurrentEncoder, size=8),
    "below": partial(AttentiveRecurrentEncoder, over="below", cell="gru", size=8),
    "past": partial(AttentiveRecurrentEncoder, size=8),
    "transformer": partial(TransformerEncoder, size=8, num_heads=2, causal=True),
}
DECODERS: dict[str, Any] = {
    "plain": partial(recurrent_decoder, num_layers=2),
    "luong": partial(recurrent_decoder, context=CrossAttention),
    "bahdanau": partial(
        recurrent_decoder, cell="gru", attend="before", context=partial(CrossAttention, score=Additive)
    ),
    "local": partial(
        recurrent_decoder, cell="rnn", input_feeding=False, context=partial(CrossAttention, select=LocalPredictive)
    ),
    "heads": partial(TransformerDecoder, size=6, num_heads=2),
}
WITH_COPYING = ("luong", "local", "heads")
MODELS = [
    *LANGUAGE_ENCODERS,
    *DECODERS,
    *(f"{name}_copies" for name in WITH_COPYING),
    "decoder_only",
    "decoder_only_transformer",
]
VOCABULARY_SIZE = 10


def make_model(
    name: str, rows: int = 6, vocabulary_size: int = VOCABULARY_SIZE, seed: int = 6
) -> tuple[Any, Tensor, Any]:
    """A random model that often generates END, with the prefixes and the memory of a batch."""
    torch.manual_seed(seed)
    kind, copy = name.removesuffix("_copies"), name.endswith("_copies")
    sources = torch.randint(4, vocabulary_size, (rows, 4))
    if kind in LANGUAGE_ENCODERS:
        model: Any = LanguageModel(vocabulary_size, small, LANGUAGE_ENCODERS[kind])
    elif kind in DECODERS:
        model = EncoderDecoder(
            vocabulary_size, vocabulary_size, True, small, partial(RecurrentEncoder, size=6), DECODERS[kind], copy=copy
        )
    else:
        encoder = LANGUAGE_ENCODERS["transformer" if kind == "decoder_only_transformer" else "lstm"]
        model = DecoderOnly(vocabulary_size, vocabulary_size, True, small, encoder)
    model.double().eval().requires_grad_(False)
    for parameter, value in model.named_parameters():
        value *= 6 if "out." in parameter or "table" in parameter else 2  # so that earlier tokens matter
    start, memory = torch.cat([torch.full((rows, 1), START), sources[:, :2]], dim=1), None
    if kind not in LANGUAGE_ENCODERS:
        copy_ids = sources.clone()
        copy_ids[:, 0] = vocabulary_size + torch.arange(rows) % 3  # out of vocabulary, in some sources
        start, memory = model.start_decoding(sources, torch.full((rows,), 4), copy_ids if copy else None)
    # A third of random continuations reaches the maximum length.
    continuations = torch.cat([start, torch.randint(4, vocabulary_size, (rows, 8))], dim=1)
    logits = model.decode(continuations, memory).logits[:, -9:]
    margin = logits[..., END + 1 :].max(-1).values - logits[..., END]
    getattr(model, "model", model).out.bias[END] += margin.quantile(1 / 3)
    return model, start, memory


@cache
def make_model_with_different_lengths(name: str) -> tuple[Any, Tensor, Any]:
    """A model whose rows end at different lengths, in greedy decoding and with a beam of two."""
    for seed in range(6, 50):
        model, start, memory = make_model(name, rows=8, seed=seed)
        greedy = sample(model, start, 8, memory, temperature=0)
        beams = beam_search(model, start, 8, memory, beam_size=2, n_best=2)
        last = {max(len(each.token_ids) for each in found) for found in beams}
        if min(len({len(text) for text in greedy}), len(last)) > 1:
            return model, start, memory
    raise AssertionError(f"no seed of {name} gives different lengths")


def forced_log_prob(model: Any, prefix: Tensor, memory: Any, row: int, hypothesis: Hypothesis) -> float:
    """The log-probability of a hypothesis from one forward pass."""
    target = [*hypothesis.token_ids, *([END] if hypothesis.ended else [])]
    length, one = prefix.shape[1], torch.tensor([row])
    token_ids = torch.cat([prefix[row], torch.tensor(target[:-1], dtype=torch.int64)])[None]
    logits = model.decode(token_ids, index_rows(memory, one)).logits[0, length - 1 :]
    log_probs = logits[:, END:].log_softmax(-1)  # special tokens come first
    return float(log_probs[torch.arange(len(target)), torch.tensor(target) - END].sum())


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_is_greedy_decoding(name: str) -> None:
    model, start, memory = make_model_with_different_lengths(name)
    greedy = sample(model, start, 8, memory, temperature=0)
    for length_penalty in (0.0, 1.0):
        beams = beam_search(model, start, 8, memory, beam_size=1, length_penalty=length_penalty)
        assert [list(best.token_ids) for (best,) in beams] == greedy
        assert [best.ended for (best,) in beams] == [len(text) < 8 for text in greedy]


@pytest.mark.parametrize("name", MODELS)
def test_log_probs_equal_teacher_forcing(name: str) -> None:
    model, start, memory = make_model(name, rows=3)
    for row, found in enumerate(beam_search(model, start, 6, memory, beam_size=4, length_penalty=0.7, n_best=4)):
        assert len(found) == 4
        for hypothesis in found:
            length = len(hypothesis.token_ids) + hypothesis.ended
            assert length == 6 or hypothesis.ended
            expected = forced_log_prob(model, start, memory, row, hypothesis)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-6)
            assert hypothesis.score == pytest.approx(expected / length**0.7, abs=1e-6)
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len(set(tokens_of(found))) == 4


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_searched_like_its_rows(name: str) -> None:
    model, start, memory = make_model_with_different_lengths(name)
    together = beam_search(model, start, 8, memory, beam_size=2, n_best=2)
    for row, found in enumerate(together):
        one = torch.tensor([row])
        (alone,) = beam_search(model, start[one], 8, index_rows(memory, one), beam_size=2, n_best=2)
        assert tokens_of(found) == tokens_of(alone)
        assert [each.ended for each in found] == [each.ended for each in alone]
        for field in ("log_prob", "score"):
            expected = [getattr(each, field) for each in alone]
            assert [getattr(each, field) for each in found] == pytest.approx(expected, abs=1e-6)


def test_source_tokens_out_of_vocabulary_are_copied() -> None:
    model, start, memory = make_model("luong_copies")
    model.gate.bias.data -= 50  # copying only
    for row, found in enumerate(beam_search(model, start, 5, memory, beam_size=3, n_best=3)):
        assert set(found[0].token_ids) <= set(memory.copy_ids[row].tolist())
    assert any(
        token >= VOCABULARY_SIZE for found in beam_search(model, start, 5, memory) for token in found[0].token_ids
    )


def log_prob_of_every_sequence(
    model: Any, start: Tensor, memory: Any, tokens: list[int], max_length: int
) -> dict[Any, float]:
    """The log-probabilities of all continuations of the first row, by tokens and whether they ended."""
    found = {}
    for length in range(max_length + 1):
        for text in product(tokens, repeat=length):
            ended = length < max_length
            hypothesis = Hypothesis(text, 0.0, 0.0, ended)
            found[text, ended] = forced_log_prob(model, start, memory, 0, hypothesis)
    return found


@pytest.mark.parametrize("name", ["lstm", "transformer", "bahdanau", "luong", "heads", "decoder_only"])
def test_a_wide_beam_finds_the_best_sequences(name: str) -> None:
    model, start, memory = make_model(name, rows=1, vocabulary_size=END + 4)
    log_probs = log_prob_of_every_sequence(model, start, memory, [A, B, C], 4)
    assert len(log_probs) == 1 + 3 + 9 + 27 + 81
    assert sum(map(math.exp, log_probs.values())) == pytest.approx(1)
    for length_penalty in (0.0, 0.5, 1.0):
        scores = {key: log_prob / (len(key[0]) + key[1]) ** length_penalty for key, log_prob in log_probs.items()}
        expected = sorted(scores, key=lambda key: -scores[key])
        (found,) = beam_search(model, start, 4, memory, 121, length_penalty, n_best=121)
        assert {(each.token_ids, each.ended) for each in found} == set(log_probs)
        for each, key in zip(found[:10], expected, strict=False):
            assert (each.token_ids, each.ended) == key
            assert (each.log_prob, each.score) == pytest.approx((log_probs[key], scores[key]), abs=1e-6)


def plain_beam_search(
    model: Any, start: Tensor, memory: Any, row: int, beam_size: int, max_length: int
) -> set[tuple[Any, float]]:
    """A beam search of one row over Python lists: the hypotheses and their log-probabilities."""
    one, found = torch.tensor([row]), set[tuple[Any, float]]()
    alive: list[tuple[Any, float]] = [((), 0.0)]
    for length in range(1, max_length + 1):
        longer = []
        for text, log_prob in alive:
            token_ids = torch.cat([start[row], torch.tensor(text, dtype=torch.int64)])[None]
            logits = model.decode(token_ids, index_rows(memory, one)).logits[0, -1, END:]
            longer += [((*text, END + offset), log_prob + float(x)) for offset, x in enumerate(logits.log_softmax(-1))]
        kept = sorted(longer, key=lambda each: -each[1])[: beam_size - len(found)]
        ended = [each for each in kept if each[0][-1] == END or length == max_length]
        found |= {(text, round(log_prob, 6)) for text, log_prob in ended}
        alive = [each for each in kept if each not in ended]
    return found


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("name", ["lstm", "luong_copies"])
def test_a_narrow_beam_equals_a_plain_implementation(name: str, beam_size: int) -> None:
    model, start, memory = make_model_with_different_lengths(name)
    found = beam_search(model, start, 5, memory, beam_size, n_best=beam_size)
    for row in range(4):
        hypotheses = {((*each.token_ids, *[END][: each.ended]), round(each.log_prob, 6)) for each in found[row]}
        assert hypotheses == plain_beam_search(model, start, memory, row, beam_size, 5)


def test_the_positions_of_the_model_limit_the_length() -> None:
    torch.manual_seed(0)
    encoder = partial(
        TransformerEncoder, size=8, num_heads=2, causal=True, positions=partial(LearnedPositions, max_length=5)
    )
    model = LanguageModel(VOCABULARY_SIZE, small, encoder).eval()
    model.out.bias.data[END] = -20.0
    start = make_prefix([A, B], [C, A])
    for found in beam_search(model, start, 50, beam_size=3, n_best=3):
        # The prefix has three tokens: the last of three generated tokens is predicted from five.
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
def test_errors_name_the_wrong_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        beam_search(make_markov_model(TRANSITIONS), make_prefix([]), **({"max_length": 9} | options))
