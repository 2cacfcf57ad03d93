"""Intersection over union of the answered box and the target box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import MissingField, Transition


@dataclass(frozen=True)
class BoxOverlap:
    """r = intersection over union of the two boxes, in [0, 1], when an answer is due, else 0.

    Areas are measured between the corners. A box without area, or with right < left or bottom < top, has overlap 0.
    Needs ``env.answer=box``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        answer, target = transition.answer, transition.target
        if answer.ndim != 2:
            raise MissingField("transition.answer is a class, not a box: set env.answer=box.")
        corners = torch.cat([torch.maximum(answer, target)[:, :2], torch.minimum(answer, target)[:, 2:]], 1)
        intersection = _area(corners)
        union = _area(answer) + _area(target) - intersection
        overlap = intersection / union.clamp(min=torch.finfo(union.dtype).tiny)
        return torch.where(transition.due, overlap, 0)


def _area(box: Tensor) -> Tensor:
    """Returns the areas (B,) of boxes (B, 4), 0 for inverted ones."""
    return (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1)
