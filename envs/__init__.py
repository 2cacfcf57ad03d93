"""Worlds to look at: the glimpse sensor, the environments on it, their images and rewards."""

import gymnasium

from envs.catch import CatchEnv, CatchVectorEnv
from envs.errors import InputError
from envs.glimpse import GlimpseEnv, GlimpseVectorEnv
from envs.sensor import GlimpseSensor, LogPolarSensor
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
    entry_point="envs.glimpse:GlimpseEnv",
    vector_entry_point="envs.glimpse:GlimpseVectorEnv",
)
gymnasium.register(
    "ram/Catch-v0",
    entry_point="envs.catch:CatchEnv",
    vector_entry_point="envs.catch:CatchVectorEnv",
)
