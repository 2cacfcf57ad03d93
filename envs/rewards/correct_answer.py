"""A right answer at the end."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class CorrectAnswer:
    """1 for a right answer at the last step, else 0 (Mnih et al. 2014, section 3)."""

    def __call__(self, transition: Transition) -> Tensor:
        return ((transition.answer == transition.label) & transition.last).float()
