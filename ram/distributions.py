"""Distributions of choices: where to look, what to answer, what to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Distribution(Protocol):
    """What a choice is drawn from. Noise is standard normal."""

    def sample(self, noise: Tensor) -> Tensor:
        """A choice, the same for the same noise; without gradient."""
        ...

    def mode(self, noise: Tensor) -> Tensor:
        """The choice to make where nothing is tried out."""
        ...

    def log_prob(self, sample: Tensor) -> Tensor:
        """Of a choice, with gradient."""
        ...

    def entropy(self) -> Tensor:
        """In nats, with gradient."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions of x and y, or of the four sides of a box.

    Attributes:
        mean: (..., 2 or 4) in [-1, 1].
        std: of either, broadcast to the mean.
    """

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Shifts and scales standard normal noise of the mean's shape; detached: a score needs no other path."""
        return (self.mean + self.std * noise).detach()

    def mode(self, noise: Tensor) -> Tensor:
        """The mean, whatever the noise."""
        return self.mean.detach()

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2 or 4) -> (...)."""
        normalised = (sample - self.mean) / self.std
        return (-0.5 * normalised.square() - self.std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """In nats: a scalar, for the deviation is the same everywhere."""
        return (self.std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum()


@dataclass(frozen=True)
class Uniform:
    """Anywhere in [-1, 1]^2, whatever has been seen."""

    def sample(self, noise: Tensor) -> Tensor:
        """Maps standard normal noise (..., 2) to uniform locations."""
        return 2 * torch.special.ndtr(noise) - 1

    def mode(self, noise: Tensor) -> Tensor:
        """A sample, for no place is preferred."""
        return self.sample(noise)

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2) -> (...), a constant."""
        return torch.full_like(sample[..., 0], -math.log(4))

    def entropy(self) -> Tensor:
        """In nats: a scalar."""
        return torch.tensor(math.log(4))


@dataclass(frozen=True)
class Categorical:
    """One of K choices.

    Attributes:
        logits: (..., K), of any scale.
    """

    logits: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Maps standard normal noise (..., 1) to a choice (...) int64, through the cumulative distribution."""
        cumulative = self.logits.detach().softmax(-1).cumsum(-1)
        cumulative = cumulative / cumulative[..., -1:]  # rounding may leave the last sum below 1
        return (torch.special.ndtr(noise).clamp(min=1e-30) > cumulative).sum(-1)  # far out, ndtr rounds to 0

    def mode(self, noise: Tensor) -> Tensor:
        """The likeliest, whatever the noise."""
        return self.logits.argmax(-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        """(...) -> (...)."""
        return self.logits.log_softmax(-1).gather(-1, sample[..., None])[..., 0]

    def entropy(self) -> Tensor:
        """In nats: (...)."""
        log_probs = self.logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)


@dataclass(frozen=True)
class GridCategorical:
    """One of K locations.

    Attributes:
        choice: which one.
        location: (K, 2) in [-1, 1].
    """

    choice: Categorical
    location: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Maps standard normal noise (..., 2), of which the first number serves, to locations (..., 2)."""
        return self.location[self.choice.sample(noise[..., :1])]

    def mode(self, noise: Tensor) -> Tensor:
        """The likeliest place, whatever the noise."""
        return self.location[self.choice.mode(noise)]

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2), each one of the places -> (...)."""
        return self.choice.log_prob((sample[..., None, :] - self.location).square().sum(-1).argmin(-1))

    def entropy(self) -> Tensor:
        """In nats: (...)."""
        return self.choice.entropy()
