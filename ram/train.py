"""Train: ``python -m ram.train [option=value ...]``, or ``resume=DIR``, or ``repeat=DIR``."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from envs.errors import InputError
from ram.config import build, check, config_folder, flatten, override, words
from ram.evaluate import evaluate
from ram.run_folder import RunFolder, table, told_in_a_sentence
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.tracker import Tracker
from ram.training.trainer import Trainer

_OVERRIDES = ("trainer.max_epochs", "trainer.max_steps", "trainer.patience", "device", "num_threads")


def train(config: DictConfig, run: RunFolder, resume: bool = False) -> dict[str, float]:
    """Trains what a configuration describes, judges the best weights once on the test split, and records it all.

    Args:
        config: the whole, composed and checked.
        run: where the records go.
        resume: go on from the run's last checkpoint.

    Returns:
        The final metrics, as in ``metrics.json``.
    """
    torch.set_num_threads(config.num_threads)
    commit = run.commit  # of the code that is loaded now; the checkout may move on while it trains
    start = checkpoint.load(run.last)["progress"]["step"] if resume else 0
    trainer: Trainer = build(config.trainer)
    task: Task = build(config.task)
    if resume and (run.path / "metrics.json").exists():
        if start >= trainer.total_steps(task):
            raise InputError(f"{run.path} has spent its budget of {start} steps: raise trainer.max_epochs to go on.")
        run.keep_records(start)
    tracker = Tracker(run.path, start)
    try:
        tracker.text("config", OmegaConf.to_yaml(config, resolve=True))
        progress = trainer.fit(task, build(config.optimizer), tracker, run.checkpoints, resume)
        state = checkpoint.load(run.best, config.device)
        checkpoint.load_weights(task, state, run.best)
        metrics = evaluate(task, state["progress"]["best"])
        pictures = task.pictures("test")
        tracker.pictures(pictures, progress.step, "test")
        tracker.save_pictures(pictures)
        spent = {
            "seed": config.seed,
            "commit": commit,
            "steps": progress.step,
            "epochs": progress.step / task.steps_per_epoch,
            "best_step": progress.best_step,
            "stopped_early": progress.stopped_early,
            "seconds": round(progress.seconds, 1),
            f"{task.unit}_per_second": round(progress.step * task.examples_per_step / progress.seconds, 1),
        }
        tracker.finish(flatten(config), metrics | spent)
    finally:
        tracker.close()
    print(f"{table(metrics | spent)}\n  {run.path}")
    return metrics


@hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
def _compose(config: DictConfig) -> None:
    with told_in_a_sentence():
        check(config)
        run = RunFolder.create(Path(HydraConfig.get().runtime.output_dir))
        run.write_config(config, list(HydraConfig.get().overrides.task))
        train(config, run)


def main() -> None:
    """The command ``ram-train``."""
    sys.path.insert(0, str(Path.cwd()))  # a user's own modules, named by _target_
    if not any(word.startswith(("resume=", "repeat=")) for word in sys.argv[1:]):
        _compose()
        return
    with told_in_a_sentence():
        options = words(sys.argv[1:])
        if {"resume", "repeat"} <= options.keys():
            raise InputError("resume and repeat exclude each other: give one of them.")
        mode = "resume" if "resume" in options else "repeat"
        old = RunFolder.open(Path(options.pop(mode)))
        config = old.read_config()
        override(config, options, _OVERRIDES, f"{mode}={old.path}")
        check(config)
        if mode == "resume":
            train(config, old, resume=True)
            return
        new = RunFolder.create(old.path.parent / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}-repeat")
        new.write_config(config, [f"repeat={old.path}"])
        train(config, new)


if __name__ == "__main__":
    main()
