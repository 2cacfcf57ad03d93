"""Helpers of the attention tests."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from ram.attention import Attention, AttentionOutput, MultiHeadAttention, Score, Select
from ram.attention.scores import Additive, Content, Dot, General, Location, ScaledDot
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Soft,
    Unnormalized,
)

WIDTH = 4
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "content": Content,
    "location": partial(Location, max_length=12),
}
SELECTIONS: dict[str, Callable[[int], Select]] = {
    "soft": Soft,
    "diagonal": Diagonal,
    "unnormalized": Unnormalized,
    "hard": Hard,
    "gumbel": partial(GumbelSoftmax, temperature=0.7),
    "local_m": partial(LocalMonotonic, half_width=2),
    "local_m_gaussian": partial(LocalMonotonic, half_width=2, gaussian=True),
    "local_p": partial(LocalPredictive, half_width=2),
}
SEED = st.integers(0, 2**32 - 1)
PROBLEMS = {"seed": SEED, "batch": st.integers(1, 3), "queries": st.integers(1, 3), "keys": st.integers(1, 6)}


def build(score: str, select: str, heads: int | None, dropout: float = 0.0) -> Attention:
    """Builds attention in double precision; without heads and projections where ``heads`` is None."""
    if heads is None:
        attention = Attention(SCORES[score](WIDTH, WIDTH), SELECTIONS[select](WIDTH), dropout)
    else:
        attention = MultiHeadAttention(
            WIDTH, num_heads=heads, score=SCORES[score], select=SELECTIONS[select], dropout=dropout
        )
    return attention.double()


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def all_attentions(test: Callable[..., None]) -> Callable[..., None]:
    """Parametrizes a test with every score, every selection, and with or without heads."""
    for name, values in (("select", SELECTIONS), ("score", SCORES)):
        test = pytest.mark.parametrize(name, values)(test)
    return pytest.mark.parametrize("heads", [None, 2], ids=["single", "multi_head"])(test)


def gradients(output: AttentionOutput, inputs: list[Tensor], rows: Any = slice(None)) -> list[Tensor]:
    """Returns the gradients of a scalar that depends on every entry of an output, log-probabilities included."""
    factors = torch.linspace(1, 2, output.context.shape[-1], dtype=output.context.dtype)
    scalar = (output.context[rows] * factors).sum()
    if output.log_prob is not None:
        scalar = scalar + output.log_prob[rows].sum()
    if not scalar.requires_grad:
        return [torch.zeros_like(each) for each in inputs]
    return list(torch.autograd.grad(scalar, inputs, allow_unused=True, materialize_grads=True, retain_graph=True))


def softmax(scores: list[float], visible: list[bool]) -> list[float]:
    """Computes the softmax over visible keys in plain Python; zeros where none is."""
    largest = max((score for score, shown in zip(scores, visible, strict=True) if shown), default=0.0)
    powers = [math.exp(score - largest) if shown else 0.0 for score, shown in zip(scores, visible, strict=True)]
    return [power / (sum(powers) or 1.0) for power in powers]


def random_problem(seed: int, batch: int, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Returns scores and a mask, which may hide all keys of a query."""
    torch.manual_seed(seed)
    return 3 * torch.randn(batch, queries, keys, dtype=torch.float64), torch.rand(batch, queries, keys) < 0.6
