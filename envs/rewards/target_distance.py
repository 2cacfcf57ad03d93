"""The negative distance to the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class TargetDistance:
    """r = -||location - center of the target's box||, Euclidean, in units of locations.

    It is 0 at the last step, which chooses no location.
    """

    def __call__(self, transition: Transition) -> Tensor:
        center = (transition.target[:, :2] + transition.target[:, 2:]) / 2
        return torch.where(transition.last, 0, -(transition.location - center).norm(dim=1))
