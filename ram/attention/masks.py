"""Attention masks: bool, True where a key is visible to a query; they broadcast to (B, Q, N)."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.errors import InputError


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Masks the padding of the shorter rows of a batch.

    Args:
        lengths: (B,) int64, the number of keys in each row, in [0, size].
        size: N.

    Returns:
        (B, 1, N) bool.
    """
    return torch.arange(size, device=lengths.device) < lengths[:, None, None]


def causal_mask(
    size: int, queries: int | None = None, strict: bool = False, device: torch.device | None = None
) -> Tensor:
    """Masks later keys: a query sees the keys up to its own position.

    Args:
        size: N.
        queries: Q, at the last of the N positions; None for N.
        strict: mask the query's own position too.
        device: where the mask is created.

    Returns:
        (1, Q, N) bool.

    Raises:
        InputError: if there are more queries than positions.
    """
    queries = size if queries is None else queries
    if queries > size:
        raise InputError(f"A causal mask needs a position for every query, got {queries} queries and {size} positions.")
    query = torch.arange(size - queries, size, device=device)[:, None]
    key = torch.arange(size, device=device)
    return ((key < query) if strict else (key <= query))[None]
