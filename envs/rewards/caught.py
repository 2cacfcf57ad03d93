"""A caught ball."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class Caught:
    """1 when the ball has fallen on the paddle, else 0 (Mnih et al. 2014, section 4.2); for :mod:`envs.catch`."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.caught.float()
