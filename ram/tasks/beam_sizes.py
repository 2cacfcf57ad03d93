"""Comparison of beam sizes on the validation split."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from envs.errors import InputError
from ram.plots.curves import beam_curve
from ram.tasks import Task
from ram.tasks.caption import CaptionTask
from ram.tasks.translate import TranslateTask


def compare_beam_sizes(task: Task, sizes: Sequence[int]) -> tuple[str, np.ndarray]:
    """Measures generation on the validation split, and its time, for several beam sizes.

    Returns:
        A Markdown table of all metrics, and a figure (H, W, 3) uint8 of the main one.

    Raises:
        InputError: if the task does not generate text.
    """
    if not isinstance(task, TranslateTask | CaptionTask):
        raise InputError("beam_sizes needs a run of task=translate, task=decoder_only or task=caption.")
    task.eval()
    metrics, seconds = [], []
    for size in tqdm(sizes, unit="beams", disable=len(sizes) < 2):
        start = time.perf_counter()
        metrics.append(task.evaluate_generation("validation", size))
        seconds.append(time.perf_counter() - start)
    names = ["beam", *metrics[0], "seconds"]
    lines = [f"| {' | '.join(names)} |", f"|{' ---: |' * len(names)}"]
    for size, measured, duration in zip(sizes, metrics, seconds, strict=True):
        lines.append(f"| {size} | {' | '.join(f'{value:.2f}' for value in [*measured.values(), duration])} |")
    metric = next(name for name in (task.monitor, "bleu", "cider", "exact") if name in metrics[0])
    values = [measured[metric] for measured in metrics]
    return "\n".join(lines), beam_curve(metric, list(zip(sizes, values, seconds, strict=True)))
