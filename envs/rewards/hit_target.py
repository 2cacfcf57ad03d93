"""A look at the target."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class HitTarget:
    """1 where the gaze lies in the target's box, its border included, else 0.

    The first look is given, so it earns nothing by itself.

    Attributes:
        every_look: whether every look counts to which the gaze was moved; else the one where the gaze is at the end.
    """

    every_look: bool = True

    def __call__(self, transition: Transition) -> Tensor:
        location, target = transition.location, transition.target
        hit = ((location >= target[:, :2]) & (location <= target[:, 2:])).all(1)
        counts = ~transition.last if self.every_look else transition.last  # the last step moves the gaze no more
        return (hit & counts).float()
