"""Rewards of the log-probabilities of the classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import Transition


@dataclass(frozen=True)
class _LogProb:
    """Base class of the rewards of the log-probability of the correct class.

    Attributes:
        floor: the smallest log-probability in nats, negative; bounds the cost of a class of probability 0.
    """

    floor: float = -4.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and self.floor < 0):
            raise InputError(f"reward.floor must be a finite number below 0, got {self.floor}.")

    def _log_prob(self, log_probs: Tensor, label: Tensor) -> Tensor:
        """Returns the log-probabilities of labels (B,) under (B, K) log_probs, clamped to [floor, 0]: (B,) in nats.

        Where the label is ``IGNORE_INDEX`` the result is that of class 0 and has no meaning.
        """
        return log_probs.gather(1, label.clamp(min=0)[:, None])[:, 0].clamp(self.floor, 0)


@dataclass(frozen=True)
class NegativeCrossEntropy(_LogProb):
    """r = max(log p(label), floor) in nats when an answer is due, else 0.

    Needs ``env.answer=log_probs``. With ``env.glimpses_per_answer=1`` an answer is due at every step.

    Attributes:
        floor: the smallest log-probability, negative; bounds the cost of a class of probability 0.
    """

    def __call__(self, transition: Transition) -> Tensor:
        return torch.where(transition.due, self._log_prob(transition.log_probs, transition.label), 0)


@dataclass(frozen=True)
class LogProbGain(_LogProb):
    """r = log p_t(label) - log p_{t-1}(label) in nats at every step, each clamped below at ``floor``.

    Before the first step of each answer p is uniform over the K classes. So the gains up to an answer sum to its
    log-probability + log K: the negative cross-entropy, spread over the steps. Needs ``env.answer=log_probs``.

    Attributes:
        floor: the smallest log-probability, negative; a gain is at most ``-floor``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        current = self._log_prob(transition.log_probs, transition.label)
        return current - self._log_prob(transition.previous_log_probs, transition.label)


@dataclass(frozen=True)
class InformationGain:
    """r = H(p_{t-1}) - H(p_t) in nats at every step, where p_t are the class probabilities of step t.

    Before the first step of each answer p is uniform over the K classes, with the entropy log K. Needs
    ``env.answer=log_probs``. It rewards confidence, correct or not, so combine it with :class:`CorrectAnswer` in a
    :class:`envs.rewards.weighted_sum.WeightedSum`.
    """

    def __call__(self, transition: Transition) -> Tensor:
        return _entropy(transition.previous_log_probs) - _entropy(transition.log_probs)


def _entropy(log_probs: Tensor) -> Tensor:
    """Returns the entropies (B,) in nats of (B, K) log-probabilities, which may be -inf."""
    return torch.special.entr(log_probs.clamp(max=0).exp()).sum(1)
