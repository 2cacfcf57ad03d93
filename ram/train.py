"""Train: ``python -m ram.train [option=value ...]``, or ``resume=DIR``, or ``repeat=DIR``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from torch.optim import Optimizer

from envs.errors import InputError
from ram.config import assignments, build, check, config_folder, flatten, override
from ram.evaluate import evaluate
from ram.run_folder import RunFolder, report_errors, table
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.tracker import Tracker
from ram.training.trainer import Progress, Trainer, TrainingStopped

_OVERRIDES = ("trainer.max_epochs", "trainer.max_steps", "trainer.patience", "device", "num_threads")


class Job:
    """All that a configuration describes, built and ready to train.

    Args:
        config: the whole, composed.

    Raises:
        InputError: naming the option that is wrong.
    """

    def __init__(self, config: DictConfig) -> None:
        check(config)
        torch.set_num_threads(config.num_threads)
        self.config = config
        self.trainer: Trainer = build(config.trainer)
        self.optimizer: Callable[[list[dict[str, Any]]], Optimizer] = build(config.optimizer)
        self.task: Task = build(config.task)

    @property
    def digest(self) -> str:
        """Tells checkpoints of this configuration from others'; budget and machine may differ."""
        options = {name: value for name, value in flatten(self.config).items() if name not in _OVERRIDES}
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()

    def initialise(self) -> None:
        """Takes the best weights of the run that ``init`` names, if it names one."""
        origin = self.config.get("init")  # which runs of earlier versions have not
        if origin is not None:
            path = RunFolder.open(Path(origin)).best
            checkpoint.load_initial_weights(self.task, checkpoint.load(path, self.config.device), path)

    def train(self, run: RunFolder, start: int | None = None) -> None:
        """Trains, judges the best weights once on the test split, and records it all.

        Args:
            run: where the records go.
            start: the step of the run's last checkpoint, to go on from there.
        """
        task, commit = self.task, run.commit  # of the code that is loaded now; the checkout may move on
        tracker = Tracker(run.path, start or 0)
        try:
            tracker.text("config", OmegaConf.to_yaml(self.config))
            progress = self.trainer.fit(task, self.optimizer, tracker, run.checkpoints, self.digest, start is not None)
            state = checkpoint.load(run.best, self.config.device)
            checkpoint.load_weights(task, state, run.best)
            metrics = evaluate(task, state["progress"]["best"])
            pictures = task.pictures("test")
            tracker.pictures(pictures, progress.step, "test")
            tracker.save_pictures(pictures)
            spent = {
                "seed": self.config.seed,
                "parameters": sum(value.numel() for value in task.parameters() if value.requires_grad),
                "commit": commit,
                "steps": progress.step,
                "epochs": progress.step / task.steps_per_epoch,
                "best_step": progress.best_step,
                "stopped_early": progress.stopped_early,
                "seconds": round(progress.seconds, 1),
                f"{task.unit}_per_second": round(progress.step * task.examples_per_step / progress.seconds, 1),
            }
            tracker.finish(flatten(self.config), metrics | spent)
        finally:
            tracker.close()
        print(f"{table(metrics | spent)}\n  {run.path}")


def resume(folder: Path, options: dict[str, str]) -> None:
    """Goes on with a run in its folder, perhaps with another budget or on another device."""
    run = RunFolder.open(folder)
    config = run.read_config()
    override(config, options, _OVERRIDES, f"resume={folder}")
    progress = Progress(**checkpoint.load(run.last)["progress"])
    job = Job(config)
    if (run.path / "metrics.json").exists():
        if job.trainer.is_over(job.task, progress):
            raise InputError(
                f"{folder} has ended after {progress.step} steps: raise trainer.max_epochs, or trainer.patience where "
                "that ended it, to go on."
            )
        run.keep_records(progress.step)
    run.write_resumption(config, list(options))
    job.train(run, progress.step)


def repeat(folder: Path, options: dict[str, str]) -> None:
    """Trains the configuration of an earlier run again in a new folder."""
    old = RunFolder.open(folder)
    config = old.read_config()
    override(config, options, _OVERRIDES, f"repeat={folder}")
    job = Job(config)
    job.initialise()
    new = RunFolder.create(old.path.parent / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}-repeat")
    new.write_config(config, [*old.read_overrides(), *(f"{name}={value}" for name, value in options.items())])
    job.train(new)


_failed: list[str] = []
"""Jobs of a sweep that ended with a sentence; the others go on."""


@hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
def _compose(config: DictConfig) -> None:
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    try:
        run = RunFolder.create(folder)  # refuses a used folder before anything is loaded
        job = Job(config)
        job.initialise()
        run.write_config(config, list(settings.overrides.task))
        job.train(run)
    except (InputError, TrainingStopped) as error:
        if settings.mode is not RunMode.MULTIRUN:
            sys.exit(f"Error: {error}")
        print(f"Error: {error}", file=sys.stderr)
        _failed.append(str(folder))


def main() -> None:
    """The command ``ram-train``."""
    sys.path.insert(0, str(Path.cwd()))  # a user's own modules, named by _target_
    with report_errors():
        if not any(word.startswith(("resume=", "repeat=")) for word in sys.argv[1:]):
            _failed.clear()
            _compose()
            if _failed:
                sys.exit(f"Error: {len(_failed)} of the jobs failed: {', '.join(_failed)}.")
            return
        options = assignments(sys.argv[1:])
        if {"resume", "repeat"} <= options.keys():
            raise InputError("resume and repeat exclude each other: give one of them.")
        if "resume" in options:
            resume(Path(options.pop("resume")), options)
        else:
            repeat(Path(options.pop("repeat")), options)


if __name__ == "__main__":
    main()
