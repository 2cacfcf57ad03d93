"""Distributions of locations, answers and keys, sampled from given standard normal noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol

import torch
from torch import Tensor


class Distribution(Protocol):
    """Protocol of distributions. Noise is standard normal."""

    def sample(self, noise: Tensor) -> Tensor:
        """Maps noise to a sample, without gradient."""

    def mode(self, noise: Tensor) -> Tensor:
        """Returns the most probable value; a sample if all are equally probable."""

    def log_prob(self, sample: Tensor) -> Tensor:
        """Returns the log-probability of a sample, with gradient."""

    def entropy(self) -> Tensor:
        """Returns the entropy in nats, with gradient."""


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions of the coordinates of a location or box.

    Attributes:
        mean: (..., 2 or 4) in [-1, 1].
        std: standard deviation, broadcasts to the mean.
    """

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Shifts and scales noise of the mean's shape; the sample has no gradient."""
        return torch.addcmul(self.mean, self.std, noise).detach()

    def mode(self, noise: Tensor) -> Tensor:
        """Returns the mean."""
        return self.mean.detach()

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2 or 4) -> (...)."""
        standardized = (sample - self.mean) / self.std
        return (-0.5 * standardized.square() - self.std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Returns a scalar, in nats: the standard deviation is the same for all samples."""
        return (self.std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum()


@dataclass(frozen=True)
class Uniform:
    """The uniform distribution on [-1, 1]^2."""

    def sample(self, noise: Tensor) -> Tensor:
        """Maps noise (..., 2) to locations (..., 2)."""
        return 2 * torch.special.ndtr(noise) - 1

    def mode(self, noise: Tensor) -> Tensor:
        """Returns a sample, since the density is constant."""
        return self.sample(noise)

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2) -> (...), a constant."""
        return torch.full_like(sample[..., 0], -math.log(4))

    def entropy(self) -> Tensor:
        """Returns a scalar, in nats."""
        return torch.tensor(math.log(4))


@dataclass(frozen=True)
class Categorical:
    """A categorical distribution over K values.

    Attributes:
        logits: (..., K), not necessarily normalized; probabilities are computed at least in float32.
    """

    logits: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Maps noise (..., 1) to samples (...) int64 by the inverse cumulative distribution."""
        cumulative = at_least_float32(self.logits).detach().softmax(-1).cumsum(-1)
        cumulative = cumulative / cumulative[..., -1:]  # rounding may leave the last sum below 1
        return (torch.special.ndtr(noise).clamp(min=1e-30) > cumulative).sum(-1)  # ndtr rounds to 0 far out

    def mode(self, noise: Tensor) -> Tensor:
        """Returns the index of the largest logit: (...) int64."""
        return self.logits.argmax(-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        """(...) -> (...)."""
        return at_least_float32(self.logits).log_softmax(-1).gather(-1, sample[..., None])[..., 0]

    def entropy(self) -> Tensor:
        """Returns (...), in nats."""
        log_probs = at_least_float32(self.logits).log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)


@dataclass(frozen=True)
class GridCategorical:
    """A categorical distribution over K locations.

    Attributes:
        categorical: the distribution of the index.
        location: (K, 2) in [-1, 1].
    """

    categorical: Categorical
    location: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Maps noise (..., 2), of which the first component is used, to locations (..., 2)."""
        return self.location[self.categorical.sample(noise[..., :1])]

    def mode(self, noise: Tensor) -> Tensor:
        """Returns the most probable location: (..., 2)."""
        return self.location[self.categorical.mode(noise)]

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2), each one of the K locations -> (...)."""
        return self.categorical.log_prob((sample[..., None, :] - self.location).square().sum(-1).argmin(-1))

    def entropy(self) -> Tensor:
        """Returns (...), in nats."""
        return self.categorical.entropy()


def at_least_float32(values: Tensor) -> Tensor:
    """Returns half-precision values, which networks return under autocast, as float32, and others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method of a network whose first argument is a tensor: it computes in float32 under autocast."""

    @wraps(function)
    def compute(self: Any, inputs: Tensor, *arguments: Any) -> Any:
        device = inputs.device.type
        if not torch.is_autocast_enabled(device):
            return function(self, inputs, *arguments)
        with torch.autocast(device, enabled=False):
            return function(self, at_least_float32(inputs), *arguments)

    return compute
