"""Worlds to look at: the glimpse sensor, the environments on it, their images and rewards."""

import gymnasium

from envs.errors import InputError
from envs.glimpse import GlimpseEnv, GlimpseVectorEnv
from envs.sensor import GlimpseSensor

__all__ = ["GlimpseEnv", "GlimpseSensor", "GlimpseVectorEnv", "InputError"]

gymnasium.register(
    "ram/Glimpse-v0",
    entry_point="envs.glimpse:GlimpseEnv",
    vector_entry_point="envs.glimpse:GlimpseVectorEnv",
)
