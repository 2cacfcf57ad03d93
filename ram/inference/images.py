"""Trained classifiers of whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.scene import Scene
from ram.image_classifier import ImageClassifier
from ram.inference import ImageModel, Row, class_rows, parse_image_batch
from ram.plots.images import classified_images


@dataclass(frozen=True)
class Prediction:
    """The classes of N images.

    Attributes:
        label: N class names.
        probability: (N, K), of every class.
        weights: (N, Q, rows, columns), the attention weights of the cells of each image; None without attention.
    """

    label: tuple[str, ...]
    probability: Tensor
    weights: Tensor | None


@dataclass(frozen=True, repr=False)
class ImagePredictor(ImageModel):
    """A trained :class:`ram.image_classifier.ImageClassifier`, as returned by :func:`ram.load`.

    Attributes:
        model: the network, in evaluation mode.
        classes: the class names.
        image_shape: (C, H, W) of the images.
        device: where to compute.
    """

    model: ImageClassifier
    classes: Sequence[str]
    image_shape: tuple[int, int, int]
    device: str

    @torch.no_grad()
    def predict(self, images: Tensor | np.ndarray) -> Prediction:
        """Classifies images.

        Args:
            images: (N, C, H, W), float in [0, 1] or uint8.

        Raises:
            InputError: if the images have another shape, type or range.
        """
        pixels = Scene(parse_image_batch(images, *self.image_shape)).pixels()
        output = self.model(pixels.to(self.device))
        weights = None if output.weights is None else output.weights.unflatten(-1, self.model.image_encoder.grid)
        label = tuple(self.classes[number] for number in output.logits.argmax(-1).tolist())
        return Prediction(label, output.logits.softmax(-1), weights)

    def tabulate(self, images: Tensor) -> tuple[list[Row], Callable[[int], np.ndarray]]:
        """Classifies images; see :meth:`ram.inference.ImageModel.tabulate`."""
        prediction = self.predict(images)
        rows = class_rows(prediction.label, prediction.probability, self.classes)

        def draw(index: int) -> np.ndarray:
            label, pixels = [prediction.label[index]], Scene(images[index : index + 1]).pixels()
            weights = (
                None if prediction.weights is None else prediction.weights[index].float().mean(0).view(1, -1).cpu()
            )
            return classified_images(pixels, label, label, weights, self.model.image_encoder.grid)

        return rows, draw
