"""Scenes: batches of images with annotations, the sets they are drawn from, and those an environment shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.random import RowRandom
from envs.sensor import Sensor

END_CLASS = "end"
"""The class of the answer that ends a sequence of answers."""


@dataclass(frozen=True)
class Scene:
    """A batch of B images and their annotations.

    Attributes:
        images: (M, C, H, W), float32 in [0, 1] or uint8 in [0, 255]. M is B unless there is an ``index``.
        annotations: tensors (B, ...) by the names of the fields of :class:`envs.rewards.Transition`. ``label`` is
            (B,), or (B, A) where A answers are due one after another, with ``IGNORE_INDEX`` after the last answer of
            an image; ``goal`` (B,) int64 is the class that the agent has to find.
        index: (B,) int64, the image of each scene; ``images`` is then the same tensor in all scenes of a set, and
            nothing is copied. None for one image each.
    """

    images: Tensor
    annotations: Mapping[str, Tensor] = field(default_factory=dict)
    index: Tensor | None = None

    def pixels(self) -> Tensor:
        """Returns the image of every scene: (B, C, H, W) float32 in [0, 1]."""
        images = self.images if self.index is None else self.images[self.index]
        return images.float() / 255 if images.dtype == torch.uint8 else images


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


@dataclass(eq=False)
class SceneBatch:
    """Holds the current scene of every row and reads patches from it.

    Attributes:
        sensor: the sensor that reads the images.
        context_size: (height, width) of the coarse view, or None.
        rows_per_image: adjacent rows that show the same image.
        annotations: tensors (B, ...), one row of each for every row of the environment.
    """

    sensor: Sensor
    context_size: tuple[int, int] | None
    rows_per_image: int

    annotations: dict[str, Tensor] = field(init=False)
    _images: Tensor = field(init=False)  # (M, C, H, W)
    _index: Tensor = field(init=False)  # (B,), the image of each row
    _owns_images: bool = field(init=False)  # whether they may be written to
    _context: Tensor | None = field(init=False)  # (B, C, h', w')

    def show(self, scene: Scene, rows: Tensor | None) -> None:
        """Replaces the scenes of the given rows, or of all.

        Args:
            scene: annotations for every row, images for every ``rows_per_image`` rows.
            rows: (n,) int64, whole groups of rows that show one image; None for all rows.
        """
        index = scene.index
        if index is None and rows is None:
            index = torch.arange(len(scene.images), device=scene.images.device)
        if index is not None and self.rows_per_image > 1:
            index = index.repeat_interleave(self.rows_per_image)
        context = None
        if self.context_size:
            context = F.adaptive_avg_pool2d(scene.pixels(), self.context_size)
            context = context.repeat_interleave(self.rows_per_image, 0)
        if rows is None:
            assert index is not None
            self._images, self._index, self._owns_images = scene.images, index, False
            self.annotations, self._context = dict(scene.annotations), context
            return
        if index is not None:
            self._index = self._index.index_copy(0, rows, index)
        else:
            if not self._owns_images:
                self._images, self._owns_images = self._images.clone(), True
            self._images[rows[:: self.rows_per_image] // self.rows_per_image] = scene.images
        self.annotations = {
            name: held.index_copy(0, rows, scene.annotations[name]) for name, held in self.annotations.items()
        }
        if context is not None and self._context is not None:
            self._context = self._context.index_copy(0, rows, context)

    def image(self, row: int) -> Tensor:
        """Returns the image of a row: (C, H, W) float32 in [0, 1]."""
        return Scene(self._images, index=self._index[row : row + 1]).pixels()[0]

    def advance(self, scenes: DynamicScenes, answer: Tensor, active: Tensor) -> None:
        """Replaces the scenes of the active rows (B,) bool by their next states after the answers (B,)."""
        if bool(active.all()):
            self.show(scenes.advance(self.annotations, answer), None)
        else:
            rows = active.nonzero().flatten()
            annotations = {name: value[rows] for name, value in self.annotations.items()}
            self.show(scenes.advance(annotations, answer[rows]), rows)

    def observe(self, location: Tensor, look: Tensor) -> dict[str, Tensor]:
        """Returns the observation at the locations (B, 2) of the looks with the given indices (B,)."""
        patches = self.sensor(self._images, location, self._index)
        observation = {"patches": patches, "location": location, "step": look}
        if "goal" in self.annotations:
            observation["goal"] = self.annotations["goal"]
        if self._context is not None:
            observation["context"] = self._context
        return observation
