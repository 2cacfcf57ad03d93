"""Loads the trained model of a run; see :func:`ram.load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from envs.errors import InputError
from ram.config import build, check
from ram.run_folder import RunFolder
from ram.training import checkpoint


def load_model(path: Path, device: str = "cpu") -> Any:
    """Returns the trained model of the run in a folder; see :func:`ram.load`."""
    run = RunFolder.open(path)
    config = run.read_config()
    OmegaConf.update(config, "device", device)
    return restore_model(run, config)


def restore_model(run: RunFolder, config: DictConfig) -> Any:
    """Returns the trained model of a run, with the best weights, as a configuration describes it.

    Raises:
        InputError: if the checkpoint is missing or does not fit the configuration.
    """
    check(config)
    state = checkpoint.load(run.best, config.device)
    task = build(config.task, _partial_=True)
    try:
        return task.func.restore(state["task"] | state["average"], task.keywords)
    except (RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{run.best} does not fit {run.path}/.hydra/config.yaml: restore either file.") from error
