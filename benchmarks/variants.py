"""Times other implementations of the same training step."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from benchmarks.timing import alternate, show, threads
from benchmarks.training import Training
from envs.images import ImageSet


class LowPrecision(Training):
    """Computes the loss under torch.autocast with bfloat16."""

    def loss(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss()


def time_variants(images: ImageSet, seconds: float, least: int, compiled: bool) -> None:
    """Times variants of the training step."""
    count = torch.get_num_threads()
    other = 2 if count == 1 else 1
    default, threaded = Training(images, 128), Training(images, 128)

    def step_with_other_threads() -> None:
        torch.set_num_threads(other)
        threaded.step()
        torch.set_num_threads(count)

    runs = {
        f"the default: {threads(count)}, fused AdamW": default.step,
        "AdamW, foreach": Training(images, 128, foreach=True).step,
        "AdamW, one parameter after another": Training(images, 128, foreach=False).step,
        "matrix products in bfloat16": LowPrecision(images, 128).step,
    }
    note = "torch.compile is left out."
    if compiled:
        start = time.perf_counter()
        training = Training(images, 128, compiled=True)
        try:
            training.step()
        except RuntimeError as error:  # raised by torch.compile, for example without a C++ compiler
            note = f"torch.compile failed: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        else:
            runs["torch.compile of the agent's step"] = training.step
            note = f"The first compiled step took {time.perf_counter() - start:.0f} s."
    rows = []
    # Separately, because idle threads keep a core busy for a while and would slow down the other variants.
    for group in (runs, {"": default.step, threads(other): step_with_other_threads}):
        spent = alternate(group, seconds, least)
        base = next(iter(spent.values()))
        rows += [[name, f"{1e3 * value:.2f}", f"{value / base:.2f}"] for name, value in spent.items() if name]
    show(
        "Variants of the training step",
        ["variant", "step (ms)", "relative to the default"],
        rows,
        f"A training step with a batch of 128; below 1 is faster. {note}\n"
        "On a machine with other load two threads wait for each other at every matrix product.",
    )
