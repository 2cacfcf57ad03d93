"""Digits drawn from the fonts that matplotlib ships: data that need no download.

Every image is drawn anew from a font's outline: placed, turned, sheared and stretched, bent by a smooth random field,
made thinner or bolder, in random contrast, under noise. The splits share no font family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.splits import Split, check_split
from envs.validation import check_positive_integers

FONTS: dict[Split, tuple[str, ...]] = {
    "train": (
        *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
        *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
        *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
        *("cmr10", "cmb10", "cmti10", "cmmi10", "cmtt10"),  # Computer Modern, but for its sans serif
    ),
    "validation": ("cmss10",),  # Computer Modern Sans Serif
    "test": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
}
"""Files by split, without their suffix; a family's styles stand in one split."""

_CELL = 64  # pixels a side of a glyph's distance map
_HEIGHT = 40  # of every digit in its cell
_OVERSAMPLE = 3  # of the outline that the distances are measured on
_CHUNK = 2000  # images drawn at a time


@dataclass(frozen=True)
class Glyphs:
    """Bright digits on a dark ground; see the module.

    Attributes:
        size: pixels a side.
        num_train: images in the training split.
        num_validation: images in the validation split.
        num_test: images in the test split.
        height: least and largest height of a digit, as a share of the image.
        rotation: the largest turn in degrees, either way.
        shear: the largest shear in degrees, either way.
        stretch: the largest relative change of width.
        bend: standard deviation of the smooth displacement, in pixels.
        weight: least and largest change of the stroke's half width, in pixels.
        contrast: the least difference of ink and ground.
        noise: the largest standard deviation of the pixel noise.
        seed: of everything drawn.
        augmentation: of the training split.
    """

    size: int = 32
    num_train: int = 40_000
    num_validation: int = 4_000
    num_test: int = 10_000
    height: tuple[float, float] = (0.55, 0.75)
    rotation: float = 10.0
    shear: float = 10.0
    stretch: float = 0.2
    bend: float = 0.7
    weight: tuple[float, float] = (-0.1, 0.8)
    contrast: float = 0.5
    noise: float = 0.05
    seed: int = 0
    augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("height", "weight"):  # lists from a configuration, but a source is hashed
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_positive_integers(
            "images",
            size=self.size,
            num_train=self.num_train,
            num_validation=self.num_validation,
            num_test=self.num_test,
        )
        if not 0 < self.height[0] <= self.height[1] <= 1 or self.weight[0] > self.weight[1]:
            raise InputError("images.height and images.weight must be [least, largest], the height in (0, 1].")
        for name in ("rotation", "shear", "stretch", "bend", "noise"):
            if getattr(self, name) < 0:
                raise InputError(f"images.{name} must not be negative, got {getattr(self, name)}.")
        if self.shear >= 90 or self.stretch >= 1 or not 0 < self.contrast <= 1:
            raise InputError("images.shear must be below 90, images.stretch below 1, images.contrast in (0, 1].")

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Draws a split; the same one at every call."""
        check_split(split)
        count = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]
        generator = torch.Generator().manual_seed(3 * self.seed + list(FONTS).index(split))
        labels = torch.randint(10, (count,), generator=generator)
        images = torch.cat([self._draw(chunk, FONTS[split], generator) for chunk in labels.split(_CHUNK)])
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.to(device), labels.to(device), tuple("0123456789"), augmentation)

    def _draw(self, labels: Tensor, fonts: tuple[str, ...], generator: torch.Generator) -> Tensor:
        """One image a label: (B,) -> (B, 1, size, size) uint8."""
        count, size = len(labels), self.size

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(count, *shape, generator=generator)

        cells = torch.stack([_distance_maps(font) for font in fonts])
        cell = cells[torch.randint(len(fonts), (count,), generator=generator), labels]

        height = uniform(*self.height) * size
        angle = torch.deg2rad(uniform(-self.rotation, self.rotation))
        shear = torch.tan(torch.deg2rad(uniform(-self.shear, self.shear)))
        stretch = 1 + uniform(-self.stretch, self.stretch)
        place = uniform(-0.5, 0.5, 2) * (size - height)[:, None].clamp(min=0)
        coarse = torch.randn(count, 2, 5, 5, generator=generator) * self.bend
        bend = F.interpolate(coarse, (size, size), mode="bicubic", align_corners=True)

        # From a pixel of the image to a point of the cell: bend, shift, turn, shear, stretch, enlarge.
        axis = torch.arange(size) - (size - 1) / 2
        x = axis[None, None, :] - place[:, 0, None, None] + bend[:, 0]
        y = axis[None, :, None] - place[:, 1, None, None] + bend[:, 1]
        enlarge = (_HEIGHT / height)[:, None, None]
        cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
        turned_x, turned_y = cos * x + sin * y, cos * y - sin * x
        cell_x = (turned_x + shear[:, None, None] * turned_y) / stretch[:, None, None] * enlarge
        grid = torch.stack([cell_x, turned_y * enlarge], dim=-1) * (2 / _CELL)
        distance = F.grid_sample(cell[:, None], grid, padding_mode="border", align_corners=False)

        grown = distance / enlarge[:, None] + uniform(*self.weight, 1, 1, 1)
        ink = (grown + 0.5).clamp(0, 1)
        ground = uniform(0, 0.25, 1, 1, 1)
        full = (ground + uniform(self.contrast, 1, 1, 1, 1)).clamp(max=1)
        noise = torch.randn(ink.shape, generator=generator) * uniform(0, self.noise, 1, 1, 1)
        image = ground + (full - ground) * ink + noise
        return (image.clamp(0, 1) * 255).round().to(torch.uint8)


@cache
def _distance_maps(font: str) -> Tensor:
    """How deep every point lies inside each digit, negative outside: (10, cell, cell), in pixels of the cell."""
    import matplotlib  # both are slow to import and needed only here
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
