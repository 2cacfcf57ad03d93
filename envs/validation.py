"""Arrays and tensors that a user hands to an environment, read with an eye on shape, type and range."""

from __future__ import annotations

import math
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError


def check_integer(name: str, value: Any, least: int) -> None:
    """Refuses what is no whole number of at least ``least``; numpy's are ones too."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def check_positive_integers(owner: str, **values: int | None) -> None:
    """Refuses what is below 1, None aside; ``owner`` is written before the names, as in "encoder.size"."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{owner}.{name} must be at least 1, got {value}.")


def check_factory(name: str, builder: Any, kind: type, told: str) -> None:
    """Refuses what builds another kind of thing, as far as that can be seen; ``told`` says what it should be for."""
    built = builder.func if isinstance(builder, partial) else builder
    if isinstance(built, type) and not issubclass(built, kind):
        raise InputError(f"{name} must be one of {told}, got {built.__name__}.")


def check_positive(name: str, value: float) -> None:
    """Refuses what is no finite number above 0."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be positive and finite, got {value}.")


def check_probability(name: str, value: float) -> None:
    """Refuses what is no share to be dropped: a number in [0, 1)."""
    if not 0 <= value < 1:
        raise InputError(f"{name} must be in [0, 1), got {value}.")


def read(name: str, value: Any, device: torch.device) -> Tensor:
    """A tensor as it is, anything else copied: a user may write into an array again."""
    if isinstance(value, Tensor):
        return value.detach().to(device)
    try:
        return torch.from_numpy(np.array(value)).to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from error


def read_images(asked_by: str, value: Any) -> Tensor:
    """Images as float32 in [0, 1], or as uint8; of any shape."""
    images = torch.as_tensor(value)
    if images.is_floating_point():
        images = images.float()
        if not ((images >= 0) & (images <= 1)).all():
            raise InputError(f"{asked_by} needs floats in [0, 1], or uint8: divide the images by their largest value.")
    elif images.dtype != torch.uint8:
        raise InputError(f"{asked_by} needs images of floats in [0, 1], or of uint8, got {describe(images)}.")
    return images


def read_integers(name: str, value: Any, count: int, high: int | None, device: torch.device) -> Tensor:
    """``count`` whole numbers, in 0 .. high - 1 if ``high`` is given: (count,) int64."""
    numbers = read(name, value, device)
    kind = numbers.dtype
    if numbers.shape != (count,) or kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise InputError(f"{name} must be ({count},) integers, got {describe(numbers)}.")
    if high is not None and not ((numbers >= 0) & (numbers < high)).all():
        raise InputError(f"{name} must lie in 0 .. {high - 1}.")
    return numbers.long()


def read_floats(name: str, value: Any, shape: tuple[int, ...], device: torch.device, infinite: bool = False) -> Tensor:
    """Floating point numbers, none of them NaN, nor infinite unless that is said to be right: ``shape``, float32."""
    numbers = read(name, value, device)
    if numbers.shape != shape or not numbers.is_floating_point():
        raise InputError(f"{name} must be {shape} floating point numbers, got {describe(numbers)}.")
    if infinite and numbers.isnan().any():
        raise InputError(f"{name} must not be NaN.")
    if not infinite and not numbers.isfinite().all():
        raise InputError(f"{name} must be finite, got NaN or infinity.")
    return numbers.float()


def read_flags(name: str, value: Any, count: int, device: torch.device) -> Tensor:
    """``count`` truth values, as bool or as 0 and 1: (count,) bool."""
    flags = read(name, value, device)
    truth = flags.dtype == torch.bool or not (flags.is_floating_point() or ((flags != 0) & (flags != 1)).any())
    if flags.shape != (count,) or not truth:
        raise InputError(f"{name} must be ({count},) bool, or 0 and 1, got {describe(flags)}.")
    return flags.bool()


def describe(values: Tensor) -> str:
    """Shape and type, as a message tells them."""
    return f"{tuple(values.shape)} {str(values.dtype).removeprefix('torch.')}"
