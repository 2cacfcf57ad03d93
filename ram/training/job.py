"""Jobs: a configuration is built, trained and measured; and an earlier run is resumed or repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch.optim import Optimizer

from envs.errors import InputError
from ram.config import build, check, flatten, override
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.memory import keep_freed_memory
from ram.training.precision import autocast
from ram.training.run_folder import RunFolder
from ram.training.tracker import Tracker
from ram.training.trainer import Progress, Trainer

_OVERRIDES = ("trainer.max_epochs", "trainer.max_steps", "trainer.patience", "device", "precision", "num_threads")


class Job:
    """The trainer, the optimizer and the task of a configuration.

    Args:
        config: the whole composed configuration.

    Raises:
        InputError: naming the wrong option.
    """

    def __init__(self, config: DictConfig) -> None:
        check(config)
        torch.set_num_threads(config.num_threads)
        keep_freed_memory()
        self.config = config
        # Runs of versions without the option have computed in float32.
        self._autocast = partial(autocast, config.get("precision", "float32"), config.device)
        self._autocast()  # refuses a precision before the data is loaded
        self.trainer: Trainer = build(config.trainer)
        self.optimizer: Callable[[list[dict[str, Any]]], Optimizer] = build(config.optimizer)
        self.task: Task = build(config.task)

    @property
    def digest(self) -> str:
        """Hash of the configuration without budget, device and precision; identifies the checkpoints of a run."""
        options = {name: value for name, value in flatten(self.config).items() if name not in _OVERRIDES}
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()

    def test(self, run: RunFolder) -> dict[str, float]:
        """Evaluates the best weights of a run on the test split.

        Returns:
            The test metrics, and the monitored metric on the validation split, by their names in ``metrics.json``.
        """
        state = checkpoint.load(run.best, self.config.device)
        checkpoint.load_weights(self.task, state, run.best)
        self.task.eval()
        with self._autocast():
            measured = {f"test/{name}": value for name, value in self.task.evaluate("test").items()}
        return measured | {f"validation/{self.task.monitor}": state["progress"]["best"]}

    def start(self, run: RunFolder, overrides: list[str]) -> dict[str, Any]:
        """Trains in a new run folder, from the best weights of the run that ``init`` names, if any; see :meth:`train`.

        Args:
            run: the folder of the records.
            overrides: the options given on the command line, to be recorded.
        """
        if self.config.init is not None:
            path = RunFolder.open(Path(self.config.init)).best
            checkpoint.load_initial_weights(self.task, checkpoint.load(path, self.config.device), path)
        run.write_config(self.config, overrides)
        return self.train(run)

    def train(self, run: RunFolder, start: int | None = None) -> dict[str, Any]:
        """Trains, evaluates the best weights on the test split, and writes all records.

        Args:
            run: the folder of the records.
            start: the step of the run's last checkpoint, to continue from there; None for a new run.

        Returns:
            The content of ``metrics.json``.
        """
        commit = run.commit  # of the code that is loaded now; the checkout may change during training
        with closing(Tracker(run.path, start or 0)) as tracker:
            tracker.text("config", OmegaConf.to_yaml(self.config))
            progress = self.trainer.fit(
                self.task, self.optimizer, tracker, run.checkpoints, self.digest, start is not None, self._autocast
            )
            metrics = self.test(run)
            with self._autocast():
                pictures = self.task.pictures("test")
            tracker.pictures(pictures, progress.step, "test")
            tracker.save_pictures(pictures)
            record = metrics | self._summary(progress, metrics) | {"commit": commit}
            tracker.finish(flatten(self.config), record)
        return record

    def _summary(self, progress: Progress, metrics: dict[str, float]) -> dict[str, Any]:
        """Returns what ``metrics.json`` holds besides the metrics."""
        task = self.task
        speed = f"{task.unit}_per_second"
        return {
            "monitor": task.monitor,
            "higher_is_better": [name for name in metrics if task.higher_is_better(name.partition("/")[2])] + [speed],
            "seed": self.config.seed,
            "parameters": sum(value.numel() for value in task.parameters() if value.requires_grad),
            "steps": progress.step,
            "epochs": progress.step / task.steps_per_epoch,
            "best_step": progress.best_step,
            "stopped_early": progress.stopped_early,
            "seconds": round(progress.seconds, 1),
            speed: round(progress.step * task.examples_per_step / progress.seconds, 1),
        }


def resume(folder: Path, options: dict[str, str]) -> tuple[RunFolder, dict[str, Any]]:
    """Continues a run in its folder, with another budget or device if ``options`` name them.

    Returns:
        The run folder and the content of ``metrics.json``.
    """
    run = RunFolder.open(folder)
    config = run.read_config()
    override(config, options, _OVERRIDES, f"resume={folder}")
    progress = Progress(**checkpoint.load(run.last)["progress"])
    job = Job(config)
    if (run.path / "metrics.json").exists():
        if job.trainer.is_over(job.task, progress):
            raise InputError(
                f"{folder} has ended after {progress.step} steps: raise trainer.max_epochs, or trainer.patience if "
                "that ended it, to continue."
            )
        run.keep_records(progress.step)
    run.write_resumption(config, list(options))
    return run, job.train(run, progress.step)


def repeat(folder: Path, options: dict[str, str]) -> tuple[RunFolder, dict[str, Any]]:
    """Trains the configuration of an earlier run again in a new folder; returns as :func:`resume`."""
    old = RunFolder.open(folder)
    config = old.read_config()
    override(config, options, _OVERRIDES, f"repeat={folder}")
    job = Job(config)
    new = RunFolder.create(old.path.parent / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}-repeat")
    overrides = [*old.read_overrides(), *(f"{name}={value}" for name, value in options.items())]
    return new, job.start(new, overrides)
