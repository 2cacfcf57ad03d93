"""The command ``ram-train``, or ``python -m ram.train``: trains what a configuration describes; see ``--help``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from envs.errors import InputError
from ram.config import check, config_folder
from ram.training import processes
from ram.training.command_line import assignments, format_metrics, import_from_current_folder, report_errors
from ram.training.hydra_errors import explain
from ram.training.job import earlier_config, resume, start
from ram.training.run_folder import RunFolder
from ram.training.trainer import TrainingStopped

_ASSIGNMENT = re.compile(r"\w+=")
_failed: list[str] = []
"""Folders of the jobs of a sweep that ended with an error; the other jobs continue."""


def _subject(*, _root_: DictConfig) -> str:
    """Returns what a job trains, for its folder: the experiment; without one, the task.

    In the default job, the images and scenes that were chosen on the command line.
    """
    choices, typed = (
        _root_.hydra.runtime.choices,
        assignments([*filter(_ASSIGNMENT.match, _root_.hydra.overrides.task)]),
    )
    if "experiment" in typed or choices.get("experiment") is None:
        return str(choices.get("experiment") or choices.task)
    return "-".join(typed[group] for group in ("images", "scenes") if group in typed) or str(choices.experiment)


OmegaConf.register_new_resolver("subject", _subject, replace=True)


@hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
def _compose(config: DictConfig) -> None:
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    try:
        run = RunFolder.create(folder)  # rejects a used folder before anything is loaded
        _train(start, config, run, list(settings.overrides.task))
    except (InputError, TrainingStopped) as error:
        if settings.mode is not RunMode.MULTIRUN:
            sys.exit(f"Error: {error}")
        print(f"Error: {error}", file=sys.stderr)
        _failed.append(str(folder))


def _train(function: Callable[..., dict[str, Any]], config: DictConfig, run: RunFolder, *arguments: object) -> None:
    """Starts or resumes a run in as many processes as the configuration says, and prints its metrics."""
    check(config)
    config.num_processes = processes.resolve_num_processes(config)
    with run.locked():
        record = processes.run(config.num_processes, function, config, run, *arguments)
    shown = {name: value for name, value in record.items() if name != "higher_is_better"}
    print(f"{format_metrics(shown)}\n  {run.path}")


def main() -> None:
    """The command ``ram-train``."""
    import_from_current_folder()
    if {"-h", "--help"} & set(sys.argv):
        sys.argv[1:] = ["--help"]  # Hydra would compose the other arguments first
    with report_errors(), processes.joined() as is_first:
        if is_first:
            _run_command(sys.argv[1:])


def _run_command(arguments: list[str]) -> None:
    if not any(argument.startswith(("resume=", "repeat=")) for argument in arguments):
        _failed.clear()
        for argument in arguments:
            if re.match(r"[+~]*(=|$)", argument):
                raise InputError(f"{argument} is not of the form NAME=VALUE.")
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors are raised and explained here
        try:
            _compose()
        except HydraException as error:
            raise explain(error, arguments) from error
        except OSError as error:  # Hydra creates the run folder
            if error.filename is None:
                raise
            raise InputError(f"{error.filename} cannot be written: {error.strerror}.") from error
        if _failed:
            sys.exit(f"Error: {len(_failed)} of the jobs failed: {', '.join(_failed)}.")
        return
    options = assignments(arguments)
    if {"resume", "repeat"} <= options.keys():
        raise InputError("Give either resume=DIR or repeat=DIR, not both.")
    command = "resume" if "resume" in options else "repeat"
    folder = Path(options.pop(command))
    run = RunFolder.open(folder)
    config = earlier_config(run, options, f"{command}={folder}")
    if command == "resume":
        _train(resume, config, run, list(options))
        return
    overrides = [*run.read_overrides(), *(f"{name}={value}" for name, value in options.items())]
    new = RunFolder(folder.parent / f"{datetime.now():%Y-%m-%d_%H-%M-%S.%f}-repeat")
    _train(start, config, new, overrides)


if __name__ == "__main__":
    main()
