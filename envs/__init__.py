"""Worlds to look at: the glimpse sensor, the environments on it, their images and rewards."""

import gymnasium

from envs.catch import CatchEnv, CatchVectorEnv
from envs.errors import InputError
from envs.sensor import GlimpseSensor, LogPolarSensor
from envs.single_env import GlimpseEnv
from envs.vector_env import GlimpseVectorEnv
from envs.wrappers import Flat, Grid, RelativeMoves, TransformAction, VectorTransformAction

__all__ = [
    "CatchEnv",
    "CatchVectorEnv",
    "Flat",
    "GlimpseEnv",
    "GlimpseSensor",
    "GlimpseVectorEnv",
    "Grid",
    "InputError",
    "LogPolarSensor",
    "RelativeMoves",
    "TransformAction",
    "VectorTransformAction",
]

gymnasium.register(
    "ram/Glimpse-v0",
    entry_point="envs.single_env:GlimpseEnv",
    vector_entry_point="envs.vector_env:GlimpseVectorEnv",
)
gymnasium.register(
    "ram/Catch-v0",
    entry_point="envs.catch:CatchEnv",
    vector_entry_point="envs.catch:CatchVectorEnv",
)
