"""Scenes: batches of images with annotations; and the protocols of the sets that scenes are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from envs.random import RowRandom

END_CLASS = "end"
"""The class of the answer that ends a sequence of answers."""


@dataclass(frozen=True)
class Scene:
    """A batch of B images and their annotations.

    Attributes:
        images: (B, C, H, W) float32 in [0, 1].
        annotations: tensors (B, ...) by the names of the fields of :class:`envs.rewards.Transition`. ``label`` is
            (B,), or (B, A) where A answers are due one after another, with ``IGNORE_INDEX`` after the last answer of
            an image; ``goal`` (B,) int64 is the class that the agent has to find.
    """

    images: Tensor
    annotations: Mapping[str, Tensor] = field(default_factory=dict)


class SceneSet(Protocol):
    """One split of the scenes that an environment shows.

    Attributes:
        classes: the name of every answer, or of every goal where no answer is due.
    """

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """Returns the scenes with the given indices (B,); random properties are drawn from ``random``, of B rows."""
        ...


@runtime_checkable
class DynamicScenes(Protocol):
    """A scene set whose scenes change with the answers of the agent.

    Attributes:
        horizon: the number of answers after which every scene has ended.
    """

    @property
    def horizon(self) -> int: ...

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        """Returns the next state of B scenes after an answer (B,) int64.

        An episode ends where the annotation ``over`` (B,) bool of the next state is True.
        """
        ...
