"""Sampling and search, on models whose every probability is known."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN
from ram.sequence.encoders import AttentiveRecurrent, Recurrent, Transformer, Words
from ram.sequence.models import LanguageModel, WordVectors
from ram.sequence.search import sample, truncated

SHARES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def shares(**options: Any) -> list[float]:
    return truncated(SHARES.log(), **options).tolist()


def test_nothing_is_truncated_unless_asked_for() -> None:
    assert shares() == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_nothing_is_lost_to_rounding() -> None:
    unlikely = truncated(torch.tensor([0.0, -15.0, -20.0, -30.0]))
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
    assert truncated(logits, top_p=0.5).tolist() == [1, 0, 0]
    assert truncated(logits, top_p=0.75).tolist() == pytest.approx([2 / 3, 1 / 3, 0])  # of equals, the first


def test_all_of_them_by_hand() -> None:
    # At temperature 1/2 as 16, 9, 4, 1; of the first three, the first two have 25/29.
    assert shares(temperature=0.5, top_k=3, top_p=0.85) == pytest.approx([0, 16 / 25, 0, 9 / 25])
    assert shares(temperature=0.5, top_k=3, top_p=0.87) == pytest.approx([0, 16 / 29, 4 / 29, 9 / 29])
    assert shares(temperature=0, top_k=3, top_p=0.9) == [0, 1, 0, 0]


def test_the_likeliest_of_equals_is_the_first() -> None:
    assert truncated(torch.zeros(3), temperature=0).tolist() == [1, 0, 0]
    assert truncated(torch.zeros(3), top_k=2).tolist() == pytest.approx([1 / 2, 1 / 2, 0])


def test_rows_are_truncated_one_by_one_and_what_cannot_be_stays_so() -> None:
    logits = torch.stack([SHARES.log(), SHARES.flip(0).log(), torch.tensor([-math.inf, 0, 0, -math.inf])])
    expected = [[0, 4 / 7, 0, 3 / 7], [3 / 7, 0, 4 / 7, 0], [0, 1 / 2, 1 / 2, 0]]
    torch.testing.assert_close(truncated(logits, top_k=2), torch.tensor(expected))
    torch.testing.assert_close(truncated(logits[:, None], top_k=2), torch.tensor(expected)[:, None])
    assert truncated(logits)[2].tolist() == [0, 1 / 2, 1 / 2, 0]


def test_the_logits_are_left_alone() -> None:
    logits = SHARES.log()
    truncated(logits, temperature=0.5, top_k=2, top_p=0.5)
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
        truncated(SHARES.log(), **options)


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
    model = LanguageModel(C + 1, partial(WordVectors, size=C + 1), Words).eval()
    model.out.weight.data, model.out.bias.data = torch.eye(C + 1), torch.zeros(C + 1)
    model.words.table.weight.data.fill_(-1e9)
    for word, shares in following.items():
        for after, share in shares.items():
            model.words.table.weight.data[word, after] = math.log(share)
    return model


def begun(*prompts: list[int]) -> Tensor:
    return torch.tensor([[START, *prompt] for prompt in prompts])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_likeliest_words_by_hand() -> None:
    assert sample(chain(NEXT), begun([], []), 9, temperature=0) == [[A, B, C]] * 2
    assert sample(chain(NEXT), begun([A], [C], [B]), 9, temperature=0) == [[B, C], [], [C]]
    assert sample(chain(NEXT), begun([C, A]), 9, top_k=1) == [[B, C]]
    assert sample(chain(NEXT), begun([C, A]), 9, top_p=1e-6) == [[B, C]]


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_no_more_is_written_than_asked_for(max_length: int) -> None:
    endless = chain({START: {A: 1.0}, A: {B: 1.0}, B: {A: 1.0}})
    assert sample(endless, begun([], []), max_length) == [[A, B, A, B, A][:max_length]] * 2


def test_a_text_that_has_ended_stays_so_while_others_sample() -> None:
    model = chain({START: {A: 1.0}, A: {B: 1.0}, B: {C: 1.0}, C: {END: 1.0}, END: {A: 1.0}})
    assert sample(model, begun([C], [A], [B]), 9) == [[], [B, C], [C]]


def test_nothing_is_computed_once_all_have_ended() -> None:
    model, calls = chain(NEXT), []
    model.register_forward_hook(lambda *_: calls.append(1))
    sample(model, begun([], []), 50, temperature=0)
    assert len(calls) == 4


def test_texts_come_up_as_often_as_they_are_likely() -> None:
    texts = sample(chain(NEXT), begun(*[[]] * 20_000), 3, generator=seeded(0))
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
    texts = sample(chain(NEXT), begun(*[[A]] * 10_000), 1, generator=seeded(0), **options)
    assert {word for (word,) in texts} <= {B, C}
    assert sum(text == [B] for text in texts) / len(texts) == pytest.approx(share, abs=0.015)


def test_the_same_seed_writes_the_same_texts() -> None:
    prompts = begun(*[[]] * 50)
    torch.manual_seed(0)
    texts = sample(chain(NEXT), prompts, 9, generator=seeded(1))
    torch.manual_seed(5)  # of no use where a generator is given
    assert sample(chain(NEXT), prompts, 9, generator=seeded(1)) == texts
    assert sample(chain(NEXT), prompts, 9, generator=seeded(2)) != texts


def test_what_is_no_word_is_never_written() -> None:
    model = chain({})
    model.words.table.weight.data.zero_()
    model.out.bias.data[[PADDING, UNKNOWN, START]] = 50.0  # all but certain, were they allowed
    texts = sample(model, begun(*[[]] * 2000), 1, generator=seeded(0))
    count = torch.tensor([word for text in texts for word in text]).bincount(minlength=C + 1) / 2000
    assert count[[PADDING, UNKNOWN, START]].tolist() == [0, 0, 0]
    assert sum(not text for text in texts) / 2000 == pytest.approx(1 / 4, abs=0.04)
    assert count[[A, B, C]].tolist() == pytest.approx([1 / 4] * 3, abs=0.04)


@pytest.mark.parametrize(
    "encoder",
    [
        partial(Recurrent, size=8),
        partial(AttentiveRecurrent, over="below", size=8),
        partial(AttentiveRecurrent, size=8),
        partial(Transformer, size=8, num_heads=2, looks_back=True),
    ],
    ids=["lstm", "below", "past", "transformer"],
)
def test_going_on_word_by_word_equals_reading_all_again(encoder: Any) -> None:
    torch.manual_seed(0)
    model = LanguageModel(12, partial(WordVectors, size=8), encoder).eval()
    for value in model.parameters():
        value.data *= 4  # so that what was read long before matters
    prompts = torch.randint(4, 12, (6, 3))
    written = sample(model, begun(*prompts.tolist()), 8, temperature=0)
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
