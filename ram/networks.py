"""The four networks of the Recurrent Attention Model (Mnih et al. 2014, section 3.1 and figure 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError

State = Tensor | tuple[Tensor, Tensor]
"""What a core remembers of B rows: h (B, size), or for an LSTM (h, c)."""


def _positive(part: str, **options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{part}.{name} must be at least 1, got {value}.")


class GlimpseNetwork(nn.Module):
    """What is seen and where, in one vector: g = ReLU(Lin(h_g) + Lin(h_l)).

    h_g = ReLU(Lin(patches)) and h_l = ReLU(Lin(location)).

    Args:
        patch_shape: (scales, C, h, w).
        patch_features: width of h_g.
        location_features: width of h_l.
        output_size: width of g.
    """

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        patch_features: int = 128,
        location_features: int = 128,
        output_size: int = 256,
    ) -> None:
        super().__init__()
        sizes = {"patch_features": patch_features, "location_features": location_features, "output_size": output_size}
        _positive("glimpse", **sizes)
        self.output_size = output_size
        self.patch = nn.Linear(math.prod(patch_shape), patch_features)
        self.location = nn.Linear(2, location_features)
        # The sum of two linear maps is one linear map of both inputs, in a single product.
        self.merge = nn.Linear(patch_features + location_features, output_size)

    def forward(self, patches: Tensor, location: Tensor) -> Tensor:
        """(B, scales, C, h, w), (B, 2) -> (B, output_size)."""
        seen = torch.cat([self.patch(patches.flatten(1)), self.location(location)], dim=1)
        return F.relu(self.merge(F.relu(seen)))


class CoreNetwork(nn.Module):
    """The memory: h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), or a gated cell.

    Args:
        input_size: width of g.
        cell: "rnn" (ReLU), "gru" or "lstm".
        size: width of h.
    """

    def __init__(self, input_size: int, cell: str = "rnn", size: int = 256) -> None:
        super().__init__()
        _positive("core", size=size)
        cells: dict[str, Callable[[int, int], nn.Module]] = {"rnn": _ReLUCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
        if cell not in cells:
            raise InputError(f"core.cell must be one of {', '.join(cells)}, got {cell!r}.")
        self.size = size
        self.cell = cells[cell](input_size, size)

    def forward(self, glimpse: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Takes in one glimpse.

        Args:
            glimpse: (B, input_size).
            state: of the last step, or None before the first, which stands for zeros.

        Returns:
            h_t (B, size), and the next state: h_t itself, or for an LSTM (h_t, c_t).
        """
        state = self.cell(glimpse, state)
        return (state[0] if isinstance(state, tuple) else state), state


class _ReLUCell(nn.Module):
    """h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), with the interface of torch's own cells."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.glimpse = nn.Linear(input_size, size)
        self.hidden = nn.Linear(size, size, bias=False)

    def forward(self, glimpse: Tensor, hidden: Tensor | None) -> Tensor:
        into = self.glimpse(glimpse)
        return F.relu(into if hidden is None else torch.addmm(into, hidden, self.hidden.weight.T))


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions of x and y.

    Attributes:
        mean: (..., 2) in [-1, 1].
        std: of either, broadcast to the mean.
    """

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Shifts and scales standard normal noise (..., 2); detached, for a score needs no other path."""
        return (self.mean + self.std * noise).detach()

    def preferred(self, noise: Tensor) -> Tensor:
        """The mean, whatever the noise."""
        return self.mean.detach()

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2) -> (...)."""
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

    def preferred(self, noise: Tensor) -> Tensor:
        """A sample, for no place is preferred."""
        return self.sample(noise)

    def log_prob(self, sample: Tensor) -> Tensor:
        """(..., 2) -> (...), a constant."""
        return torch.full_like(sample[..., 0], -math.log(4))

    def entropy(self) -> Tensor:
        """In nats: a scalar."""
        return torch.tensor(math.log(4))


class LocationNetwork(nn.Module):
    """Where to look next: a Gaussian whose mean depends on h_t; the mean is bounded, the sample is not.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer, or 0 for the paper's linear map.
        std: the standard deviation, in units of half the image.
        final_std: what the deviation changes to over the budget, geometrically; None keeps it.
        learn_std: train the deviation, from ``std`` on.
        through_core: let the policy's gradient into the core and glimpse networks.
    """

    log_std: Tensor

    def __init__(
        self,
        feature_size: int,
        hidden_size: int = 0,
        std: float = 0.15,
        final_std: float | None = None,
        learn_std: bool = False,
        through_core: bool = False,
    ) -> None:
        super().__init__()
        if hidden_size < 0:
            raise InputError(f"policy.hidden_size must not be negative, got {hidden_size}.")
        for name, value in [("std", std), ("final_std", final_std)]:
            if value is not None and value <= 0:
                raise InputError(f"policy.{name} must be positive, got {value}.")
        if learn_std and final_std is not None:
            raise InputError("policy.learn_std and policy.final_std exclude each other: set one of them.")
        self.initial_std, self.final_std = std, final_std
        self.through_core = through_core
        self.mean = nn.Sequential(
            *([nn.Linear(feature_size, hidden_size), nn.ReLU()] if hidden_size else []),
            nn.Linear(hidden_size or feature_size, 2),
            nn.Tanh(),
        )
        log_std = torch.full((2,), math.log(std))
        if learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def anneal(self, progress: float) -> None:
        """Sets the scheduled deviation when a share of the budget, in [0, 1], is spent."""
        if self.final_std is not None:
            scheduled = (1 - progress) * math.log(self.initial_std) + progress * math.log(self.final_std)
            self.log_std.fill_(scheduled)

    def forward(self, features: Tensor) -> Gaussian:
        """(..., D) -> the distribution of the next location."""
        return Gaussian(self.mean(features if self.through_core else features.detach()), self.log_std.exp())


class RandomLocation(nn.Module):
    """The control: every location is equally likely, whatever has been seen.

    Args:
        feature_size: width of h, of which nothing is used.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Nothing changes."""

    def forward(self, features: Tensor) -> Uniform:
        """(..., D) -> the distribution of the next location."""
        return Uniform()


class ActionNetwork(nn.Module):
    """The answer: class logits, linear in h_t or through a hidden ReLU layer.

    Args:
        feature_size: width of h.
        num_classes: how many answers there are.
        hidden_size: width of the hidden layer, or 0 for none.
    """

    def __init__(self, feature_size: int, num_classes: int, hidden_size: int = 0) -> None:
        super().__init__()
        if hidden_size < 0:
            raise InputError(f"action.hidden_size must not be negative, got {hidden_size}.")
        self.logits = nn.Sequential(
            *([nn.Linear(feature_size, hidden_size), nn.ReLU()] if hidden_size else []),
            nn.Linear(hidden_size or feature_size, num_classes),
        )

    def forward(self, features: Tensor) -> Tensor:
        """(..., D) -> (..., num_classes)."""
        return self.logits(features)
