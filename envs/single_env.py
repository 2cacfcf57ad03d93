"""The glimpse environment of one image: a one-row numpy view of the batched environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from envs.interface import check_action_keys
from envs.vector_env import GlimpseVectorEnv


class GlimpseEnv(gymnasium.Env):
    """One image, observed through glimpses: a view of :class:`GlimpseVectorEnv` with one row, in numpy.

    Takes the arguments of the vector environment except ``num_envs``, ``rollouts_per_image``, ``output`` and
    ``autoreset_mode``. Observations, actions and reset options have no batch dimension.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.vector_env = GlimpseVectorEnv(
            num_envs=1, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode, **arguments
        )
        self.metadata = {**self.metadata, "render_fps": self.vector_env.metadata["render_fps"]}
        self.render_mode = render_mode
        self.observation_space = self.vector_env.single_observation_space
        self.action_space = self.vector_env.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode; see the vector environment for the options."""
        super().reset(seed=seed)
        batched = {name: [value] for name, value in (options or {}).items() if value is not None}
        observation, info = self.vector_env.reset(seed=seed, options=batched)
        return _first_row(observation), _first_row(info)

    def step(self, action: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Moves to the action's location, clamped to [-1, 1], and rewards its answer."""
        check_action_keys(action, self.action_space)
        batched = {name: [value] for name, value in action.items()}
        observation, reward, terminated, truncated, info = self.vector_env.step(batched)
        return _first_row(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first_row(info)

    def render(self) -> np.ndarray | None:
        """Returns the (H, W, 3) uint8 picture of :meth:`GlimpseVectorEnv.render`."""
        frames = self.vector_env.render()
        return None if frames is None else frames[0]


def _first_row(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the first row, without the masks of vector infos."""
    return cast(dict[str, Any], {name: value[0] for name, value in values.items() if not name.startswith("_")})
