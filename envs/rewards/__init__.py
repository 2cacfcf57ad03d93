"""Interface of rewards: a reward is called with a :class:`Transition` and returns one number for each row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from inspect import ismethod
from typing import Any, Protocol

import torch
from torch import Tensor

from envs.errors import InputError
from envs.row_masks import RowMasks
from envs.validation import shape_and_dtype

_REMEDIES = {
    "log_probs": "set env.answer=log_probs",
    "previous_log_probs": "set env.answer=log_probs",
    "answer": "set env.answer=label",
    "label": "choose scenes with labels, such as scenes=none",
    "target": "choose scenes with a target object, such as scenes=locate",
    "goal": "choose scenes with a goal class, such as scenes=search",
    "caught": "choose scenes=catch",
}


class MissingField(InputError, AttributeError):
    """Raised when a reward reads a field of the transition that its environment does not provide."""


class Transition:
    """The fields of one step of B rows that a reward may read.

    The fields from ``location`` to ``last`` are always present; the others depend on the scenes and on ``env.answer``.
    Reading an absent field raises :class:`MissingField`, which is checked when the environment is constructed.

    Locations and boxes are in units of the image: -1 and 1 are the centers of its border pixels. A box is (left, top,
    right, bottom), given by the centers of its corner pixels.

    Attributes:
        location: (B, 2) float32, the location chosen by the action, clamped to [-1, 1]; in the last step the previous
            one, because no glimpse follows.
        previous_location: (B, 2) float32, the location of the glimpse before the action.
        step: (B,) int64, the index of the action in the episode, from 0.
        stop: (B,) bool, whether the action ends the episode; False without ``env.stop``.
        due: (B,) bool, True where an answer is due at this step.
        last: (B,) bool, whether the episode ends with this step.
        answer: (B,) int64, the class answered; the most probable class with ``env.answer=log_probs``. With
            ``env.answer=box`` (B, 4) float32, the box answered.
        log_probs: (B, K) float32, the log-probabilities of the classes; with ``env.answer=log_probs``.
        previous_log_probs: (B, K) float32, those of the previous step; uniform before the first step, and with several
            answers before the first step of each.
        label: (B,) int64, the class of the answer that is due now or next.
        target: (B, 4) float32, the box of the target object.
        goal: (B,) int64, the class to search for, which the agent observes.
        boxes: (B, N, 4) float32, the boxes of all objects of the scene.
        labels: (B, N) int64, their classes.
        present: (B, N) bool, which of the N objects the scene has.
        caught: (B,) bool, in Catch, whether the ball has landed on the paddle in this step. Catch also has ``ball``,
            ``speed``, ``paddle`` and ``over``; see :class:`envs.catch.CatchScenes`.
    """

    def __init__(self, **fields: Tensor) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Tensor:
        fields = ", ".join(sorted(self.__dict__))
        remedy = _REMEDIES.get(name, "choose other scenes, or another reward")
        raise MissingField(f"transition.{name} is not available here ({remedy}); the available fields are {fields}.")


class Reward(Protocol):
    """A reward function.

    A reward that is a sum may have a method ``components(transition)`` that returns its summands by name, (B,) float32
    each. The environment then calls that method instead, and reports every summand as ``info["reward/<name>"]``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        """Returns the rewards (B,) float32. Those of rows whose episode has ended are ignored."""


class CheckedReward:
    """Computes the rewards of an environment's rows with a user's reward, and checks them.

    Args:
        reward: the reward of one step.
        example: a transition with the fields of this environment, on which the reward is tried.
        masks: the operations on masks of the environment's rows.

    Raises:
        InputError: it is not a reward, or it reads a field that this environment does not provide.
    """

    def __init__(self, reward: Reward, example: Transition, masks: RowMasks) -> None:
        if isinstance(reward, type) or not callable(reward):
            raise InputError(f"The reward must be an instance that can be called with a transition, got {reward!r}.")
        self.reward = reward
        function = reward.func if isinstance(reward, partial) else reward
        self.name: str = getattr(function, "__name__", type(function).__name__)
        components = getattr(reward, "components", None)
        self._components = components if ismethod(components) else None
        self._masks, self._zeros = masks, torch.zeros_like(masks.none, dtype=torch.float32)
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
        for name, component in components.items():
            self._check(name, component, active)
        reward = torch.stack(list(components.values())).sum(0) if components else self.reward(transition)
        self._check(self.name, reward, active)
        self._is_checked = self._is_checked or self._masks.any(transition.last)  # some are wrong only at the end
        where = self._masks.where
        return where(active, reward, self._zeros), {
            name: where(active, component, self._zeros) for name, component in components.items()
        }

    def _check(self, name: str, reward: Any, active: Tensor) -> None:
        """Refuses an invalid reward; on an accelerator only in the first episode, since the check synchronizes."""
        shape, device = self._zeros.shape, self._zeros.device
        if self._is_checked and device.type != "cpu":
            return
        if not isinstance(reward, Tensor):
            raise InputError(f"{name} must return a tensor, got {type(reward).__name__}.")
        if reward.shape != shape or reward.dtype != torch.float32 or reward.device != device:
            raise InputError(
                f"{name} must return ({len(self._zeros)},) float32 on {device}, "
                f"got {shape_and_dtype(reward)} on {reward.device}."
            )
        # The sum is finite if all numbers are, unless they are so large that it overflows.
        if not math.isfinite(reward.sum()) and not (reward.isfinite() | ~active).all():
            raise InputError(f"{name} returned NaN or infinity.")
