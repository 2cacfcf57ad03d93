"""Counter-based random numbers: pure functions of (seed, counter, purpose), uniform, normal and uncorrelated."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.random import RowRandom

COUNT = 20_000
# Five standard deviations: true random numbers fail once in a million tests; the seeds are fixed.
SIGMAS = 5


def rows(count: int, seed: int = 0, counter: int = 0) -> RowRandom:
    """Consecutive seeds with one counter."""
    return RowRandom(torch.arange(seed, seed + count), torch.full((count,), counter))


def episodes(count: int, seed: int = 0) -> RowRandom:
    """Consecutive counters with one seed."""
    return RowRandom(torch.full((count,), seed), torch.arange(count))


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1])


def kolmogorov_distance(uniform: Tensor) -> float:
    """The Kolmogorov-Smirnov statistic against the uniform distribution, times sqrt(n)."""
    ordered, count = uniform.double().sort().values, len(uniform)
    above = (torch.arange(1, count + 1) / count - ordered).max()
    below = (ordered - torch.arange(count) / count).max()
    return float(torch.maximum(above, below)) * math.sqrt(count)


integers = st.integers(-(2**63), 2**63 - 1)
pairs = st.lists(st.tuples(integers, integers), min_size=1, max_size=8)
DRAWS = ["bits", "uniform", "normal"]


def draw(random: RowRandom, kind: str) -> Tensor:
    result: Tensor = getattr(random, kind)("purpose", 2, 3)
    return result


# A pure function of the row.


@settings(deadline=None, max_examples=30)
@given(pairs, st.sampled_from(DRAWS))
def test_a_row_draws_the_same_numbers_in_any_batch(rows_drawn: list[tuple[int, int]], kind: str) -> None:
    seed, counter = torch.tensor(rows_drawn).unbind(1)
    together = draw(RowRandom(seed, counter), kind)
    for i in range(len(seed)):
        assert torch.equal(draw(RowRandom(seed[i : i + 1], counter[i : i + 1]), kind)[0], together[i])


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(6)), integers, st.sampled_from(DRAWS))
def test_permuted_rows_draw_permuted_numbers(order: list[int], seed: int, kind: str) -> None:
    random = RowRandom(torch.tensor(seed) * torch.arange(6), torch.arange(6) % 2)
    permuted = RowRandom(random.seed[order], random.counter[order])
    assert torch.equal(draw(permuted, kind), draw(random, kind)[order])


def test_repeated_draws_are_equal() -> None:
    random = rows(5)
    first = random.normal("a", 3)
    random.uniform("b", 100)
    assert torch.equal(random.normal("a", 3), first)


def test_the_generator_of_torch_is_neither_read_nor_advanced() -> None:
    torch.manual_seed(1)
    first, state = rows(5).normal("a", 3), torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(rows(5).normal("a", 3), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


# The streams must never change, because runs must stay reproducible.

GOLDEN_ROWS = RowRandom(torch.tensor([0, 0, 1, 123456789]), torch.tensor([0, 1, 0, 987654321]))


def test_golden_bits() -> None:
    assert GOLDEN_ROWS.bits("index").tolist() == [
        5114297927563735898,
        -4240110922571814894,
        -7373235660283902059,
        -5412456782836837514,
    ]


def test_golden_uniform_numbers() -> None:
    assert GOLDEN_ROWS.uniform("first_location", 2).tolist() == [
        [0.1943015456199646, 0.5318517684936523],
        [0.1630374789237976, 0.9521744847297668],
        [0.33026009798049927, 0.20846331119537354],
        [0.13133198022842407, 0.24380642175674438],
    ]


def test_golden_normal_numbers() -> None:
    expected = [[-0.365993, 0.248800], [0.268211, 0.050757], [-0.412313, 0.047914], [-2.155523, 3.028128]]
    torch.testing.assert_close(GOLDEN_ROWS.normal("noise", 2), torch.tensor(expected), rtol=0, atol=2e-6)


def test_golden_integers() -> None:
    assert GOLDEN_ROWS.integers("index", 60_000).tolist() == [27949, 28361, 4778, 37051]


def plain_bits(seed: int, counter: int, purpose: str, position: int) -> int:
    """The same bits in Python integers modulo 2^64, with CRC-32 computed bit by bit."""
    word, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & word
        return x ^ (x >> 31)

    checksum = 0xFFFFFFFF
    for byte in purpose.encode():
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0xEDB88320 if checksum & 1 else 0)
    checksum ^= 0xFFFFFFFF
    key = mix((seed + golden) & word) ^ mix((counter - golden) & word)
    key = mix((mix(key) + (checksum << 32) + checksum) & word)
    result = mix((key + (position + 1) * golden) & word)
    return result - 2**64 if result >> 63 else result


@settings(deadline=None, max_examples=100)
@given(integers, integers, st.text(max_size=10), st.integers(0, 5))
def test_bits_equal_arithmetic_modulo_2_to_the_64(seed: int, counter: int, purpose: str, position: int) -> None:
    drawn = RowRandom(torch.tensor([seed]), torch.tensor([counter])).bits(purpose, 6)
    assert drawn[0, position].item() == plain_bits(seed, counter, purpose, position)


# Shapes, types, ranges.


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 5), st.lists(st.integers(1, 4), max_size=3))
def test_shapes_and_types(count: int, shape: list[int]) -> None:
    random = rows(count)
    assert random.bits("a", *shape).shape == random.uniform("a", *shape).shape == (count, *shape)
    assert random.normal("a", *shape).shape == (count, *shape)
    assert random.bits("a", *shape).dtype == torch.int64
    assert random.uniform("a", *shape).dtype == random.normal("a", *shape).dtype == torch.float32


@settings(deadline=None, max_examples=50)
@given(integers, integers, st.integers(1, 2**62))
def test_integers_are_in_their_range(seed: int, counter: int, high: int) -> None:
    drawn = RowRandom(torch.tensor([seed]), torch.tensor([counter])).integers("a", high)
    assert drawn.shape == (1,) and drawn.dtype == torch.int64
    assert 0 <= drawn.item() < high


def test_uniform_numbers_are_in_0_to_below_1() -> None:
    drawn = rows(1000).uniform("a", 1000)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert torch.equal(drawn * 2**24, (drawn * 2**24).round())


def test_normal_numbers_are_finite() -> None:
    assert rows(1000).normal("a", 1000).isfinite().all()


# Distributions and correlations.


@pytest.mark.parametrize("random", [rows(COUNT), episodes(COUNT)], ids=["over seeds", "over counters"])
def test_uniform_numbers_are_uniform(random: RowRandom) -> None:
    drawn = random.uniform("a")
    assert abs(float(drawn.mean()) - 1 / 2) < SIGMAS * math.sqrt(1 / 12 / COUNT)
    assert abs(float(drawn.var()) - 1 / 12) < SIGMAS * math.sqrt(1 / 180 / COUNT)
    assert kolmogorov_distance(drawn) < 2.6  # true random numbers fail in 3 of a million tests


def test_uniform_numbers_of_one_row_are_uniform() -> None:
    assert kolmogorov_distance(rows(1).uniform("a", COUNT)[0]) < 2.6


def test_every_bit_is_1_half_of_the_time() -> None:
    bits = rows(COUNT).bits("a")
    share = torch.stack([(bits >> place) & 1 for place in range(64)]).float().mean(1)
    assert (share - 0.5).abs().max() < SIGMAS * math.sqrt(1 / 4 / COUNT)


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    drawn = rows(COUNT).normal("a", 4).double().flatten()
    moments = [float((drawn**power).mean()) for power in (1, 2, 3, 4)]
    expected, variances = [0, 1, 0, 3], [1, 2, 15, 96]  # E[x^2n] - E[x^n]^2
    for moment, mean, variance in zip(moments, expected, variances, strict=True):
        assert abs(moment - mean) < SIGMAS * math.sqrt(variance / len(drawn))


def test_normal_numbers_follow_the_normal_distribution() -> None:
    drawn = rows(COUNT).normal("a").double()
    assert kolmogorov_distance(torch.special.ndtr(drawn)) < 2.6


@pytest.mark.parametrize("high", [2, 3, 10, 1000])
def test_integers_are_uniform(high: int) -> None:
    counts = rows(COUNT).integers("a", high).bincount(minlength=high).double()
    expected = COUNT / high
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert len(counts) == high
    assert abs(chi_squared - (high - 1)) < SIGMAS * math.sqrt(2 * (high - 1)) + 10


SAME = rows(COUNT)
RELATED = {
    "consecutive seeds": (rows(COUNT).uniform("a"), rows(COUNT, seed=1).uniform("a")),
    "seeds a large power of two apart": (SAME.uniform("a"), rows(COUNT, seed=2**32).uniform("a")),
    "consecutive counters": (SAME.uniform("a"), rows(COUNT, counter=1).uniform("a")),
    "purposes": (SAME.uniform("a"), SAME.uniform("b")),
    "purposes with a common prefix": (SAME.uniform("first_location"), SAME.uniform("first_location/1")),
    "numbers of one row": tuple(SAME.uniform("a", 2).unbind(1)),
    "seed and counter exchanged": (
        RowRandom(torch.arange(COUNT), torch.arange(COUNT) + 1).uniform("a"),
        RowRandom(torch.arange(COUNT) + 1, torch.arange(COUNT)).uniform("a"),
    ),
    "seeds that rise as counters fall": (
        RowRandom(torch.arange(COUNT), -torch.arange(COUNT)).uniform("a"),
        RowRandom(torch.arange(COUNT) + 1, -torch.arange(COUNT) - 1).uniform("a"),
    ),
    "normal numbers of one row": tuple(SAME.normal("a", 2).unbind(1)),
}


@pytest.mark.parametrize("name", RELATED)
def test_related_draws_are_uncorrelated(name: str) -> None:
    a, b = RELATED[name]
    assert not (a == b).all()
    assert abs(correlation(a, b)) < SIGMAS / math.sqrt(COUNT)
    assert abs(correlation((a - a.mean()).abs(), (b - b.mean()).abs())) < SIGMAS / math.sqrt(COUNT)


def test_all_of_90000_rows_draw_different_bits() -> None:
    seed, counter = torch.meshgrid(torch.arange(-150, 150), torch.arange(-150, 150), indexing="ij")
    bits = RowRandom(seed.flatten(), counter.flatten()).bits("a")
    assert len(bits.unique()) == len(bits)
