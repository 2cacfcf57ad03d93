"""Rewards of the log-probabilities of the classes."""

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
        _check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        value = _log_prob_of_label(transition.log_probs, transition.label, self.floor)
        return torch.where(transition.due, value, 0)


@dataclass(frozen=True)
class LogProbGain:
    """r = log p_t(label) - log p_{t-1}(label) in nats at every step, each clamped below at ``floor``.

    Before the first step of each answer p is uniform over the K classes. So the gains up to an answer sum to its
    log-probability + log K: the negative cross-entropy, spread over the steps. Needs ``env.answer=log_probs``.

    Attributes:
        floor: the smallest log-probability, negative; a gain is at most ``-floor``.
    """

    floor: float = -4.0

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        current = _log_prob_of_label(transition.log_probs, transition.label, self.floor)
        return current - _log_prob_of_label(transition.previous_log_probs, transition.label, self.floor)


@dataclass(frozen=True)
class InformationGain:
    """r = H(p_{t-1}) - H(p_t) in nats at every step, where p_t are the class probabilities of step t.

    Before the first step of each answer p is uniform over the K classes, with the entropy log K. Needs
    ``env.answer=log_probs``. It rewards confidence, correct or not, so combine it with :class:`CorrectAnswer` in a
    :class:`envs.rewards.weighted_sum.WeightedSum`.
    """

    def __call__(self, transition: Transition) -> Tensor:
        return _entropy(transition.previous_log_probs) - _entropy(transition.log_probs)


def _log_prob_of_label(log_probs: Tensor, label: Tensor, floor: float) -> Tensor:
    """Returns the log-probabilities of labels (B,) under (B, K) log_probs, clamped to [floor, 0]: (B,) in nats.

    Where the label is ``IGNORE_INDEX`` the result is that of class 0 and has no meaning.
    """
    return log_probs.gather(1, label.clamp(min=0)[:, None])[:, 0].clamp(floor, 0)


def _check_floor(floor: float) -> None:
    """Raises :class:`InputError` unless the floor is finite and negative."""
    if not (math.isfinite(floor) and floor < 0):
        raise InputError(f"reward.floor must be a finite number below 0, got {floor}.")


def _entropy(log_probs: Tensor) -> Tensor:
    """Returns the entropies (B,) in nats of (B, K) log-probabilities, which may be -inf."""
    return torch.special.entr(log_probs.clamp(max=0).exp()).sum(1)
