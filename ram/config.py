"""Configurations: where the files are, which options are valid, and how objects are built from them."""

from __future__ import annotations

import importlib
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Union

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from envs.errors import InputError
from envs.validation import check_integer

_PACKAGES = ("torch", "ram", "envs")
_HYDRA_KEYS = ("_target_", "_partial_")
_MAX_SEED = 2**31
_TYPE_NAMES = {type(None): "null", int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def config_folder() -> Path:
    """Returns the folder of the configuration: ``ram/conf`` of an installed wheel, else ``conf`` of the checkout."""
    package = Path(__file__).parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise InputError(f"The folder conf is missing next to {package}: install the package again.")


def check(config: DictConfig) -> None:
    """Checks a configuration before anything is built.

    Every ``_target_`` must be in torch, ram, envs or a module of the current folder; every option must be a parameter
    of its target and fit its type; numbers must be finite; and the root may contain only the shipped options.

    Raises:
        InputError: naming the option.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise InputError(f"{error.full_key} has no default: set {error.full_key}=VALUE.") from error
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        name = f"{error.full_key}: " if error.full_key else ""
        raise InputError(f"{name}{reason}.") from error
    assert isinstance(plain, dict)
    allowed = _root_options(config)
    for unknown in map(str, plain.keys() - allowed):
        raise InputError(f"{unknown} is not an option of the configuration; it has {', '.join(sorted(allowed))}.")
    for name, value in walk(plain):
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, got {value}.")
    _check_device(plain.get("device"))
    if not isinstance(plain.get("init"), str | None):
        raise InputError(f"init must be null or the folder of a run, got {plain['init']!r}.")
    if not re.fullmatch(r"[^/\\]+", str(plain.get("name", "train") or "")):
        raise InputError(f"name must be a part of the name of a folder, got {plain['name']!r}.")
    check_integer("seed", plain.get("seed"), 0)
    if plain["seed"] >= _MAX_SEED:
        raise InputError(f"seed must be below {_MAX_SEED}, got {plain['seed']}.")
    check_integer("num_threads", plain.get("num_threads"), 1)
    if plain.get("num_processes", 1) != "auto":
        check_integer("num_processes", plain.get("num_processes", 1), 1)
    # env and task last: they refer to the other groups, whose options should be named as the user gave them.
    for group in sorted(plain, key=lambda name: ("env", "task").index(name) if name in ("env", "task") else -1):
        for name, node in walk(plain[group], str(group)):
            if isinstance(node, dict) and "_target_" in node:
                _check_options(name, node)


def _check_device(name: Any) -> None:
    """Raises InputError if there is no device of this name."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        try:
            torch.device(name)
        except (RuntimeError, TypeError):
            raise InputError(f"device={name} is not the name of a device, such as cpu, cuda or cuda:1.") from error
        raise InputError(f"device={name} cannot be used: torch finds no such device here; set device=cpu.") from error


def _root_options(config: DictConfig) -> set[str]:
    """Returns the valid names at the root: the shipped options, the groups of the task, and interpolated names."""
    shipped = config_folder()
    root = OmegaConf.load(shipped / "config.yaml")
    target = OmegaConf.select(config, "task._target_")
    tasks = [OmegaConf.load(file) for file in (shipped / "task").glob("*.yaml")]
    files = [root, *(task for task in tasks if OmegaConf.select(task, "_target_") == target)]
    defaults = [entry for file in files for entry in OmegaConf.select(file, "defaults") or []]
    names = [str(name) for entry in defaults if isinstance(entry, DictConfig) for name in entry]
    # The groups of the root file have plain names; those of a task are at the root if their package is _global_.
    groups = {name.partition("@_global_.")[2] or name for name in names if "@_global_." in name or name.isidentifier()}
    values = (str(value) for _, value in walk(OmegaConf.to_container(config, resolve=False)))
    interpolated = {value.strip("${}").split(".")[0] for value in values if value.startswith("${")}
    return (groups - {"experiment"}) | interpolated | set(map(str, root)) - {"defaults", "hydra"}


def build(node: DictConfig, **arguments: Any) -> Any:
    """Builds the object of a node with a ``_target_``, its parts first.

    Raises:
        InputError: if a constructor rejects its arguments.
    """
    try:
        # A copy: Hydra would replace the interpolations of the whole configuration by their values.
        return instantiate(OmegaConf.to_container(node, resolve=True), _convert_="all", **arguments)
    except InstantiationException as error:
        raise (error.__cause__ or error) from None  # an InputError, or a defect with its traceback


def walk(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields a node and all nodes and values in it, by dotted name."""
    yield name, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list):
        for position, value in enumerate(node):
            yield from walk(value, f"{name}[{position}]")


def _check_options(name: str, node: dict[str, Any]) -> None:
    """Checks that a node with a ``_target_`` has options and types that its target accepts."""
    target = _import_target(name, node["_target_"])
    parameters = inspect.signature(target).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    hints = _type_hints(target)
    for option, value in node.items():
        if option in _HYDRA_KEYS or (open_ended and option not in parameters):
            continue
        if option not in parameters:
            offered = [each for each in parameters if each in node] or list(parameters)
            raise InputError(
                f"{name}.{option} is not an option of {node['_target_']}; it has {', '.join(sorted(offered))}."
            )
        if option in hints and not _fits_type(value, hints[option]):
            raise InputError(f"{name}.{option} must be {_describe_type(hints[option])}, got {value!r}.")


def _import_target(name: str, target: Any) -> Callable[..., Any]:
    module_name, _, attribute = str(target).rpartition(".")
    try:
        module = importlib.import_module(module_name)
        found: Callable[..., Any] = getattr(module, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name}._target_: {target} cannot be imported ({error}).") from error
    file = Path(getattr(module, "__file__", None) or "/")
    in_current_folder = Path.cwd() in file.resolve().parents and "site-packages" not in file.parts
    if module_name.split(".")[0] not in _PACKAGES and not in_current_folder:
        raise InputError(f"{name}._target_: {target} is not in torch, ram, envs or the current folder.")
    if not callable(found):
        raise InputError(f"{name}._target_: {target} is not a class or function.")
    return found


def _type_hints(target: Callable[..., Any]) -> dict[str, Any]:
    called = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        return typing.get_type_hints(called)
    except (NameError, TypeError):  # some annotations of torch do not resolve
        return {}


def _fits_type(value: Any, hint: Any) -> bool:
    """Returns whether a plain value fits a type hint; other types are left to the constructor."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits_type(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if hint is torch.Tensor:  # as for the learning rate of torch's optimizers
        return False
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(arguments) and all(map(_fits_type, value, arguments))
    return hint not in _TYPE_NAMES or type(value) is hint or (hint is float and type(value) is int)


def _describe_type(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe_type(each) for each in arguments if each is not torch.Tensor)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"a list of {len(arguments)}"
    return _TYPE_NAMES.get(hint, getattr(hint, "__name__", str(hint)))


def override(config: DictConfig, options: dict[str, str], allowed: tuple[str, ...], source: str) -> None:
    """Overrides options of the configuration of an earlier run.

    Args:
        config: changed in place.
        options: values by dotted name.
        allowed: names of the options that can be overridden.
        source: the argument that names the run, for error messages.

    Raises:
        InputError: naming an option that is not allowed, missing or malformed.
    """
    for name, value in options.items():
        if name not in allowed:
            raise InputError(f"{source} accepts only {', '.join(allowed)}, not {name}: the run sets the other options.")
        owner, _, key = name.rpartition(".")
        if key not in (OmegaConf.select(config, owner) or {} if owner else config):
            raise InputError(f"{source} has no option {name}.")
        try:
            config.merge_with_dotlist([f"{name}={value}"])
        except YAMLError as error:
            raise InputError(f"{name}={value} cannot be parsed: give a number, a name or null.") from error


def flatten(config: DictConfig) -> dict[str, Any]:
    """Returns every option by its dotted name, without interpolations."""
    nodes = walk(OmegaConf.to_container(config, resolve=False))
    return {
        name: value for name, value in nodes if not isinstance(value, dict | list) and not str(value).startswith("${")
    }
