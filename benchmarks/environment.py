"""Times environment steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import torch

from benchmarks.timing import NUM_GLIMPSES, NUM_ROWS, alternate, show
from envs import GlimpseEnv, GlimpseVectorEnv
from envs.images import ImageSet


def episode(env: gymnasium.vector.VectorEnv, as_tensors: bool = False) -> Callable[[], None]:
    """Returns a function that runs one episode in every row, including the step that starts it."""
    env.reset(seed=0)
    actions: dict[str, Any] = {
        "location": torch.rand(env.num_envs, 2) * 2 - 1,
        "answer": torch.zeros(env.num_envs, dtype=torch.int64),
    }
    if not as_tensors:
        actions = {name: value.numpy() for name, value in actions.items()}

    def run() -> None:
        for _ in range(NUM_GLIMPSES + 1):
            env.step(actions)

    return run


def time_environment(images: ImageSet, seconds: float, least: int) -> None:
    """Measures environment steps per second for several numbers of rows."""
    rows = []
    for count in (1, 16, 256, NUM_ROWS, 8192, 65_536):
        build = partial(GlimpseVectorEnv, images=images, num_envs=count, num_glimpses=NUM_GLIMPSES)
        runs = {"torch": episode(build(output="torch"), as_tensors=True), "numpy": episode(build())}
        single = partial(GlimpseEnv, images=images, num_glimpses=NUM_GLIMPSES)
        plain = min(count, NUM_ROWS)  # more rows do not make it faster
        runs["plain"] = episode(gymnasium.vector.SyncVectorEnv([single] * plain))
        spent = alternate(runs, seconds, least if count <= NUM_ROWS else 1)
        sizes = {"torch": count, "numpy": count, "plain": plain}
        speeds = {name: sizes[name] * (NUM_GLIMPSES + 1) / value for name, value in spent.items()}
        ratios = [f"{speeds[name] / speeds['plain']:.1f}" for name in ("torch", "numpy")]
        rows.append([f"{count:,}", *(f"{value:,.0f}" for value in speeds.values()), *ratios])
    show(
        "Environment",
        ["rows", "torch (steps/s)", "numpy (steps/s)", "SyncVectorEnv (steps/s)", "torch faster by", "numpy faster by"],
        rows,
        f"Steps per second, summed over the rows, of GlimpseVectorEnv with torch and with numpy output, and of "
        f"gymnasium.vector.SyncVectorEnv\nover at most {NUM_ROWS:,} GlimpseEnv. One step in {NUM_GLIMPSES + 1} starts "
        "an episode.",
    )
