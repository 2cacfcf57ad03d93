"""Splits of a data set: their names, how they are held out, and the target that a loss ignores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from envs.errors import InputError

Split = Literal["train", "validation", "test"]

IGNORE_INDEX = -100
"""The target of an answer that is not due; ``torch.nn.functional.cross_entropy`` ignores it."""


def check_split(split: str) -> None:
    """Refuses anything but the three splits."""
    if split not in get_args(Split):
        raise InputError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")


def hold_out(labels: Tensor, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Parts a data set in two, class by class, the same way at every call.

    Args:
        labels: (N,) int64.
        share: of every class to hold out, in (0, 1); of a class that has two images, at least one and not all.
        seed: of the permutation.

    Returns:
        The kept and the held-out numbers, each ascending, int64.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = order[labels.cpu()[order] == label]
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out[members[:count]] = True
    return (~held_out).nonzero().flatten(), held_out.nonzero().flatten()


def choose(split: Split, labels: Tensor, shares: Mapping[Split, float], group: str = "images") -> Tensor:
    """Which images a split has when others are held out of the same data, class by class.

    Args:
        split: whose images are asked for; one that has no share is what the others leave.
        labels: (N,) int64, of all images.
        shares: the share of all images that each split takes.
        group: where a configuration sets the shares.

    Returns:
        Ascending numbers, int64.
    """
    left, left_share = torch.arange(len(labels)), 1.0
    chosen = None
    for name, share in shares.items():
        kept, held_out = hold_out(labels[left], share / left_share)
        if name == split:
            chosen = left[held_out]
        left, left_share = left[kept], left_share - share
    chosen = left if chosen is None else chosen
    if len(chosen) == 0:
        raise InputError(
            f"The {split} split would be empty: {len(labels)} examples are too few to part by "
            f"{' and '.join(f'{group}.{name}_share={share}' for name, share in shares.items())}."
        )
    return chosen


def check_shares(validation_share: float, test_share: float, group: str = "images") -> None:
    """Refuses shares outside (0, 1), or that leave nothing to train on."""
    for name, share in [("validation_share", validation_share), ("test_share", test_share)]:
        if not 0 < share < 1:
            raise InputError(f"{group}.{name} must lie between 0 and 1, got {share}.")
    if validation_share + test_share >= 1:
        raise InputError(
            f"{group}.validation_share ({validation_share}) and {group}.test_share ({test_share}) must leave something "
            "to train on: their sum must be below 1."
        )
