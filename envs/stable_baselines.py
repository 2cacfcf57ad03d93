"""Glimpse environments for Stable-Baselines3 (extra ``sb3``): a whole batch is one VecEnv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from envs.errors import InputError
from envs.vector_env import GlimpseVectorEnv


class GlimpseVecEnv(VecEnv):
    """A :class:`GlimpseVectorEnv` with numpy output and same-step autoreset, as Stable-Baselines3 wants it.

    Its algorithms take flat actions and dict observations, hence ``"MultiInputPolicy"``::

        env = GlimpseVectorEnv("glyphs", num_envs=64, autoreset_mode="SameStep")
        env = VectorTransformAction(VectorTransformAction(env, Grid(5, 5)), Flat())
        PPO("MultiInputPolicy", VecMonitor(GlimpseVecEnv(env)))

    The ``info`` of a row holds ``index`` and ``label`` of the scene that the step was made in, and at an episode's end
    ``terminal_observation``. ``seed`` and ``set_options`` reach the environment at the next ``reset``. The rows share
    one environment: ``get_attr`` reads, ``set_attr`` sets and ``env_method`` calls that one, once.

    Args:
        env: the environment, perhaps with other actions.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv) -> None:
        core = env.unwrapped
        if not isinstance(core, GlimpseVectorEnv):
            raise InputError(f"GlimpseVecEnv takes a GlimpseVectorEnv, perhaps wrapped, not {type(core).__name__}.")
        if core.output != "numpy" or core.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise InputError("GlimpseVecEnv needs an environment with output='numpy' and autoreset_mode='SameStep'.")
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> dict[str, np.ndarray]:
        # The environment gives row i the seed + i itself, where the split is one in which rows draw apart.
        options = {name: [row[name] for row in self._options] for name in self._options[0]}
        observation, info = self.env.reset(seed=self._seeds[0], options=options)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = _by_row(info, self.num_envs)
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        done = terminated | truncated
        infos = _by_row(info, self.num_envs)
        if done.any():
            final = _by_row(info["final_info"], self.num_envs)
            for row in done.nonzero()[0].tolist():
                self.reset_infos[row] = infos[row]
                infos[row] = final[row] | {
                    "terminal_observation": info["final_obs"][row],
                    "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                }
        return observation, reward, done, infos

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        images: Any = self.env.render()
        return images or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [self._find(attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.env.unwrapped, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [self._find(method_name)(*method_args, **method_kwargs)] * self._count(indices)

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * self._count(indices)

    def _find(self, name: str) -> Any:
        return getattr(self.env if hasattr(self.env, name) else self.env.unwrapped, name)

    def _count(self, indices: Any) -> int:
        return len(list(self._get_indices(indices)))


def _by_row(info: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    """One dict a row, of what a batch's info holds about it."""
    by_row: list[dict[str, Any]] = [{} for _ in range(rows)]
    for name, values in info.items():
        if f"_{name}" in info and not name.startswith("final_"):
            for row in info[f"_{name}"].nonzero()[0].tolist():
                by_row[row][name] = values[row]
    return by_row
