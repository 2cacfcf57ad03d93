"""REINFORCE with a baseline: the gradient estimator of all sampled choices.

The gradient of the expected return with respect to the parameters of a stochastic policy is

    E[ sum_t grad log pi(choice_t | past_t) * (return_t - b_t) ]

(Williams 1992; Mnih et al. 2014, equation 2, with the return from t on in place of the return of the episode). The
baseline b_t may depend on anything but choice t and what follows it. It leaves the mean of the estimator unchanged and
reduces its variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap


@dataclass(frozen=True)
class Rollout:
    """T steps of B episodes. Entry t along T belongs to the choice made at step t.

    Attributes:
        features: (T, B, D), the input of the baseline before each choice; with gradient.
        log_prob: (T, B), log-probability of the choices made; with gradient. Arbitrary where ``mask`` is False.
        active: (T, B) bool, True until the episode of the row has ended.
        mask: (T, B) bool, True where the choice can change the reward and is scored.
        reward: (T, B), the reward of each step.
        group: (B,) int64, the number of the example of each row. Rows of one example are adjacent.
    """

    features: Tensor
    log_prob: Tensor
    active: Tensor
    mask: Tensor
    reward: Tensor
    group: Tensor


@dataclass(frozen=True)
class BaselineOutput:
    """The prediction of a baseline.

    Attributes:
        value: (T, B), the predicted return; without gradient.
        loss: a scalar that trains the baseline, a mean over the active steps.
    """

    value: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Estimate:
    """The losses and statistics of one rollout.

    Attributes:
        policy_loss: a scalar whose gradient is the negative of the estimated policy gradient.
        baseline_loss: a scalar that trains the baseline.
        returns: (T, B), the discounted return from each step on.
        value: (T, B), the baseline.
        advantage: (T, B), ``returns - value``; without gradient.
        mask: (T, B) bool, the choices that are scored.
    """

    policy_loss: Tensor
    baseline_loss: Tensor
    returns: Tensor
    value: Tensor
    advantage: Tensor
    mask: Tensor

    def metrics(self) -> dict[str, Tensor]:
        """Returns mean and standard deviation of the advantage and the explained variance, over scored choices.

        The explained variance is 1 - Var[return - value] / Var[return]; NaN where all returns are equal.
        """
        advantage, returns, value = (each[self.mask] for each in (self.advantage, self.returns, self.value))
        return {
            "policy/advantage_mean": advantage.mean(),
            "policy/advantage_std": advantage.std(),
            "baseline/explained_variance": 1 - (returns - value).var() / returns.var(),
        }


def reinforce(
    rollout: Rollout,
    baseline: Callable[[Rollout, Tensor], BaselineOutput],
    gamma: float = 1.0,
    immediate: Tensor | None = None,
) -> Estimate:
    """Computes the REINFORCE losses of a rollout: the policy loss is a mean over its episodes.

    Args:
        rollout: the episodes.
        baseline: predicts the returns (T, B) of a rollout, such as a :class:`ram.baselines.Baseline`.
        gamma: discount factor in [0, 1].
        immediate: (T, B), rewards of single choices, which are not part of the return of earlier choices; None for 0.
    """
    returns = discounted_returns(rollout.reward, gamma)
    if immediate is not None:
        returns = returns + immediate
    prediction = baseline(rollout, returns)
    advantage = (returns - prediction.value).detach()
    return Estimate(
        policy_loss=policy_gradient_loss(rollout.log_prob, advantage, rollout.mask),
        baseline_loss=prediction.loss,
        returns=returns,
        value=prediction.value,
        advantage=advantage,
        mask=rollout.mask,
    )


def policy_gradients(policy: nn.Module, rollout: Rollout, sample: Tensor, weight: Tensor) -> Tensor:
    """Computes the policy gradient of every episode with respect to the parameters of a policy: (B, parameters).

    Args:
        policy: maps features (T, D) and steps (T,) to a distribution.
        rollout: the episodes.
        sample: (T, B, ...), the samples of the policy.
        weight: (T, B), the factor of each log-probability: advantage or return, 0 for samples that are not scored.
    """
    parameters = {name: value.detach() for name, value in policy.named_parameters()}
    steps = torch.arange(len(weight), device=weight.device)

    def objective(parameters: dict[str, Tensor], features: Tensor, sample: Tensor, weight: Tensor) -> Tensor:
        return (functional_call(policy, parameters, (features, steps)).log_prob(sample) * weight).sum()

    gradients = vmap(grad(objective), in_dims=(None, 1, 1, 1))(parameters, rollout.features, sample, weight)
    return torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)


def estimator_variances(
    gradient: Tensor, without_baseline: Tensor, score: Tensor, rollouts_per_image: int
) -> tuple[float, float]:
    """Computes the variance of a policy gradient estimator for one episode, and that with the best constant baseline.

    Rollouts of one image may depend on each other: the variance of the estimator is that of the mean over the rollouts
    of an image, times their number. That of the constant is for one rollout of every image, so that the ratio compares
    equal numbers of episodes. Variances are summed over the parameters, and NaN for a single image.

    Args:
        gradient: (B, parameters), the gradients of the episodes with a baseline; rollouts of an image are adjacent.
        without_baseline: (B, parameters), the gradients weighted by the returns.
        score: (B, parameters), the gradients with weight 1; the baseline c gives ``without_baseline - c * score``.
        rollouts_per_image: number of rollouts of each image.
    """
    if len(gradient) == rollouts_per_image:
        return math.nan, math.nan
    means = gradient.unflatten(0, (-1, rollouts_per_image)).mean(1)
    without_baseline, score = (each - each.mean(0) for each in (without_baseline, score))
    constant = (without_baseline * score).sum() / score.square().sum()
    best = without_baseline - constant.nan_to_num() * score
    return float(rollouts_per_image * means.var(0).sum()), float(best.var(0).sum())


def discounted_returns(reward: Tensor, gamma: float = 1.0) -> Tensor:
    """Computes return_t = reward_t + gamma * return_{t+1}: (T, B) -> (T, B)."""
    # No matrix product, whose precision may be reduced.
    return (_discounts(len(reward), gamma, reward.device) * reward).sum(1)


@lru_cache(maxsize=16)
def _discounts(steps: int, gamma: float, device: torch.device) -> Tensor:
    """Returns the weight of the reward of step j in the return of step i, gamma^(j - i) or 0: (T, T, 1) float32."""
    weights = [[[gamma ** (j - i) if j >= i else 0.0] for j in range(steps)] for i in range(steps)]
    return torch.tensor(weights, device=device)


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Returns the policy-gradient surrogate loss, summed over the steps and averaged over the episodes.

    Args:
        log_prob: (T, B), with gradient.
        advantage: (T, B); its gradient is not used.
        mask: (T, B) bool, the choices that are scored.
    """
    scored = torch.where(mask, log_prob * advantage.detach(), 0)
    return -scored.sum(0).mean()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of the values where ``mask`` is True; 0 if it is nowhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
