"""Evaluate: ``python -m ram.evaluate run=DIR`` measures a run's best checkpoint on the test split again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from envs.errors import InputError
from ram.config import build, check, override, words
from ram.run_folder import RunFolder, table, told_in_a_sentence
from ram.tasks import Task
from ram.training import checkpoint

_OVERRIDES = (
    "device",
    "num_threads",
    "images.root",
    "images.objects.root",
    *(f"corpus.{name}" for name in ("root", "path", "validation_path", "test_path")),
    *(f"corpus.{split}{side}" for split in ("", "validation_", "test_") for side in ("source", "target")),
)


def evaluate(task: Task, best_value: float) -> dict[str, float]:
    """The figures that end a run, by the names of ``metrics.json``.

    Args:
        task: with the weights to judge.
        best_value: of the monitor on the validation split.
    """
    task.eval()
    measured = {f"test/{name}": value for name, value in task.evaluate("test").items()}
    return measured | {f"validation/{task.monitor}": best_value}


def load_model(path: Path, device: str = "cpu") -> Any:
    """See :func:`ram.load`."""
    run = RunFolder.open(path)
    config = run.read_config()
    OmegaConf.update(config, "device", device)
    check(config)
    state = checkpoint.load(run.best, device)
    task = build(config.task, _partial_=True)
    try:
        return task.func.restore(state["task"] | state["average"], task.keywords)
    except (RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{run.best} does not fit {run.path}/.hydra/config.yaml: restore either.") from error


def main() -> None:
    """The command ``ram-evaluate``."""
    sys.path.insert(0, str(Path.cwd()))  # a user's own modules, named by _target_
    with told_in_a_sentence():
        options = words(sys.argv[1:])
        if "run" not in options:
            raise InputError("Name the folder of a run: python -m ram.evaluate run=DIR.")
        run = RunFolder.open(Path(options.pop("run")))
        config = run.read_config()
        override(config, options, _OVERRIDES, f"run={run.path}")
        check(config)
        torch.set_num_threads(config.num_threads)
        task: Task = build(config.task)
        state = checkpoint.load(run.best, config.device)
        checkpoint.load_weights(task, state, run.best)
        print(table(evaluate(task, state["progress"]["best"])))


if __name__ == "__main__":
    main()
