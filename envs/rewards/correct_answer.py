"""A right answer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import MissingField, Transition


@dataclass(frozen=True)
class CorrectAnswer:
    """1 for every right answer that is due, else 0.

    One at the end of the episode (Mnih et al. 2014, section 3), or several in turn (Ba et al. 2015, section 3).
    """

    def __call__(self, transition: Transition) -> Tensor:
        if transition.answer.ndim != 1:
            raise MissingField("transition.answer is a box, not a class: set env.answer=label.")
        return ((transition.answer == transition.label) & transition.due).float()
