"""Freed memory stays with the process."""

from __future__ import annotations

import platform
import resource

import pytest
import torch

from ram.training.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_a_block_that_was_freed_is_allocated_again_without_page_faults() -> None:
    keep_freed_memory()

    def allocate() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(4_000_000)  # about 4,000 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    allocate()
    assert sum(allocate() for _ in range(10)) < 4_000
