"""Weights of the loss of the glimpse task."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from envs.validation import check_weight


@dataclass(frozen=True)
class LossWeights:
    """Weights of the terms of the loss.

    Attributes:
        policy: of the policy loss, relative to the terms that train the same networks.
        answer: of the cross-entropy of the answers.
        baseline: of the baseline's loss.
        patch: of the cross-entropy of the patch classifier, with ``patch_reward``; it trains the glimpse network too.
        entropy: of the entropy of the choices, which is maximized.
    """

    policy: float = 1.0
    answer: float = 1.0
    baseline: float = 1.0
    patch: float = 1.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check_weight(f"task.weights.{name}", value)
