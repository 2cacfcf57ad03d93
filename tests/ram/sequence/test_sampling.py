"""Sampling and greedy decoding."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from envs import InputError
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.search import sample
from ram.sequence.transformer import TransformerEncoder
from tests.ram.sequence.search_cases import TRANSITIONS, A, B, C, make_generator, make_markov_model, make_prefix


def test_greedy_decoding_by_hand() -> None:
    assert sample(make_markov_model(TRANSITIONS), make_prefix([], []), 9, temperature=0) == [[A, B, C]] * 2
    assert sample(make_markov_model(TRANSITIONS), make_prefix([A], [C], [B]), 9, temperature=0) == [[B, C], [], [C]]
    assert sample(make_markov_model(TRANSITIONS), make_prefix([C, A]), 9, top_k=1) == [[B, C]]
    assert sample(make_markov_model(TRANSITIONS), make_prefix([C, A]), 9, top_p=1e-6) == [[B, C]]


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_max_length_limits_the_samples(max_length: int) -> None:
    endless = make_markov_model({START: {A: 1.0}, A: {B: 1.0}, B: {A: 1.0}})
    assert sample(endless, make_prefix([], []), max_length) == [[A, B, A, B, A][:max_length]] * 2


def test_ended_rows_stay_ended_while_others_continue() -> None:
    model = make_markov_model({START: {A: 1.0}, A: {B: 1.0}, B: {C: 1.0}, C: {END: 1.0}, END: {A: 1.0}})
    assert sample(model, make_prefix([C], [A], [B]), 9) == [[], [B, C], [C]]


def test_decoding_stops_when_all_rows_have_ended() -> None:
    model, calls = make_markov_model(TRANSITIONS), []
    model.register_forward_hook(lambda *_: calls.append(1))
    sample(model, make_prefix([], []), 50, temperature=0)
    assert len(calls) == 4


def test_sampled_frequencies_are_the_probabilities() -> None:
    texts = sample(make_markov_model(TRANSITIONS), make_prefix(*[[]] * 20_000), 3, generator=make_generator(0))
    frequency = {
        text: sum(each == list(text) for each in texts) / len(texts) for text in {tuple(each) for each in texts}
    }
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
    assert frequency == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("options", "probability"), [({"temperature": 0.5}, 0.36 / 0.52), ({"top_k": 1}, 1.0), ({"top_p": 0.5}, 1.0)]
)
def test_samples_follow_the_truncated_distribution(options: dict[str, Any], probability: float) -> None:
    texts = sample(
        make_markov_model(TRANSITIONS), make_prefix(*[[A]] * 10_000), 1, generator=make_generator(0), **options
    )
    assert {token for (token,) in texts} <= {B, C}
    assert sum(text == [B] for text in texts) / len(texts) == pytest.approx(probability, abs=0.015)


def test_samples_depend_on_the_generator_only() -> None:
    prompts = make_prefix(*[[]] * 50)
    torch.manual_seed(0)
    texts = sample(make_markov_model(TRANSITIONS), prompts, 9, generator=make_generator(1))
    torch.manual_seed(5)  # ignored: a generator is given
    assert sample(make_markov_model(TRANSITIONS), prompts, 9, generator=make_generator(1)) == texts
    assert sample(make_markov_model(TRANSITIONS), prompts, 9, generator=make_generator(2)) != texts


def test_special_tokens_are_never_sampled() -> None:
    model = make_markov_model({})
    model.embedding.table.weight.data.zero_()
    model.out.bias.data[[PADDING, UNKNOWN, START]] = 50.0  # probability almost 1 without the mask
    texts = sample(model, make_prefix(*[[]] * 2000), 1, generator=make_generator(0))
    count = torch.tensor([token for text in texts for token in text]).bincount(minlength=C + 1) / 2000
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
def test_stepwise_decoding_equals_rerunning_the_whole_prefix(encoder: Any) -> None:
    torch.manual_seed(0)
    model = LanguageModel(12, partial(TokenEmbedding, size=8), encoder).eval()
    for value in model.parameters():
        value.data *= 4  # so that early tokens matter
    prompts = torch.randint(4, 12, (6, 3))
    sampled = sample(model, make_prefix(*prompts.tolist()), 8, temperature=0)
    assert len({tuple(text) for text in sampled}) > 2
    for prompt, text in zip(prompts.tolist(), sampled, strict=True):
        expected: list[int] = []
        while len(expected) < 8:
            token_ids = torch.tensor([[START, *prompt, *expected]])
            logits = model(token_ids, torch.tensor([token_ids.shape[1]])).logits[0, -1].clone()
            logits[[PADDING, UNKNOWN, START]] = -math.inf
            if int(logits.argmax()) == END:
                break
            expected.append(int(logits.argmax()))
        assert text == expected


def test_a_max_length_of_0_is_refused() -> None:
    with pytest.raises(InputError, match="max_length must be at least 1, got 0"):
        sample(make_markov_model(TRANSITIONS), make_prefix([]), 0)
