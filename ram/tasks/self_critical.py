"""The loss of self-critical training (Rennie et al. 2017): REINFORCE relative to the reward of the greedy output."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from envs.splits import IGNORE_INDEX
from ram.distributed import global_mean
from ram.reinforce import BaselineOutput, Rollout, reinforce
from ram.sequence.interfaces import ModelOutput
from ram.sequence.search import mask_special_tokens
from ram.tasks.corpus import cross_entropy


def self_critical_loss(
    output: ModelOutput, targets: Tensor, reward: Tensor, greedy_reward: Tensor, group: Tensor
) -> Tensor:
    """Computes the REINFORCE loss of sampled captions, with the reward of the greedy caption as baseline.

    It is a sum over all tokens divided by their number (Rennie et al. 2017, equation 7).

    Args:
        output: the model's output on B sampled captions.
        targets: (B, T) int64, their token ids, with the end symbol; IGNORE_INDEX after it.
        reward: (B,), of the sampled captions.
        greedy_reward: (B,), of the greedy captions of the same images.
        group: (B,) int64, the index of each caption's image.
    """

    def greedy_baseline(rollout: Rollout, returns: Tensor) -> BaselineOutput:
        return BaselineOutput(greedy_reward.expand_as(returns), returns.new_zeros(()))

    log_prob, mask = -cross_entropy(mask_special_tokens(output.logits), targets), targets != IGNORE_INDEX
    last_step_reward = F.pad(reward[None], (0, 0, targets.shape[1] - 1, 0))  # (T, B)
    features = output.features.transpose(0, 1)
    rollout = Rollout(features, log_prob.mT, mask.mT, mask.mT, last_step_reward, group)
    count = mask.sum()
    return global_mean(reinforce(rollout, greedy_baseline).policy_loss * len(reward) / count, count)
