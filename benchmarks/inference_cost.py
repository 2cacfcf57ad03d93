"""Counts the operations of networks that classify images of different sizes, times them, and plots both.

``python -m benchmarks.inference_cost --plot inference_cost.png``
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import alternate, machine, show
from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet
from ram.agent import RecurrentAttention
from ram.image_classifier import ImageClassifier
from ram.image_encoders import Convolutional, ImageEncoder, Patches
from ram.networks import CoreNetwork, GlimpseNetwork, PatchConvolutions
from ram.rollout import evaluate_episodes
from ram.sequence.pooling import SumPooling
from ram.sequence.transformer import TransformerEncoder
from ram.training.memory import keep_freed_memory

_SIZES = (28, 60, 100, 200, 400, 1000)
_NUM_ROWS = 8  # at every size, so that the overhead of a call is the same
_CLASSES = tuple("0123456789")
_PATCH_SIZE = 12
_NUM_GLIMPSES = 8
_CONTEXT_SIZE = 15


def main() -> None:
    """The command ``python -m benchmarks.inference_cost``."""
    parser = argparse.ArgumentParser(description="Counts operations and times networks by the size of the image.")
    parser.add_argument("--quick", action="store_true", help="small images only")
    parser.add_argument("--plot", type=Path, help="draws the table to this PNG file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    torch.manual_seed(0)
    sizes = _SIZES[:3] if arguments.quick else _SIZES
    costs = {size: _costs(size, seconds=1 if arguments.quick else 20) for size in sizes}
    print(machine())
    show(
        "Cost of a class by the size of the image",
        ["image", *(f"{name} ({unit})" for name in next(iter(costs.values())) for unit in ("MFLOP", "ms"))],
        [
            [f"{size} x {size}", *(value for cost in each.values() for value in _format(cost))]
            for size, each in costs.items()
        ],
        f"For one image of a batch of {_NUM_ROWS}: inference in float32, one thread. RAM: {_NUM_GLIMPSES} glimpses, "
        f"the finest of {_PATCH_SIZE} x {_PATCH_SIZE} pixels,\nthe largest at least three quarters as high as the "
        "image, and a coarse view. Operations are multiplications and\nadditions of matrix products and convolutions; "
        "the averages of pixels are timed only.",
    )
    if arguments.plot is not None:
        _plot(costs, arguments.plot)


def _costs(size: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Returns the operations and the seconds of every network for one image of a size."""
    images = torch.randint(256, (_NUM_ROWS, 1, size, size), dtype=torch.uint8)
    runs = {
        "RAM": _agent(ImageSet(images, torch.zeros(_NUM_ROWS, dtype=torch.int64), _CLASSES)),
        "convolutional": _classifier(images, Convolutional),
        "patch self-attention": _classifier(images, _patches(size)),
    }
    operations = {}
    with torch.no_grad():
        for name, run in runs.items():
            with FlopCounterMode(display=False) as counter:
                run()
            operations[name] = counter.get_total_flops() / _NUM_ROWS
        spent = alternate(runs, seconds)
    return {name: (operations[name], spent[name] / _NUM_ROWS) for name in runs}


def _agent(images: ImageSet) -> Callable[[], object]:
    """Returns a function that classifies all images by the agent of ``experiment=translated_60x60``."""
    rows, size = len(images), images.images.shape[-1]
    scales = max(1, math.ceil(math.log2(size / _PATCH_SIZE)))
    env = GlimpseVectorEnv(
        images,
        GlimpseSensor(_PATCH_SIZE, scales),
        split="test",
        num_envs=rows,
        num_glimpses=_NUM_GLIMPSES,
        first_location="center",
        context_size=_CONTEXT_SIZE,
        output="torch",
        autoreset_mode="Disabled",
    )
    env.reset(seed=0)
    agent = RecurrentAttention(
        glimpse=partial(GlimpseNetwork, patch_features=256, convolutions=PatchConvolutions),
        core=partial(CoreNetwork, cell="gru", num_layers=2),
        **env.interface,
    )
    return partial(evaluate_episodes, agent.eval(), env, torch.arange(rows), 0)


def _patches(size: int) -> Callable[[tuple[int, int, int]], ImageEncoder]:
    """Returns a vision transformer of three layers; its patches of 10 x 10 pixels, or 7 x 7, divide the image."""
    return partial(Patches, patch_size=7 if size % 10 else 10, encoder=partial(TransformerEncoder, num_layers=3))


def _classifier(images: torch.Tensor, encoder: Callable[[tuple[int, int, int]], ImageEncoder]) -> Callable[[], object]:
    """Returns a function that classifies all images by a network that sees them whole."""
    _, channels, height, width = images.shape
    model = ImageClassifier((channels, height, width), len(_CLASSES), encoder, partial(SumPooling, mean=True)).eval()

    def run() -> object:
        return model(images.float() / 255)

    return run


def _format(cost: tuple[float, float]) -> tuple[str, str]:
    operations, seconds = cost
    return f"{operations / 1e6:,.1f}", f"{1e3 * seconds:,.2f}"


def _plot(costs: Mapping[int, Mapping[str, tuple[float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = ("operations for an image", 1e6, "million"), ("time for an image", 1e-3, "milliseconds")
    for number, (axes, (title, unit, label)) in enumerate(zip(figure.subplots(1, 2), panels, strict=True)):
        for name in next(iter(costs.values())):
            values = [cost[name][number] / unit for cost in costs.values()]
            axes.plot(list(costs), values, marker="o", markersize=4, label=name)
            axes.annotate(name, (max(costs), values[-1]), (6, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set(xscale="log", yscale="log", xlabel="height and width of the image in pixels", ylabel=label)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xticks(list(costs), [str(size) for size in costs])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
