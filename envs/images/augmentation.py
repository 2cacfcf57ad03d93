"""Augmentation on the device: every image of a batch is moved, bent, mirrored and lit at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom

_NODES = 5  # a side
_MIRRORED: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda images: images.mT,
    lambda images: images.flip(-1),
    lambda images: images.flip(-2),
)


@dataclass(frozen=True)
class RandomWarp:
    """Changes of place, shape and light, drawn independently for every image.

    Shift, turn, scale and shear are uniform. The bend is an elastic distortion (Simard, Steinkraus and Platt 2003): a
    displacement in x and y of every pixel, smooth between 5 x 5 normal ones.

    Attributes:
        shift: the largest shift in pixels, along x and along y.
        rotation: the largest turn in degrees, either way.
        scale: the largest relative change of size; 0.1 means 0.9 .. 1.1 times, x and y apart.
        shear: the largest shear in degrees.
        bend: the standard deviation of the displacement in pixels.
        symmetries: mirror and turn by quarters too, so that every image comes in eight ways: for what has no up.
        light: the largest relative change of brightness, of every channel apart.
    """

    shift: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    bend: float = 0.0
    symmetries: bool = False
    light: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise InputError(f"augmentation.{field.name} must not be negative, got {getattr(self, field.name)}.")
        if max(self.scale, self.light) >= 1 or self.shear >= 90:
            raise InputError(
                "augmentation.scale and augmentation.light must be below 1, and augmentation.shear below 90 degrees."
            )

    def __call__(self, images: Tensor, random: RowRandom) -> Tensor:
        """Changes every image: (B, C, H, W) float in [0, 1] -> the same shape, zero where the image ended.

        Raises:
            InputError: if images are to be turned by quarters and are not square.
        """
        height, width = images.shape[-2:]
        if self.symmetries:
            if height != width:
                raise InputError(f"augmentation.symmetries needs square images, got {height} x {width} pixels.")
            for coin, changed in zip(random.uniform("augmentation/symmetries", 3).T, _MIRRORED, strict=True):
                images = torch.where(coin[:, None, None, None] < 0.5, images, changed(images))
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
        if self.bend:
            nodes = self.bend * random.normal("augmentation/bend", 2, _NODES, _NODES)
            bent = _between(height, images.device) @ nodes @ _between(width, images.device).T
            points = [point + moved for point, moved in zip(points, bent.unbind(1), strict=True)]
        grid = torch.stack([points[0] * (2 / width), points[1] * (2 / height)], dim=-1)
        # Bilinear reading would blur what is seen in training, but not what is seen in a test.
        images = F.grid_sample(images, grid, mode="bicubic", padding_mode="zeros", align_corners=False)
        if self.light:
            draws = random.uniform("augmentation/light", images.shape[1]) * 2 - 1
            images = images.clamp(0, 1) * (1 + self.light * draws)[:, :, None, None]
        return images.clamp(0, 1)


def _between(size: int, device: torch.device) -> Tensor:
    """The weights with which nodes at equal distances, the first and the last at the ends, give ``size`` values.

    Returns:
        (size, _NODES), of bicubic interpolation.
    """
    nodes = torch.eye(_NODES, device=device)[None, :, :, None]
    return F.interpolate(nodes, (size, 1), mode="bicubic", align_corners=True)[0, :, :, 0].T
