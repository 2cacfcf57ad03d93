"""What the environments take and return: spaces, parsing of actions and reset options, observations and infos."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envs.answer_schedule import Answer
from envs.errors import InputError
from envs.sensor import GlimpseSensor, LogPolarSensor, Sensor
from envs.validation import parse_flags, parse_floats, parse_integers, parse_pair, parse_tensor

Output = Literal["numpy", "torch"]


def resolve_sensor(sensor: str | Sensor) -> Sensor:
    """Returns a sensor, or builds one from its name.

    Args:
        sensor: a sensor; or "retina_PxS" for S scales of P x P pixels, such as "retina_8x2"; or "log_polar".

    Raises:
        InputError: for any other value.
    """
    if not isinstance(sensor, str):
        if isinstance(sensor, type) or not hasattr(sensor, "patch_shape"):
            raise InputError(f"env.sensor must be a sensor, such as envs.GlimpseSensor(), got {sensor!r}.")
        return sensor
    if sensor == "log_polar":
        return LogPolarSensor()
    match = re.fullmatch(r"retina_(\d+)x(\d+)", sensor)
    if match is None:
        raise InputError(f"env.sensor={sensor!r} is not a name of a sensor, such as retina_8x2 or log_polar.")
    return GlimpseSensor(int(match[1]), int(match[2]))


def make_observation_space(
    patch_shape: tuple[int, ...], num_glimpses: int, num_goals: int, context_shape: tuple[int, ...] | None
) -> spaces.Dict:
    """Returns the space of the observations of one row.

    Args:
        patch_shape: (scales, C, h, w).
        num_glimpses: the number of looks of an episode.
        num_goals: the number of classes of the goal; 0 for no goal.
        context_shape: (C, h', w') of the coarse view; None for no coarse view.
    """
    parts: dict[str, spaces.Space] = {
        "patches": spaces.Box(0, 1, patch_shape, np.float32),
        "location": spaces.Box(-1, 1, (2,), np.float32),
        "step": spaces.Discrete(num_glimpses),
    }
    if num_goals:
        parts["goal"] = spaces.Discrete(num_goals)
    if context_shape:
        parts["context"] = spaces.Box(0, 1, context_shape, np.float32)
    return spaces.Dict(parts)


def make_action_space(answer: Answer | None, num_classes: int, stop: bool) -> spaces.Dict:
    """Returns the space of the actions of one row."""
    parts: dict[str, spaces.Space] = {"location": spaces.Box(-1, 1, (2,), np.float32)}
    if answer == "label":
        parts["answer"] = spaces.Discrete(num_classes)
    elif answer == "log_probs":
        parts["answer"] = spaces.Box(-np.inf, 0, (num_classes,), np.float32)
    elif answer == "box":
        parts["answer"] = spaces.Box(-1, 1, (4,), np.float32)
    if stop:
        parts["stop"] = spaces.Discrete(2)
    return spaces.Dict(parts)


def parse_context_size(size: int | Sequence[int] | None, images: Tensor) -> tuple[int, int] | None:
    """Returns (height, width) of the coarse view of images (B, C, H, W), or None for no coarse view."""
    if size is None:
        return None
    pair = parse_pair("env.context_size", size, 1)
    height, width = images.shape[-2:]
    if pair[0] > height or pair[1] > width:
        raise InputError(f"env.context_size {pair} is larger than the images, {(height, width)}.")
    return pair


def check_action_keys(action: Any, space: spaces.Space) -> None:
    """Refuses an action that is not a dict with the keys of its space."""
    assert isinstance(space, spaces.Dict)
    if not isinstance(action, Mapping) or action.keys() != space.spaces.keys():
        keys = sorted(action) if isinstance(action, Mapping) else type(action).__name__
        raise InputError(f"An action must be a dict of {' and '.join(space)}, got {keys}.")


def parse_actions(
    actions: Any, space: spaces.Space, answer: Answer | None, rows: int, device: torch.device
) -> dict[str, Tensor]:
    """Returns the actions of all rows as tensors (rows, ...); log-probabilities are normalized.

    Args:
        actions: a dict with the keys of ``space``, of arrays or tensors (rows, ...).
        space: of one row's action.
        answer: the kind of the answer.
        rows: the number of rows.
        device: of the tensors.

    Raises:
        InputError: the actions have a wrong key, shape, dtype or range.
    """
    check_action_keys(actions, space)
    assert isinstance(space, spaces.Dict)
    parts = space.spaces
    parsed = {"location": parse_floats("location", actions["location"], (rows, 2), device)}
    if answer:
        name, given, of_answer = "action['answer']", actions["answer"], parts["answer"]
        if isinstance(of_answer, spaces.Discrete):
            parsed["answer"] = parse_integers(name, given, rows, int(of_answer.n), device)
        else:
            shape = (rows, *(of_answer.shape or ()))
            parsed["answer"] = parse_floats(name, given, shape, device, allow_infinite=answer == "log_probs")
    if answer == "log_probs":
        values = parsed["answer"]
        if values.is_cpu and not (values.isfinite().any(1).all() and (values < math.inf).all()):
            raise InputError("action['answer'] must have a finite log-probability in every row, and none of +inf.")
        parsed["answer"] = parsed["answer"].log_softmax(-1)
    if "stop" in parts:
        parsed["stop"] = parse_flags("action['stop']", actions["stop"], rows, device)
    return parsed


def parse_reset_options(
    options: Mapping[str, Any] | None, rows: int, rows_per_image: int, num_scenes: int, device: torch.device
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Returns the options of a reset of B rows that show B / R images; None where an option is not given.

    Returns:
        ``index`` (B / R,) int64, the scenes to show; ``location`` (B, 2) float32, the first locations; ``episode``
        (B,) int64, the numbers of the episodes; and ``reset_mask`` (B,) bool, the rows to reset.

    Raises:
        InputError: an option is unknown, or has a wrong shape, dtype or range.
    """
    options = options or {}
    names = "index", "location", "episode", "reset_mask"
    if unknown := options.keys() - set(names):
        raise InputError(f"The options of reset are {', '.join(names)}, not {', '.join(sorted(map(str, unknown)))}.")
    index, location, episode, mask = (options.get(name) for name in names)
    if index is not None:
        index = parse_integers("options['index']", index, rows // rows_per_image, num_scenes, device).clone()
    if location is not None:
        location = parse_floats("location", location, (rows, 2), device)
    if episode is not None:
        episode = parse_tensor("options['episode']", episode, device)
        episode = episode.expand(rows) if episode.ndim == 0 else episode
        episode = parse_integers("options['episode']", episode, rows, None, device).clone()
    if mask is not None:
        mask = parse_tensor("options['reset_mask']", mask, device)
        if mask.shape != (rows,) or mask.dtype != torch.bool or not mask.any():
            raise InputError(f"options['reset_mask'] must be ({rows},) bool with at least one True.")
        by_image = mask.view(-1, rows_per_image)
        if not (by_image == by_image[:, :1]).all():
            raise InputError("options['reset_mask'] must reset all rollouts of an image or none.")
    return index, location, episode, mask


class OutputConverter:
    """Returns the tensors that it is called with, or numpy copies of them, which the user may write into.

    Args:
        output: "torch" or "numpy".
    """

    def __init__(self, output: Output) -> None:
        self.is_torch = output == "torch"
        self._arrays: dict[str, tuple[Tensor, np.ndarray]] = {}  # of the last tensors, most of which come again

    def __call__(self, values: Mapping[str, Tensor], shared: Collection[str] = ()) -> dict[str, Any]:
        """Returns tensors or arrays by name; those named in ``shared`` are not copied if possible."""
        if self.is_torch:
            return dict(values)
        arrays = {}
        for name, value in values.items():
            if name in shared:
                arrays[name] = np.ascontiguousarray(value.numpy(force=True))
                continue
            held = self._arrays.get(name)
            if held is None or held[0] is not value:
                held = self._arrays[name] = value, value.numpy(force=True)
            arrays[name] = held[1].copy()
        return arrays


def make_final_info(
    observation: Mapping[str, Tensor], info: dict[str, Any], last: Tensor, convert: OutputConverter
) -> dict[str, Any]:
    """Returns the last observation and info of the rows ``last`` (B,) bool, as Gymnasium's SAME_STEP lays them out."""
    if convert.is_torch:
        return {"final_obs": dict(observation), "_final_obs": last, "final_info": info, "_final_info": last}
    ended = last.cpu().numpy()
    arrays = convert(observation)
    final_obs = np.full(len(ended), None, dtype=object)
    for row in ended.nonzero()[0]:
        final_obs[row] = {name: value[row] for name, value in arrays.items()}
    final_info = info | {name: ended.copy() for name in info if name.startswith("_")}
    return {"final_obs": final_obs, "_final_obs": ended.copy(), "final_info": final_info, "_final_info": ended.copy()}
