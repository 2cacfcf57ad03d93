"""Explains the errors that Hydra raises for a command line in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from envs.errors import InputError
from ram.config import config_folder, walk


def explain(error: HydraException, arguments: Sequence[str]) -> InputError:
    """Returns an error that names the wrong argument and, if there is one, the most similar name.

    Args:
        error: raised by Hydra while it composed the configuration.
        arguments: the command line.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.lstrip("/").rpartition("/")
        similar = get_close_matches(option, error.options, n=1)
        question = f"; did you mean {group}={similar[0]}?" if similar else "."
        return InputError(f"{group}={option} does not exist{question} The options are {', '.join(error.options)}.")
    if isinstance(error, OverrideParseException):
        return InputError(f"{error.override} is not of the form NAME=VALUE; quote values with spaces or brackets.")
    unknown = re.match(r"Could not (?:override|find) '([^']+)'", str(error))
    if not unknown:
        return InputError(f"{str(error).splitlines()[0].rstrip('.')}.")
    name, at, _ = unknown[1].partition("@")
    tasks = [path.stem for path in sorted(config_folder().glob("task/*.yaml")) if f"/{name}@" in path.read_text()]
    if tasks and not at:
        return InputError(f"{name} is not a group of this task; it is one of task={', task='.join(tasks)}.")
    if at:
        return InputError(f"{unknown[1]}: there is no group {name} at this place.")
    if (config_folder() / name).is_dir():
        return InputError(
            f"{name} is a group of parts: name the place of the part, as in {name}@decoder.context.{name}=NAME."
        )
    return InputError(f"{name} is not an option or a group{_question(name, _names(arguments, name))}")


def _question(name: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence, which asks for the names that end with a wrong name or are most similar to it."""
    known = list(known)
    similar = sorted(each for each in known if each.rpartition(".")[2] == name) or get_close_matches(name, known, n=1)
    return f"; did you mean {' or '.join(similar[:3])}?" if similar else "."


def _names(arguments: Sequence[str], wrong: str) -> set[str]:
    """Returns the names of all groups and options of the configuration without the wrong argument."""
    GlobalHydra.instance().clear()
    names = {folder.name for folder in config_folder().iterdir() if folder.is_dir()}
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for kept in ([each for each in arguments if not each.lstrip("+~").startswith(wrong)], []):
            try:
                config = compose("config", kept)
            except (HydraException, OSError):
                continue
            options = (name for name, _ in walk(OmegaConf.to_container(config, resolve=False)))
            return names | {name for name in options if not name.rpartition(".")[2].startswith("_")}
    return names
