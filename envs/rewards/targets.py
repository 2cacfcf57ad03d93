"""Rewards of locations and boxes by the box of the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import MissingField, Transition


@dataclass(frozen=True)
class HitTarget:
    """r = 1 when the location is in the target's box, borders included, else 0.

    The first location is given and has no reward.

    Attributes:
        every_glimpse: whether every location that the agent chooses is rewarded; False rewards only the final location,
            at the last step.
    """

    every_glimpse: bool = True

    def __call__(self, transition: Transition) -> Tensor:
        location, target = transition.location, transition.target
        hit = ((location >= target[:, :2]) & (location <= target[:, 2:])).all(1)
        counts = ~transition.last if self.every_glimpse else transition.last  # the last step chooses no location
        return (hit & counts).float()


@dataclass(frozen=True)
class TargetDistance:
    """r = -||location - center of the target's box||, Euclidean, in units of locations.

    It is 0 at the last step, which chooses no location.
    """

    def __call__(self, transition: Transition) -> Tensor:
        center = (transition.target[:, :2] + transition.target[:, 2:]) / 2
        return torch.where(transition.last, 0, -(transition.location - center).norm(dim=1))


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
