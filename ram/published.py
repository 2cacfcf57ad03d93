"""Published models: trained weights that ship with the package, with what is needed to rebuild the model.

A file holds the state of a task in float16 and, as JSON in its metadata, the configuration, the rest of the state and a
card. It is read without Hydra and without the training data.
"""

from __future__ import annotations

import importlib
import json
import operator
from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from envs.errors import InputError

FOLDER = Path(__file__).parent / "weights"


def names() -> list[str]:
    """Returns the names of the published models."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def is_published(run: str | Path) -> bool:
    """Returns whether ``run`` names a published model rather than a folder."""
    return not Path(run).exists() and str(run) in names()


def find(name: str) -> Path:
    """Returns the file of a published model. Raises :class:`InputError` if there is none of this name."""
    if name not in names():
        raise InputError(f"{name} is neither the folder of a run nor a published model: {', '.join(names())}.")
    return FOLDER / f"{name}.safetensors"


def read(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads a published model: a checkpoint as :func:`ram.training.checkpoint.load` returns, ``config`` and ``card``.

    Floating-point values are converted to float32.
    """
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            metadata = {name: json.loads(text) for name, text in file.metadata().items()}
            state: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{path} is damaged: install the package again.") from error
    state = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
    return {
        "task": state | {"_extra_state": metadata["extra"]},
        "average": {},
        "optimizer": {},
        "progress": {"best": metadata["card"]["validation"]},
        "config": metadata["config"],
        "card": metadata["card"],
    }


def copied_tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns copies of the tensors of a state: safetensors rejects tensors that share memory or are not contiguous."""
    return {
        name: value.clone(memory_format=torch.contiguous_format)
        for name, value in state.items()
        if isinstance(value, Tensor)
    }


def write(path: Path, state: Mapping[str, Any], config: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Writes a published model.

    Args:
        path: of the file; its folder is created.
        state: of the task, with averaged weights and without the networks that only training uses.
        config: the configuration in plain dicts and lists, with its interpolations.
        card: what is known of the model; ``validation`` is its metric on the validation split.
    """
    tensors = {
        name: value.half() if value.is_floating_point() else value for name, value in copied_tensors(state).items()
    }
    metadata = {"extra": state["_extra_state"], "config": config, "card": card}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {name: json.dumps(value) for name, value in metadata.items()})


def load(name: str, device: str = "cpu") -> Any:
    """Returns a published model; see :func:`ram.load`."""
    state = read(find(name), device)
    config = state["config"] | {"device": device}
    task = dict(config["task"])
    kind = _import(task.pop("_target_"))
    return kind.restore(state["task"], {key: _build(value, config) for key, value in task.items()})


def _build(node: Any, config: Mapping[str, Any]) -> Any:
    """Builds the object of a node of a configuration, its parts first."""
    if isinstance(node, str) and node.startswith("${"):  # the name of another node
        return _build(reduce(operator.getitem, node[2:-1].split("."), config), config)
    if isinstance(node, list):
        return [_build(each, config) for each in node]
    if not isinstance(node, dict):
        return node
    built = {key: _build(value, config) for key, value in node.items() if key not in ("_target_", "_partial_")}
    if "_target_" not in node:
        return built
    target = _import(node["_target_"])
    return partial(target, **built) if node.get("_partial_") else target(**built)


def _import(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)
