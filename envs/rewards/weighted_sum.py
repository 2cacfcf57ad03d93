"""Several rewards at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import MissingField, Reward, Transition


@dataclass(frozen=True)
class WeightedSum:
    """The sum of several rewards, each times its weight.

    The environment tells what each has paid in ``info["reward/<name>"]``.

    Attributes:
        rewards: by a name of one's own, at least one.
        weights: by the same names, finite; what is not named weighs 1.
    """

    rewards: Mapping[str, Reward]
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.rewards:
            raise InputError("reward.rewards must name at least one reward.")
        for name, weight in (self.weights or {}).items():
            if name not in self.rewards:
                raise InputError(
                    f"reward.weights.{name} is the weight of no reward: there are {', '.join(self.rewards)}."
                )
            if not (isinstance(weight, int | float) and math.isfinite(weight)):
                raise InputError(f"reward.weights.{name} must be a finite number, got {weight!r}.")

    def components(self, transition: Transition) -> dict[str, Tensor]:
        """What each reward adds to the sum, (B,) float32 by its name."""
        weights, paid = self.weights or {}, {}
        for name, reward in self.rewards.items():
            try:
                part = reward(transition)
            except MissingField as error:
                raise MissingField(f"in reward.rewards.{name}, {error}") from error
            # What is no such number is handed on as it is, for the environment to refuse.
            weighed = isinstance(part, Tensor) and part.is_floating_point()
            paid[name] = weights.get(name, 1.0) * part if weighed else part
        return paid

    def __call__(self, transition: Transition) -> Tensor:
        return torch.stack(list(self.components(transition).values())).sum(0)
