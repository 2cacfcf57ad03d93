"""The 0/1 reward of a location in the target box."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class HitTarget:
    """r = 1 when the location is in the target's box, borders included, else 0.

    The first location is given and earns nothing.

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
