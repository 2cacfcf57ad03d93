"""Calls a reward function and validates what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import ismethod
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import MissingField, Reward, Transition
from envs.validation import shape_and_dtype


class CheckedReward:
    """Computes the rewards of an environment's rows with a user's reward, and checks them.

    Args:
        reward: the reward of one step.
        example: a transition with the fields of this environment, on which the reward is tried.

    Raises:
        InputError: it is not a reward, or it reads a field that this environment does not give.
    """

    def __init__(self, reward: Reward, example: Transition) -> None:
        if isinstance(reward, type) or not callable(reward):
            raise InputError(f"The reward must be an instance that can be called with a transition, got {reward!r}.")
        self.reward = reward
        function = reward.func if isinstance(reward, partial) else reward
        self.name: str = getattr(function, "__name__", type(function).__name__)
        components = getattr(reward, "components", None)
        self._components = components if ismethod(components) else None
        self._is_checked = False
        try:
            reward(example)
        except MissingField as error:
            raise InputError(f"{self.name} does not fit this environment: {error}") from error
        except Exception:  # the first step reports any other error
            pass

    def __call__(self, transition: Transition, active: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the rewards of a step, 0 in rows that are not ``active`` (B,).

        Returns:
            The rewards (B,) float32; and if the reward has components, each of them by ``reward/<name>``, (B,).

        Raises:
            InputError: the reward or a component has a wrong type, shape, dtype or device, or is not finite.
        """
        components = self._components(transition) if self._components else {}
        if not isinstance(components, Mapping):
            raise InputError(f"{self.name}.components must return a dict of tensors, got {type(components).__name__}.")
        components = {f"reward/{name}": component for name, component in components.items()}
        self._check(components, transition, active)
        reward = torch.stack(list(components.values())).sum(0) if components else self.reward(transition)
        self._check({self.name: reward}, transition, active)
        self._is_checked = self._is_checked or bool(transition.last.any())  # some are wrong only at the end
        return torch.where(active, reward, 0), {
            name: torch.where(active, component, 0) for name, component in components.items()
        }

    def _check(self, rewards: dict[str, Any], transition: Transition, active: Tensor) -> None:
        """Refuses invalid rewards; on an accelerator, where the check has to wait, only in the first episode."""
        rows, device = len(transition.location), transition.location.device
        if self._is_checked and device.type != "cpu":
            return
        for name, reward in rewards.items():
            if not isinstance(reward, Tensor):
                raise InputError(f"{name} must return a tensor, got {type(reward).__name__}.")
            if reward.shape != (rows,) or reward.dtype != torch.float32 or reward.device != device:
                raise InputError(
                    f"{name} must return ({rows},) float32 on {device}, "
                    f"got {shape_and_dtype(reward)} on {reward.device}."
                )
            if not (reward.isfinite() | ~active).all():
                raise InputError(f"{name} returned NaN or infinity.")
