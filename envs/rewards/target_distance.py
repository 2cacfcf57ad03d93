"""How far the gaze is from the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class TargetDistance:
    """The negative Euclidean distance from the gaze to the centre of the target, in units of locations.

    At every look to which the gaze was moved; 0 on the last step, which moves it no more.
    """

    def __call__(self, transition: Transition) -> Tensor:
        centre = (transition.target[:, :2] + transition.target[:, 2:]) / 2
        return torch.where(transition.last, 0, -(transition.location - centre).norm(dim=1))
