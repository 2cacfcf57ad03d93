"""The log-probability of the correct class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition


@dataclass(frozen=True)
class NegativeCrossEntropy:
    """r = max(log p(label), floor) in nats when an answer is due, else 0.

    Needs ``env.answer=log_probs``. With ``env.glimpses_per_answer=1`` an answer is due at every step.

    Attributes:
        floor: the smallest log-probability, negative; bounds the cost of a class of probability 0.
    """

    floor: float = -4.0

    def __post_init__(self) -> None:
        check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        value = log_prob_of_label(transition.log_probs, transition.label, self.floor)
        return torch.where(transition.due, value, 0)


def log_prob_of_label(log_probs: Tensor, label: Tensor, floor: float) -> Tensor:
    """Returns the log-probabilities of labels (B,) under (B, K) log_probs, clamped to [floor, 0]: (B,) in nats.

    Where the label is ``IGNORE_INDEX`` the result is that of class 0 and has no meaning.
    """
    return log_probs.gather(1, label.clamp(min=0)[:, None])[:, 0].clamp(floor, 0)


def check_floor(floor: float) -> None:
    """Raises :class:`InputError` unless the floor is finite and negative."""
    if not (math.isfinite(floor) and floor < 0):
        raise InputError(f"reward.floor must be a finite number below 0, got {floor}.")
