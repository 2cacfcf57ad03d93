"""Pays what the reward says, once it has been seen to return what a reward must."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import ismethod
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.rewards import MissingField, Reward, Transition
from envs.validation import describe


class CheckedReward:
    """Calls a reward for an environment.

    Args:
        reward: what a step is worth.
        example: a step as it may happen in this world, on which the reward is tried.

    Raises:
        InputError: it is no reward, or it reads what this world does not give.
    """

    def __init__(self, reward: Reward, example: Transition) -> None:
        if isinstance(reward, type) or not callable(reward):
            raise InputError(f"A reward is called with a transition, but {reward!r} is none: give an instance of one.")
        self.reward = reward
        called = reward.func if isinstance(reward, partial) else reward
        self.name: str = getattr(called, "__name__", type(called).__name__)
        components = getattr(reward, "components", None)
        self._components = components if ismethod(components) else None
        self._is_checked = False
        try:
            reward(example)
        except MissingField as error:
            raise InputError(f"{self.name} does not fit this world: {error}") from error
        except Exception:  # what else is wrong with it, the first step will tell
            pass

    def __call__(self, transition: Transition, active: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What a step pays those rows that are ``acting`` (B,), the others 0.

        Returns:
            (B,) float32; and where the reward has parts, what each of them adds, by ``reward/<name>``.

        Raises:
            InputError: the reward, or a part of it, returns something else.
        """
        paid = self._components(transition) if self._components else {}
        if not isinstance(paid, Mapping):
            raise InputError(f"{self.name}.components must return a dict of tensors, got {type(paid).__name__}.")
        parts: dict[str, Tensor] = {f"reward/{name}": part for name, part in paid.items()}
        self._check(parts, transition, active)
        reward = torch.stack(list(parts.values())).sum(0) if parts else self.reward(transition)
        self._check({self.name: reward}, transition, active)
        self._is_checked = self._is_checked or bool(transition.last.any())  # some are wrong at the end alone
        return torch.where(active, reward, 0), {name: torch.where(active, part, 0) for name, part in parts.items()}

    def _check(self, rewards: dict[str, Any], transition: Transition, active: Tensor) -> None:
        """Refuses what a reward must not return; on an accelerator, where a look at numbers has to wait, at first."""
        rows, device = len(transition.location), transition.location.device
        if self._is_checked and device.type != "cpu":
            return
        for name, reward in rewards.items():
            if not isinstance(reward, Tensor):
                raise InputError(f"{name} must return a tensor, got {type(reward).__name__}.")
            if reward.shape != (rows,) or reward.dtype != torch.float32 or reward.device != device:
                raise InputError(
                    f"{name} must return ({rows},) float32 on {device}, got {describe(reward)} on {reward.device}."
                )
            if not (reward.isfinite() | ~active).all():
                raise InputError(f"{name} returned NaN or infinity.")
