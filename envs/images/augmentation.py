"""Data augmentation on the device: random affine and elastic transforms, symmetries and changes of color."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.validation import check_choice

_NODES = 5  # control points of the elastic displacement along each axis
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)


@dataclass(frozen=True)
class RandomWarp:
    """Random geometric transform and change of color, drawn independently for every image.

    Translation, rotation, scale, shear and the changes of color are uniform in their ranges. The elastic distortion
    (Simard, Steinkraus and Platt 2003) displaces every pixel along x and y by a bicubic interpolation of 5 x 5 normal
    draws. Images are resampled once, bicubically. Colors are changed in brightness, then contrast, then saturation.

    Attributes:
        translation: the largest translation in pixels, along x and along y.
        rotation: the largest rotation in degrees, in either direction.
        scale: the largest relative change of size, in [0, 1): 0.1 scales x and y independently by 0.9 to 1.1.
        shear: the largest shear angle in degrees, in [0, 90).
        elastic: the standard deviation of the elastic displacement in pixels.
        square_symmetries: whether to apply one of the eight symmetries of the square, each with equal probability:
            for square images without an upright orientation.
        horizontal_flip: whether to mirror the image left to right with probability 1/2.
        padding: pixels from outside the image: "zeros", or "reflection" of the image at its border.
        brightness: the largest relative change of brightness, in [0, 1), drawn independently for every channel.
        contrast: the largest relative change of the differences to the mean color of the image, in [0, 1).
        saturation: the largest relative change of the differences to the gray value of a pixel, in [0, 1); without
            effect on grayscale images.
    """

    translation: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    elastic: float = 0.0
    square_symmetries: bool = False
    horizontal_flip: bool = False
    padding: str = "zeros"
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    def __post_init__(self) -> None:
        check_choice("augmentation.padding", self.padding, ("zeros", "reflection"))
        for field in fields(self):
            if field.name != "padding" and getattr(self, field.name) < 0:
                raise InputError(f"augmentation.{field.name} must not be negative, got {getattr(self, field.name)}.")
        for name in ("scale", "brightness", "contrast", "saturation"):
            if getattr(self, name) >= 1:
                raise InputError(f"augmentation.{name} must be below 1, got {getattr(self, name)}.")
        if self.shear >= 90:
            raise InputError(f"augmentation.shear must be below 90 degrees, got {self.shear}.")

    def __call__(self, images: Tensor, random: RowRandom) -> Tensor:
        """Transforms every image of a batch.

        Args:
            images: (B, C, H, W) float in [0, 1].
            random: B rows, from which the transforms are drawn.

        Returns:
            (B, C, H, W) float in [0, 1].

        Raises:
            InputError: ``square_symmetries`` is set and the images are not square.
        """
        if self.square_symmetries:
            images = _random_symmetry(images, random)
        if self.horizontal_flip:
            keep = random.uniform("augmentation/flip", 1, 1, 1) < 0.5
            images = torch.where(keep, images, images.flip(-1))
        with torch.autocast(images.device.type, enabled=False):  # pixels in full precision
            grid = self._sampling_grid(images, random)
            # Bilinear resampling would blur the training images, but not the test images.
            images = F.grid_sample(images, grid, mode="bicubic", padding_mode=self.padding, align_corners=False)
            return self._change_color(images.clamp(0, 1), random)

    def _change_color(self, images: Tensor, random: RowRandom) -> Tensor:
        """Changes brightness, contrast and saturation of images (B, C, H, W) in [0, 1]; returns the same range."""
        if self.brightness:
            draws = random.uniform("augmentation/light", images.shape[1]) * 2 - 1
            images = (images * (1 + self.brightness * draws)[:, :, None, None]).clamp(0, 1)
        if self.contrast:
            draws = random.uniform("augmentation/contrast", 1, 1, 1) * 2 - 1
            images = torch.lerp(images.mean((-2, -1), keepdim=True), images, 1 + self.contrast * draws).clamp(0, 1)
        if self.saturation and images.shape[1] == len(_LUMA):
            draws = random.uniform("augmentation/saturation", 1, 1, 1) * 2 - 1
            gray = (images * images.new_tensor(_LUMA)[:, None, None]).sum(1, keepdim=True)
            images = torch.lerp(gray, images, 1 + self.saturation * draws).clamp(0, 1)
        return images

    def _sampling_grid(self, images: Tensor, random: RowRandom) -> Tensor:
        """Returns the image point that each output pixel is sampled from: (B, H, W, 2), (x, y) as in grid_sample."""
        height, width = images.shape[-2:]
        draws = random.uniform("augmentation", 6) * 2 - 1
        shift = draws[:, 0:2] * self.translation
        scale = 1 + draws[:, 2:4] * self.scale
        angle = draws[:, 4] * math.radians(self.rotation)
        shear = torch.tan(draws[:, 5] * math.radians(self.shear))
        cos, sin = angle.cos(), angle.sin()
        # The affine map is relative to the image center, in pixels.
        x = torch.arange(width, device=images.device) - (width - 1) / 2
        y = torch.arange(height, device=images.device) - (height - 1) / 2
        x_row = [cos * scale[:, 0], (shear * cos - sin) * scale[:, 0], shift[:, 0]]
        y_row = [sin * scale[:, 1], (shear * sin + cos) * scale[:, 1], shift[:, 1]]
        points = [
            (by_x[:, None] * x)[:, None, :] + (by_y[:, None] * y + offset[:, None])[:, :, None]
            for by_x, by_y, offset in (x_row, y_row)
        ]
        if self.elastic:
            nodes = self.elastic * random.normal("augmentation/bend", 2, _NODES, _NODES)
            vertical, horizontal = (_interpolation_matrix(side, images.device) for side in (height, width))
            displacement = vertical @ nodes @ horizontal.T
            points = [point + moved for point, moved in zip(points, displacement.unbind(1), strict=True)]
        return torch.stack([points[0] * (2 / width), points[1] * (2 / height)], dim=-1)


def _random_symmetry(images: Tensor, random: RowRandom) -> Tensor:
    """Applies a random symmetry of the square to every image of (B, C, H, W)."""
    height, width = images.shape[-2:]
    if height != width:
        raise InputError(f"augmentation.square_symmetries needs square images, got {height} x {width} pixels.")
    # Three reflections, applied or not independently, give the eight symmetries of the square.
    keep = random.uniform("augmentation/symmetries", 3, 1, 1, 1) < 0.5
    images = torch.where(keep[:, 0], images, images.mT)
    images = torch.where(keep[:, 1], images, images.flip(-1))
    return torch.where(keep[:, 2], images, images.flip(-2))


def _interpolation_matrix(size: int, device: torch.device) -> Tensor:
    """Returns the bicubic weights from equally spaced nodes, the outer ones at both ends, to pixels: (size, _NODES)."""
    nodes = torch.eye(_NODES, device=device)[None, :, :, None]
    return F.interpolate(nodes, (size, 1), mode="bicubic", align_corners=True)[0, :, :, 0].T
