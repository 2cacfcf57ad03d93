"""Adapter of the batched glimpse environment to the VecEnv of Stable-Baselines3 (extra ``sb3``)."""

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
    """A :class:`GlimpseVectorEnv` with numpy output and same-step autoreset, as a VecEnv of Stable-Baselines3.

    Its algorithms need flat actions, and ``"MultiInputPolicy"`` for dict observations::

        env = GlimpseVectorEnv("glyphs", num_envs=64, autoreset_mode="SameStep")
        env = VectorFlattenAction(VectorGridAction(env, rows=5, columns=5))
        PPO("MultiInputPolicy", VecMonitor(GlimpseVecEnv(env)))

    The ``info`` of a row holds ``index``, ``label`` and ``target`` of the scene that the step was made in, as far as
    there are any, and at the end of an episode ``terminal_observation``. ``seed`` and ``set_options`` take effect at
    the next ``reset``. All rows share one environment: ``get_attr`` reads, ``set_attr`` sets and ``env_method`` calls
    it once, whatever the indices.

    Args:
        env: the environment, possibly with action wrappers.

    Raises:
        InputError: it is another environment, or it has another output or autoreset mode.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv) -> None:
        core = env.unwrapped
        if not isinstance(core, GlimpseVectorEnv):
            raise InputError(f"GlimpseVecEnv takes a GlimpseVectorEnv, possibly wrapped, not {type(core).__name__}.")
        if core.output != "numpy" or core.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise InputError("GlimpseVecEnv needs an environment with output='numpy' and autoreset_mode='SameStep'.")
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> dict[str, np.ndarray]:
        # The environment itself derives the seeds of the rows from that of the first.
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
        return [self._find(attr_name)] * len(self._get_indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.env.unwrapped, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [self._find(method_name)(*method_args, **method_kwargs)] * len(self._get_indices(indices))

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * len(self._get_indices(indices))

    def _find(self, name: str) -> Any:
        return getattr(self.env if hasattr(self.env, name) else self.env.unwrapped, name)


def _by_row(info: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    """Returns one dict for each row from the info of a batch."""
    by_row: list[dict[str, Any]] = [{} for _ in range(rows)]
    for name, values in info.items():
        if f"_{name}" in info and not name.startswith("final_"):
            for row in info[f"_{name}"].nonzero()[0].tolist():
                by_row[row][name] = values[row]
    return by_row
