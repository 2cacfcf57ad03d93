"""The glimpse sensor: square windows of growing size around a location, each read at the same few pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError

_TOLERANCE = 2.0**-10  # of a pixel


@dataclass(frozen=True)
class PreparedImages:
    """Images made ready for many looks; what :meth:`GlimpseSensor.prepare` returns.

    Attributes:
        maps: one (B, C, H_k, W_k) tensor a scale, padded with zeros and averaged over factor**k x factor**k pixels,
            so that a pixel of a patch is one element of a map; all padded alike at the top and on the left.
        height: of the images, in pixels.
        width: of the images, in pixels.
    """

    maps: tuple[Tensor, ...]
    height: int
    width: int


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
        size = torch.tensor([height - 1, width - 1], device=locations.device)
        centre = (locations.float().clamp(-1, 1).flip(-1) + 1) * 0.5 * size
        half = torch.tensor(
            [[(side * self.factor**k - 1) / 2 for side in self.patch_size] for k in range(self.num_scales)],
            device=locations.device,
        )
        return torch.floor(centre[:, None] - half + (0.5 + _TOLERANCE)).long()


def _sum_shifted(values: Tensor, dim: int, count: int, distance: int) -> Tensor:
    """Adds ``count`` copies of ``values``, each shifted by ``distance`` more along ``dim``, where all overlap."""
    length = values.shape[dim] - (count - 1) * distance
    total = values.narrow(dim, 0, length)
    for shift in range(1, count):
        total = total + values.narrow(dim, shift * distance, length)
    return total
