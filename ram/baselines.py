"""Baselines: what the return is compared with, so that the gradient varies less."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.errors import InputError
from ram.reinforce import BaselineOutput, Rollout


class Baseline(nn.Module):
    """Estimates the return of every step of a rollout from what is known before its choice.

    It learns from the steps of a row up to the end of its episode.

    Args:
        feature_size: width D of ``rollout.features``.
        rollouts_per_image: how many adjacent rows are of one image, or say the same of it.
    """

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__()

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        """Estimates ``returns`` (T, B)."""
        raise TypeError(f"{type(self).__name__} does not say how it estimates.")


class NoBaseline(Baseline):
    """Zero: plain REINFORCE."""

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        return BaselineOutput(torch.zeros_like(returns), returns.new_zeros(()))


class MovingAverageBaseline(Baseline):
    """The mean return of earlier batches, exponentially forgotten (Williams 1992, section 4, reinforcement comparison).

    The present batch enters only after it has been judged: an average that held a choice's own return would bias the
    gradient.

    Args:
        decay: share of the old average that stays, in [0, 1).
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, feature_size: int, rollouts_per_image: int, decay: float = 0.95) -> None:
        super().__init__(feature_size, rollouts_per_image)
        if not 0 <= decay < 1:
            raise InputError(f"baseline.decay must be in [0, 1), got {decay}.")
        self.decay = decay
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))  # how much of the mean is not yet zero's, as in Adam

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        value = (self.mean / self.weight.clamp(min=1e-8)).expand_as(returns)
        if self.training:
            self.mean.lerp_(returns[rollout.active].mean(), 1 - self.decay)
            self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)
        return BaselineOutput(value, returns.new_zeros(()))


class LearnedBaseline(Baseline):
    """b_t(h_t), linear in the features and trained by squared error (Mnih et al. 2014, section 3.1).

    Args:
        backprop_into_core: let its gradient into the core and glimpse networks; into a core of two layers as far as the
            policy's own may go. Where no label teaches them, they learn what matters from what the return depends on,
            as actor and critic share their layers in Mnih et al. (2016).
    """

    def __init__(self, feature_size: int, rollouts_per_image: int, backprop_into_core: bool = False) -> None:
        super().__init__(feature_size, rollouts_per_image)
        self.backprop_into_core = backprop_into_core
        self.head = nn.Linear(feature_size, 1)

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        features = rollout.features if self.backprop_into_core else rollout.features.detach()
        value = self.head(features).squeeze(-1)
        return BaselineOutput(value.detach(), (value - returns)[rollout.active].square().mean())


class LeaveOneOutBaseline(Baseline):
    """The mean return of the image's other rollouts (Kool et al. 2019; Mnih and Rezende 2016).

    At each step only those count that have not ended; where none is left, it is 0.
    """

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__(feature_size, rollouts_per_image)
        if rollouts_per_image < 2:
            raise InputError(
                "baseline=leave_one_out compares rollouts of one image: set task.rollouts_per_image to at least 2, or "
                "take another baseline where the task has no such option."
            )

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        group, active = rollout.group, rollout.active.to(returns.dtype)
        nothing = returns.new_zeros(len(returns), int(group.max()) + 1)
        total = nothing.index_add(1, group, returns * active)[:, group] - returns * active
        count = nothing.index_add(1, group, active)[:, group] - active
        return BaselineOutput(total / count.clamp(min=1), returns.new_zeros(()))
