"""Policies: distributions of the next location, the answer and the stop, given the features of the core.

Mnih et al. (2014), section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive
from ram.attention.scores import ScaledDot, Score
from ram.attention.selection import Hard, Select
from ram.distributions import Categorical, Gaussian, GridCategorical, Uniform, full_precision
from ram.networks import output_layers

_PATH_LENGTH = 64  # points of the initial path; then it repeats


class GaussianPolicy(nn.Module):
    """Base class of Gaussian policies, with a scheduled, constant or learned standard deviation.

    Args:
        feature_size: width of h.
        outputs: the number of components.
        hidden_size: width of a hidden ReLU layer of the mean; 0 for none.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation after ``anneal_fraction`` of the budget, approached geometrically; None keeps
            ``std``.
        learn_std: train the standard deviation, starting from ``std``.
        anneal_fraction: fraction of the budget, in (0, 1].
        options: the configuration key, for error messages.

    Attributes:
        mean: computes the mean before the tanh that bounds it.
    """

    log_std: Tensor

    def __init__(
        self,
        feature_size: int,
        outputs: int,
        hidden_size: int,
        std: float,
        final_std: float | None,
        learn_std: bool,
        anneal_fraction: float,
        options: str,
    ) -> None:
        super().__init__()
        for name, value in [("std", std), ("final_std", final_std)]:
            if value is not None:
                check_positive(f"{options}.{name}", value)
        if learn_std and final_std is not None:
            raise InputError(f"{options}.learn_std=true needs {options}.final_std=null, which is a schedule.")
        if not 0 < anneal_fraction <= 1:
            raise InputError(f"{options}.anneal_fraction must be in (0, 1], got {anneal_fraction}.")
        self.initial_std, self.final_std, self.anneal_fraction = std, final_std, anneal_fraction
        self.mean = output_layers(feature_size, outputs, hidden_size, options)
        log_std = torch.full((outputs,), math.log(std))
        if learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def anneal(self, progress: float) -> None:
        """Sets the standard deviation for a fraction ``progress`` of the budget, in [0, 1], unless it is learned."""
        if self.final_std is not None:
            share = min(progress / self.anneal_fraction, 1)
            self.log_std.fill_((1 - share) * math.log(self.initial_std) + share * math.log(self.final_std))
        elif not isinstance(self.log_std, nn.Parameter):
            self.log_std.fill_(math.log(self.initial_std))


class LocationNetwork(GaussianPolicy):
    """Gaussian location policy with the mean tanh(f(h_t) + p_t) in [-1, 1]; samples are not bounded.

    f is linear and begins at 0, so that the first episodes of a training follow the constant path tanh(p_t), which
    covers the image. The other networks then learn from the same locations in every image, and the policy improves on
    the path. With random initial means the locations vary at random from image to image, and training takes several
    times as many episodes.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer of f; 0 for the paper's linear map.
        reach: the path covers [-reach, reach]^2, in [0, 1); 0 for the center of the image at every step.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation after ``anneal_fraction`` of the budget, approached geometrically; None keeps
            ``std``.
        learn_std: train the standard deviation, starting from ``std``.
        anneal_fraction: fraction of the budget, in (0, 1].
        backprop_into_core: let the gradient of the policy loss flow into the core and glimpse networks.
        lr_scale: factor of ``optimizer.lr`` for this network (:meth:`ram.tasks.Task.parameter_groups`; the trainer
            multiplies them). Optimizers that normalize the gradient, such as AdamW, update a policy at full size from
            noise when nearly all answers are correct; a smaller rate limits this.
    """

    path: Tensor

    def __init__(
        self,
        feature_size: int,
        hidden_size: int = 0,
        reach: float = 0.5,
        std: float = 0.1,
        final_std: float | None = 0.04,
        learn_std: bool = False,
        anneal_fraction: float = 1.0,
        backprop_into_core: bool = False,
        lr_scale: float = 0.3,
    ) -> None:
        super().__init__(feature_size, 2, hidden_size, std, final_std, learn_std, anneal_fraction, "policy")
        check_positive("policy.lr_scale", lr_scale)
        if not 0 <= reach < 1:
            raise InputError(f"policy.reach must be in [0, 1), got {reach}.")
        self.backprop_into_core, self.lr_scale = backprop_into_core, lr_scale
        for value in self.mean[-1].parameters():
            nn.init.zeros_(value)
        self.register_buffer("path", (reach * _spread_points(_PATH_LENGTH)).atanh())

    @full_precision
    def forward(self, features: Tensor, step: Tensor | None = None) -> Gaussian:
        """Computes the distribution of the next location.

        Args:
            features: (..., D).
            step: int64, the number of the look, from 0: a scalar, or (T,) for features (T, ..., D). None for 0.
        """
        step = torch.zeros((), dtype=torch.long, device=features.device) if step is None else step
        path = F.embedding(step % _PATH_LENGTH, self.path)
        if step.ndim:
            path = path.view(*step.shape, *[1] * (features.ndim - 1 - step.ndim), 2)
        mean = self.mean(features if self.backprop_into_core else features.detach())
        return Gaussian((mean + path).tanh(), self.log_std.exp())


class GridLocation(nn.Module):
    """Location policy that is hard attention over a square grid of locations with learned keys.

    The query is h_t. One location is sampled from the distribution of the selection over the keys, which are numbered
    row by row from the top left.

    Args:
        feature_size: width of h.
        size: number of locations along a side, from border to border.
        score: builds the score from the widths of query and key.
        select: builds the selection from the width of a query; its weights must be probabilities. With Soft, Hard and
            GumbelSoftmax the distribution is the softmax of the scores; local windows restrict it to some keys, those
            of LocalMonotonic around the key with the number of the look.
        backprop_into_core: let the gradient of the policy loss flow into the core and glimpse networks.
        lr_scale: learning rate relative to the other networks.
    """

    location: Tensor

    def __init__(
        self,
        feature_size: int,
        size: int = 7,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Hard,
        backprop_into_core: bool = False,
        lr_scale: float = 2.0,
    ) -> None:
        super().__init__()
        check_positive("policy.lr_scale", lr_scale)
        if size < 2:
            raise InputError(f"policy.size must be at least 2, got {size}.")
        self.backprop_into_core, self.lr_scale = backprop_into_core, lr_scale
        self.score, self.select = score(feature_size, feature_size), select(feature_size)
        if self.score.max_length is not None and self.score.max_length < size**2:
            raise InputError(f"policy.score.max_length must be at least {size**2}, the number of locations.")
        if type(self.select).logits is Select.logits:
            raise InputError(
                f"policy.select={type(self.select).__name__} gives no probabilities to sample a location from: use "
                "another selection, such as hard."
            )
        self.keys = nn.Parameter(torch.randn(size**2, feature_size) / math.sqrt(feature_size))
        side = torch.linspace(-1, 1, size)
        self.register_buffer("location", torch.cartesian_prod(side, side).flip(-1), persistent=False)

    def anneal(self, progress: float) -> None:
        """Does nothing: no parameter has a schedule."""

    @full_precision
    def forward(self, features: Tensor, step: Tensor | None = None) -> GridCategorical:
        """Computes the distribution of the next location.

        Args:
            features: (..., D).
            step: int64, the number of the look, from 0: a scalar, or (T,) for features (T, ..., D). None for 0.
        """
        rows = features.shape[:-1]
        query = (features if self.backprop_into_core else features.detach()).flatten(0, -2)[None]
        step = torch.zeros((), dtype=torch.long, device=features.device) if step is None else step
        step = step.reshape(*step.shape, *[1] * (len(rows) - step.ndim)).expand(rows).flatten()
        logits = self.select.logits(self.score(query, self.keys[None]), None, query, step)
        return GridCategorical(Categorical(logits.view(*rows, -1)), self.location)


class RandomLocation(nn.Module):
    """Uniform location policy: a control that ignores its input.

    Args:
        feature_size: not used.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Does nothing: no parameter has a schedule."""

    def forward(self, features: Tensor, step: Tensor | None = None) -> Uniform:
        """(..., D) -> the distribution of the next location."""
        return Uniform()


class ActionNetwork(nn.Module):
    """Computes the logits of the answer, a class or a move: linear in h_t, or with a hidden ReLU layer.

    Args:
        feature_size: width of h.
        num_classes: number of answers.
        hidden_size: width of the hidden layer; 0 for none.
    """

    def __init__(self, feature_size: int, num_classes: int, hidden_size: int = 0) -> None:
        super().__init__()
        self.logits = output_layers(feature_size, num_classes, hidden_size, "task.agent.action")

    @full_precision
    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of the answer."""
        return Categorical(self.logits(features))


class BoxNetwork(GaussianPolicy):
    """Computes the answer of env.answer=box: a Gaussian of left, top, right and bottom with means in [-1, 1].

    It is trained by the reward only; its gradient flows into the core and glimpse networks.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer; 0 for none.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation at the end of the budget, approached geometrically; None keeps ``std``.
    """

    def __init__(
        self, feature_size: int, hidden_size: int = 0, std: float = 0.15, final_std: float | None = 0.04
    ) -> None:
        super().__init__(feature_size, 4, hidden_size, std, final_std, False, 1.0, "task.agent.box")
        # The sides begin near the center: if left and right are exchanged by more than ``std``, no sample has a reward.
        for value in self.mean[-1].parameters():
            value.data.mul_(0.25)

    @full_precision
    def forward(self, features: Tensor) -> Gaussian:
        """(..., D) -> the distribution of the box."""
        return Gaussian(self.mean(features).tanh(), self.log_std.exp())


class StopNetwork(nn.Module):
    """Computes the logits of going on and of stopping, linear in h_t.

    No gradient flows back into the features.

    Args:
        feature_size: width of h.
        probability: initial probability of stopping, in (0, 1).
    """

    def __init__(self, feature_size: int, probability: float = 0.1) -> None:
        super().__init__()
        if not 0 < probability < 1:
            raise InputError(f"task.agent.stop.probability must be in (0, 1), got {probability}.")
        self.logits = nn.Linear(feature_size, 2)
        nn.init.zeros_(self.logits.weight)
        self.logits.bias.data = torch.tensor([1 - probability, probability]).log()

    @full_precision
    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of 0 (go on) and 1 (stop)."""
        return Categorical(self.logits(features.detach()))


def _spread_points(count: int) -> Tensor:
    """Returns points that cover [-1, 1]^2 evenly, however many are used: (count, 2), from (0, 0) on.

    The additive recurrence of Roberts (2018), "The Unreasonable Effectiveness of Quasirandom Sequences".
    """
    ratio = 1.32471795724474602596  # the real root of x^3 = x + 1
    multiples = torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor([1 / ratio, 1 / ratio**2]).double()
    return (2 * ((0.5 + multiples) % 1) - 1).float()
