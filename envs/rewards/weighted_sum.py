"""A weighted sum of rewards."""

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
    """r = sum_i w_i r_i. The environment reports every summand w_i r_i as ``info["reward/<name>"]``.

    Attributes:
        rewards: the rewards by name, at least one.
        weights: finite weights by the same names; 1 where a name is absent.
    """

    rewards: Mapping[str, Reward]
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.rewards:
            raise InputError("reward.rewards must name at least one reward.")
        for name, weight in (self.weights or {}).items():
            if name not in self.rewards:
                raise InputError(f"reward.weights.{name} matches no reward: there are {', '.join(self.rewards)}.")
            if not (isinstance(weight, int | float) and math.isfinite(weight)):
                raise InputError(f"reward.weights.{name} must be a finite number, got {weight!r}.")

    def components(self, transition: Transition) -> dict[str, Tensor]:
        """Returns the weighted rewards by name, (B,) float32 each."""
        weights, components = self.weights or {}, {}
        for name, reward in self.rewards.items():
            try:
                value = reward(transition)
            except MissingField as error:
                raise MissingField(f"in reward.rewards.{name}, {error}") from error
            # The environment refuses invalid values, so they are passed on unchanged.
            is_valid = isinstance(value, Tensor) and value.is_floating_point()
            components[name] = weights.get(name, 1.0) * value if is_valid else value
        return components

    def __call__(self, transition: Transition) -> Tensor:
        return torch.stack(list(self.components(transition).values())).sum(0)
