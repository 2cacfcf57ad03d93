"""The 0/1 reward of a correct answer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import MissingField, Transition


@dataclass(frozen=True)
class CorrectAnswer:
    """r = 1 when an answer is due and equals the label, else 0.

    There is one answer at the end of the episode (Mnih et al. 2014, section 3), or several (Ba et al. 2015, section 3).
    """

    def __call__(self, transition: Transition) -> Tensor:
        if transition.answer.ndim != 1:
            raise MissingField("transition.answer is a box, not a class: set env.answer=label.")
        return ((transition.answer == transition.label) & transition.due).float()
