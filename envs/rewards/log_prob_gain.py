"""What a step added to the log-probability of the right class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from envs.rewards import Transition
from envs.rewards.cross_entropy import check_floor, log_prob_of_label


@dataclass(frozen=True)
class LogProbGain:
    """The gain in log-probability of the right class since the step before, in nats, at every step.

    Before the first step all K classes are alike. So the gains on the way to an answer add up to its log-probability
    + log K: negative cross-entropy, paid as it is earned. It needs ``env.answer=log_probs``.

    Attributes:
        floor: the least log-probability that counts, below 0; so no gain exceeds ``-floor``.
    """

    floor: float = -20.0

    def __post_init__(self) -> None:
        check_floor(self.floor)

    def __call__(self, transition: Transition) -> Tensor:
        now, before = (
            log_prob_of_label(log_probs, transition.label, self.floor)
            for log_probs in (transition.log_probs, transition.previous_log_probs)
        )
        return now - before
