"""Sensors: what a look at a location reads of an image, finely where it points and coarsely around."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError

_TOLERANCE = 2.0**-10  # of a pixel


@dataclass(frozen=True)
class PreparedImages:
    """Images made ready for many looks; what :meth:`Sensor.prepare` returns.

    Attributes:
        maps: one (B, C, H_k, W_k) tensor a resolution, padded with zeros and averaged over squares of pixels, so that
            a pixel of a patch is one element of a map; all padded alike at the top and on the left.
        height: of the images, in pixels.
        width: of the images, in pixels.
    """

    maps: tuple[Tensor, ...]
    height: int
    width: int


class Sensor(Protocol):
    """Reads a patch of every image of a batch.

    Attributes:
        is_round: whether what it reads are discs rather than rectangles, for pictures.
    """

    is_round: bool

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """The shape of one observation: (scales, C, h, w)."""
        ...

    def prepare(self, images: Tensor) -> PreparedImages:
        """Does once to images (B, C, H, W) what every look needs."""
        ...

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Looks once at every location: (N, scales, C, h, w)."""
        ...

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """What a look covers, from the finest to the coarsest: (N, n, 4) int64.

        A window is its left, its top, and the first pixel beyond its right and its bottom; it may reach outside the
        image.
        """
        ...


def pixel(locations: Tensor, height: int, width: int) -> Tensor:
    """Locations as (row, column), with fractions: (N, 2) -> (N, 2) float32."""
    size = torch.tensor([height - 1, width - 1], device=locations.device)
    return (locations.float().clamp(-1, 1).flip(-1) + 1) * 0.5 * size


def _first_pixel(centre: Tensor, side: Tensor | float) -> Tensor:
    """Where a window of ``side`` pixels around ``centre`` starts, rounded half up."""
    return torch.floor(centre - (side - 1) / 2 + (0.5 + _TOLERANCE)).long()


class GlimpseSensor:
    """Reads a patch at each of several scales around a location (Mnih et al. 2014, section 3.1, rho(x, l)).

    The window of scale k spans ``factor**k`` times the patch and is averaged down to the size of the patch. What lies
    outside the image is zero. The sensor has no parameters and reads a whole batch at once.

    A location is (x, y); -1 and 1 are the centres of the border pixels, so x = -1 is column 0 and x = 1 column W - 1.
    A window of s pixels around the column c = (x + 1) / 2 * (W - 1) starts at the column c - (s - 1) / 2 rounded
    half up, all in float32. What lies less than 1/1024 pixel below a half is taken for one: at the centre of a pixel a
    window of even size lies between two columns, and no rounding error shall choose. Locations outside [-1, 1] are
    read at the border.

    Args:
        patch_size: pixels a side, or (height, width); at least 1. It may be larger than the image.
        num_scales: how many windows a look reads, at least 1.
        factor: how much wider the next window is, at least 2.
    """

    is_round = False

    def __init__(self, patch_size: int | tuple[int, int] = 8, num_scales: int = 1, factor: int = 2) -> None:
        height, width = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
        for name, value, least in [
            ("patch_size", min(height, width), 1),
            ("num_scales", num_scales, 1),
            ("factor", factor, 2),
        ]:
            if value < least:
                raise InputError(f"sensor.{name} must be at least {least}, got {value}.")
        self.patch_size = (int(height), int(width))
        self.num_scales = num_scales
        self.factor = factor
        # As far as half the widest window, for a look at a border.
        self._padding = tuple(side * factor ** (num_scales - 1) // 2 for side in self.patch_size)
        self._known_offsets: dict[Any, Tensor] = {}

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """The shape of one observation: (scales, C, h, w)."""
        return (self.num_scales, channels, *self.patch_size)

    def prepare(self, images: Tensor) -> PreparedImages:
        """Pads and averages once what every look will read.

        Args:
            images: (B, C, H, W) float.
        """
        sums = F.pad(images, (self._padding[1],) * 2 + (self._padding[0],) * 2)
        maps = [sums]
        for k in range(1, self.num_scales):
            # A window of scale k is factor x factor windows of the scale before, side by side.
            for dim in (-1, -2):
                sums = _sum_shifted(sums, dim, self.factor, self.factor ** (k - 1))
            maps.append(sums / self.factor ** (2 * k))
        return PreparedImages(tuple(maps), images.shape[-2], images.shape[-1])

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Looks once at every location.

        Args:
            prepared: B images.
            locations: (N, 2) float, (x, y). N is a multiple of B: the N / B looks at an image are adjacent.

        Returns:
            (N, scales, C, h, w) patches.
        """
        batch, channels = prepared.maps[0].shape[:2]
        starts = self.window_starts(prepared.height, prepared.width, locations)
        patches = []
        for k, values in enumerate(prepared.maps):
            rows, columns = values.shape[-2:]
            # A start counts from the image's corner, a map from its padding's.
            first = (starts[:, k, 0] + self._padding[0]) * columns + (starts[:, k, 1] + self._padding[1])
            offsets = self._offsets(k, channels, rows, columns, values.device)
            index = (first[:, None] + offsets).view(batch, -1, len(offsets))
            read = values.reshape(batch, 1, -1).expand(-1, index.shape[1], -1).gather(2, index)
            patches.append(read.view(len(locations), channels, *self.patch_size))
        return torch.stack(patches, dim=1)

    def _offsets(self, k: int, channels: int, rows: int, columns: int, device: torch.device) -> Tensor:
        """Where a patch's pixels lie in a flattened map of scale k, from the first on: (C * h * w,) int64."""
        key = (k, channels, rows, columns, device)
        if key not in self._known_offsets:
            pool = self.factor**k
            channel = torch.arange(channels, device=device)[:, None, None] * (rows * columns)
            row = torch.arange(self.patch_size[0], device=device)[:, None] * (pool * columns)
            column = torch.arange(self.patch_size[1], device=device) * pool
            self._known_offsets[key] = (channel + row + column).flatten()
        return self._known_offsets[key]

    def window_starts(self, height: int, width: int, locations: Tensor) -> Tensor:
        """The top left pixel of every window: (N, scales, 2) int64, (row, column), negative outside the image."""
        return _first_pixel(pixel(locations, height, width)[:, None], self._sides(locations.device))

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """What a look covers, scale by scale: (N, scales, 4); see :meth:`Sensor.windows`."""
        first = self.window_starts(height, width, locations)
        return torch.cat([first.flip(-1), (first + self._sides(first.device)).flip(-1)], dim=-1)

    def _sides(self, device: torch.device) -> Tensor:
        """Height and width of every scale's window: (scales, 2) int64."""
        return torch.tensor(
            [[side * self.factor**k for side in self.patch_size] for k in range(self.num_scales)], device=device
        )


class LogPolarSensor:
    """Reads rings of points around a location, ever farther apart, as a retina does (Schwartz 1980).

    Ring i has the radius r_i = inner * (outer / inner)^(i / (rings - 1)) pixels, and its point j lies at the angle
    2 pi j / angles from the x axis towards y, where y points down. A point is the mean of a square of pixels: the
    largest whose side is a power of two and not larger than the way to the next point of its ring. Squares start where
    windows of :class:`GlimpseSensor` do, and what lies outside the image is zero. Turning and growing about the
    location shift such a patch (..., ring, angle).

    Args:
        num_rings: at least 2.
        num_angles: points of a ring, at least 3.
        inner_radius: of the first ring, in pixels, positive.
        outer_radius: of the last ring, in pixels, larger.
    """

    is_round = True

    def __init__(
        self, num_rings: int = 12, num_angles: int = 24, inner_radius: float = 1.0, outer_radius: float = 20.0
    ) -> None:
        for name, value, least in [("num_rings", num_rings, 2), ("num_angles", num_angles, 3)]:
            if value < least:
                raise InputError(f"sensor.{name} must be at least {least}, got {value}.")
        if not 0 < inner_radius < outer_radius:
            raise InputError(
                f"sensor.inner_radius ({inner_radius}) must be positive and below sensor.outer_radius ({outer_radius})."
            )
        self.num_rings, self.num_angles = num_rings, num_angles
        radii = [inner_radius * (outer_radius / inner_radius) ** (i / (num_rings - 1)) for i in range(num_rings)]
        # The resolution k of a ring is that of squares of 2**k pixels.
        self._resolution = [max(0, math.floor(math.log2(2 * math.pi * r / num_angles))) for r in radii]
        angle = torch.arange(num_angles) * (2 * math.pi / num_angles)
        direction = torch.stack([angle.sin(), angle.cos()], dim=-1)
        self._points = torch.tensor(radii)[:, None, None] * direction  # (rings, angles, 2), (row, column)
        sharp = [radius for radius, k in zip(radii, self._resolution, strict=True) if k == 0]
        self._discs = torch.tensor([max(sharp, default=radii[0]), radii[-1]])
        self._padding = math.ceil(outer_radius) + 2 ** self._resolution[-1]

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """The shape of one observation: (1, C, rings, angles)."""
        return (1, channels, self.num_rings, self.num_angles)

    def prepare(self, images: Tensor) -> PreparedImages:
        """Pads, and averages over squares of every size, once: (B, C, H, W)."""
        sums = F.pad(images, (self._padding,) * 4)
        maps = [sums]
        for k in range(1, self._resolution[-1] + 1):
            for dim in (-1, -2):
                sums = _sum_shifted(sums, dim, 2, 2 ** (k - 1))
            maps.append(sums / 4**k)
        return PreparedImages(tuple(maps), images.shape[-2], images.shape[-1])

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Looks once at every location.

        Args:
            prepared: B images.
            locations: (N, 2) float, (x, y). N is a multiple of B: the N / B looks at an image are adjacent.

        Returns:
            (N, 1, C, rings, angles) patches.
        """
        batch, channels = prepared.maps[0].shape[:2]
        centre = pixel(locations, prepared.height, prepared.width)[:, None, None]
        rings = []
        for k in sorted(set(self._resolution)):
            values = prepared.maps[k]
            rows, columns = values.shape[-2:]
            chosen = [ring for ring, resolution in enumerate(self._resolution) if resolution == k]
            points = centre + self._points[chosen].to(centre.device)
            first = _first_pixel(points, 2.0**k) + self._padding
            index = (first[..., 0] * columns + first[..., 1]).view(batch, 1, -1).expand(-1, channels, -1)
            read = values.reshape(batch, channels, rows * columns).gather(2, index)
            read = read.view(batch, channels, -1, len(chosen), self.num_angles).transpose(1, 2)
            rings.append(read.reshape(len(locations), 1, channels, len(chosen), self.num_angles))
        return torch.cat(rings, dim=-2)

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """The disc that is read pixel by pixel and the whole one: (N, 2, 4); see :meth:`Sensor.windows`."""
        centre = pixel(locations, height, width)[:, None].flip(-1)
        radius = self._discs.to(centre.device)[:, None]
        return torch.cat([(centre - radius).round(), (centre + radius).round() + 1], dim=-1).long()


def _sum_shifted(values: Tensor, dim: int, count: int, distance: int) -> Tensor:
    """Adds ``count`` copies of ``values``, each shifted by ``distance`` more along ``dim``, where all overlap."""
    length = values.shape[dim] - (count - 1) * distance
    total = values.narrow(dim, 0, length)
    for shift in range(1, count):
        total = total + values.narrow(dim, shift * distance, length)
    return total
