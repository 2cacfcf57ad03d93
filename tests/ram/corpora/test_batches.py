"""Batches of similar length, padding and teacher forcing."""

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ram.corpora.batches import Batches, pad

CPU = torch.device("cpu")


def _epoch(batches: Batches, number: int) -> list[list[int]]:
    return [batches(number * batches.steps_per_epoch + step) for step in range(batches.steps_per_epoch)]


def _lengths(count: int) -> list[int]:
    chance = random.Random(0)
    return [chance.randint(1, 60) for _ in range(count)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=150), st.integers(1, 40), st.integers(0, 2**20))
def test_an_epoch_contains_every_text_once(lengths: list[int], batch_size: int, seed: int) -> None:
    batches = Batches(lengths, batch_size, seed)
    for number in (0, 1, 7):
        epoch = _epoch(batches, number)
        assert sorted(text for batch in epoch for text in batch) == list(range(len(lengths)))
        rest = len(lengths) % batch_size
        sizes = sorted(map(len, epoch))
        assert sizes == [rest] * bool(rest) + [batch_size] * (len(lengths) // batch_size)


@pytest.mark.parametrize(
    ("count", "batch_size", "steps"), [(1, 32, 1), (32, 32, 1), (33, 32, 2), (64, 32, 2), (7, 1, 7)]
)
def test_steps_per_epoch(count: int, batch_size: int, steps: int) -> None:
    assert Batches([3] * count, batch_size, seed=0).steps_per_epoch == steps


def test_an_epoch_of_several_pools_contains_every_text_once() -> None:
    epoch = _epoch(Batches(_lengths(1003), 4, seed=3), 2)
    assert sorted(text for batch in epoch for text in batch) == list(range(1003))
    assert sorted(map(len, epoch)) == [3] + [4] * 250


def test_batch_is_a_function_of_seed_and_step() -> None:
    lengths = _lengths(100)
    forwards, backwards = Batches(lengths, 8, seed=5), Batches(lengths, 8, seed=5)
    steps = list(range(40))
    expected = [forwards(step) for step in steps]
    torch.manual_seed(11)
    random.seed(11)
    assert [backwards(step) for step in reversed(steps)] == expected[::-1]
    assert [backwards(step) for step in (17, 3, 17, 39, 0)] == [expected[step] for step in (17, 3, 17, 39, 0)]


def test_drawing_a_batch_keeps_the_global_random_state() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    Batches(_lengths(100), 8, seed=5)(30)
    assert torch.equal(torch.get_rng_state(), before)


def test_epochs_and_seeds_have_different_orders() -> None:
    lengths = _lengths(100)
    orders = [_epoch(Batches(lengths, 8, seed), number) for seed in (0, 1) for number in (0, 1)]
    assert all(first != second for number, first in enumerate(orders) for second in orders[:number])


def test_texts_of_equal_length_are_regrouped_every_epoch() -> None:
    batches = Batches([5] * 80, 8, seed=0)
    together = [{frozenset(batch) for batch in _epoch(batches, number)} for number in (0, 1)]
    assert together[0].isdisjoint(together[1])


@pytest.mark.parametrize("number", [0, 4])
def test_batches_group_texts_of_similar_length(number: int) -> None:
    """Up to 50 batches are consecutive slices of the texts sorted by length."""
    lengths = _lengths(50 * 8)
    epoch = [sorted(lengths[text] for text in batch) for batch in _epoch(Batches(lengths, 8, seed=2), number)]
    assert [length for batch in sorted(epoch) for length in batch] == sorted(lengths)


def test_several_pools_need_little_padding() -> None:
    lengths = _lengths(1500)
    padding = sum(
        max(lengths[text] for text in batch) - lengths[each]
        for batch in _epoch(Batches(lengths, 8, seed=2), 0)
        for each in batch
    )
    assert padding / 1500 < 2  # about 24 of 1 .. 60 without sorting; 60 / 50 / 2 = 0.6 with it


def test_batches_are_not_sorted_by_length() -> None:
    lengths = list(range(1, 401))
    epoch = [lengths[batch[0]] for batch in _epoch(Batches(lengths, 8, seed=2), 0)]
    rises = sum(first < second for first, second in pairwise(epoch))
    assert 15 < rises < 34  # of 49; (50 - 1) / 2 and four standard deviations of sqrt(51 / 12)


# Padding


def test_sequences_are_padded_at_the_end() -> None:
    padded, lengths = pad([[7, 8, 9], [5], [6, 4]], CPU)
    assert padded.tolist() == [[7, 8, 9], [5, 0, 0], [6, 4, 0]]
    assert lengths.tolist() == [3, 1, 2]
    assert padded.dtype == lengths.dtype == torch.int64


def test_padding_value_is_an_argument() -> None:
    padded, lengths = pad([[0], [0, 1]], CPU, value=-100)
    assert padded.tolist() == [[0, -100], [0, 1]]
    assert lengths.tolist() == [1, 2]


def test_large_seeds_are_valid() -> None:
    for seed in (10**18, 2**63 - 1):
        assert sorted(number for step in range(4) for number in Batches([1] * 7, 2, seed)(step)) == list(range(7))
