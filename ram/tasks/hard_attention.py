"""The REINFORCE losses of models with hard attention, for supervised tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from ram.baselines import Baseline
from ram.distributed import global_mean
from ram.reinforce import Rollout, reinforce
from ram.sequence.interfaces import ModelOutput


def hard_attention_loss(
    output: ModelOutput,
    reward: Tensor,
    mask: Tensor,
    baseline: Baseline,
    gamma: float = 1.0,
    causal: bool = True,
    rollouts: int = 1,
    immediate: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the REINFORCE losses of the hard attention of a model.

    The return of a choice sums the rewards it may affect: those of its own and of later positions, or of all
    positions of the example if the choice is visible everywhere.

    Args:
        output: of the model, with the log-probability of its choices, (B,) or (B, T).
        reward: (B,) or (B, T), the log-probability of each target; 0 where there is none.
        mask: whether there is a target, in the shape of ``reward``.
        baseline: predicts the returns.
        gamma: discount factor of the rewards of later positions.
        causal: whether a choice affects its own and later positions only.
        rollouts: the number of adjacent rows with the same example, whose choices differ.
        immediate: (B, T), rewards that are not part of the return of earlier choices; None for 0.

    Returns:
        The policy loss, averaged over the targets as the cross-entropy is, and the loss of the baseline; scalars.
    """
    assert output.log_prob is not None
    rows = len(reward)
    rewards = reward.view(rows, -1).mT  # (T, B)
    active = mask.mT if output.log_prob.ndim == 2 else torch.ones(1, rows, dtype=torch.bool, device=reward.device)
    if output.log_prob.ndim == 1:
        rewards = rewards.sum(0, keepdim=True)
    elif not causal:  # the total reward at the end, so that it is the return of every choice
        rewards = torch.cat([torch.zeros_like(rewards[1:]), rewards.sum(0, keepdim=True)])
    features = output.features
    features = features.transpose(0, 1) if features.ndim == 3 else features.expand(len(rewards), -1, -1)
    group = torch.arange(rows, device=reward.device) // rollouts
    rollout = Rollout(features, output.log_prob.view(rows, -1).mT, active, active, rewards, group)
    estimate = reinforce(rollout, baseline, gamma, None if immediate is None else immediate.mT)
    count = mask.sum()
    policy_loss = global_mean(estimate.policy_loss * rows / count, count)
    return policy_loss, global_mean(estimate.baseline_loss, active)
