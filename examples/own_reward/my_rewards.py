"""A custom reward."""

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class MyReward:
    """r = [correct answer] - cost * distance: 1 for a correct answer that is due, minus a cost of moving.

    Attributes:
        cost: the cost of moving the location by one unit.
    """

    cost: float = 0.1

    def __call__(self, transition: Transition) -> Tensor:
        correct = (transition.answer == transition.label) & transition.due
        return correct.float() - self.cost * (transition.location - transition.previous_location).norm(dim=1)
