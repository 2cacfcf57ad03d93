"""Digits rendered from the fonts of matplotlib: a data set without a download.

Every image is rendered from the outline of a font with a random position, rotation, shear, width, elastic distortion,
stroke width, contrast and noise. No font family is in two splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.images import Augmentation, ImageSet
from envs.splits import Split, check_split
from envs.validation import check_integer

FONTS: dict[Split, tuple[str, ...]] = {
    "train": (
        *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
        *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
        *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
        *("cmr10", "cmb10", "cmti10", "cmmi10", "cmtt10"),  # Computer Modern except sans serif
    ),
    "validation": ("cmss10",),  # Computer Modern Sans Serif
    "test": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
}
"""Font files of every split, without suffix; all styles of a family are in one split."""

_CELL = 64  # height and width of a distance map in pixels
_HEIGHT = 40  # height of a digit in its distance map
_OVERSAMPLE = 3  # resolution of the outlines relative to the distance maps
_CHUNK = 2000  # images rendered at a time


@dataclass(frozen=True)
class Glyphs:
    """Bright digits on a dark background, (N, 1, size, size); a split is a pure function of these options.

    Attributes:
        size: height and width of the images in pixels.
        num_train: images in the training split.
        num_validation: images in the validation split.
        num_test: images in the test split.
        height: smallest and largest height of a digit, as a share of the image height, in (0, 1].
        rotation: the largest rotation in degrees, in either direction.
        shear: the largest shear angle in degrees, in either direction; below 90.
        stretch: the largest relative change of width; below 1.
        elastic: the standard deviation of the smooth random displacement in pixels.
        boldness: smallest and largest change of the stroke's half-width in pixels.
        contrast: the smallest difference in brightness between digit and background, in (0, 1].
        noise: the largest standard deviation of the pixel noise.
        seed: the seed of all random draws.
        augmentation: the augmentation of the training split; see :class:`ImageSet`.
    """

    size: int = 32
    num_train: int = 40_000
    num_validation: int = 4_000
    num_test: int = 10_000
    height: tuple[float, float] = (0.55, 0.75)
    rotation: float = 10.0
    shear: float = 10.0
    stretch: float = 0.2
    elastic: float = 0.7
    boldness: tuple[float, float] = (-0.1, 0.8)
    contrast: float = 0.5
    noise: float = 0.05
    seed: int = 0
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        for name in ("height", "boldness"):  # a configuration gives lists, which have no hash
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("size", "num_train", "num_validation", "num_test"):
            check_integer(f"images.{name}", getattr(self, name), 1)
        if not 0 < self.height[0] <= self.height[1] <= 1 or self.boldness[0] > self.boldness[1]:
            raise InputError("images.height and images.boldness must be [smallest, largest], the height in (0, 1].")
        for name in ("rotation", "shear", "stretch", "elastic", "noise"):
            if getattr(self, name) < 0:
                raise InputError(f"images.{name} must not be negative, got {getattr(self, name)}.")
        if self.shear >= 90 or self.stretch >= 1 or not 0 < self.contrast <= 1:
            raise InputError("images.shear must be below 90, images.stretch below 1, images.contrast in (0, 1].")

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Renders one split, the same at every call."""
        check_split(split)
        generator = torch.Generator().manual_seed(3 * self.seed + list(FONTS).index(split))
        labels = torch.randint(10, (getattr(self, f"num_{split}"),), generator=generator)
        images = torch.cat([self._render(chunk, FONTS[split], generator) for chunk in labels.split(_CHUNK)])
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.to(device), labels.to(device), tuple("0123456789"), augmentation)

    def _render(self, labels: Tensor, fonts: tuple[str, ...], generator: torch.Generator) -> Tensor:
        """Renders an image for every label: (B,) -> (B, 1, size, size) uint8."""
        count, size = len(labels), self.size

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(count, *shape, generator=generator)

        maps = torch.stack([_distance_maps(font) for font in fonts])
        distance_map = maps[torch.randint(len(fonts), (count,), generator=generator), labels]

        height = uniform(*self.height) * size
        angle = torch.deg2rad(uniform(-self.rotation, self.rotation))
        shear = torch.tan(torch.deg2rad(uniform(-self.shear, self.shear)))
        stretch = 1 + uniform(-self.stretch, self.stretch)
        shift = uniform(-0.5, 0.5, 2) * (size - height)[:, None].clamp(min=0)
        coarse = torch.randn(count, 2, 5, 5, generator=generator) * self.elastic
        displacement = F.interpolate(coarse, (size, size), mode="bicubic", align_corners=True)

        # Maps a pixel of the image to a point of the distance map.
        axis = torch.arange(size) - (size - 1) / 2
        x = axis[None, None, :] - shift[:, 0, None, None] + displacement[:, 0]
        y = axis[None, :, None] - shift[:, 1, None, None] + displacement[:, 1]
        scale = (_HEIGHT / height)[:, None, None]
        cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
        rotated_x, rotated_y = cos * x + sin * y, cos * y - sin * x
        map_x = (rotated_x + shear[:, None, None] * rotated_y) / stretch[:, None, None] * scale
        grid = torch.stack([map_x, rotated_y * scale], dim=-1) * (2 / _CELL)
        distance = F.grid_sample(distance_map[:, None], grid, padding_mode="border", align_corners=False)

        depth = distance / scale[:, None] + uniform(*self.boldness, 1, 1, 1)
        coverage = (depth + 0.5).clamp(0, 1)
        background = uniform(0, 0.25, 1, 1, 1)
        foreground = (background + uniform(self.contrast, 1, 1, 1, 1)).clamp(max=1)
        noise = torch.randn(coverage.shape, generator=generator) * uniform(0, self.noise, 1, 1, 1)
        image = background + (foreground - background) * coverage + noise
        return (image.clamp(0, 1) * 255).round().to(torch.uint8)


@cache
def _distance_maps(font: str) -> Tensor:
    """Returns the signed distance to the outline of each digit, positive inside: (10, _CELL, _CELL), in pixels."""
    import matplotlib  # imported here because these imports are slow
    from PIL import Image, ImageDraw, ImageFont
    from scipy.ndimage import distance_transform_edt

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    side = _CELL * _OVERSAMPLE
    probe = ImageFont.truetype(str(path), side)
    top, bottom = probe.getbbox("8")[1::2]
    face = ImageFont.truetype(str(path), round(side * _HEIGHT * _OVERSAMPLE / (bottom - top)))
    maps = []
    for digit in "0123456789":
        left, top, right, bottom = face.getbbox(digit)
        canvas = Image.new("L", (side, side))
        corner = ((side - right - left) / 2, (side - bottom - top) / 2)
        ImageDraw.Draw(canvas).text(corner, digit, font=face, fill=255)
        inside = np.asarray(canvas) > 127
        depth = distance_transform_edt(inside) - distance_transform_edt(~inside)
        maps.append(torch.from_numpy(depth / _OVERSAMPLE).float())
    return F.avg_pool2d(torch.stack(maps)[:, None], _OVERSAMPLE)[:, 0]
