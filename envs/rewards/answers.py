"""Rewards of correct answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from envs.errors import InputError
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


@dataclass(frozen=True)
class EarlyAnswer:
    """r = [last step and correct answer] - cost, at every step.

    Another glimpse increases the return if it raises the probability of a correct answer by more than ``cost``. Meant
    for ``env.stop=true``, where the agent ends the episode. Answers before the last step have no reward, because they
    would reward longer episodes.

    Attributes:
        cost: the cost of a glimpse, at least 0.
    """

    cost: float = 0.02

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and self.cost >= 0):
            raise InputError(f"reward.cost must be a finite number of at least 0, got {self.cost}.")

    def __call__(self, transition: Transition) -> Tensor:
        return CorrectAnswer()(transition) * transition.last - self.cost
