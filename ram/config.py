"""Configurations: where they lie, what they may say, and the objects they stand for."""

from __future__ import annotations

import importlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Union

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envs.errors import InputError

_OURS = ("torch", "ram", "envs")
_INSTANTIATION = ("_target_", "_partial_")


def config_folder() -> Path:
    """The folder of Hydra's groups: ``ram/conf`` of an installed wheel, else ``conf`` of the checkout."""
    package = Path(__file__).parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise InputError(f"The configuration is missing beside {package}: install the package again.")


def check(config: DictConfig) -> None:
    """Refuses what no constructor would understand, before anything is built.

    Every ``_target_`` must lie in torch, ram, envs or a module of the current folder; every option must be a parameter
    of its target and of its type; numbers must be finite; and the root may hold only what the shipped one does.

    Raises:
        InputError: naming the option.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        name = f"{error.full_key}: " if error.full_key else ""
        raise InputError(f"{name}{reason}.") from error
    assert isinstance(plain, dict)
    allowed = _roots(config)
    for unknown in map(str, plain.keys() - allowed):
        raise InputError(f"{unknown} is no option of the configuration; it has {', '.join(sorted(allowed))}.")
    for name, value in _leaves(plain):
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, got {value}.")
    try:
        torch.empty(0, device=plain.get("device"))
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device={plain.get('device')} cannot be used: {str(error).splitlines()[0]}") from error
    if not isinstance(plain.get("init"), str | None):
        raise InputError(f"init must be null or the folder of a run, got {plain['init']!r}.")
    for name, least in [("seed", 0), ("num_threads", 1)]:
        value = plain.get(name)
        if not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    # Groups first: there an option has the name that the user typed; env and task refer to them.
    for group in sorted(plain, key=lambda name: ("env", "task").index(name) if name in ("env", "task") else -1):
        _check_node(str(group), plain[group])


def _roots(config: DictConfig) -> set[str]:
    """What may stand at the root: the shipped options, the groups of the task, and what an option refers to."""
    shipped = config_folder()
    root = OmegaConf.load(shipped / "config.yaml")
    task = OmegaConf.select(config, "task._target_")
    tasks = [OmegaConf.load(file) for file in (shipped / "task").glob("*.yaml")]
    files = [root, *(file for file in tasks if OmegaConf.select(file, "_target_") == task)]
    chosen = [
        entry for file in files for entry in OmegaConf.select(file, "defaults") or [] if isinstance(entry, DictConfig)
    ]
    groups = {str(group).removeprefix("/").split("@")[0] for entry in chosen for group in entry}
    groups = {group for group in groups if group != "experiment" and not group.startswith("override ")}
    leaves = (str(value) for _, value in _leaves(OmegaConf.to_container(config, resolve=False)))
    referred = {value.strip("${}").split(".")[0] for value in leaves if value.startswith("${")}
    return groups | referred | set(map(str, root)) - {"defaults", "hydra"}


def build(node: DictConfig, **arguments: Any) -> Any:
    """The object that a node with a ``_target_`` stands for. Its parts are built first.

    Raises:
        InputError: what a constructor says about its arguments.
    """
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        raise (error.__cause__ or error) from None  # an InputError is told in a sentence, a defect with its traceback


def _leaves(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list):
        for position, value in enumerate(node):
            yield from _leaves(value, f"{name}[{position}]")
    else:
        yield name, node


def _check_node(name: str, node: Any) -> None:
    if isinstance(node, list):
        for position, entry in enumerate(node):
            _check_node(f"{name}[{position}]", entry)
    if not isinstance(node, dict):
        return
    if "_target_" in node:
        target = _locate(name, node["_target_"])
        parameters = inspect.signature(target).parameters
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        hints = _hints(target)
        for option, value in node.items():
            if option in _INSTANTIATION or (open_ended and option not in parameters):
                continue
            if option not in parameters:
                offered = [each for each in parameters if each in node] or list(parameters)
                raise InputError(
                    f"{name}.{option} is no option of {node['_target_']}; it has {', '.join(sorted(offered))}."
                )
            if option in hints and not _fits(value, hints[option]):
                raise InputError(f"{name}.{option} must be {_spell(hints[option])}, got {value!r}.")
    for option, value in node.items():
        _check_node(f"{name}.{option}", value)


def _locate(name: str, target: Any) -> Callable[..., Any]:
    module_name, _, attribute = str(target).rpartition(".")
    try:
        module = importlib.import_module(module_name)
        found: Callable[..., Any] = getattr(module, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name}._target_: {target} cannot be imported ({error}).") from error
    file = getattr(module, "__file__", None)
    own = file is not None and Path.cwd() in Path(file).resolve().parents and "site-packages" not in Path(file).parts
    if module_name.split(".")[0] not in _OURS and not own:
        raise InputError(f"{name}._target_: {target} lies outside torch, ram, envs and the current folder.")
    if not callable(found):
        raise InputError(f"{name}._target_: {target} is no class or function.")
    return found


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    called = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        return typing.get_type_hints(called)
    except (NameError, TypeError):  # torch's own annotations do not always resolve
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value may stand for a type; what is not plain is left to the constructor."""
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in typing.get_args(hint))
    if origin is Literal:
        return value in typing.get_args(hint)
    if hint is type(None):
        return value is None
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is tuple:
        kinds = typing.get_args(hint)
        return isinstance(value, list) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    return True


def _spell(hint: Any) -> str:
    names = {type(None): "null", int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_spell(each) for each in typing.get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if origin is tuple:
        return f"a list of {len(typing.get_args(hint))}"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def assignments(arguments: list[str]) -> dict[str, str]:
    """What was typed as name=value, by name. Raises :class:`InputError` for anything else."""
    for word in arguments:
        if "=" not in word:
            raise InputError(f"{word} is not of the form name=value.")
    return {name: value for name, _, value in (word.partition("=") for word in arguments)}


def override(config: DictConfig, options: dict[str, str], allowed: tuple[str, ...], source: str) -> None:
    """Sets the few options that may differ from a configuration taken from elsewhere.

    Raises:
        InputError: naming an option that may not.
    """
    for name, value in options.items():
        if name not in allowed:
            raise InputError(f"{source} brings its configuration and accepts only {', '.join(allowed)}, not {name}.")
        owner, _, key = name.rpartition(".")
        if key not in (OmegaConf.select(config, owner) or {} if owner else config):
            raise InputError(f"{source} has no option {name}.")
        try:
            parsed = OmegaConf.from_dotlist([f"value={value}"])["value"]
        except YAMLError as error:
            raise InputError(f"{name}={value} cannot be read: give a number, a name or null.") from error
        OmegaConf.update(config, name, parsed)


def flatten(config: DictConfig) -> dict[str, Any]:
    """Every option by its dotted name, once: what only refers to another is left out."""
    leaves = _leaves(OmegaConf.to_container(config, resolve=False))
    return {name: value for name, value in leaves if not str(value).startswith("${")}
