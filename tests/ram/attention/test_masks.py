"""The masks, entry by entry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envs import InputError
from ram.attention import causal_mask, padding_mask


def test_padding_hides_what_lies_past_the_end() -> None:
    mask = padding_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[True, True, False]], [[False, False, False]], [[True, True, True]]]


def test_a_query_sees_the_past_and_itself() -> None:
    mask = causal_mask(3)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[True, False, False], [True, True, False], [True, True, True]]]


def test_strictly_it_sees_the_past_alone() -> None:
    assert causal_mask(3, strict=True).tolist() == [[[False, False, False], [True, False, False], [True, True, False]]]


def test_fewer_queries_stand_at_the_last_places() -> None:
    assert causal_mask(4, queries=2).tolist() == [[[True, True, True, False], [True, True, True, True]]]
    assert causal_mask(4, queries=1, strict=True).tolist() == [[[True, True, True, False]]]


@pytest.mark.parametrize("strict", [False, True])
@given(size=st.integers(1, 6), data=st.data())
def test_every_entry_of_the_causal_mask(strict: bool, size: int, data: st.DataObject) -> None:
    queries = data.draw(st.integers(1, size))
    mask = causal_mask(size, queries, strict)
    assert mask.shape == (1, queries, size)
    for query in range(queries):
        place = size - queries + query
        for key in range(size):
            assert bool(mask[0, query, key]) == (key < place or (key == place and not strict))


def test_more_queries_than_places_are_refused() -> None:
    with pytest.raises(InputError, match="got 4 queries and 3 places"):
        causal_mask(3, queries=4)


def test_masks_combine() -> None:
    both = padding_mask(torch.tensor([1, 3]), 3) & causal_mask(3)
    assert both.tolist() == [
        [[True, False, False], [True, False, False], [True, False, False]],
        [[True, False, False], [True, True, False], [True, True, True]],
    ]
