"""What a step is worth: a reward is a frozen dataclass called with a Transition, one number a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Transition:
    """All that a reward may judge about one step of B rows.

    Attributes:
        answer: (B,) int64, the class named by the action.
        label: (B,) int64, the class of the image.
        location: (B, 2) float32, where the action moved the gaze, clamped to [-1, 1]; unmoved on the last step.
        previous_location: (B, 2) float32, where the gaze was when the action was chosen.
        step: (B,) int64, the number of the action, from 0.
        last: (B,) bool, whether the episode ends with this step and the answer counts.
    """

    answer: Tensor
    label: Tensor
    location: Tensor
    previous_location: Tensor
    step: Tensor
    last: Tensor


class Reward(Protocol):
    """Judges a step."""

    def __call__(self, transition: Transition) -> Tensor:
        """Returns (B,) float32. Rows that have ended are ignored."""
        ...
