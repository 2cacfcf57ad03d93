"""Checkpoints: atomic writes, and reads that detect damage."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from envs.errors import InputError
from ram import published
from ram.atomic_files import replacing
from ram.tasks import Task

_NUM_NAMED = 3  # differences in an error
_TRAINING_ONLY = ("baseline.", "patch_classifier.")
"""Names of the networks of tasks that only training uses."""
_OF_DATA = ("classes", "image_shape", "label_shape", "interface")
"""Entries of the extra state that describe the data; weights for other data fit if their shapes do."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes tensors, numbers, strings, dicts and lists atomically: a crash leaves the old or the new file."""
    with replacing(path) as partial, open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def save_weights(path: Path, module: nn.Module) -> None:
    """Writes the tensors of a module's state as safetensors, for other programs."""
    with replacing(path) as partial:
        save_file(published.copied_tensors(module.state_dict()), partial)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads what :func:`save` wrote, or a published model.

    Raises:
        InputError: if the file is missing, damaged or not a checkpoint.
    """
    if not path.is_file():
        raise InputError(f"There is no checkpoint {path}: name the folder of a run with a checkpoint.")
    if path.suffix == ".safetensors":
        return published.read(path, device)
    damaged = InputError(f"{path} is damaged or not a checkpoint of this project: restore it or train again.")
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load ignores the checksums of the archive
            if archive.testzip() is not None:
                raise damaged
        state = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise damaged from error
    if not isinstance(state, dict) or not {"task", "average", "optimizer", "progress"} <= state.keys():
        raise damaged
    return state


def inference_state(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of the task with averaged weights, without the networks that only training uses."""
    whole = state["task"] | state["average"]
    return {name: value for name, value in whole.items() if not name.startswith(_TRAINING_ONLY)}


def load_weights(module: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Loads the averaged weights of a checkpoint, for evaluation or to start training from.

    Networks that only training uses keep their weights: the reward may be another one.
    """
    own = {name: value for name, value in module.state_dict().items() if name.startswith(_TRAINING_ONLY)}
    load_state(module, inference_state(state) | own, path)


def load_initial_weights(task: Task, state: dict[str, Any], path: Path) -> bool:
    """Loads the averaged weights of a checkpoint to start training from; the data may be other than in its run.

    Returns:
        Whether the classes differ, so that ``task.class_layers`` keep their weights.
    """
    own, saved = task.state_dict(), inference_state(state)
    new, old = own["_extra_state"], saved["_extra_state"]
    differ = new.get("classes") != old.get("classes")
    kept = {name: value for name, value in own.items() if differ and name.startswith(task.class_layers)}
    saved = {name: value for name, value in saved.items() if not (differ and name.startswith(task.class_layers))}
    saved["_extra_state"] = old | {name: value for name, value in new.items() if name in _OF_DATA}
    load_weights(task, {**state, "task": saved | kept, "average": {}}, path)
    return differ


def load_state(module: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Loads a state into a module. Raises :class:`InputError` if it does not fit, and names what differs."""
    try:
        module.load_state_dict(state)
    except InputError as error:
        raise InputError(f"{path} does not fit: {error}") from error
    except (RuntimeError, KeyError) as error:
        differences = _differences(module.state_dict(), state)
        more = f" and {len(differences) - _NUM_NAMED} others" if len(differences) > _NUM_NAMED else ""
        named = "; ".join(differences[:_NUM_NAMED]) or str(error).splitlines()[0].strip("'\"")
        raise InputError(f"{path} does not fit this model: {named}{more}.") from error


def _differences(own: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    """Returns what differs between the tensors of two states: their shapes, or that one state has no such tensor."""
    here, there = (
        {name: tuple(value.shape) for name, value in state.items() if isinstance(value, torch.Tensor)}
        for state in (own, saved)
    )
    found = []
    for name in dict.fromkeys([*here, *there]):
        if name not in there:
            found.append(f"{name} exists only here")
        elif name not in here:
            found.append(f"{name} exists only there")
        elif here[name] != there[name]:
            found.append(f"{name} is {here[name]} here but {there[name]} there")
    return found
