"""Tasks: modules whose ``forward(step)`` is one whole training step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from envs.errors import InputError
from envs.splits import Split
from ram.metrics.classification import Classification


@dataclass(frozen=True)
class StepResult:
    """The result of a training step.

    Attributes:
        loss: a scalar, with gradient.
        metrics: computes the metrics of the step by name; the terms of the loss are named ``loss/...``. It is called
            only on steps that are logged. With several processes the trainer averages the metrics over them.
    """

    loss: Tensor
    metrics: Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Animation:
    """Frames (H, W, 3) uint8 of an animation."""

    frames: tuple[np.ndarray, ...]
    frames_per_second: float


@dataclass(frozen=True)
class Embedding:
    """Vectors for TensorBoard's projector.

    Attributes:
        vectors: (N, D).
        metadata: N texts for each column, by the name of the column.
    """

    vectors: Tensor
    metadata: Mapping[str, Sequence[str]]


Artifact = np.ndarray | Animation | str | Embedding
"""A result other than a number: an image (H, W, 3) uint8, an animation, a text, or vectors."""


class Task(nn.Module, ABC):
    """Base class of tasks: the interface that the trainer uses. Batch and noise are functions of (seed, step).

    With several processes each computes its share of the batch; see :mod:`ram.distributed`. All of them call
    ``forward``, :meth:`evaluate` and :meth:`diagnostics`; :meth:`classify` and :meth:`pictures` are called in process 0
    only.

    Attributes:
        steps_per_epoch: training steps in which every example is used once.
        examples_per_step: distinct examples per step, over all processes.
        unit: the plural noun for examples.
        monitor: the metric of ``evaluate("validation")`` that selects the best checkpoint.
        class_layers: beginnings of the names of weights that belong to single classes; ``init`` of a run with other
            classes keeps their initial values.
        progress: completed fraction of the budget, in [0, 1]; the trainer sets it before every step.
    """

    steps_per_epoch: int
    examples_per_step: int
    unit: str
    monitor: str
    class_layers: tuple[str, ...] = ()
    progress: float = 0.0

    @abstractmethod
    def forward(self, step: int) -> StepResult:
        """Computes training step number ``step``, from 0."""

    @abstractmethod
    def evaluate(self, split: Split) -> dict[str, float]:
        """Computes the metrics of the "validation" or "test" split by name."""

    def higher_is_better(self, metric: str) -> bool:
        """Returns whether a larger value of a metric of :meth:`evaluate` is better; not so for errors and losses."""
        return False

    @property
    def maximize(self) -> bool:
        """Whether a larger value of the monitor is better."""
        return self.higher_is_better(self.monitor)

    @classmethod
    @abstractmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Builds the trained model, of :mod:`ram.inference`, from a checkpoint without loading the training data.

        Args:
            state: the state of the task, with the weights to use.
            arguments: the arguments of the task's constructor, from the run's configuration.
        """

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Returns the groups of the optimizer: ``params``, and ``lr_scale``, the factor of their learning rate.

        The factor of a parameter is the attribute ``lr_scale`` of the module that contains it; 1 without one.
        """
        scaled = [module for module in self.modules() if hasattr(module, "lr_scale")]
        scales: dict[int, Any] = {id(value): module.lr_scale for module in scaled for value in module.parameters()}
        groups: dict[float, list[nn.Parameter]] = {1.0: []}
        for value in self.parameters():
            if value.requires_grad:
                groups.setdefault(scales.get(id(value), 1.0), []).append(value)
        return [{"params": params, "lr_scale": scale} for scale, params in groups.items() if params]

    def step_bytes(self) -> int:
        """Returns a lower bound of the bytes that a training step needs; 0 if it is not known."""
        return 0

    def diagnostics(self, step: int) -> Mapping[str, float]:
        """Computes metrics that are too costly for every step, on a small fixed batch, without changing any state."""
        return {}

    def classify(self, split: Split) -> Classification | None:
        """Returns the classes of all examples of a split as the model predicts them; None if it predicts no classes."""
        return None

    def pictures(self, split: Split) -> Mapping[str, Artifact]:
        """Returns artifacts of a split by file name."""
        return {}


def check_classes(classes: Sequence[str]) -> None:
    """Raises InputError if all images are of one class."""
    if len(classes) == 1:
        raise InputError(f"All images have the label {classes[0]!r}: there must be another.")


def noise_seed(seed: int, step: int, rank: int = 0) -> int:
    """Returns a seed of torch's generator for a training step; dropout and sampled choices differ between processes."""
    return (((seed << 32) + step) % 2**63) ^ (rank << 48)


def substate(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Returns the entries of a state whose names start with ``prefix``, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
