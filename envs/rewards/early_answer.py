"""A right answer, the earlier the better."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition
from envs.rewards.correct_answer import CorrectAnswer


@dataclass(frozen=True)
class EarlyAnswer:
    """1 for a right answer at the end, less a cost for every glimpse that was taken.

    It pays to look again as long as that makes a right answer likelier by more than ``cost``; so it is meant for
    ``env.stop=true``, where the agent ends the episode. Answers on the way are not paid: where they were, it would pay
    to go on.

    Attributes:
        cost: of one glimpse, at least 0.
    """

    cost: float = 0.02

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and self.cost >= 0):
            raise InputError(f"reward.cost must be a finite number of at least 0, got {self.cost}.")

    def __call__(self, transition: Transition) -> Tensor:
        return CorrectAnswer()(transition) * transition.last - self.cost
