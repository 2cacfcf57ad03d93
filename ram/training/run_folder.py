"""The folder of a run: its configuration, checkpoints, records and trained model."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from envs.errors import InputError
from ram import published
from ram.config import build, check
from ram.training import checkpoint

_LOCK, _OWNER = ".lock", ".owner"
"""Files of :meth:`RunFolder.locked`: of the lock, and with the name of the process that has it."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Creates an empty folder. Raises :class:`InputError` if it already contains files."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            used = any(each.name not in (_LOCK, _OWNER) for each in path.iterdir())
        except OSError as error:
            raise InputError(f"The run folder {path} cannot be created: {error.strerror}.") from error
        if used:
            raise InputError(f"The run folder {path} is already in use: name another, or resume={path}.")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Reserves the folder for this process until the context ends or the process dies; creates it if necessary.

        Raises:
            InputError: if another process has reserved it, or it cannot be written.
        """
        lock, owner = FileLock(self.path / _LOCK), self.path / _OWNER
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        except Timeout as error:
            raise InputError(f"The run folder {self.path} is in use by {owner.read_text()}: stop it.") from error
        except OSError as error:
            raise InputError(f"The run folder {self.path} cannot be written: {error.strerror}.") from error
        try:
            yield
        finally:
            lock.release()

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Opens the folder of an earlier run, or a published model by its name.

        Raises:
            InputError: if it is neither.
        """
        if published.is_published(path):
            return PublishedRun(path)
        run = cls(path)
        if not run._config.is_file():
            raise InputError(f"{path} is not the folder of a run: it has no .hydra/config.yaml.")
        return run

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        """The checkpoint to resume from."""
        return self.checkpoints / "last.pt"

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation metric."""
        return self.checkpoints / "best.pt"

    @property
    def _config(self) -> Path:
        return self.path / ".hydra" / "config.yaml"

    def read_config(self) -> DictConfig:
        """Reads the configuration of the run, including the options it was resumed with."""
        try:
            parts = [self._config, *sorted(self._config.parent.glob("resumed-*.yaml"))]
            config = OmegaConf.merge(*map(OmegaConf.load, parts))
        except Exception as error:  # the YAML parser raises many kinds
            raise InputError(f"{self._config} cannot be read: restore it.") from error
        if not isinstance(config, DictConfig):
            raise InputError(f"{self._config} is not a configuration: restore it.")
        return config

    def write_config(self, config: DictConfig, overrides: list[str]) -> None:
        """Writes the configuration and the command-line overrides."""
        self._config.parent.mkdir()
        OmegaConf.save(config, self._config)
        OmegaConf.save(OmegaConf.create(overrides), self._config.with_name("overrides.yaml"))

    def read_overrides(self) -> list[str]:
        """Reads the command-line overrides the run was started with."""
        file = self._config.with_name("overrides.yaml")
        if not file.is_file():
            raise InputError(f"{self.path} is not the folder of a run: it has no .hydra/overrides.yaml.")
        return list(map(str, OmegaConf.load(file)))

    def typed_options(self) -> dict[str, str]:
        """Returns the options and groups that were set on the command line, by name."""
        typed = [override.lstrip("+~").partition("=") for override in self.read_overrides()]
        return {name: value for name, equals, value in typed if equals}

    def write_resumption(self, config: DictConfig, names: list[str]) -> None:
        """Writes the options that a run is resumed with; the next resumption starts from them."""
        if names:
            count = len(list(self._config.parent.glob("resumed-*.yaml")))
            changed = OmegaConf.create()
            for name in names:
                OmegaConf.update(changed, name, OmegaConf.select(config, name))
            OmegaConf.save(changed, self._config.with_name(f"resumed-{count:03}.yaml"))

    def keep_records(self, step: int) -> None:
        """Renames the final records of a run that continues, so that it does not overwrite them."""
        for path in self.path.iterdir():
            if path.suffix in (".csv", ".json", ".png", ".gif", ".txt") and ".step" not in path.name:
                path.rename(path.with_name(f"{path.stem}.step{step}{path.suffix}"))

    @property
    def commit(self) -> str:
        """The commit of the code in a checkout, else the version of the package."""
        checkout = Path(__file__).parents[2]
        git = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        if (checkout / ".git").exists():  # not the repository of a project that installed this one
            with suppress(OSError, subprocess.CalledProcessError):
                return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        try:
            return version("recurrent-attention")
        except PackageNotFoundError:
            return "unknown"


@dataclass(frozen=True)
class PublishedRun(RunFolder):
    """A published model in the place of a run; it cannot be resumed.

    Attributes:
        path: the name of the model.
    """

    @property
    def best(self) -> Path:
        return published.find(str(self.path))

    def read_config(self) -> DictConfig:
        return OmegaConf.create(published.read(self.best)["config"])


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
        return task.func.restore(checkpoint.inference_state(state), task.keywords)
    except (RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{run.best} does not fit {run.path}/.hydra/config.yaml: restore either file.") from error
