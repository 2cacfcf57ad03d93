"""Augmentation on the device: a random shift and a small affine change of every image of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom


@dataclass(frozen=True)
class RandomAffine:
    """Shifts, turns, scales and shears, each drawn uniformly and independently for every image.

    Attributes:
        shift: the largest shift in pixels, along x and along y.
        rotation: the largest turn in degrees, either way.
        scale: the largest relative change of size; 0.1 means 0.9 .. 1.1 times, x and y apart.
        shear: the largest shear in degrees.
    """

    shift: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise InputError(f"augmentation.{field.name} must not be negative, got {getattr(self, field.name)}.")
        if self.scale >= 1 or self.shear >= 90:
            raise InputError("augmentation.scale must be below 1 and augmentation.shear below 90 degrees.")

    def __call__(self, images: Tensor, random: RowRandom) -> Tensor:
        """Changes every image: (B, C, H, W) float -> the same shape, zero where the image ended."""
        height, width = images.shape[-2:]
        draws = random.uniform("augmentation", 6) * 2 - 1
        shift = draws[:, 0:2] * self.shift
        scale = 1 + draws[:, 2:4] * self.scale
        angle = draws[:, 4] * math.radians(self.rotation)
        shear = torch.tan(draws[:, 5] * math.radians(self.shear))
        cos, sin = angle.cos(), angle.sin()
        # From a pixel of the result to a point of the image, about the centre, in half-widths as grid_sample counts.
        x = torch.arange(width, device=images.device) - (width - 1) / 2
        y = torch.arange(height, device=images.device) - (height - 1) / 2
        across = [cos * scale[:, 0], (shear * cos - sin) * scale[:, 0], shift[:, 0]]
        down = [sin * scale[:, 1], (shear * sin + cos) * scale[:, 1], shift[:, 1]]
        points = [
            (by_x[:, None] * x)[:, None, :] + (by_y[:, None] * y + moved[:, None])[:, :, None]
            for by_x, by_y, moved in (across, down)
        ]
        grid = torch.stack([points[0] * (2 / width), points[1] * (2 / height)], dim=-1)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
