"""Times the sensor, the environment and training against alternatives: ``python -m benchmarks.speed``.

Everything but the table of processes runs in one process. The alternatives of a table are timed in turn, A B A B ...,
so that other load on the machine affects all of them. A time is the median over the rounds, a ratio one of medians.
The tables are printed as Markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.breakdown import time_parts
from benchmarks.corpus import time_corpora
from benchmarks.environment import time_environment
from benchmarks.processes import time_processes
from benchmarks.sensor import time_sensor
from benchmarks.sizes import time_sizes
from benchmarks.timing import machine
from benchmarks.training import random_images, time_scenes, time_training
from benchmarks.variants import time_variants
from ram.training.memory import keep_freed_memory


def main() -> None:
    """The command ``python -m benchmarks.speed``."""
    parser = argparse.ArgumentParser(description="Times the sensor, the environment and training.")
    parser.add_argument("--quick", action="store_true", help="shorter, less precise, and without torch.compile")
    parser.add_argument("--threads", type=int, default=1, help="number of torch threads (default: 1)")
    parser.add_argument("--plot", type=Path, help="draws times by the size of the image to this PNG file")
    arguments = parser.parse_args()
    quick = arguments.quick
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    torch.manual_seed(0)
    images = random_images()
    print(f"{machine()}\nTimes are medians; the alternatives of a table are timed in turn. The images are random.")
    time_sensor(seconds=0.2 if quick else 4)
    time_sizes(seconds=1 if quick else 20, plot=arguments.plot)
    time_training(images, seconds=1 if quick else 15)
    time_processes(seconds=1 if quick else 15)
    time_scenes(images, seconds=0.5 if quick else 10)
    time_environment(images, seconds=0.2 if quick else 6, least=1 if quick else 3)
    time_corpora(seconds=2 if quick else 60, steps=1 if quick else 4)
    time_parts(images, steps=12 if quick else 100)
    time_variants(images, seconds=0.5 if quick else 20, least=1 if quick else 3, compiled=not quick)


if __name__ == "__main__":
    main()
