"""Attention masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envs import InputError
from ram.attention import causal_mask, padding_mask


def test_the_padding_mask_is_true_up_to_each_length() -> None:
    mask = padding_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[True, True, False]], [[False, False, False]], [[True, True, True]]]


def test_the_causal_mask_includes_the_present() -> None:
    mask = causal_mask(3)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[True, False, False], [True, True, False], [True, True, True]]]


def test_the_strict_causal_mask_excludes_the_present() -> None:
    assert causal_mask(3, strict=True).tolist() == [[[False, False, False], [True, False, False], [True, True, False]]]


def test_fewer_queries_are_at_the_last_positions() -> None:
    assert causal_mask(4, queries=2).tolist() == [[[True, True, True, False], [True, True, True, True]]]
    assert causal_mask(4, queries=1, strict=True).tolist() == [[[True, True, True, False]]]


@pytest.mark.parametrize("strict", [False, True])
@given(size=st.integers(1, 6), data=st.data())
def test_the_causal_mask_equals_its_definition(strict: bool, size: int, data: st.DataObject) -> None:
    queries = data.draw(st.integers(1, size))
    mask = causal_mask(size, queries, strict)
    assert mask.shape == (1, queries, size)
    for query in range(queries):
        position = size - queries + query
        for key in range(size):
            assert bool(mask[0, query, key]) == (key < position or (key == position and not strict))


def test_more_queries_than_positions_are_refused() -> None:
    with pytest.raises(InputError, match="got 4 queries and 3 positions"):
        causal_mask(3, queries=4)


def test_masks_combine() -> None:
    both = padding_mask(torch.tensor([1, 3]), 3) & causal_mask(3)
    assert both.tolist() == [
        [[True, False, False], [True, False, False], [True, False, False]],
        [[True, False, False], [True, True, False], [True, True, True]],
    ]
