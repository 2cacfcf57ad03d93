"""Times a glimpse and a training step for images of different sizes, and plots both."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from benchmarks.timing import NUM_ROWS, alternate, show
from benchmarks.training import Training
from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet

_SIZES = (28, 60, 128, 256, 512, 1024)
_BYTES = 2**30  # of the images of each size, so that no size fits the cache better than another


def time_sizes(seconds: float, plot: Path | None) -> None:
    """Times a glimpse of 1,024 images and a training step of 128 images, for images of several sizes.

    Args:
        seconds: the time limit.
        plot: the file of the plot; None for no plot.
    """
    sensor = GlimpseSensor(8, 3)
    looks, steps = {}, {}
    memory = torch.randint(256, (_BYTES,), dtype=torch.uint8)
    for size in _SIZES:
        images = memory[: _BYTES // size**2 * size**2].view(-1, 1, size, size)
        index, locations = torch.randint(len(images), (NUM_ROWS,)), torch.rand(NUM_ROWS, 2) * 2 - 1
        looks[str(size)] = partial(sensor, images, locations, index)
        labelled = ImageSet(images, torch.randint(10, (len(images),)), tuple("0123456789"))
        steps[str(size)] = Training(labelled, 128, env=partial(GlimpseVectorEnv, sensor=sensor)).step
    look, step = (alternate(runs, seconds / 2) for runs in (looks, steps))
    show(
        "Size of the image",
        ["image", "look (ms)", "relative", "training step (ms)", "relative"],
        [
            [
                f"{size} x {size}",
                f"{1e3 * look[size]:.2f}",
                f"{look[size] / look['60']:.2f}",
                f"{1e3 * step[size]:.2f}",
                f"{step[size] / step['60']:.2f}",
            ]
            for size in look
        ],
        f"A glimpse of 8 x 8 pixels at three scales of {NUM_ROWS:,} images, and a training step with 128 images. The "
        "images are chosen at random from 1 GiB of\nuint8 images of each size. Relative times are relative to 60 x 60.",
    )
    if plot is not None:
        _plot(look, step, plot)


def _plot(look: dict[str, float], step: dict[str, float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    sizes = [int(size) for size in look]
    for name, times in (("training step, batch 128", step), ("one look at 1,024 images", look)):
        axes.plot(sizes, [1e3 * value for value in times.values()], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("height and width of the image in pixels")
    axes.set_ylabel("milliseconds")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
