"""Pays what the reward says, once it has been seen to return what a reward must."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.inputs import describe
from envs.rewards import MissingField, Reward, Transition


class Judge:
    """Calls a reward for an environment.

    Args:
        reward: what a step is worth.
        example: a step as it may happen in this world, on which the reward is tried.

    Raises:
        InputError: the reward reads what this world does not give.
    """

    def __init__(self, reward: Reward, example: Transition) -> None:
        self.reward = reward
        self._is_checked = False
        try:
            reward(example)
        except MissingField as error:
            raise InputError(f"{type(reward).__name__} does not fit this world: {error}") from error
        except Exception:  # what else is wrong with it, the first step will tell
            pass

    def __call__(self, transition: Transition, acting: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What a step pays those rows that are ``acting`` (B,), the others 0.

        Returns:
            (B,) float32; and where the reward has parts, what each of them adds, by ``reward/<name>``.

        Raises:
            InputError: the reward, or a part of it, returns something else.
        """
        components = getattr(self.reward, "components", None)
        paid = components(transition) if components else {}
        parts: dict[str, Tensor] = {f"reward/{name}": part for name, part in paid.items()}
        self._check(parts, transition)
        reward = torch.stack(list(parts.values())).sum(0) if parts else self.reward(transition)
        self._check({type(self.reward).__name__: reward}, transition)
        self._is_checked = self._is_checked or bool(transition.last.any())  # some are wrong at the end alone
        return torch.where(acting, reward, 0), {name: torch.where(acting, part, 0) for name, part in parts.items()}

    def _check(self, rewards: dict[str, Any], transition: Transition) -> None:
        """Refuses what a reward must not return; later steps are taken on trust, for looking at numbers takes time."""
        if self._is_checked:
            return
        rows, device = len(transition.location), transition.location.device
        for name, reward in rewards.items():
            if not isinstance(reward, Tensor):
                raise InputError(f"{name} must return a tensor, got {type(reward).__name__}.")
            if reward.shape != (rows,) or reward.dtype != torch.float32 or reward.device != device:
                raise InputError(
                    f"{name} must return ({rows},) float32 on {device}, got {describe(reward)} on {reward.device}."
                )
            if reward.isnan().any():
                raise InputError(f"{name} returned NaN.")
