"""Compares beam sizes: what a wider beam search gains on the validation split, and the time it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tqdm import tqdm

from envs.errors import InputError
from ram.tasks import Task
from ram.tasks.caption import CaptionTask
from ram.tasks.translate import TranslateTask


def compare_beam_sizes(task: Task, sizes: Sequence[int]) -> list[dict[str, float]]:
    """Returns for each beam size ``beam``, the metrics of the generated texts, and ``seconds``.

    Raises:
        InputError: if the task generates no texts by beam search.
    """
    if not isinstance(task, TranslateTask | CaptionTask):
        raise InputError("beam_sizes needs a run of task=translate, task=decoder_only or task=caption.")
    task.eval()
    rows = []
    for size in tqdm(sizes, unit="beams", disable=len(sizes) < 2):
        start = time.perf_counter()
        measured = task.evaluate_generation("validation", size)
        rows.append({"beam": size} | measured | {"seconds": time.perf_counter() - start})
    return rows


def format_rows(rows: Sequence[dict[str, float]]) -> str:
    """Formats the result of :func:`compare_beam_sizes` as a Markdown table."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{' ---: |' * len(rows[0])}"]
    lines += [f"| {row['beam']} | {' | '.join(f'{value:.2f}' for value in list(row.values())[1:])} |" for row in rows]
    return "\n".join(lines)
