"""Glimpse environments for Gymnasium: sensors, environments, action wrappers, images and rewards."""

import gymnasium

from envs.catch import CatchEnv, CatchVectorEnv
from envs.errors import InputError
from envs.sensor import GlimpseSensor, LogPolarSensor
from envs.single_env import GlimpseEnv
from envs.vector_env import GlimpseVectorEnv
from envs.wrappers import (
    FlattenAction,
    GridAction,
    RelativeLocation,
    VectorFlattenAction,
    VectorGridAction,
    VectorRelativeLocation,
)

__all__ = [
    "CatchEnv",
    "CatchVectorEnv",
    "FlattenAction",
    "GlimpseEnv",
    "GlimpseSensor",
    "GlimpseVectorEnv",
    "GridAction",
    "InputError",
    "LogPolarSensor",
    "RelativeLocation",
    "VectorFlattenAction",
    "VectorGridAction",
    "VectorRelativeLocation",
]

gymnasium.register(
    "ram/Glimpse-v0", entry_point="envs.single_env:GlimpseEnv", vector_entry_point="envs.vector_env:GlimpseVectorEnv"
)
gymnasium.register("ram/Catch-v0", entry_point="envs.catch:CatchEnv", vector_entry_point="envs.catch:CatchVectorEnv")
