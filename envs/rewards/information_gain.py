"""What a step took from the doubt about the answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.rewards import Transition


@dataclass(frozen=True)
class InformationGain:
    """The drop in the entropy of the answer since the step before, in nats, at every step.

    Before the first step, and before the first on the way to a further answer, all K classes are alike: the entropy is
    log K. It needs ``env.answer=log_probs``. It pays confidence, right or wrong, so use it in a
    :class:`envs.rewards.weighted_sum.WeightedSum` with the right answer.
    """

    def __call__(self, transition: Transition) -> Tensor:
        return _entropy(transition.previous_log_probs) - _entropy(transition.log_probs)


def _entropy(log_probs: Tensor) -> Tensor:
    """Of (B, K) log-probabilities, -inf among them: (B,) in nats."""
    return torch.special.entr(log_probs.clamp(max=0).exp()).sum(1)
