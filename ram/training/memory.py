"""Memory of the process."""

from __future__ import annotations

import ctypes
import os

import torch

from envs.errors import InputError

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of options in malloc.h


def keep_freed_memory() -> None:
    """Keeps the memory of freed tensors for new ones, where the C library is glibc; elsewhere it does nothing.

    By default glibc returns the memory of large tensors to the system, which clears it before every use. Where a step
    creates many, such as logits over a large vocabulary, this takes a fifth of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)


def check_memory(needed: int, device: torch.device | str) -> None:
    """Raises :class:`InputError` if a training step needs more bytes than the device has in all."""
    device = torch.device(device)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > total:
        raise InputError(
            f"A training step needs over {needed / 2**30:,.0f} GiB, but the device has {total / 2**30:,.0f} GiB: "
            "lower task.batch_size, task.rollouts_per_image or env.num_glimpses."
        )
