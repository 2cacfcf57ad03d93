"""PPO of Stable-Baselines3 and RecurrentPPO of sb3-contrib on ram/Glimpse-v0 (extra ``sb3``).

    python examples/stable_baselines.py               # RecurrentPPO, on one batch of 64 rows
    python examples/stable_baselines.py --memory none # PPO, which has no memory of earlier looks
    python examples/stable_baselines.py --single      # 16 single environments instead; slower, same result

Stable-Baselines3 does not support dict actions, so the actions are flat: MultiDiscrete([9, 10]), a cell of a grid of
locations and a class.
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from envs import FlattenAction, GlimpseSensor, GlimpseVectorEnv, GridAction, VectorFlattenAction, VectorGridAction
from envs.images.glyphs import Glyphs
from envs.stable_baselines import GlimpseVecEnv

# Undistorted digits, with a window as large as the image.
OPTIONS: dict[str, Any] = {
    "images": Glyphs(size=16, num_train=2000, height=(0.8, 0.8), rotation=0, shear=0, stretch=0, elastic=0, noise=0),
    "sensor": GlimpseSensor(patch_size=16),
    "num_glimpses": 2,
    "first_location": "center",
}


def make_batch() -> VecEnv:
    """Returns one environment of 64 rows."""
    env = GlimpseVectorEnv(**OPTIONS, num_envs=64, autoreset_mode="SameStep")
    return VecMonitor(GlimpseVecEnv(VectorFlattenAction(VectorGridAction(env, rows=3, columns=3))))


def make_singles() -> VecEnv:
    """Returns 16 environments of one row."""

    def wrap(env: gymnasium.Env) -> gymnasium.Env:
        return FlattenAction(GridAction(env, rows=3, columns=3))

    return make_vec_env("envs:ram/Glimpse-v0", n_envs=16, env_kwargs=OPTIONS, wrapper_class=wrap)


class Progress(BaseCallback):
    """Prints the accuracy of the last 1,000 episodes."""

    def _on_training_start(self) -> None:
        self.start = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps % 4096 == 0:
            accuracy = 100 * np.mean([episode["r"] for episode in self.model.ep_info_buffer])
            seconds = time.perf_counter() - self.start
            print(f"{self.num_timesteps:7d} steps  accuracy {accuracy:5.1f} %  {seconds:4.0f} s", flush=True)


def main() -> None:
    """Parses the options and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", choices=["lstm", "none"], default="lstm")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # faster for small matrices
    env = make_singles() if options.single else make_batch()
    settings: dict[str, Any] = {
        "n_steps": 1024 // env.num_envs,
        "batch_size": 128,
        "n_epochs": 8,
        "learning_rate": 1e-3,
        "gamma": 1.0,
        "ent_coef": 0.01,
        "stats_window_size": 1000,
        "seed": options.seed,
        "device": "cpu",
    }
    if options.memory == "lstm":
        network = {"lstm_hidden_size": 64}
        model = RecurrentPPO("MultiInputLstmPolicy", env, policy_kwargs=network, **settings)
    else:
        model = PPO("MultiInputPolicy", env, **settings)
    model.learn(options.steps, callback=Progress())


if __name__ == "__main__":
    main()
