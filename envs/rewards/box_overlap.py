"""How well the box that was named covers the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import MissingField, Transition


@dataclass(frozen=True)
class BoxOverlap:
    """The intersection over the union of answer and target, in [0, 1], at every answer that is due, else 0.

    Areas are taken between the corners as they are given. A box without area, or with its right before its left or its
    bottom above its top, overlaps nothing. It needs ``env.answer=box``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        answer, target = transition.answer, transition.target
        if answer.ndim != 2:
            raise MissingField("transition.answer is a class, not a box: set env.answer=box.")
        corners = torch.cat([torch.maximum(answer, target)[:, :2], torch.minimum(answer, target)[:, 2:]], 1)
        common = _area(corners)
        union = _area(answer) + _area(target) - common
        overlap = common / union.clamp(min=torch.finfo(union.dtype).tiny)
        return torch.where(transition.due, overlap, 0)


def _area(box: Tensor) -> Tensor:
    """Of (B, 4) boxes, none of an inverted one: (B,)."""
    return (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1)
