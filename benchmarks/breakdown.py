"""Divides the time of a training step into parts, with torch's profiler."""

from __future__ import annotations

import math
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.timing import show
from benchmarks.training import Training
from envs import GlimpseVectorEnv
from envs.images import ImageSet
from ram.agent import RecurrentAttention
from ram.policies import LocationNetwork
from ram.tasks.glimpse import GlimpseTask
from ram.unroll import Unroll

_PRODUCTS = "matrix products, forward and backward"
_NETWORKS = "glimpse and core networks without products"
_ENVIRONMENT = "environment and sensor"
_SAMPLING = "sampling and random numbers"
_LOSS = "loss, baseline and heads"
_AUTOGRAD = "remaining autograd"
_OPTIMIZER = "optimizer and averaging"
_PARTS = (_PRODUCTS, _NETWORKS, _ENVIRONMENT, _SAMPLING, _LOSS, _AUTOGRAD, _OPTIMIZER)
_STEP = "training step"


# The subclasses below only mark parts of their parents for the profiler.


class _ProfiledEnv(GlimpseVectorEnv):
    reset = record_function(_ENVIRONMENT)(GlimpseVectorEnv.reset)
    step = record_function(_ENVIRONMENT)(GlimpseVectorEnv.step)


class _ProfiledLocation(LocationNetwork):
    def forward(self, features: Tensor, step: Tensor | None = None) -> Any:
        with record_function(_LOSS if torch.is_grad_enabled() else _SAMPLING):
            return super().forward(features, step)


class _ProfiledAgent(RecurrentAttention):
    def unroll(self, num_glimpses: int) -> Unroll:
        unroll = super().unroll(num_glimpses)
        unroll.step = record_function(_NETWORKS)(unroll.step)  # type: ignore[method-assign]
        return unroll


class _ProfiledTask(GlimpseTask):
    _noise = record_function(_SAMPLING)(GlimpseTask._noise)


class _ProfiledTraining(Training):
    step = record_function(_STEP)(Training.step)
    backward = record_function(_AUTOGRAD)(Training.backward)
    update = record_function(_OPTIMIZER)(Training.update)


def _attribute(event: Any, part: str, spent: dict[str, float]) -> None:
    """Adds the milliseconds of a profiler event and of its children to their parts."""
    part = event.name if event.name in spent else part
    spent[_PRODUCTS if event.name in ("aten::mm", "aten::addmm", "aten::addmm_") else part] += (
        event.self_cpu_time_total / 1e3
    )
    for child in event.cpu_children:
        _attribute(child, part, spent)


def time_parts(images: ImageSet, steps: int) -> None:
    """Measures the parts of a training step with the profiler."""
    training = _ProfiledTraining(
        images, 128, _ProfiledTask, partial(_ProfiledAgent, policy=_ProfiledLocation), _ProfiledEnv
    )
    training.step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            training.step()
    steps_spent: list[dict[str, float]] = []
    for event in profiler.events() or []:
        if event.name == _STEP:
            steps_spent.append(dict.fromkeys(_PARTS, 0.0))
            _attribute(event, _LOSS, steps_spent[-1])
    # The slower steps may include the time of other processes.
    fastest = sorted(steps_spent, key=lambda spent: sum(spent.values()))[: math.ceil(steps / 4)]
    parts = {name: mean(spent[name] for spent in fastest) for name in _PARTS}
    total = sum(parts.values())
    show(
        "Where the time of a training step goes",
        ["part", "ms", "share"],
        [[name, f"{value:.2f}", f"{100 * value / total:.0f} %"] for name, value in parts.items()],
        f"Batch 128, the mean of the fastest quarter of {steps} steps under the profiler, which slows down small "
        f"operations.\nA part includes its time in Python. Total: {total:.1f} ms.",
    )
