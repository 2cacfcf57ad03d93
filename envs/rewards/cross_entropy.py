"""The log-probability of the right class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition


@dataclass(frozen=True)
class NegativeCrossEntropy:
    """The log-probability of the right class at every answer that is due, else 0, in nats.

    It needs ``env.answer=log_probs``. With ``env.glimpses_per_answer=1`` an answer is due at every step.

    Attributes:
        floor: the least log-probability that counts, below 0: a class held for impossible costs no more.
    """

    floor: float = -20.0

    def __post_init__(self) -> None:
        check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        value = log_prob_of_label(transition.log_probs, transition.label, self.floor)
        return torch.where(transition.due, value, 0)


def log_prob_of_label(log_probs: Tensor, label: Tensor, floor: float) -> Tensor:
    """What (B, K) log-probabilities say of the classes (B,), at least ``floor``: (B,) in nats.

    Where no answer is asked for any more (``IGNORE_INDEX``), it is that of some class, for no one to heed.
    """
    return log_probs.gather(1, label.clamp(min=0)[:, None])[:, 0].clamp(floor, 0)


def check_floor(floor: float) -> None:
    """Refuses all but finite numbers below 0."""
    if not (math.isfinite(floor) and floor < 0):
        raise InputError(f"reward.floor must be a finite number below 0, got {floor}.")
