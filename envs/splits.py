"""Splits of a data set: their names, how they are held out, and the target that a loss ignores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.validation import check_choice

Split = Literal["train", "validation", "test"]

IGNORE_INDEX = -100
"""The target of an answer that is not due; ``torch.nn.functional.cross_entropy`` ignores it."""


def check_split(split: str) -> None:
    """Refuses any name but those of the three splits."""
    check_choice("split", split, get_args(Split))


def hold_out(labels: Tensor, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Divides the indices of a data set in two, class by class; a pure function of its arguments.

    Args:
        labels: (N,) int64.
        share: the share of every class to hold out, in (0, 1). Of a class with two or more examples at least one is
            held out, and not all.
        seed: of the permutation.

    Returns:
        The indices that are kept and those that are held out, both ascending, int64.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = order[labels.cpu()[order] == label]
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out[members[:count]] = True
    return (~held_out).nonzero().flatten(), held_out.nonzero().flatten()


def split_indices(split: Split, labels: Tensor, shares: Mapping[Split, float], group: str = "images") -> Tensor:
    """Returns the indices of a split where splits are held out of one data set, class by class.

    Args:
        split: the split to return; one without a share is what the others leave.
        labels: (N,) int64, of all examples.
        shares: the share of all examples that each split takes.
        group: the configuration group that sets the shares, for the message.

    Returns:
        Ascending indices, int64.

    Raises:
        InputError: the split would be empty.
    """
    remaining, remaining_share = torch.arange(len(labels)), 1.0
    parts: dict[Split, Tensor] = {}
    for name, share in shares.items():
        kept, held_out = hold_out(labels[remaining], share / remaining_share)
        parts[name] = remaining[held_out]
        remaining, remaining_share = remaining[kept], remaining_share - share
    chosen = parts.get(split, remaining)
    if len(chosen) == 0:
        raise InputError(
            f"The {split} split would be empty: {len(labels)} examples are too few to divide by "
            f"{' and '.join(f'{group}.{name}_share={share}' for name, share in shares.items())}."
        )
    return chosen


def check_shares(validation_share: float, test_share: float, group: str = "images") -> None:
    """Refuses shares outside (0, 1), or that leave no training examples."""
    for name, share in [("validation_share", validation_share), ("test_share", test_share)]:
        if not 0 < share < 1:
            raise InputError(f"{group}.{name} must be between 0 and 1, got {share}.")
    if validation_share + test_share >= 1:
        raise InputError(
            f"{group}.validation_share ({validation_share}) and {group}.test_share ({test_share}) must leave training "
            "examples: their sum must be below 1."
        )
