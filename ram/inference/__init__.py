"""Trained models, as ram.load returns them: one class per kind of model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from envs.errors import InputError
from envs.validation import parse_images

Row = dict[str, Any]
"""The prediction for one input, as a row of a table by column."""


class ImageModel(ABC):
    """Base class of trained models of images.

    Attributes:
        image_shape: (C, H, W) of the training images.
    """

    image_shape: Sequence[int]

    def __repr__(self) -> str:
        channels, height, width = self.image_shape
        answers = f", {len(self.classes)} classes" if hasattr(self, "classes") else ""
        return f"{type(self).__name__}(images {channels} x {height} x {width}{answers})"

    @abstractmethod
    def tabulate(self, images: Tensor) -> tuple[list[Row], Callable[[int], np.ndarray]]:
        """Predicts for images (N, C, H, W) uint8 of the size of training.

        Returns:
            N rows, and a function that draws the prediction for the image with a given index: (H', W', 3) uint8.

        Raises:
            InputError: if the model does not predict for single images.
        """


def class_rows(labels: Sequence[str], probability: Tensor, classes: Sequence[str]) -> list[Row]:
    """Returns rows with the predicted class, ``label``, its ``probability``, and ``p(NAME)`` of every class.

    Args:
        labels: N predicted classes.
        probability: (N, K), of every class.
        classes: K names.
    """
    rows = []
    for label, values in zip(labels, probability.tolist(), strict=True):
        by_name = {f"p({name})": round(value, 6) for name, value in zip(classes, values, strict=True)}
        rows.append({"label": label, "probability": by_name[f"p({label})"]} | by_name)
    return rows


def parse_image_batch(images: Tensor | np.ndarray, channels: int, height: int | None, width: int | None) -> Tensor:
    """Returns the images (N, C, H, W) given to ``predict``, float32 in [0, 1] or uint8.

    Args:
        images: what the user gave.
        channels: C.
        height: H; None for any.
        width: W; None for any.

    Raises:
        InputError: if they have another shape, type or range.
    """
    tensor = parse_images("The argument images", images)
    expected = channels, height, width
    fits = tensor.ndim == 4 and all(
        side in (None, given) for side, given in zip(expected, tensor.shape[1:], strict=True)
    )
    if not fits or len(tensor) == 0:
        shape = f"(N, {channels}, {height or 'H'}, {width or 'W'})"
        raise InputError(f"predict needs images of shape {shape} with N of at least 1, got {tuple(tensor.shape)}.")
    return tensor
