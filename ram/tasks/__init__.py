"""What can be trained: a task is a module whose ``forward(step)`` is one whole training step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from envs.splits import Split


@dataclass(frozen=True)
class StepResult:
    """What a training step yields.

    Attributes:
        loss: a scalar to descend, with gradient.
        metrics: computes what to log of this step beside the loss, by name; the terms of the loss are named
            ``loss/...``. It is called only on steps that are logged.
    """

    loss: Tensor
    metrics: Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Animation:
    """Frames (H, W, 3) uint8 to be shown one after another."""

    frames: tuple[np.ndarray, ...]
    frames_per_second: float


@dataclass(frozen=True)
class Embedding:
    """Vectors to be looked at in TensorBoard's projector.

    Attributes:
        vectors: (N, D).
        notes: what is said of each, N texts by the name of a column.
    """

    vectors: Tensor
    notes: Mapping[str, Sequence[str]]


Artifact = np.ndarray | Animation | str | Embedding
"""What people would rather look at than at numbers: (H, W, 3) uint8, frames of it, a text, or vectors."""


class Task(nn.Module, ABC):
    """All that the trainer knows of what it trains. The batch and all noise are functions of (seed, step).

    Attributes:
        steps_per_epoch: training steps that see every example once.
        examples_per_step: distinct examples a step.
        unit: what an example is called, in the plural.
        monitor: the metric of ``evaluate("validation")`` that chooses the best checkpoint.
        maximize: whether more of it is better.
        progress: the share of the budget that is spent, in [0, 1]; the trainer sets it before every step.
    """

    steps_per_epoch: int
    examples_per_step: int
    unit: str
    monitor: str
    maximize: bool
    progress: float = 0.0

    @abstractmethod
    def forward(self, step: int) -> StepResult:
        """Computes the loss of training step ``step``, from 0."""

    @abstractmethod
    def evaluate(self, split: Split) -> dict[str, float]:
        """Measures the "validation" or "test" split."""

    @classmethod
    @abstractmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """The trained model alone, for use without the training data.

        Args:
            state: of the task, with the weights to use.
            arguments: of the task's constructor, from the run's configuration.
        """

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What to train: ``params``, and ``rate``, by which the learning rate of a group is multiplied."""
        return [{"params": [value for value in self.parameters() if value.requires_grad], "rate": 1.0}]

    def diagnostics(self, step: int) -> Mapping[str, float]:
        """Measures what is too costly for every step, on a small fixed batch, leaving no trace."""
        return {}

    def pictures(self, split: Split) -> Mapping[str, Artifact]:
        """Draws what people would rather look at, by file name."""
        return {}


def part(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of one part of a task's state, named as that part itself names them."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
