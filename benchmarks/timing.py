"""Timing of alternatives, and tables of the results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

NUM_GLIMPSES = 6
NUM_ROWS = 1024


def alternate(runs: Mapping[str, Callable[[], object]], seconds: float, least: int = 3) -> dict[str, float]:
    """Times functions that are called in turn, after one warm-up call of each.

    Args:
        runs: the functions by name.
        seconds: the time limit for all together.
        least: the smallest number of rounds.

    Returns:
        The median time of a call in seconds, by name.
    """
    for run in runs.values():
        run()
    spent: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: median(values) for name, values in spent.items()}


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """Prints a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join([first, *(other.strip().rjust(len(other)) for other in others)]) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    print(f"\n### {title}\n\n{note}\n", *map(line, [header, rule, *rows]), sep="\n", flush=True)


def machine() -> str:
    """Describes the machine and the versions of torch and Python."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or platform.machine()
    return (
        f"{cpu}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()}); torch {torch.__version__} on "
        f"{threads(torch.get_num_threads())}; Python {platform.python_version()}; {platform.system()}."
    )


def threads(count: int) -> str:
    """Returns "1 thread", "2 threads" and so on."""
    return f"{count} thread{'s' * (count > 1)}"
