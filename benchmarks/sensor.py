"""Times the sensor against loops over images."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import NUM_ROWS, alternate, show
from envs import GlimpseSensor


def pad_crop_pool(images: Tensor, locations: Tensor, sensor: GlimpseSensor) -> Tensor:
    """The common implementation: a loop that pads, crops and averages every image at every scale."""
    starts = sensor.window_starts(images.shape[-2], images.shape[-1], locations)
    patches = []
    for image, corners in zip(images, starts.tolist(), strict=True):
        scales = []
        for k, (row, column) in enumerate(corners):
            pool = sensor.factor**k
            height, width = (side * pool for side in sensor.patch_size)
            row, column = row + height // 2, column + width // 2
            padded = F.pad(image, (width // 2, width // 2, height // 2, height // 2))
            window = padded[:, row : row + height, column : column + width]
            scales.append(window if pool == 1 else F.avg_pool2d(window, pool))
        patches.append(torch.stack(scales))
    return torch.stack(patches)


def pad_once(images: Tensor, sensor: GlimpseSensor) -> list[Tensor]:
    """Pads the images for every scale."""
    pads = [[side * sensor.factor**k // 2 for side in sensor.patch_size] for k in range(sensor.num_scales)]
    return [F.pad(images, (width, width, height, height)) for height, width in pads]


def slice_pool(images: Tensor, padded: list[Tensor], locations: Tensor, sensor: GlimpseSensor) -> Tensor:
    """Crops padded images in a loop, and averages all windows of a scale together."""
    starts = sensor.window_starts(images.shape[-2], images.shape[-1], locations)
    scales = []
    for k, values in enumerate(padded):
        pool = sensor.factor**k
        height, width = (side * pool for side in sensor.patch_size)
        corners = (starts[:, k] + torch.tensor([height // 2, width // 2])).tolist()
        windows = torch.stack(
            [image[:, y : y + height, x : x + width] for image, (y, x) in zip(values, corners, strict=True)]
        )
        scales.append(windows if pool == 1 else F.avg_pool2d(windows, pool))
    return torch.stack(scales, dim=1)


def time_sensor(seconds: float) -> None:
    """Times one glimpse of every image of a batch, by loops over images and by the sensor."""
    rows = []
    for size in (28, 60):
        for num_scales in (1, 3):
            sensor = GlimpseSensor(patch_size=8, num_scales=num_scales)
            stored = torch.randint(256, (NUM_ROWS, 1, size, size), dtype=torch.uint8)
            images, locations = stored / 255, torch.rand(NUM_ROWS, 2) * 2 - 1
            padded = pad_once(images, sensor)
            runs = {
                "a": partial(pad_crop_pool, images, locations, sensor),
                "b": partial(slice_pool, images, padded, locations, sensor),
                "c": partial(sensor, images, locations),
                "d": partial(sensor, stored, locations),
            }
            expected = runs["a"]()
            for run in runs.values():
                torch.testing.assert_close(run(), expected)
            spent = alternate(runs, seconds)
            rows.append(
                [f"{size} x {size}", str(num_scales)]
                + [f"{1e3 * spent[name]:.2f}" for name in runs]
                + [f"{spent[slow] / spent[ours]:.1f}" for slow, ours in ("ac", "ad", "bc", "bd")]
            )
    show(
        "Sensor",
        ["image", "scales", *(f"{name} (ms)" for name in "abcd"), "a / c", "a / d", "b / c", "b / d"],
        rows,
        f"One glimpse of 8 x 8 pixels at every scale of {NUM_ROWS:,} grayscale images; all four return equal patches.\n"
        "a: a loop that pads, crops and averages every image. b: a loop that crops images padded before.\n"
        "c: this sensor on float32 images. d: this sensor on uint8 images.",
    )
