"""Indexing the rows of nested tensors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ram.sequence.search import index_rows


@dataclass(frozen=True)
class Leaf:
    values: Tensor
    name: str
    inner: Any = None


def test_rows_of_nested_tensors_are_indexed() -> None:
    one, two = torch.arange(3), torch.arange(12).view(3, 2, 2)
    tree = Leaf(one, "leaf", [(two, None, 7), Leaf(two, "inner", (one, [two])), "text"])
    rows = torch.tensor([2, 0, 0, 1])
    indexed = index_rows(tree, rows)
    assert isinstance(indexed, Leaf) and indexed.name == "leaf"
    assert indexed.values.tolist() == [2, 0, 0, 1]
    (first, none, integer), inner, text = indexed.inner
    assert isinstance(indexed.inner, list) and isinstance(indexed.inner[0], tuple)
    assert (none, integer, text) == (None, 7, "text")
    assert torch.equal(first, two[[2, 0, 0, 1]])
    assert isinstance(inner, Leaf) and inner.name == "inner"
    assert isinstance(inner.inner, tuple) and isinstance(inner.inner[1], list)
    assert inner.inner[0].tolist() == [2, 0, 0, 1] and torch.equal(inner.inner[1][0], two[rows])
    assert torch.equal(tree.values, torch.arange(3))  # unchanged


def test_objects_without_tensors_are_returned_unchanged() -> None:
    assert index_rows(None, torch.tensor([0])) is None
    assert index_rows(5, torch.tensor([0])) == 5
    assert index_rows((), torch.tensor([0])) == ()
    assert index_rows(Leaf, torch.tensor([0])) is Leaf  # a class is not an instance


def test_a_tensor_that_occurs_twice_is_indexed_once() -> None:
    keys = torch.randn(3, 2)
    first, (second, other) = index_rows((keys, [keys, keys.clone()]), torch.tensor([2, 0]))
    assert first is second and first is not other
    assert torch.equal(first, keys[[2, 0]]) and torch.equal(other, first)
