"""Settings of the memory allocator."""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt, from malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Lets the process keep the memory that it frees, instead of returning large blocks to the system.

    A training step frees and allocates the same blocks. Getting them back costs one page fault for every 4 KiB, several
    percent of a step. Does nothing where the allocator is not that of glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
