"""Trained models, as ram.load returns them: one class per kind of model."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from envs.errors import InputError
from envs.validation import parse_images


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
