"""Sensors: extract patches from images at given locations, at several resolutions.

A glimpse reads the pixels of its windows and nothing else, so its cost does not depend on the size of the image.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

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
        """Extracts the patches at N locations: a new tensor (N, scales, C, h, w).

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
def _pixel_steps(size: int, side: int, device: torch.device) -> Tensor:
    """Returns the locations along an axis of the image at which the first pixel of a window increases by one.

    The first pixel is a step function of the location, so that finding it is a search in this table. It is counted from
    ``side`` pixels before the image, so that it is never negative: the table begins with -inf, as often as needed.

    Args:
        size: of the image, in pixels.
        side: of the window, in pixels.
        device: of the table.

    Returns:
        (side // 2 + size,) float32, the smallest float32 of each step.
    """

    def values(key: Tensor) -> Tensor:  # the bit patterns of floats have the order of their absolute values
        return torch.where(key < 0, -(2**31) - key, key).to(torch.int32).view(torch.float32)

    one = int(torch.ones(()).view(torch.int32))
    low, high = torch.full((size - 1,), -one), torch.full((size - 1,), one)
    for _ in range(32):  # bisection
        middle = (low + high).div(2, rounding_mode="floor")
        pixel = _first_pixel((values(middle) + 1) * 0.5 * (size - 1), 1 if side % 2 else 2)
        reached = pixel > torch.arange(size - 1)
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return torch.cat([torch.full((side // 2 + 1,), -math.inf), values(high)]).to(device)


def _first_pixels(locations: Tensor, size: tuple[int, int], window: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns the first columns and rows of windows at locations (N, 2) in images of a size: two (N,) int64.

    They are counted from a window's width left of the image, and from its height above it.
    """
    row_steps, column_steps = (
        _pixel_steps(each, side, locations.device) for each, side in zip(size, window, strict=True)
    )
    if row_steps is column_steps:
        column, row = torch.bucketize(locations, row_steps, right=True).unbind(1)
        return column, row
    x, y = locations.mT.contiguous()
    return torch.bucketize(x, column_steps, right=True), torch.bucketize(y, row_steps, right=True)


class _Tables(NamedTuple):
    """What reading windows of one size from images of one shape needs, by the first columns and rows of the windows.

    Attributes:
        pixels: (C * h * w,) int64, the positions in memory of the pixels of a window whose first column and row are 0.
        runs: (C * h,) int64, those of the first pixels of its rows.
        first_run: the smallest of ``runs``.
        last_run: the largest of ``runs``.
        column_masks: (W + w + 1, 1, 1, w), 1 where a column of the window is in the image, else 0. For bytes, all bits
            of as many as fit into a word: up to eight columns.
        row_masks: (H + h + 1, 1, h, 1), likewise for the rows.
    """

    pixels: Tensor
    runs: Tensor
    first_run: int
    last_run: int
    column_masks: Tensor
    row_masks: Tensor


@lru_cache(maxsize=256)
def _tables(shape: tuple[int, int, int], window: tuple[int, int], dtype: torch.dtype, device: torch.device) -> _Tables:
    """Returns the tables for windows (h, w) of images (C, H, W) of a type on a device."""

    def inside(size: int, side: int) -> Tensor:
        pixel = torch.arange(size + side + 1)[:, None] + torch.arange(-side, 0)
        return ((pixel >= 0) & (pixel < size)).to(dtype)

    (channels, height, width), (rows, columns) = shape, window
    runs = torch.arange(channels)[:, None] * (height * width) + torch.arange(-rows, 0) * width - columns
    pixels = runs[:, :, None] + torch.arange(columns)
    row_masks, column_masks = inside(height, rows)[:, :, None], inside(width, columns)
    if dtype == torch.uint8:
        size = math.gcd(columns, 8)
        word = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[size]
        row_masks = row_masks.mul(255).repeat(1, 1, size).view(word)
        column_masks = column_masks.mul(255).view(word)
    return _Tables(
        pixels.flatten().to(device),
        runs.flatten().to(device),
        int(runs[0, 0]),
        int(runs[-1, -1]),
        column_masks[:, None, None].to(device),
        row_masks[:, None].to(device),
    )


def _read_windows(images: Tensor, index: Tensor, column: Tensor, row: Tensor, window: tuple[int, int]) -> Tensor:
    """Reads windows of images; pixels outside an image are zero.

    Args:
        images: (M, C, H, W), floating point or uint8.
        index: (N,) int64, the image of each window.
        column: (N,) int64, the first column of each window, counted from the window's width left of the image.
        row: (N,) int64, the first row, counted from the window's height above the image.
        window: height and width of the windows.

    Returns:
        (N, C, height, width), of the type of the images.
    """
    channels, height, width = images.shape[1:]
    tables = _tables((channels, height, width), window, images.dtype, images.device)
    start = torch.add(torch.add(column, row, alpha=width), index, alpha=channels * height * width)
    pixels = _copy_windows(images.reshape(-1), start, tables, window[1]).view(start.shape[0], channels, *window)
    row_mask, column_mask = tables.row_masks.index_select(0, row), tables.column_masks.index_select(0, column)
    if images.dtype == torch.uint8:
        pixels.view(row_mask.dtype).bitwise_and_(row_mask).bitwise_and_(column_mask)
        return pixels
    return pixels.mul_(row_mask).mul_(column_mask)


def _copy_windows(pixels: Tensor, start: Tensor, tables: _Tables, columns: int) -> Tensor:
    """Copies windows of images. What is outside the image of a window are arbitrary pixels of the images.

    Args:
        pixels: (M * C * H * W,), of all images.
        start: (N,) int64, the position to which the tables are relative, for each window.
        tables: for the images and windows.
        columns: of a window, w.

    Returns:
        (N * C * h * w,), or the same pixels in another shape.
    """

    def copy_pixels(start: Tensor) -> Tensor:
        return pixels.index_select(0, (start.unsqueeze(1) + tables.pixels).clamp_(0, size - 1).view(-1))

    count, size = start.shape[0], pixels.shape[0]
    last = size - columns
    if not pixels.is_cpu or pixels.requires_grad or count * tables.pixels.shape[0] < _FEW or last < 0:
        return copy_pixels(start)
    # Copying whole rows of windows is much faster. They may begin or end in another row or another image.
    runs, run = pixels.unfold(0, columns, 1), start.unsqueeze(1) + tables.runs
    lowest, highest = -tables.first_run, last - tables.last_run
    smallest, largest = start.aminmax()
    if int(smallest) >= lowest and int(largest) <= highest:
        return runs.index_select(0, run.view(-1))
    windows = runs.index_select(0, run.clamp_(0, last).view(-1)).view(count, -1)
    beyond = ((start < lowest) | (start > highest)).nonzero().flatten()  # before the first image or after the last
    windows[beyond] = copy_pixels(start[beyond]).view(len(beyond), -1)
    return windows


def _average(pixels: Tensor, side: int) -> Tensor:
    """Averages squares of side x side pixels: (N, C, h side, w side) -> (N, C, h, w); those of bytes in [0, 1]."""
    scale = side**2
    if pixels.dtype == torch.uint8:
        pixels, scale = pixels.float(), 255 * scale
    if side > 1:  # sums of slices are several times as fast as a pooling operation
        shape = pixels.shape[0], pixels.shape[1], pixels.shape[2] // side, pixels.shape[3] // side
        pixels = _sum(pixels.unflatten(2, (-1, side)).unbind(3))
        pixels = _sum(pixels.view(*shape, side).unbind(4))
    return pixels.div_(scale) if scale > 1 else pixels


def _sum(parts: tuple[Tensor, ...]) -> Tensor:
    """Returns the sum of two or more tensors of one shape."""
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total.add_(part)
    return total


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
        dtype = torch.float32 if images.dtype == torch.uint8 else images.dtype
        patches = torch.empty(len(locations), *self.patch_shape(images.shape[1]), dtype=dtype)
        for part in zip(patches.split(chunk), locations.split(chunk), index.split(chunk), strict=True):
            part[0].copy_(self._extract(images, *part[1:]))
        return patches

    def _extract(self, images: Tensor, locations: Tensor, index: Tensor) -> Tensor:
        """Extracts the patches at locations (N, 2) of the images with the given indices (N,)."""
        height, width = images.shape[2:]
        patches: list[Tensor] = []
        for scales in self._nested:
            window = rows, columns = self._sides[scales[-1]]
            pixels = _read_windows(images, index, *_first_pixels(locations, (height, width), window), window)
            for k in scales:
                h, w = self._sides[k]
                top, left = (rows - h) // 2, (columns - w) // 2
                part = pixels if k == scales[-1] else pixels[:, :, top : top + h, left : left + w]
                patches.append(_average(part, self.factor**k))
        return patches[0].unsqueeze(1) if len(patches) == 1 else torch.stack(patches, dim=1)

    def window_starts(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the top left pixel of every window: (N, scales, 2) int64, (row, column); may be negative."""
        first = [
            pixel - side
            for window in self._sides
            for pixel, side in zip(_first_pixels(locations.float(), (height, width), window), window[::-1], strict=True)
        ]
        return torch.stack(first, dim=1).unflatten(1, (-1, 2)).flip(-1)

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
            row, column = (_first_pixel(points, 2**k) + 2**k).view(-1, 2).unbind(1)
            row, column = row.clamp(0, images.shape[2] + 2**k), column.clamp(0, images.shape[3] + 2**k)
            count = len(chosen) * self.num_angles
            pixels = _read_windows(images, index.repeat_interleave(count), column, row, (2**k, 2**k))
            values = _average(pixels, 2**k)
            values = values.view(len(locations), count, -1).transpose(1, 2)
            rings.append(values.reshape(len(locations), 1, -1, len(chosen), self.num_angles))
        return torch.cat(rings, dim=-2)

    def windows(self, height: int, width: int, locations: Tensor) -> Tensor:
        """Returns the disc sampled at full resolution and the whole disc: (N, 2, 4); see :meth:`Sensor.windows`."""
        center = pixel_coordinates(locations, height, width)[:, None].flip(-1)
        radius = self._discs.to(center.device)[:, None]
        return torch.cat([(center - radius).round(), (center + radius).round() + 1], dim=-1).long()
