"""REINFORCE with a baseline: the estimator that trains every hard choice of this project.

The gradient of the expected return with respect to the parameters of a stochastic policy is

    E[ sum_t grad log pi(choice_t | past_t) * (return_t - b_t) ]

(Williams 1992; Mnih et al. 2014, equation 2, with the return from t on in place of the episode's). ``return_t`` is
what follows choice t, and the baseline b_t may depend on anything but choice t and what comes after it, which leaves
the mean as it is and lowers the variance. Only choices that mattered are scored: ``mask`` says which.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """T steps of B episodes. Along T, entry t belongs to the action chosen after look t.

    Attributes:
        features: (T, B, D), what the agent knew at each step; with gradient.
        log_prob: (T, B), of the choices made, under the agent; with gradient. Anything where ``mask`` is False.
        acting: (T, B) bool, whether the row's episode had not ended before this step.
        mask: (T, B) bool, whether a choice at this step could change the reward.
        reward: (T, B), of the action at each step.
        group: (B,) int64, what a row is an episode of: an image, or what is said of one; rows of one are adjacent.
    """

    features: Tensor
    log_prob: Tensor
    acting: Tensor
    mask: Tensor
    reward: Tensor
    group: Tensor


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
