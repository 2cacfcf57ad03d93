"""REINFORCE with a baseline: the estimator that trains every hard choice of this project.

The gradient of the expected return with respect to the parameters of a stochastic policy is

    E[ sum_t grad log pi(choice_t | past_t) * (return_t - b_t) ]

(Williams 1992; Mnih et al. 2014, equation 2, with the return from t on in place of the episode's). ``return_t`` is
what follows choice t, and the baseline b_t may depend on anything but choice t and what comes after it, which leaves
the mean as it is and lowers the variance. Only choices that mattered are scored: ``mask`` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """T steps of B episodes. Along T, entry t belongs to the action chosen after look t.

    Attributes:
        features: (T, B, D), what the agent knew at each step; with gradient.
        log_prob: (T, B), of the choices made, under the agent; with gradient. Anything where ``mask`` is False.
        entropy: a scalar, of the distributions of a step's choices, in nats; with gradient.
        acting: (T, B) bool, whether the row's episode had not ended before this step.
        mask: (T, B) bool, whether a choice at this step could change the reward.
        reward: (T, B), of the action at each step.
        components: what it is the sum of, by name, (T, B) each; empty where it has no parts.
        logits: (A, B, K), of the answers after the A looks at which some were due, in order; with gradient. None where
            the world tells no right answers; then answers are choices, and ``log_prob`` has them.
        label: (A, B) int64, the right answers, -100 for a row of which none was due; or None.
        group: (B,) int64, which image a row sees; rows of one image are adjacent.
        location: (T, B, 2), where each look was.
        sample: (T, B, 2), the next locations as drawn, before clamping.
        moved: (T, B) bool, whether the gaze followed the sample.
        actions: T of them, as the environment took them.
    """

    features: Tensor
    log_prob: Tensor
    entropy: Tensor
    acting: Tensor
    mask: Tensor
    reward: Tensor
    components: Mapping[str, Tensor]
    logits: Tensor | None
    label: Tensor | None
    group: Tensor
    location: Tensor
    sample: Tensor
    moved: Tensor
    actions: Sequence[Mapping[str, Tensor]]


def discounted_returns(reward: Tensor, gamma: float = 1.0) -> Tensor:
    """return_t = reward_t + gamma * return_{t+1}: (T, B) -> (T, B)."""
    returns = [reward[-1]]
    for step in range(len(reward) - 2, -1, -1):
        returns.append(reward[step] + gamma * returns[-1])
    return torch.stack(returns[::-1])


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """A scalar whose gradient is the negative of the estimate: summed over an episode's steps, averaged over episodes.

    Args:
        log_prob: (T, B), with gradient.
        advantage: (T, B), return less baseline; its gradient is not used.
        mask: (T, B) bool, the choices to score.
    """
    scored = torch.where(mask, log_prob * advantage.detach(), 0)
    return -scored.sum(0).mean()
