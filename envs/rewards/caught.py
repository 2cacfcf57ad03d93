"""The reward of the game Catch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class Caught:
    """r = 1 when the ball lands on the paddle, else 0 (Mnih et al. 2014, section 4.2). Needs :mod:`envs.catch`."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.caught.float()
