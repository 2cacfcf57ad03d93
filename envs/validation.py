"""Range checks of options, and parsing of arrays that a user passes to an environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError


def check_integer(name: str, value: Any, minimum: int, maximum: int | None = None) -> None:
    """Refuses anything but an integer, of Python or numpy, of at least ``minimum`` and at most ``maximum``."""
    if not _is_integer(value, minimum):
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    if maximum is not None and value > maximum:
        raise InputError(f"{name} must be at most {maximum}, got {value}.")


def parse_pair(name: str, value: Any, minimum: int) -> tuple[int, int]:
    """Returns a pair of integers of at least ``minimum``, from a pair or from one number for both."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or not all(_is_integer(number, minimum) for number in pair):
        raise InputError(f"{name} must be a whole number of at least {minimum}, or a pair of them, got {value!r}.")
    return pair


def parse_sizes(name: str, value: Any, count: int | None = None) -> tuple[int, ...]:
    """Returns a list of ``count`` positive integers, or of any number of them but none, as a tuple."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = list(value)
        if value and len(value) == (count or len(value)) and all(_is_integer(size, 1) for size in value):
            return tuple(value)
    raise InputError(f"{name} must be a list of {f'{count} ' if count else ''}positive integers, got {value!r}.")


def check_positive_integers(group: str, **values: int | None) -> None:
    """Refuses values below 1, except None; messages name an option ``group.name``, such as "encoder.size"."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{group}.{name} must be at least 1, got {value}.")


def check_positive(name: str, value: float) -> None:
    """Refuses anything but a finite number above 0."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be positive and finite, got {value}.")


def check_weight(name: str, value: float) -> None:
    """Refuses anything but a finite number of at least 0."""
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be a number of at least 0, got {value}.")


def check_probability(name: str, value: float) -> None:
    """Refuses a probability, such as that of dropout, outside [0, 1)."""
    if not 0 <= value < 1:
        raise InputError(f"{name} must be in [0, 1), got {value}.")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuses a value that is not one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}.")


def check_factory(name: str, factory: Any, base: type, expected: str) -> None:
    """Refuses a class, or a partial of one, that does not derive from ``base``.

    Args:
        name: the option, for the message.
        factory: a class, a partial of a class, or another callable, which is not checked.
        base: the class that the objects it builds must have.
        expected: what the objects are for and an example, for the message.
    """
    built = factory.func if isinstance(factory, partial) else factory
    if isinstance(built, type) and not issubclass(built, base):
        raise InputError(f"{name} must be one of {expected}, got {built.__name__}.")


def parse_tensor(name: str, value: Any, device: torch.device | None = None, copy: bool = True) -> Tensor:
    """Returns a tensor, on the device if one is given: a tensor without a copy if possible.

    Args:
        name: the name in the message.
        value: a tensor, an array, or nested sequences of numbers.
        device: None leaves a tensor on its own device.
        copy: whether to copy anything but a tensor in any case; otherwise memory is shared if possible.
    """
    if isinstance(value, Tensor):
        value = value.detach() if value.requires_grad else value
        return value if device is None or value.device == device else value.to(device)
    if isinstance(value, str):
        raise InputError(f"{name} must be an array of numbers, got {value!r}.")
    try:
        array = np.array(value, copy=copy or None)
        if not (array.dtype.isnative and array.flags.carray):
            array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
        tensor = torch.from_numpy(array)
        return tensor if device is None or device.type == "cpu" else tensor.to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from error


def parse_images(name: str, value: Any) -> Tensor:
    """Returns images of any shape as float32 in [0, 1], or as uint8; memory is shared if possible."""
    images = parse_tensor(name, value, copy=False)
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise InputError(f"{name} must be uint8, or floating point in [0, 1], got {shape_and_dtype(images)}.")
    if not ((images >= 0) & (images <= 1)).all():  # false for NaN as well
        if images.isnan().any():
            raise InputError(f"{name} contains NaN: remove the image, or replace the values.")
        raise InputError(
            f"{name} must be in [0, 1] if it is floating point, but ranges from {float(images.min()):g} to "
            f"{float(images.max()):g}: divide by the highest possible value, or pass uint8."
        )
    return images.float()


def _can_check(value: Any) -> bool:
    """Returns whether values can be read at once: those of a tensor on an accelerator cannot without waiting for it."""
    return not isinstance(value, Tensor) or value.is_cpu


def parse_integers(name: str, value: Any, count: int, high: int | None, device: torch.device) -> Tensor:
    """Returns integers (count,) int64; in 0 .. high - 1 unless ``high`` is None or they are on an accelerator."""
    integers = parse_tensor(name, value, device)
    dtype = integers.dtype
    if integers.shape != (count,) or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise InputError(f"{name} must be ({count},) integers, got {shape_and_dtype(integers)}.")
    if high is not None and count and _can_check(value):
        smallest, largest = integers.aminmax()
        if int(smallest) < 0 or int(largest) >= high:
            raise InputError(f"{name} must be in 0 .. {high - 1}.")
    return integers if dtype == torch.int64 else integers.long()


def parse_floats(
    name: str, value: Any, shape: tuple[int, ...], device: torch.device, allow_infinite: bool = False
) -> Tensor:
    """Returns floating point numbers of the given shape, float32.

    NaN is refused, and infinity unless allowed, but not in tensors on an accelerator.
    """
    floats = parse_tensor(name, value, device)
    if floats.shape != shape or not floats.is_floating_point():
        raise InputError(f"{name} must be {shape} floating point numbers, got {shape_and_dtype(floats)}.")
    if not _can_check(value):
        return floats.float()
    if allow_infinite and floats.isnan().any():
        raise InputError(f"{name} must not be NaN.")
    # The sum is finite if all numbers are, unless they are so large that it overflows.
    if not allow_infinite and not math.isfinite(floats.sum()) and not floats.isfinite().all():
        raise InputError(f"{name} must be finite, got NaN or infinity.")
    return floats.float()


def parse_flags(name: str, value: Any, count: int, device: torch.device) -> Tensor:
    """Returns flags (count,) bool, from bool or from the integers 0 and 1 (not checked on an accelerator)."""
    flags = parse_tensor(name, value, device)
    is_valid = flags.dtype == torch.bool or not flags.is_floating_point()
    if is_valid and flags.dtype != torch.bool and _can_check(value):
        is_valid = not ((flags != 0) & (flags != 1)).any()
    if flags.shape != (count,) or not is_valid:
        raise InputError(f"{name} must be ({count},) bool, or 0 and 1, got {shape_and_dtype(flags)}.")
    return flags.bool()


def _is_integer(value: Any, minimum: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def shape_and_dtype(values: Tensor) -> str:
    """Describes a tensor in messages, such as "(4, 2) float32"."""
    return f"{tuple(values.shape)} {str(values.dtype).removeprefix('torch.')}"
