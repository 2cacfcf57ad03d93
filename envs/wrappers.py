"""Action wrappers of the glimpse environments: relative locations, a grid of locations, flat actions.

Each wraps a single environment, and its vector version a batch; they can be combined::

    env = gymnasium.make("envs:ram/Glimpse-v0", images="glyphs")
    env = FlattenAction(GridAction(env, rows=5, columns=5))  # MultiDiscrete([25, 10])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorActionWrapper, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.errors import InputError
from envs.interface import check_action_keys
from envs.single_env import GlimpseEnv
from envs.validation import parse_floats, parse_integers, parse_tensor, shape_and_dtype
from envs.vector_env import GlimpseVectorEnv


@dataclass(frozen=True)
class _RelativeLocation:
    max_step: float

    def __post_init__(self) -> None:
        if not 0 < self.max_step <= 2:
            raise InputError(f"RelativeLocation: max_step must be in (0, 2], got {self.max_step}.")

    def space(self, inner: spaces.Space) -> spaces.Dict:
        step = spaces.Box(-self.max_step, self.max_step, (2,), np.float32)
        return _replace_location("RelativeLocation", inner, step)

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Any]:
        check_action_keys(actions, inner)
        step = parse_floats("location", actions["location"], (env.num_envs, 2), env.device)
        return {**actions, "location": env.location + step.clamp(-self.max_step, self.max_step)}


@dataclass(frozen=True)
class _GridAction:
    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise InputError(f"GridAction: rows and columns must be at least 1, got {self.rows} and {self.columns}.")

    def space(self, inner: spaces.Space) -> spaces.Dict:
        return _replace_location("GridAction", inner, spaces.Discrete(self.rows * self.columns))

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Any]:
        check_action_keys(actions, inner)
        cell = parse_integers("location", actions["location"], env.num_envs, self.rows * self.columns, env.device)
        x = (2 * (cell % self.columns) + 1) / self.columns - 1
        y = (2 * (cell // self.columns) + 1) / self.rows - 1
        return {**actions, "location": torch.stack([x, y], dim=1)}


@dataclass(frozen=True)
class _FlattenAction:
    def space(self, inner: spaces.Space) -> spaces.MultiDiscrete | spaces.Box:
        parts = _ordered_parts(inner)
        if _all_discrete(parts):
            return spaces.MultiDiscrete([_size(part) for part in parts.values()])
        boxes = [part if isinstance(part, spaces.Box) else spaces.Box(-1, 1, (_size(part),)) for part in parts.values()]
        low, high = (np.concatenate([getattr(box, bound) for box in boxes]) for bound in ("low", "high"))
        return spaces.Box(low, high, dtype=np.float32)

    def __call__(self, actions: Any, inner: spaces.Space, env: GlimpseVectorEnv) -> dict[str, Any]:
        parts, rows = _ordered_parts(inner), env.num_envs
        if _all_discrete(parts):
            values = parse_tensor("action", actions, env.device)
            if values.shape != (rows, len(parts)):
                raise InputError(f"action must be {(rows, len(parts))} integers, got {shape_and_dtype(values)}.")
            return {
                name: parse_integers(f"action's {name}", values[:, column], rows, _size(part), env.device)
                for column, (name, part) in enumerate(parts.items())
            }
        sizes = [_size(part) for part in parts.values()]
        values = parse_floats("action", actions, (rows, sum(sizes)), env.device, allow_infinite=True)
        return {
            name: value.argmax(1) if isinstance(part, spaces.Discrete) else value
            for (name, part), value in zip(parts.items(), values.split(sizes, dim=1), strict=True)
        }


_Transform = _RelativeLocation | _GridAction | _FlattenAction
"""A transformation of actions, which the single and the vector version of a wrapper share.

Its ``space(inner)`` is the space of one row's new actions, where ``inner`` is that of the wrapped environment. A call
returns the actions (B, ...) of the wrapped environment for new actions of B rows.
"""


class _SingleWrapper(gymnasium.ActionWrapper, RecordConstructorArgs):
    """Applies a transformation to one environment; records its arguments in the spec of the environment."""

    def __init__(self, env: gymnasium.Env, transform: _Transform, **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        gymnasium.ActionWrapper.__init__(self, env)
        self.action_space = transform.space(env.action_space)
        self._transform = transform
        self._vector_env = _find_vector_env(env)

    def action(self, action: Any) -> dict[str, Any]:
        batched = {name: [value] for name, value in action.items()} if isinstance(action, Mapping) else [action]
        inner = self._transform(batched, self.env.action_space, self._vector_env)
        return {name: _to_numpy(value)[0] for name, value in inner.items()}


class _VectorWrapper(VectorActionWrapper):
    """Applies a transformation to a batch of environments."""

    def __init__(self, env: VectorEnv, transform: _Transform) -> None:
        super().__init__(env)
        self.single_action_space = transform.space(env.single_action_space)
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self._transform = transform
        self._vector_env = _find_vector_env(env)

    def actions(self, actions: Any) -> dict[str, Any]:
        inner = self._transform(actions, self.env.single_action_space, self._vector_env)
        return inner if self._vector_env.output == "torch" else {n: _to_numpy(value) for n, value in inner.items()}


class RelativeLocation(_SingleWrapper):
    """Replaces ``location`` in the action by a step (x, y) in [-max_step, max_step]^2 from the current location.

    Longer steps are clamped, x and y separately. The new location is clamped to [-1, 1]^2.

    Args:
        env: a :class:`GlimpseEnv`, such as ``ram/Glimpse-v0``, possibly wrapped.
        max_step: in the units of locations, in (0, 2]; 2 is the width of the image.

    Raises:
        InputError: the step is out of range, or the action has no location (x, y).
    """

    def __init__(self, env: gymnasium.Env, max_step: float = 0.5) -> None:
        super().__init__(env, _RelativeLocation(max_step), max_step=max_step)


class GridAction(_SingleWrapper):
    """Replaces ``location`` in the action by the index of a cell, row by row from the top left.

    The cells divide [-1, 1]^2 evenly, and the new location is the center of the cell: of column c, it is
    x = (2c + 1) / columns - 1.

    Args:
        env: a :class:`GlimpseEnv`, such as ``ram/Glimpse-v0``, possibly wrapped.
        rows: of the grid, at least 1.
        columns: of the grid, at least 1.

    Raises:
        InputError: rows or columns are out of range, or the action has no location (x, y).
    """

    def __init__(self, env: gymnasium.Env, rows: int = 7, columns: int = 7) -> None:
        super().__init__(env, _GridAction(rows, columns), rows=rows, columns=columns)


class FlattenAction(_SingleWrapper):
    """Replaces the dict of an action by one array, its parts in the order location, answer, stop.

    If every part is discrete, as after :class:`GridAction`, the space is MultiDiscrete([cells, classes]), with stop
    MultiDiscrete([cells, classes, 2]). Otherwise it is one Box: continuous parts keep their bounds, and a discrete part
    of n values becomes n scores in [-1, 1], of which the highest is chosen.

    Args:
        env: a :class:`GlimpseEnv`, such as ``ram/Glimpse-v0``, possibly wrapped.

    Raises:
        InputError: the action is not a dict.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, _FlattenAction())


class VectorRelativeLocation(_VectorWrapper):
    """Vector version of :class:`RelativeLocation`, for a :class:`GlimpseVectorEnv` with any output."""

    def __init__(self, env: VectorEnv, max_step: float = 0.5) -> None:
        super().__init__(env, _RelativeLocation(max_step))


class VectorGridAction(_VectorWrapper):
    """Vector version of :class:`GridAction`, for a :class:`GlimpseVectorEnv` with any output."""

    def __init__(self, env: VectorEnv, rows: int = 7, columns: int = 7) -> None:
        super().__init__(env, _GridAction(rows, columns))


class VectorFlattenAction(_VectorWrapper):
    """Vector version of :class:`FlattenAction`, for a :class:`GlimpseVectorEnv` with any output."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env, _FlattenAction())


def _find_vector_env(env: gymnasium.Env | VectorEnv) -> GlimpseVectorEnv:
    """Returns the batched environment that does the work of ``env``."""
    inner = env.unwrapped
    inner = inner.vector_env if isinstance(inner, GlimpseEnv) else inner
    if not isinstance(inner, GlimpseVectorEnv):
        raise InputError(f"The action wrappers need a glimpse environment, not {type(inner).__name__}.")
    return inner


def _to_numpy(value: Any) -> Any:
    """Returns a tensor as an array; parts that the transformation does not change stay as they are."""
    return value.cpu().numpy() if isinstance(value, Tensor) else value


def _ordered_parts(space: spaces.Space) -> dict[str, spaces.Space]:
    """Returns the parts of a dict of actions in the order of the flat action."""
    if not isinstance(space, spaces.Dict):
        raise InputError(f"FlattenAction: actions must be a dict of parts, but their space is {space}.")
    return {name: space[name] for name in ("location", "answer", "stop") if name in space.spaces}


def _all_discrete(parts: Mapping[str, spaces.Space]) -> bool:
    return all(isinstance(part, spaces.Discrete) for part in parts.values())


def _size(part: spaces.Space) -> int:
    """Returns the number of values of a discrete part, or of elements of an array."""
    return int(part.n if isinstance(part, spaces.Discrete) else spaces.flatdim(part))


def _replace_location(wrapper: str, inner: spaces.Space, location: spaces.Space) -> spaces.Dict:
    """Returns the space with another ``location``."""
    if not isinstance(inner, spaces.Dict) or not isinstance(inner["location"], spaces.Box):
        raise InputError(f"{wrapper}: actions must have a location (x, y), but their space is {inner}.")
    return spaces.Dict({**inner.spaces, "location": location})
