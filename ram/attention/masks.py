"""Masks: which keys a query may see. True is visible; a mask broadcasts to (B, Q, N)."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.errors import InputError


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Hides what only fills up the shorter rows of a batch.

    Args:
        lengths: (B,) int64, how many keys each row has, in [0, size].
        size: N.

    Returns:
        (B, 1, N) bool.
    """
    return torch.arange(size, device=lengths.device) < lengths[:, None, None]


def causal_mask(
    size: int, queries: int | None = None, strict: bool = False, device: torch.device | None = None
) -> Tensor:
    """Hides the future: a query sees the keys up to its own place.

    Args:
        size: N.
        queries: Q, which stand at the last of the N places; None for all.
        strict: hide the query's own place too.
        device: of the mask.

    Returns:
        (1, Q, N) bool.

    Raises:
        InputError: there are more queries than places.
    """
    queries = size if queries is None else queries
    if queries > size:
        raise InputError(f"A causal mask has a place for every query, got {queries} queries and {size} places.")
    place = torch.arange(size - queries, size, device=device)[:, None]
    key = torch.arange(size, device=device)
    return ((key < place) if strict else (key <= place))[None]
