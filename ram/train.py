"""Train: ``python -m ram.train [option=value ...]``, or ``resume=DIR``, or ``repeat=DIR``."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from envs.errors import InputError
from ram.config import build, check, config_folder, flatten
from ram.run_folder import RunFolder, told_in_a_sentence
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.tracker import Tracker
from ram.training.trainer import Trainer

_RESUMABLE = ("trainer.max_epochs", "trainer.max_steps", "trainer.patience", "device", "num_threads")


def train(config: DictConfig, run: RunFolder, resume: bool = False) -> dict[str, float]:
    """Trains what a configuration describes, evaluates the best weights once on the test split, and records it all.

    Args:
        config: the whole, composed and checked.
        run: where the records go.
        resume: go on from the run's last checkpoint.

    Returns:
        The final metrics, as in ``metrics.json``.
    """
    torch.set_num_threads(config.num_threads)
    task: Task = build(config.task)
    trainer: Trainer = build(config.trainer)
    start = checkpoint.load(run.last)["progress"]["step"] if resume else 0
    tracker = Tracker(run.path, start)
    try:
        tracker.text("config", OmegaConf.to_yaml(config, resolve=True))
        progress = trainer.fit(task, build(config.optimizer), tracker, run.checkpoints, resume)
        checkpoint.load_weights(task, checkpoint.load(run.best, config.device), run.best)
        task.eval()
        pictures = task.pictures("test")
        tracker.pictures(pictures, progress.step, "test")
        tracker.save_pictures(pictures)
        assert progress.best is not None
        metrics = {
            **{f"test/{name}": value for name, value in task.evaluate("test").items()},
            f"validation/{task.monitor}": progress.best,
        }
        record = {
            **metrics,
            "seed": config.seed,
            "commit": run.commit,
            "steps": progress.step,
            "epochs": progress.step / task.steps_per_epoch,
            "best_step": progress.best_step,
            "stopped_early": progress.stopped_early,
            "seconds": round(progress.seconds, 1),
            f"{task.unit}_per_second": round(progress.step * task.examples_per_step / progress.seconds, 1),
        }
        tracker.finish(flatten(config), record)
    finally:
        tracker.close()
    print(f"\n{run.path}")
    print(table({**metrics, **{name: record[name] for name in list(record)[-6:]}}))
    return metrics


def table(values: dict[str, object]) -> str:
    """Names and values in two columns."""
    spelled = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in values.items()}
    left, right = max(map(len, spelled)), max(map(len, spelled.values()))
    return "\n".join(f"  {name:<{left}}  {value:>{right}}" for name, value in spelled.items())


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
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if "resume" not in words and "repeat" not in words:
        _compose()
        return
    with told_in_a_sentence():
        if "resume" in words and "repeat" in words:
            raise InputError("resume and repeat exclude each other: give one of them.")
        mode = "resume" if "resume" in words else "repeat"
        old = RunFolder.open(Path(words.pop(mode)))
        config = old.read_config()
        others = [word for word in sys.argv[1:] if word.split("=", 1)[0] not in (mode, *words)]
        for name in [*others, *(name for name in words if name not in _RESUMABLE)]:
            raise InputError(f"{mode} takes the configuration from {old.path} and accepts only "
                             f"{', '.join(_RESUMABLE)} beside it, not {name}.")
        for name, value in words.items():
            OmegaConf.update(config, name, OmegaConf.create(f"value: {value}").value)
        check(config)
        if mode == "resume":
            train(config, old, resume=True)
        else:
            new = RunFolder.create(old.path.parent / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}-repeat")
            new.write_config(config, [f"repeat={old.path}"])
            train(config, new)


if __name__ == "__main__":
    main()
