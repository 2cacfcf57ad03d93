"""Times training in two processes against one."""

from __future__ import annotations

from functools import cache, partial

import torch

from benchmarks.timing import alternate, show
from benchmarks.training import Training, random_images
from ram.training import processes
from ram.training.memory import keep_freed_memory

_STEPS = 10  # in a row, so that starting them together costs little


def time_processes(seconds: float) -> None:
    """Times training steps of one and of two processes on the same batches, each process on as many threads."""
    rows = []
    alone = {batch_size: Training(random_images(), batch_size) for batch_size in (128, 1024)}
    with processes.started(2):
        for batch_size, training in alone.items():
            together = partial(processes.run, 2, _take_steps, batch_size, torch.get_num_threads())
            spent = alternate({"one": partial(_repeat, training), "two": together}, seconds)
            speeds = [_STEPS * batch_size / value for value in spent.values()]
            rows.append([f"{batch_size:,}", *(f"{speed:,.0f}" for speed in speeds), f"{speeds[1] / speeds[0]:.2f}"])
    show(
        "Processes",
        ["batch", "images/s, one process", "two processes", "ratio"],
        rows,
        "The training steps of the paper's model, a batch in one process and the same batch divided between two.",
    )


def _repeat(training: Training) -> None:
    for _ in range(_STEPS):
        training.step()


def _take_steps(batch_size: int, num_threads: int) -> None:
    """Takes steps in all processes."""
    torch.set_num_threads(num_threads)
    _repeat(_shared(batch_size))


@cache
def _shared(batch_size: int) -> Training:
    keep_freed_memory()
    return Training(random_images(), batch_size)
