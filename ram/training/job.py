"""Jobs: a configuration is built, trained and measured; and an earlier run is resumed or repeated."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch.optim import Optimizer

from envs.errors import InputError
from ram.config import build, check, flatten, override
from ram.distributed import agree, gather, use_local_device, world
from ram.plots.confusion import confusion_matrix
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.memory import check_memory, keep_freed_memory
from ram.training.precision import autocast
from ram.training.run_folder import RunFolder
from ram.training.tracker import Tracker
from ram.training.trainer import Progress, Trainer

_ARCHITECTURE = (
    "core.",
    "decoder.",
    "encoder.",
    "env.context_size",
    "glimpse.",
    "image_encoder.",
    "policy._target_",
    "policy.hidden_size",
    "pooling.",
    "sensor.",
    "task._target_",
    "task.agent.",
    "task.model.",
)
"""Beginnings of the names of options on which the shapes of the weights may depend."""

_OVERRIDES = (
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.patience",
    "device",
    "precision",
    "num_threads",
    "num_processes",
)


_OFTEN_VARIED = ("seed", "task.batch_size", "optimizer.lr", "trainer.max_epochs")


class Job:
    """The trainer, the optimizer and the task of a configuration.

    With several processes each builds the job of the same configuration and calls the same methods; process 0 writes.

    Args:
        config: the whole composed configuration.

    Raises:
        InputError: naming the wrong option.
    """

    def __init__(self, config: DictConfig) -> None:
        use_local_device(config.device)
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
        agree(self._load_initial_weights)
        if world().rank == 0:
            run.write_config(self.config, overrides)
        return self.train(run)

    def _load_initial_weights(self) -> None:
        if self.config.init is None:
            return
        run = RunFolder.open(Path(self.config.init))
        try:
            state = checkpoint.load(run.best, self.config.device)
            if checkpoint.load_initial_weights(self.task, state, run.best):
                warnings.warn(
                    f"init={run.path}: its classes differ, so the output layer keeps its random initial weights.",
                    stacklevel=2,
                )
        except InputError as error:
            theirs = flatten(run.read_config())
            differing = [
                f"{name}={value} ({theirs[name]})"
                for name, value in flatten(self.config).items()
                if name.startswith(_ARCHITECTURE) and value != theirs.get(name, value)
            ]
            options = f" Options that differ, with those of the run: {', '.join(differing)}." if differing else ""
            raise InputError(f"{error}{options}") from error

    def train(self, run: RunFolder, start: int | None = None) -> dict[str, Any]:
        """Trains, evaluates the best weights on the test split, and writes all records.

        Args:
            run: the folder of the records.
            start: the step of the run's last checkpoint, to continue from there; None for a new run.

        Returns:
            The content of ``metrics.json``.
        """
        check_memory(self.task.step_bytes(), self.config.device)
        if world().rank > 0:
            self._fit_and_test(run, None, start)
            return {}
        commit = run.commit  # of the code that is loaded now; the checkout may change during training
        with closing(Tracker(run.path, start or 0)) as tracker:
            tracker.text("config", OmegaConf.to_yaml(self.config))
            progress, metrics = self._fit_and_test(run, tracker, start)
            with self._autocast():
                pictures, classification = dict(self.task.pictures("test")), self.task.classify("test")
            if classification is not None:
                pictures["confusion.png"] = confusion_matrix(classification.confusion(), classification.classes)
                tables = {
                    "predictions.csv": classification.predictions_csv(),
                    "classes.csv": classification.classes_csv(),
                }
                tracker.save_pictures(tables)
            tracker.pictures(pictures, progress.step, "test")
            tracker.save_pictures(pictures)
            record = metrics | self._summary(progress, metrics) | {"commit": commit}
            tracker.finish(self._shown_options(run), record)
        return record

    def _fit_and_test(
        self, run: RunFolder, tracker: Tracker | None, start: int | None
    ) -> tuple[Progress, dict[str, float]]:
        """Trains and evaluates the best weights; see :meth:`train`."""
        progress = self.trainer.fit(
            self.task, self.optimizer, tracker, run.checkpoints, self.digest, start is not None, self._autocast
        )
        gather(None)  # the checkpoint is written now
        return progress, self.test(run)

    def _shown_options(self, run: RunFolder) -> dict[str, Any]:
        """Returns the options by which TensorBoard compares runs: what was typed, and those that are often varied."""
        values, typed = flatten(self.config), run.typed_options()
        shown = {name: value for name, value in typed.items() if not name.startswith(("hydra.", "hydra/"))}
        return shown | {name: values[name] for name in (*typed, *_OFTEN_VARIED) if name in values}

    def _summary(self, progress: Progress, metrics: dict[str, float]) -> dict[str, Any]:
        """Returns what ``metrics.json`` holds besides the metrics."""
        task = self.task
        speed = f"{task.unit}_per_second"
        return {
            "monitor": task.monitor,
            "higher_is_better": [name for name in metrics if task.higher_is_better(name.partition("/")[2])] + [speed],
            "seed": self.config.seed,
            "num_processes": world().size,
            "parameters": sum(value.numel() for value in task.parameters() if value.requires_grad),
            "steps": progress.step,
            "epochs": progress.step / task.steps_per_epoch,
            "best_step": progress.best_step,
            "stopped_early": progress.stopped_early,
            "seconds": round(progress.seconds, 1),
            speed: round(progress.step * task.examples_per_step / progress.seconds, 1),
        }


def start(config: DictConfig, run: RunFolder, overrides: list[str]) -> dict[str, Any]:
    """Trains a configuration in a new run folder and returns the content of ``metrics.json``; see :meth:`Job.start`."""
    job = agree(lambda: Job(config))
    agree(lambda: RunFolder.create(run.path) if world().rank == 0 else run)
    return job.start(run, overrides)


def resume(config: DictConfig, run: RunFolder, names: list[str]) -> dict[str, Any]:
    """Continues a run in its folder and returns the content of ``metrics.json``.

    Args:
        config: from :func:`earlier_config`.
        run: the folder.
        names: the options in which ``config`` differs from that of the run.
    """
    job, progress, has_ended = agree(lambda: _load(config, run))
    if world().rank == 0:
        if has_ended:
            run.keep_records(progress.step)
        run.write_resumption(config, names)
    return job.train(run, progress.step)


def _load(config: DictConfig, run: RunFolder) -> tuple[Job, Progress, bool]:
    """Returns the job of a run to be resumed, its progress, and whether it has ended, but may continue."""
    progress = Progress(**checkpoint.load(run.last)["progress"])
    job, has_ended = Job(config), (run.path / "metrics.json").exists()
    if has_ended and job.trainer.is_over(job.task, progress):
        raise InputError(
            f"{run.path} has ended after {progress.step} steps: raise trainer.max_epochs, or trainer.patience if "
            "that ended it, to continue."
        )
    return job, progress, has_ended


def earlier_config(run: RunFolder, options: dict[str, str], source: str) -> DictConfig:
    """Returns the configuration of an earlier run with another budget, device or number of processes.

    Args:
        run: the folder of the run.
        options: the options to change by name.
        source: the argument that names the run, for error messages.
    """
    config = run.read_config()
    config.setdefault("num_processes", 1)
    if world().size > 1:  # torchrun decides
        config.num_processes = world().size
    override(config, options, _OVERRIDES, source)
    return config
