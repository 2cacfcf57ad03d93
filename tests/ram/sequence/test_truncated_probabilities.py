"""Temperature, top-k and top-p by hand."""

import math
from typing import Any

import pytest
import torch

from envs import InputError
from ram.sequence.search import truncated_probabilities

PROBS = torch.tensor([0.1, 0.4, 0.2, 0.3])


def truncated(**options: Any) -> list[float]:
    return truncated_probabilities(PROBS.log(), **options).tolist()


def test_by_default_nothing_is_truncated() -> None:
    assert truncated() == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_improbable_tokens_keep_a_positive_probability() -> None:
    probs = truncated_probabilities(torch.tensor([0.0, -15.0, -20.0, -30.0]))
    assert (probs > 0).all()


def test_temperature_by_hand() -> None:
    assert truncated(temperature=0.5) == pytest.approx([0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3])
    roots = [math.sqrt(prob) for prob in PROBS.tolist()]
    assert truncated(temperature=2.0) == pytest.approx([root / sum(roots) for root in roots])
    assert truncated(temperature=0) == [0, 1, 0, 0]
    assert truncated(temperature=1e-4) == pytest.approx([0, 1, 0, 0])


def test_a_tiny_temperature_leaves_the_most_probable_token() -> None:
    assert truncated(temperature=1e-40) == pytest.approx([0, 1, 0, 0])


def test_top_k_by_hand() -> None:
    assert truncated(top_k=1) == [0, 1, 0, 0]
    assert truncated(top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert truncated(top_k=3) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert truncated(top_k=4) == truncated(top_k=50) == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_top_p_by_hand() -> None:
    assert truncated(top_p=0.01) == truncated(top_p=0.39) == [0, 1, 0, 0]
    assert truncated(top_p=0.41) == truncated(top_p=0.69) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert truncated(top_p=0.71) == truncated(top_p=0.89) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert truncated(top_p=0.91) == truncated(top_p=1.0) == pytest.approx([0.1, 0.4, 0.2, 0.3])


def test_top_p_stops_where_the_total_is_reached_exactly() -> None:
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    assert truncated_probabilities(logits, top_p=0.5).tolist() == [1, 0, 0]
    # The first of equals is kept.
    assert truncated_probabilities(logits, top_p=0.75).tolist() == pytest.approx([2 / 3, 1 / 3, 0])


def test_temperature_top_k_and_top_p_together_by_hand() -> None:
    # At temperature 1/2 proportional to 16, 9, 4, 1; the first two of the first three have 25/29.
    assert truncated(temperature=0.5, top_k=3, top_p=0.85) == pytest.approx([0, 16 / 25, 0, 9 / 25])
    assert truncated(temperature=0.5, top_k=3, top_p=0.87) == pytest.approx([0, 16 / 29, 4 / 29, 9 / 29])
    assert truncated(temperature=0, top_k=3, top_p=0.9) == [0, 1, 0, 0]


def test_the_first_of_equally_probable_tokens_is_kept() -> None:
    assert truncated_probabilities(torch.zeros(3), temperature=0).tolist() == [1, 0, 0]
    assert truncated_probabilities(torch.zeros(3), top_k=2).tolist() == pytest.approx([1 / 2, 1 / 2, 0])


def test_rows_are_truncated_independently_and_impossible_tokens_stay_impossible() -> None:
    logits = torch.stack([PROBS.log(), PROBS.flip(0).log(), torch.tensor([-math.inf, 0, 0, -math.inf])])
    expected = [[0, 4 / 7, 0, 3 / 7], [3 / 7, 0, 4 / 7, 0], [0, 1 / 2, 1 / 2, 0]]
    torch.testing.assert_close(truncated_probabilities(logits, top_k=2), torch.tensor(expected))
    torch.testing.assert_close(truncated_probabilities(logits[:, None], top_k=2), torch.tensor(expected)[:, None])
    assert truncated_probabilities(logits)[2].tolist() == [0, 1 / 2, 1 / 2, 0]


def test_the_logits_are_not_modified() -> None:
    logits = PROBS.log()
    truncated_probabilities(logits, temperature=0.5, top_k=2, top_p=0.5)
    assert torch.equal(logits, PROBS.log())


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_errors_name_the_wrong_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        truncated_probabilities(PROBS.log(), **options)
