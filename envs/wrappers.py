"""Other action spaces for the glimpse environments: relative moves, a grid of places, flat actions.

A transform says what actions look like and what they mean; a wrapper of Gymnasium applies it, to one environment or to
a batch::

    env = gymnasium.make("ram/Glimpse-v0", images="glyphs")
    env = TransformAction(env, Grid(rows=5, columns=5), Flat())  # MultiDiscrete([25, 10])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorActionWrapper, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.errors import InputError
from envs.single_env import GlimpseEnv
from envs.validation import describe, read, read_floats, read_integers
from envs.vector_env import GlimpseVectorEnv, check_parts


class ActionTransform(Protocol):
    """How a policy acts instead; written once, for a batch, and used for one row too."""

    def space(self, inner: spaces.Space) -> spaces.Space:
        """The space of one row's new actions, where ``inner`` is that of the old. May refuse with InputError."""
        ...

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> Mapping[str, Any]:
        """New actions of B rows -> old ones, whose values are arrays or tensors (B, ...)."""
        ...


@dataclass(frozen=True)
class RelativeMoves:
    """``location`` becomes a displacement (x, y) in [-max_step, max_step]^2 of the present gaze.

    Longer ones are shortened, x and y apart. Where the gaze would leave [-1, 1]^2 it stops at the border.

    Attributes:
        max_step: in the units of locations, in (0, 2]; 2 is the width of the image.
    """

    max_step: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.max_step <= 2:
            raise InputError(f"RelativeMoves: max_step must lie in (0, 2], got {self.max_step}.")

    def space(self, inner: spaces.Space) -> spaces.Dict:
        return _relocated(inner, spaces.Box(-self.max_step, self.max_step, (2,), np.float32), self)

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Any]:
        check_parts(actions, inner)
        move = read_floats("location", actions["location"], (env.num_envs, 2), env.device)
        return {**actions, "location": env.location + move.clamp(-self.max_step, self.max_step)}


@dataclass(frozen=True)
class Grid:
    """``location`` becomes the number of a cell, row by row from the top left; the gaze goes to the cell's centre.

    The cells part [-1, 1]^2 evenly: the centre of column c is x = (2c + 1) / columns - 1.

    Attributes:
        rows: at least 1.
        columns: at least 1.
    """

    rows: int = 5
    columns: int = 5

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise InputError(f"Grid: rows and columns must be at least 1, got {self.rows} and {self.columns}.")

    def space(self, inner: spaces.Space) -> spaces.Dict:
        return _relocated(inner, spaces.Discrete(self.rows * self.columns), self)

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Any]:
        check_parts(actions, inner)
        cell = read_integers("location", actions["location"], env.num_envs, self.rows * self.columns, env.device)
        x = (2 * (cell % self.columns) + 1) / self.columns - 1
        y = (2 * (cell // self.columns) + 1) / self.rows - 1
        return {**actions, "location": torch.stack([x, y], dim=1)}


@dataclass(frozen=True)
class Flat:
    """The dict of an action becomes one array, its parts in the order location, answer, stop.

    If every part is a number, as after :class:`Grid`, the space is MultiDiscrete([cells, classes]), with stop
    MultiDiscrete([cells, classes, 2]). Otherwise it is one Box: a part that is an array keeps its bounds, and one that
    is a number out of n becomes n scores in [-1, 1], of which the highest is meant.
    """

    def space(self, inner: spaces.Space) -> spaces.MultiDiscrete | spaces.Box:
        parts = _parts(inner)
        if _all_numbers(parts):
            return spaces.MultiDiscrete([int(part.n) for part in parts.values() if isinstance(part, spaces.Discrete)])
        low, high = [], []
        for part in parts.values():
            box = part if isinstance(part, spaces.Box) else spaces.Box(-1, 1, (_width(part),), np.float32)
            low.append(box.low)
            high.append(box.high)
        return spaces.Box(np.concatenate(low), np.concatenate(high), dtype=np.float32)

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Tensor]:
        parts = _parts(inner)
        if _all_numbers(parts):
            numbers = read("action", actions, env.device)
            if numbers.shape != (env.num_envs, len(parts)):
                raise InputError(f"action must be {(env.num_envs, len(parts))} integers, got {describe(numbers)}.")
            return {
                name: read_integers(f"action's {name}", numbers[:, column], env.num_envs, _width(part), env.device)
                for column, (name, part) in enumerate(parts.items())
            }
        widths = [_width(part) for part in parts.values()]
        values = read_floats("action", actions, (env.num_envs, sum(widths)), env.device, infinite=True)
        return {
            name: value.argmax(1) if isinstance(part, spaces.Discrete) else value
            for (name, part), value in zip(parts.items(), values.split(widths, dim=1), strict=True)
        }


class TransformAction(gymnasium.ActionWrapper, RecordConstructorArgs):
    """Gives one glimpse environment another action space.

    Args:
        env: a :class:`GlimpseEnv`, such as ``ram/Glimpse-v0``, itself perhaps wrapped.
        transform: what actions become.
    """

    def __init__(self, env: gymnasium.Env, transform: ActionTransform) -> None:
        RecordConstructorArgs.__init__(self, transform=transform)
        super().__init__(env)
        self.transform = transform
        self.action_space = transform.space(env.action_space)
        self._core = _core(env)

    def action(self, action: Any) -> dict[str, Any]:
        batched = {name: [value] for name, value in action.items()} if isinstance(action, Mapping) else [action]
        inner = self.transform(batched, self.env.action_space, self._core)
        return {name: _numpy(value)[0] for name, value in inner.items()}


class VectorTransformAction(VectorActionWrapper):
    """Gives a batch of glimpse environments another action space.

    Args:
        env: a :class:`GlimpseVectorEnv`, with any output, itself perhaps wrapped.
        transform: what actions become.
    """

    def __init__(self, env: VectorEnv, transform: ActionTransform) -> None:
        super().__init__(env)
        self.transform = transform
        self.single_action_space = transform.space(env.single_action_space)
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self._core = _core(env)

    def actions(self, actions: Any) -> dict[str, Any]:
        inner = self.transform(actions, self.env.single_action_space, self._core)
        return {name: _numpy(value) if self._core.output == "numpy" else value for name, value in inner.items()}


def _core(env: gymnasium.Env | VectorEnv) -> GlimpseVectorEnv:
    core = env.unwrapped
    core = core.vector_env if isinstance(core, GlimpseEnv) else core
    if not isinstance(core, GlimpseVectorEnv):
        raise InputError(f"Only glimpse environments can be given other actions, not {type(core).__name__}.")
    return core


def _numpy(value: Any) -> Any:
    """A tensor as an array; what a transform has left alone stays as it is."""
    return value.cpu().numpy() if isinstance(value, Tensor) else value


def _parts(space: spaces.Space) -> dict[str, spaces.Space]:
    """The parts of a dict of actions, in the order in which they are laid flat."""
    if not isinstance(space, spaces.Dict):
        raise InputError(f"Flat: actions must be a dict of parts, but they are {space} already.")
    return {name: space[name] for name in ("location", "answer", "stop") if name in space.spaces}


def _all_numbers(parts: Mapping[str, spaces.Space]) -> bool:
    return all(isinstance(part, spaces.Discrete) for part in parts.values())


def _width(part: spaces.Space) -> int:
    """How many scores or values a part has."""
    return int(part.n if isinstance(part, spaces.Discrete) else spaces.flatdim(part))


def _relocated(inner: spaces.Space, location: spaces.Space, transform: ActionTransform) -> spaces.Dict:
    """The same parts, but for another ``location``."""
    if not isinstance(inner, spaces.Dict) or not isinstance(inner["location"], spaces.Box):
        raise InputError(f"{type(transform).__name__}: actions must have a location (x, y), but they are {inner}.")
    return spaces.Dict({**inner.spaces, "location": location})
