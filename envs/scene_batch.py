"""The scenes that the rows of an environment show: prepared images, annotations and coarse views."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from envs.scene import DynamicScenes, Scene
from envs.sensor import PreparedImages, Sensor


class SceneBatch:
    """Holds the current scene of every row and reads patches from it.

    Args:
        sensor: the sensor that reads the images.
        context_size: (height, width) of the coarse view, or None.
        rows_per_image: adjacent rows that show the same image.
        keep_images: whether to keep the images, for rendering.

    Attributes:
        annotations: tensors (B, ...), one row of each for every row of the environment.
        prepared: the images as the sensor needs them.
        images: (B / rows_per_image, C, H, W), if they are kept.
    """

    annotations: dict[str, Tensor]
    prepared: PreparedImages
    images: Tensor
    _context: Tensor  # (B, C, h', w')

    def __init__(
        self, sensor: Sensor, context_size: tuple[int, int] | None, rows_per_image: int, keep_images: bool
    ) -> None:
        self._sensor = sensor
        self._context_size = context_size
        self._rows_per_image = rows_per_image
        self._keep_images = keep_images

    def show(self, scene: Scene, rows: Tensor | None) -> None:
        """Replaces the scenes of the given rows, or of all.

        Args:
            scene: annotations for every row, images for every ``rows_per_image`` rows.
            rows: (n,) int64, whole groups of rows that show one image; None for all rows.
        """
        prepared = self._sensor.prepare(scene.images)
        context = None
        if self._context_size:
            context = F.adaptive_avg_pool2d(scene.images, self._context_size)
            context = context.repeat_interleave(self._rows_per_image, 0)
        if rows is None:
            self.prepared, self.annotations = prepared, dict(scene.annotations)
            if context is not None:
                self._context = context
            if self._keep_images:
                self.images = scene.images.clone()
            return
        images = rows[:: self._rows_per_image] // self._rows_per_image
        for held, new in zip(self.prepared.maps, prepared.maps, strict=True):
            held[images] = new  # in place, because these maps are never handed out
        self.annotations = {
            name: held.index_copy(0, rows, scene.annotations[name]) for name, held in self.annotations.items()
        }
        if context is not None:
            self._context = self._context.index_copy(0, rows, context)
        if self._keep_images:
            self.images[images] = scene.images

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
        observation = {"patches": self._sensor(self.prepared, location), "location": location, "step": look}
        if "goal" in self.annotations:
            observation["goal"] = self.annotations["goal"]
        if self._context_size:
            observation["context"] = self._context
        return observation
