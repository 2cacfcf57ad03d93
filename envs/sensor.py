"""Sensors: extract patches from images at given locations, at several resolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.validation import check_integer, parse_pair

_TOLERANCE = 2.0**-10  # in pixels


@dataclass(frozen=True)
class PreparedImages:
    """Images preprocessed for many glimpses; returned by :meth:`Sensor.prepare`.

    Attributes:
        maps: one (B, C, H_k, W_k) tensor for each resolution, zero-padded and averaged over squares of pixels, so that
            a pixel of a patch is one element of a map. All maps have the same padding at the top and on the left.
        height: height of the images in pixels.
        width: width of the images in pixels.
    """

    maps: tuple[Tensor, ...]
    height: int
    width: int


class Sensor(Protocol):
    """Protocol of sensors, which extract a patch from every image of a batch.

    Attributes:
        is_round: whether a glimpse covers discs rather than rectangles; for rendering.
    """

    is_round: bool

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (scales, C, h, w)."""

    def prepare(self, images: Tensor) -> PreparedImages:
        """Computes once what all glimpses of images (B, C, H, W) share."""

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Extracts the patches at N locations: (N, scales, C, h, w)."""

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the windows that a glimpse covers, from the finest to the coarsest: (N, n, 4) int64.

        A window is (left, top, right, bottom) in pixels, right and bottom exclusive; it may extend beyond the image.
        """


def pixel_coordinates(locations: Tensor, height: int, width: int) -> Tensor:
    """Converts locations (x, y) in [-1, 1] to fractional (row, column) in pixels: (N, 2) -> (N, 2) float32."""
    size = torch.tensor([height - 1, width - 1], device=locations.device)
    return (locations.float().clamp(-1, 1).flip(-1) + 1) * 0.5 * size


@lru_cache(maxsize=256)
def window_offsets(
    channels: int, rows: int, columns: int, height: int, width: int, step: int, device: torch.device
) -> Tensor:
    """Returns the offsets of a window's pixels in a flattened image, from its first pixel: (C * height * width,) int64.

    Args:
        channels: of the image, C.
        rows: of the image.
        columns: of the image.
        height: rows of the window.
        width: columns of the window.
        step: the distance between adjacent pixels of the window.
        device: of the offsets.
    """
    channel = torch.arange(channels, device=device)[:, None, None] * (rows * columns)
    row = torch.arange(height, device=device)[:, None] * (step * columns)
    return (channel + row + torch.arange(width, device=device) * step).flatten()


def _first_pixel(center: Tensor, side: Tensor | float) -> Tensor:
    """Returns the first pixel of a window of ``side`` pixels around ``center``, rounded half up."""
    return torch.floor(center - (side - 1) / 2 + (0.5 + _TOLERANCE)).long()


class GlimpseSensor:
    """Multi-scale patches around a location: the retina rho(x, l) of Mnih et al. (2014), section 3.1.

    The window of scale k is ``factor**k`` times as large as the patch and is averaged down to its size. Pixels outside
    the image are zero. The sensor has no parameters and processes a whole batch at once.

    A location is (x, y); -1 and 1 are the centers of the border pixels, so x = -1 is column 0 and x = 1 column W - 1.
    A window of s pixels around the column c = (x + 1) / 2 * (W - 1) starts at the column c - (s - 1) / 2 rounded
    half up, all in float32. Fractions less than 1/1024 below a half are rounded up as well: a window of even size
    around the center of a pixel is exactly between two columns, and rounding errors must not decide. Locations outside
    [-1, 1] are clamped.

    Args:
        patch_size: height and width of a patch in pixels, one number or (height, width); at least 1. It may be larger
            than the image.
        num_scales: the number of windows in a glimpse, at least 1.
        factor: the ratio of the sizes of successive windows, at least 2.
    """

    is_round = False

    def __init__(self, patch_size: int | tuple[int, int] = 8, num_scales: int = 1, factor: int = 2) -> None:
        check_integer("sensor.num_scales", num_scales, 1)
        check_integer("sensor.factor", factor, 2)
        self.patch_size = parse_pair("sensor.patch_size", patch_size, 1)
        self.num_scales, self.factor = num_scales, factor
        # Half the largest window, for a glimpse at the border.
        self._padding = tuple(side * factor ** (num_scales - 1) // 2 for side in self.patch_size)

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (scales, C, h, w)."""
        return (self.num_scales, channels, *self.patch_size)

    def prepare(self, images: Tensor) -> PreparedImages:
        """Pads the images and averages them at every scale.

        Args:
            images: (B, C, H, W) float.
        """
        return _prepare(images, self._padding, self.num_scales, self.factor)

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Extracts the patches at given locations.

        Args:
            prepared: B images.
            locations: (N, 2) float, (x, y). N is a multiple of B; the N / B locations of an image are adjacent.

        Returns:
            (N, scales, C, h, w) patches.
        """
        batch, channels = prepared.maps[0].shape[:2]
        starts = self.window_starts(prepared.height, prepared.width, locations)
        patches = []
        for k, values in enumerate(prepared.maps):
            rows, columns = values.shape[-2:]
            # Starts are relative to the image, maps include the padding.
            first = (starts[:, k, 0] + self._padding[0]) * columns + (starts[:, k, 1] + self._padding[1])
            offsets = window_offsets(channels, rows, columns, *self.patch_size, self.factor**k, values.device)
            index = (first[:, None] + offsets).view(batch, -1, len(offsets))
            pixels = values.reshape(batch, 1, -1).expand(-1, index.shape[1], -1).gather(2, index)
            patches.append(pixels.view(len(locations), channels, *self.patch_size))
        return torch.stack(patches, dim=1)

    def window_starts(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the top left pixel of every window: (N, scales, 2) int64, (row, column); may be negative."""
        return _first_pixel(pixel_coordinates(locations, height, width)[:, None], self._sides(locations.device))

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the window of every scale: (N, scales, 4); see :meth:`Sensor.windows`."""
        first = self.window_starts(height, width, locations)
        return torch.cat([first.flip(-1), (first + self._sides(first.device)).flip(-1)], dim=-1)

    def _sides(self, device: torch.device) -> Tensor:
        """Returns the height and width of every window: (scales, 2) int64."""
        return torch.tensor(
            [[side * self.factor**k for side in self.patch_size] for k in range(self.num_scales)], device=device
        )


class LogPolarSensor:
    """Log-polar sampling around a location, a model of the retina (Schwartz 1980).

    Ring i has the radius r_i = inner * (outer / inner)^(i / (rings - 1)) pixels, and its point j is at the angle
    2 pi j / angles from the x axis towards y, where y points down. A point is the mean of a square of pixels, whose
    side is the largest power of two that does not exceed the distance to the next point of the ring (at least 1).
    Squares are positioned as the windows of :class:`GlimpseSensor`, and pixels outside the image are zero. Rotation and
    scaling of the image about the location translate the patch (..., ring, angle).

    Args:
        num_rings: the number of rings, at least 2.
        num_angles: the number of points in a ring, at least 3.
        inner_radius: the radius of the first ring in pixels, positive.
        outer_radius: the radius of the last ring in pixels, above ``inner_radius``.
    """

    is_round = True

    def __init__(
        self, num_rings: int = 12, num_angles: int = 24, inner_radius: float = 1.0, outer_radius: float = 20.0
    ) -> None:
        check_integer("sensor.num_rings", num_rings, 2)
        check_integer("sensor.num_angles", num_angles, 3)
        if not 0 < inner_radius < outer_radius:
            raise InputError(
                f"sensor.inner_radius ({inner_radius}) must be positive and below sensor.outer_radius ({outer_radius})."
            )
        self.num_rings, self.num_angles = num_rings, num_angles
        radii = [inner_radius * (outer_radius / inner_radius) ** (i / (num_rings - 1)) for i in range(num_rings)]
        # A ring of resolution k averages squares of 2**k x 2**k pixels.
        self._resolution = [max(0, math.floor(math.log2(2 * math.pi * r / num_angles))) for r in radii]
        angle = torch.arange(num_angles) * (2 * math.pi / num_angles)
        direction = torch.stack([angle.sin(), angle.cos()], dim=-1)
        self._points = torch.tensor(radii)[:, None, None] * direction  # (rings, angles, 2), (row, column)
        finest = [radius for radius, k in zip(radii, self._resolution, strict=True) if k == 0]
        self._discs = torch.tensor([max(finest, default=radii[0]), radii[-1]])
        self._padding = math.ceil(outer_radius) + 2 ** self._resolution[-1]

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (1, C, rings, angles)."""
        return (1, channels, self.num_rings, self.num_angles)

    def prepare(self, images: Tensor) -> PreparedImages:
        """Pads images (B, C, H, W) and averages them over squares of every size."""
        return _prepare(images, (self._padding, self._padding), self._resolution[-1] + 1, 2)

    def __call__(self, prepared: PreparedImages, locations: Tensor) -> Tensor:
        """Extracts the patches at given locations.

        Args:
            prepared: B images.
            locations: (N, 2) float, (x, y). N is a multiple of B; the N / B locations of an image are adjacent.

        Returns:
            (N, 1, C, rings, angles) patches.
        """
        batch, channels = prepared.maps[0].shape[:2]
        center = pixel_coordinates(locations, prepared.height, prepared.width)[:, None, None]
        rings = []
        for k in sorted(set(self._resolution)):
            values = prepared.maps[k]
            rows, columns = values.shape[-2:]
            chosen = [ring for ring, resolution in enumerate(self._resolution) if resolution == k]
            points = center + self._points[chosen].to(center.device)
            first = _first_pixel(points, 2.0**k) + self._padding
            index = (first[..., 0] * columns + first[..., 1]).view(batch, 1, -1).expand(-1, channels, -1)
            pixels = values.reshape(batch, channels, rows * columns).gather(2, index)
            pixels = pixels.view(batch, channels, -1, len(chosen), self.num_angles).transpose(1, 2)
            rings.append(pixels.reshape(len(locations), 1, channels, len(chosen), self.num_angles))
        return torch.cat(rings, dim=-2)

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the disc sampled at full resolution and the whole disc: (N, 2, 4); see :meth:`Sensor.windows`."""
        center = pixel_coordinates(locations, height, width)[:, None].flip(-1)
        radius = self._discs.to(center.device)[:, None]
        return torch.cat([(center - radius).round(), (center + radius).round() + 1], dim=-1).long()


def _prepare(images: Tensor, padding: tuple[int, ...], count: int, factor: int) -> PreparedImages:
    """Pads images (B, C, H, W) above and below, left and right, and averages them over squares of ``factor**k`` pixels.

    There is one map for each k in 0 .. count - 1.
    """
    sums = F.pad(images, (padding[1],) * 2 + (padding[0],) * 2)
    maps = [sums]
    for k in range(1, count):
        # A square of factor**k pixels consists of factor x factor adjacent squares of factor**(k - 1).
        for dim in (-1, -2):
            sums = _sum_shifted(sums, dim, factor, factor ** (k - 1))
        maps.append(sums / factor ** (2 * k))
    return PreparedImages(tuple(maps), images.shape[-2], images.shape[-1])


def _sum_shifted(values: Tensor, dim: int, count: int, distance: int) -> Tensor:
    """Sums ``count`` copies of ``values``, shifted by multiples of ``distance`` along ``dim``, where all overlap."""
    length = values.shape[dim] - (count - 1) * distance
    total = values.narrow(dim, 0, length)
    for shift in range(1, count):
        total = total + values.narrow(dim, shift * distance, length)
    return total
