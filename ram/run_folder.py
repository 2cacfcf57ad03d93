"""One folder a run: its configuration, checkpoints and records; and how commands speak of mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from envs import errors
from envs.errors import InputError
from ram.training.trainer import TrainingStopped


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it writes.

    Attributes:
        path: of the folder.
    """

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Makes a new folder. Raises :class:`InputError` if it already holds anything."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            used = any(path.iterdir())
        except OSError as error:
            raise InputError(f"The run folder {path} cannot be made: {error.strerror}.") from error
        if used:
            raise InputError(f"The run folder {path} is already in use: name a new one, or resume={path}.")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run. Raises :class:`InputError` if it is none."""
        run = cls(path)
        if not run._config.is_file():
            raise InputError(f"{path} is not the folder of a run: it has no .hydra/config.yaml.")
        return run

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        """The checkpoint to go on from."""
        return self.checkpoints / "last.pt"

    @property
    def best(self) -> Path:
        """The checkpoint that did best on the validation split."""
        return self.checkpoints / "best.pt"

    @property
    def _config(self) -> Path:
        return self.path / ".hydra" / "config.yaml"

    def read_config(self) -> DictConfig:
        """The configuration the run was started with, and what it was resumed with since."""
        try:
            parts = [self._config, *sorted(self._config.parent.glob("resumed-*.yaml"))]
            config = OmegaConf.merge(*map(OmegaConf.load, parts))
        except Exception as error:  # YAML's own errors are many
            raise InputError(f"{self._config} cannot be read: restore it.") from error
        if not isinstance(config, DictConfig):
            raise InputError(f"{self._config} holds no configuration: restore it.")
        return config

    def write_config(self, config: DictConfig, overrides: list[str]) -> None:
        """Records the configuration and what the user typed."""
        self._config.parent.mkdir()
        OmegaConf.save(config, self._config)
        OmegaConf.save(OmegaConf.create(overrides), self._config.with_name("overrides.yaml"))

    def read_overrides(self) -> list[str]:
        """What the user typed to start it."""
        file = self._config.with_name("overrides.yaml")
        if not file.is_file():
            raise InputError(f"{self.path} is not the folder of a run: it has no .hydra/overrides.yaml.")
        return list(map(str, OmegaConf.load(file)))

    def write_resumption(self, config: DictConfig, names: list[str]) -> None:
        """Records the options that a run is resumed with, so that the next resumption knows them."""
        if names:
            count = len(list(self._config.parent.glob("resumed-*.yaml")))
            changed = OmegaConf.create()
            for name in names:
                OmegaConf.update(changed, name, OmegaConf.select(config, name))
            OmegaConf.save(changed, self._config.with_name(f"resumed-{count:03}.yaml"))

    def keep_records(self, step: int) -> None:
        """Renames the final records of a run that is about to go on, so that none is lost."""
        for path in self.path.iterdir():
            if path.suffix in (".csv", ".json", ".png", ".gif", ".txt") and ".step" not in path.name:
                path.rename(path.with_name(f"{path.stem}.step{step}{path.suffix}"))

    @property
    def commit(self) -> str:
        """The commit of the code if it runs from a checkout, else its version."""
        checkout = Path(__file__).parents[1]
        git = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        if (checkout / ".git").exists():  # and not the repository of somebody who installed us in theirs
            with suppress(OSError, subprocess.CalledProcessError):
                return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        try:
            return version("recurrent-attention")
        except PackageNotFoundError:
            return "unknown"


def table(values: Mapping[str, object]) -> str:
    """Names and values in two columns."""
    spelled = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in values.items()}
    left, right = max(map(len, spelled)), max(map(len, spelled.values()))
    return "\n".join(f"  {name:<{left}}  {value:>{right}}" for name, value in spelled.items())


@contextmanager
def report_errors() -> Iterator[None]:
    """Within, a user's mistake ends the program with its sentence and status 1; a defect keeps its traceback.

    A warning that points into this project is a sentence too, without the line of code that Python shows.
    """
    shown, ours = warnings.formatwarning, [Path(__file__).parent, Path(errors.__file__).parent]

    def told(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if any(Path(filename).is_relative_to(folder) for folder in ours):
            return f"Warning: {message}\n"
        return shown(message, category, filename, lineno, line)

    warnings.formatwarning = told
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads what is printed wants no more, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, TrainingStopped) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Error: Interrupted.")
    finally:
        warnings.formatwarning = shown
