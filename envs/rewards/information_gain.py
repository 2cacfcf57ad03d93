"""The decrease of the entropy of the answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import Transition


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
