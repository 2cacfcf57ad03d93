"""The increase of the log-probability of the correct class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition
from envs.rewards.cross_entropy import check_floor, log_prob_of_label


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
        check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        current, previous = (
            log_prob_of_label(log_probs, transition.label, self.floor)
            for log_probs in (transition.log_probs, transition.previous_log_probs)
        )
        return current - previous
