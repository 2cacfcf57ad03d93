"""Sensors: extract patches from images at given locations, at several resolutions.

A glimpse reads the pixels of its windows and nothing else, so its cost does not depend on the size of the image.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from envs.errors import InputError
from envs.validation import check_integer, parse_pair

_TOLERANCE = 2.0**-10  # in pixels
_CHUNK = 2**19  # pixels that are processed together, so that intermediate results stay in the cache
_FEW = 2**12  # pixels that are read one by one


class Sensor(Protocol):
    """Protocol of sensors, which extract a patch from every image of a batch.

    Attributes:
        is_round: whether a glimpse covers discs rather than rectangles; for rendering.
    """

    is_round: bool

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (scales, C, h, w)."""

    def __call__(self, images: Tensor, locations: Tensor, index: Tensor | None = None) -> Tensor:
        """Extracts the patches at N locations: (N, scales, C, h, w).

        Args:
            images: (M, C, H, W), floating point; or uint8, which is divided by 255.
            locations: (N, 2) floating point, (x, y).
            index: (N,) int64, the image of each location. None if N is a multiple of M and the N / M locations of an
                image are adjacent.
        """

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the windows that a glimpse covers, from the finest to the coarsest: (N, n, 4) int64.

        A window is (left, top, right, bottom) in pixels, right and bottom exclusive; it may extend beyond the image.
        """


def pixel_coordinates(locations: Tensor, height: int, width: int) -> Tensor:
    """Converts locations (x, y) in [-1, 1] to fractional (row, column) in pixels: (N, 2) -> (N, 2) float32."""
    size = torch.tensor([height - 1, width - 1], device=locations.device)
    return (locations.float().clamp(-1, 1).flip(-1) + 1) * 0.5 * size


def _first_pixel(center: Tensor, side: int) -> Tensor:
    """Returns the first pixel of a window of ``side`` pixels around ``center``, rounded half up: int64."""
    if side % 2:
        return torch.floor(center + (0.5 + _TOLERANCE)).long() - (side - 1) // 2
    return torch.floor(center + _TOLERANCE).long() + (1 - side // 2)


@lru_cache(maxsize=256)
def _pixel_steps(size: int, is_odd: bool, device: torch.device) -> Tensor:
    """Returns the locations along an axis of the image at which the first pixel of a window increases by one.

    The first pixel is a step function of the location, so that finding it is a search in this table.

    Args:
        size: of the image, in pixels.
        is_odd: whether the window has an odd number of pixels.
        device: of the table.

    Returns:
        (size - 1,) float32, the smallest float32 of each step.
    """

    def values(key: Tensor) -> Tensor:  # the bit patterns of floats have the order of their absolute values
        return torch.where(key < 0, -(2**31) - key, key).to(torch.int32).view(torch.float32)

    one = int(torch.ones(()).view(torch.int32))
    low, high = torch.full((size - 1,), -one), torch.full((size - 1,), one)
    for _ in range(32):  # bisection
        middle = (low + high).div(2, rounding_mode="floor")
        pixel = _first_pixel((values(middle) + 1) * 0.5 * (size - 1), 1 if is_odd else 2)
        reached = pixel > torch.arange(size - 1)
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return values(high).to(device)


@lru_cache(maxsize=256)
def _offsets(count: int, device: torch.device) -> Tensor:
    """Returns 0, 1, ... : (count,) int64."""
    return torch.arange(count, device=device)


def _first_pixels(locations: Tensor, size: tuple[int, int], window: tuple[int, int]) -> Tensor:
    """Returns the first pixels of windows at locations (N, 2) in images of a size: (N, 2) int64, (column, row)."""
    device = locations.device
    row_steps, column_steps = (
        _pixel_steps(each, side % 2 == 1, device) for each, side in zip(size, window, strict=True)
    )
    if row_steps is column_steps:
        pixel = torch.bucketize(locations, row_steps, right=True)
    else:
        x, y = locations.mT.contiguous()
        steps = torch.bucketize(x, column_steps, right=True), torch.bucketize(y, row_steps, right=True)
        pixel = torch.stack(steps, dim=1)
    return pixel.sub_(_to_first(window, device))


@lru_cache(maxsize=256)
def _to_first(window: tuple[int, int], device: torch.device) -> Tensor:
    """Returns the distance from the first pixel of a window to that at the center of pixel 0: (2,) int64, (x, y)."""
    return torch.tensor([(side - 1) // 2 for side in reversed(window)], device=device)


def _read_windows(images: Tensor, index: Tensor, first: Tensor, window: tuple[int, int]) -> Tensor:
    """Reads windows of images; pixels outside an image are zero.

    Args:
        images: (M, C, H, W), floating point or uint8.
        index: (N,) int64, the image of each window.
        first: (N, 2) int64, the first column and row of each window; may be outside the image.
        window: height and width of the windows.

    Returns:
        (N, C, height, width), of the type of the images; float32 for uint8.
    """
    height, width = window
    pixel = first[:, :, None] + _offsets(max(window), first.device)  # (N, 2, side)
    inside = pixel.clamp(min=0).minimum(_last_pixel(images.shape[3], images.shape[2], first.device))
    (column, row), (column_mask, row_mask) = inside.unbind(1), (pixel == inside).unbind(1)
    if height != width:
        row, row_mask = row[:, :height], row_mask[:, :height]
        column, column_mask = column[:, :width], column_mask[:, :width]
    pixels = _copy_windows(images, index, first, row, column)
    if images.dtype == torch.uint8:
        return _mask_bytes(pixels, row_mask, column_mask).float()
    return pixels.mul_(row_mask.to(pixels.dtype)[:, None, :, None]).mul_(column_mask.to(pixels.dtype)[:, None, None])


def _average(pixels: Tensor, side: int, highest: int) -> Tensor:
    """Averages squares of side x side pixels: (N, C, h side, w side) -> (N, C, h, w), divided by ``highest``."""
    if side > 1:  # sums of slices are several times as fast as a pooling operation
        shape = pixels.shape[0], pixels.shape[1], pixels.shape[2] // side, pixels.shape[3] // side
        pixels = _sum(pixels.unflatten(2, (-1, side)).unbind(3))
        pixels = _sum(pixels.view(*shape, side).unbind(4))
    return pixels / (highest * side**2) if highest * side > 1 else pixels


def _sum(parts: tuple[Tensor, ...]) -> Tensor:
    """Returns the sum of two or more tensors of one shape."""
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total.add_(part)
    return total


def _mask_bytes(pixels: Tensor, row_mask: Tensor, column_mask: Tensor) -> Tensor:
    """Sets bytes (N, C, h, w) to zero unless their row (N, h) and column (N, w) are True, up to eight at once."""
    word = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[math.gcd(pixels.shape[3], 8)]
    words = column_mask.contiguous().view(word) * 255  # all bits of every byte that is 1
    words = words[:, None] * row_mask[:, :, None]
    return pixels.view(word).bitwise_and_(words[:, None]).view(torch.uint8)


def _copy_windows(images: Tensor, index: Tensor, first: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Copies windows of images: (N, C, h, w). Pixels outside the image are arbitrary pixels of the images.

    Args:
        images: (M, C, H, W).
        index: (N,) int64, the image of each window.
        first: (N, 2) int64, the first column and row of each window, which may be outside the image.
        row: (N, h) int64, the rows of the window, clamped to the image.
        column: (N, w) int64, the columns, likewise.
    """
    channels, height, width = images.shape[1:]
    flat = images.reshape(-1)
    # The number of the first pixel of each row, in all images.
    start = torch.add((index * (channels * height * width))[:, None], row, alpha=width)
    if channels > 1:
        start = (start[:, None] + _offsets(channels, row.device)[:, None] * (height * width)).flatten(1)
    shape = len(index), channels, row.shape[1], column.shape[1]
    if not images.is_cpu or images.requires_grad or math.prod(shape) < _FEW or len(flat) < shape[3]:
        return flat.take(start[:, :, None] + column[:, None]).view(shape)
    # Copying whole rows of windows is much faster. They may begin or end in another row or another image.
    run, last_run = start + first[:, :1], len(flat) - shape[3]
    lowest, highest = run.aminmax()
    runs = flat.unfold(0, shape[3], 1)
    if int(lowest) >= 0 and int(highest) <= last_run:
        return runs.index_select(0, run.flatten()).view(shape)
    pixels = runs.index_select(0, run.clamp(0, last_run).flatten()).view(*run.shape, -1)
    beyond = ((run < 0) | (run > last_run)).any(1).nonzero().flatten()  # before the first image or after the last
    pixels[beyond] = flat.take(start[beyond, :, None] + column[beyond, None])
    return pixels.view(shape)


@lru_cache(maxsize=256)
def _last_pixel(width: int, height: int, device: torch.device) -> Tensor:
    """Returns the last column and the last row: (2, 1) int64."""
    return torch.tensor([[width - 1], [height - 1]], device=device)


def _image_index(images: Tensor, count: int, index: Tensor | None) -> Tensor:
    """Returns the image of each of ``count`` locations, by default in groups of equal size: (count,) int64."""
    if index is not None:
        return index
    return torch.arange(len(images), device=images.device).repeat_interleave(count // len(images))


class GlimpseSensor:
    """Multi-scale patches around a location: the retina rho(x, l) of Mnih et al. (2014), section 3.1.

    The window of scale k is ``factor**k`` times as large as the patch and is averaged down to its size. Pixels outside
    the image are zero. The sensor has no parameters and processes a whole batch at once.

    A location is (x, y); -1 and 1 are the centers of the border pixels, so x = -1 is column 0 and x = 1 column W - 1.
    A window of s pixels around the column c = (x + 1) / 2 * (W - 1) starts at the column c - (s - 1) / 2 rounded half
    up: at floor(c + 1/2) - (s - 1) / 2 if s is odd, else at floor(c) + 1 - s / 2. c is float32. Fractions less than
    1/1024 below the next integer are rounded up as well: a window of even size around the center of a pixel is exactly
    between two columns, and rounding errors must not decide. Locations outside [-1, 1] are clamped.

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
        # Height and width of the window of every scale.
        self._sides = [(self.patch_size[0] * factor**k, self.patch_size[1] * factor**k) for k in range(num_scales)]
        # Scales whose windows have a common center: the larger ones contain the smaller ones. Windows of even and of
        # odd size are rounded differently.
        scales = list(range(num_scales))
        is_mixed = factor % 2 == 0 and any(side % 2 for side in self.patch_size) and num_scales > 1
        self._nested = [scales[:1], scales[1:]] if is_mixed else [scales]

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (scales, C, h, w)."""
        return (self.num_scales, channels, *self.patch_size)

    def __call__(self, images: Tensor, locations: Tensor, index: Tensor | None = None) -> Tensor:
        """Extracts the patches at N locations: (N, scales, C, h, w); see :meth:`Sensor.__call__`."""
        index = _image_index(images, len(locations), index)
        locations = locations.float()
        largest = images.shape[1] * math.prod(self._sides[-1])
        chunk = max(1, _CHUNK // largest) if images.is_cpu else len(locations)
        if chunk >= len(locations):
            return self._extract(images, locations, index)
        parts = zip(locations.split(chunk), index.split(chunk), strict=True)
        return torch.cat([self._extract(images, *part) for part in parts])

    def _extract(self, images: Tensor, locations: Tensor, index: Tensor) -> Tensor:
        """Extracts the patches at locations (N, 2) of the images with the given indices (N,)."""
        height, width = images.shape[2:]
        highest = 255 if images.dtype == torch.uint8 else 1
        patches: list[Tensor] = []
        for scales in self._nested:
            window = rows, columns = self._sides[scales[-1]]
            pixels = _read_windows(images, index, _first_pixels(locations, (height, width), window), window)
            for k in scales:
                h, w = self._sides[k]
                top, left = (rows - h) // 2, (columns - w) // 2
                patches.append(_average(pixels[:, :, top : top + h, left : left + w], self.factor**k, highest))
        return patches[0][:, None] if len(patches) == 1 else torch.stack(patches, dim=1)

    def window_starts(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the top left pixel of every window: (N, scales, 2) int64, (row, column); may be negative."""
        first = [_first_pixels(locations.float(), (height, width), window) for window in self._sides]
        return torch.stack(first, dim=1).flip(-1)

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the window of every scale: (N, scales, 4); see :meth:`Sensor.windows`."""
        first = self.window_starts(height, width, locations)
        sides = torch.tensor(self._sides, device=first.device)
        return torch.cat([first.flip(-1), (first + sides).flip(-1)], dim=-1)


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

    def patch_shape(self, channels: int) -> tuple[int, int, int, int]:
        """Returns the shape of one observation: (1, C, rings, angles)."""
        return (1, channels, self.num_rings, self.num_angles)

    def __call__(self, images: Tensor, locations: Tensor, index: Tensor | None = None) -> Tensor:
        """Extracts the patches at N locations: (N, 1, C, rings, angles); see :meth:`Sensor.__call__`."""
        index = _image_index(images, len(locations), index)
        center = pixel_coordinates(locations, *images.shape[2:])[:, None, None]
        rings = []
        for k in sorted(set(self._resolution)):
            chosen = [ring for ring, resolution in enumerate(self._resolution) if resolution == k]
            points = center + self._points[chosen].to(center.device)
            first = _first_pixel(points, 2**k).view(-1, 2).flip(-1)
            count = len(chosen) * self.num_angles
            pixels = _read_windows(images, index.repeat_interleave(count), first, (2**k, 2**k))
            values = _average(pixels, 2**k, 255 if images.dtype == torch.uint8 else 1)
            values = values.view(len(locations), count, -1).transpose(1, 2)
            rings.append(values.reshape(len(locations), 1, -1, len(chosen), self.num_angles))
        return torch.cat(rings, dim=-2)

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the disc sampled at full resolution and the whole disc: (N, 2, 4); see :meth:`Sensor.windows`."""
        center = pixel_coordinates(locations, height, width)[:, None].flip(-1)
        radius = self._discs.to(center.device)[:, None]
        return torch.cat([(center - radius).round(), (center + radius).round() + 1], dim=-1).long()
