"""Memory of the process."""

from __future__ import annotations

import ctypes

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
