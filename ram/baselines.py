"""Baselines: predictions of the return that reduce the variance of REINFORCE."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_probability
from ram.distributed import total
from ram.distributions import full_precision
from ram.reinforce import BaselineOutput, Rollout, masked_mean


class Baseline(nn.Module):
    """Base class of baselines.

    The value at step t depends on nothing that follows from the choice at step t. Baselines are trained on the active
    steps of a rollout only.

    Args:
        feature_size: width D of ``rollout.features``.
        rollouts_per_image: number of adjacent rows that are rollouts of one image.
    """

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__()

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        """Predicts ``returns`` (T, B)."""
        raise TypeError(f"{type(self).__name__} does not implement forward.")


class NoBaseline(Baseline):
    """The constant 0: REINFORCE without a baseline."""

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        return BaselineOutput(torch.zeros_like(returns), returns.new_zeros(()))


class MovingAverageBaseline(Baseline):
    """Exponential moving average of the returns of earlier batches (Williams 1992, section 4).

    The average is updated after its value is used: a value that contains a choice's own return biases the gradient.

    Args:
        decay: weight of the previous average in an update, in [0, 1).
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, feature_size: int, rollouts_per_image: int, decay: float = 0.95) -> None:
        super().__init__(feature_size, rollouts_per_image)
        check_probability("baseline.decay", decay)
        self.decay = decay
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))  # corrects the initial zero, as in Adam

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        value = (self.mean / self.weight.clamp(min=1e-8)).expand_as(returns)
        if self.training:
            active = returns[rollout.active]
            sum_, count = total(torch.stack([active.sum(), active.new_tensor(len(active))]))
            self.mean.lerp_(sum_ / count, 1 - self.decay)
            self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)
        return BaselineOutput(value, returns.new_zeros(()))


class LearnedBaseline(Baseline):
    """A linear function of the features, trained by the squared error (Mnih et al. 2014, section 3.1).

    Args:
        backprop_into_core: let the gradient of its loss flow into the core and glimpse networks, as actor and critic
            share layers in Mnih et al. (2016); into a core of two layers as far as that of the policy loss.
    """

    def __init__(self, feature_size: int, rollouts_per_image: int, backprop_into_core: bool = False) -> None:
        super().__init__(feature_size, rollouts_per_image)
        self.backprop_into_core = backprop_into_core
        self.head = nn.Linear(feature_size, 1)

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        features = rollout.features if self.backprop_into_core else rollout.features.detach()
        value = self._value(features)
        return BaselineOutput(value.detach(), masked_mean((value - returns).square(), rollout.active))

    @full_precision
    def _value(self, features: Tensor) -> Tensor:
        return self.head(features).squeeze(-1)


class LeaveOneOutBaseline(Baseline):
    """Mean return of the other rollouts of the same image (Kool et al. 2019; Mnih and Rezende 2016).

    The mean is over the rollouts that are active at the step; it is 0 if there is none.
    """

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__(feature_size, rollouts_per_image)
        if rollouts_per_image < 2:
            raise InputError(
                "baseline=leave_one_out needs at least 2 rollouts of each image: set task.rollouts_per_image=2 where "
                "the task has this option, or use another baseline."
            )

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        group, active = rollout.group, rollout.active.to(returns.dtype)
        zeros = returns.new_zeros(len(returns), int(group.max()) + 1)
        total = zeros.index_add(1, group, returns * active)[:, group] - returns * active
        count = zeros.index_add(1, group, active)[:, group] - active
        return BaselineOutput(total / count.clamp(min=1), returns.new_zeros(()))
