"""The observations and infos that an environment returns, as tensors or as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Output = Literal["numpy", "torch"]


def to_output(values: Mapping[str, Tensor], output: Output) -> dict[str, Any]:
    """Returns the tensors, or numpy copies of them, which the user may write into."""
    return dict(values) if output == "torch" else {name: to_numpy(value) for name, value in values.items()}


def to_numpy(values: Tensor) -> np.ndarray:
    """Returns a copy as a numpy array."""
    return values.cpu().numpy().copy()


def make_info(
    fields: Mapping[str, Tensor], components: Mapping[str, Tensor], rewarded: Tensor, output: Output
) -> dict[str, Any]:
    """Returns the info of a step as Gymnasium lays it out.

    Args:
        fields: (B, ...) each, present in every row.
        components: (B,) each, of the reward, present in the ``rewarded`` rows (B,) bool.
        rewarded: see ``components``.
        output: with "numpy" a mask ``_<name>`` of the rows where a field is present is added for every field.
    """
    info = {**fields, **components}
    if output == "numpy":
        info |= {f"_{name}": torch.ones_like(rewarded) for name in fields}
        info |= {f"_{name}": rewarded for name in components}
    return to_output(info, output)


def make_final_info(
    observation: Mapping[str, Tensor], info: dict[str, Any], last: Tensor, output: Output
) -> dict[str, Any]:
    """Returns the last observation and info of the rows ``last`` (B,) bool, as Gymnasium's SAME_STEP lays them out."""
    if output == "torch":
        return {"final_obs": dict(observation), "_final_obs": last, "final_info": info, "_final_info": last}
    ended = to_numpy(last)
    arrays = to_output(observation, output)
    final_obs = np.full(len(ended), None, dtype=object)
    for row in ended.nonzero()[0]:
        final_obs[row] = {name: value[row] for name, value in arrays.items()}
    final_info = info | {name: ended.copy() for name in info if name.startswith("_")}
    return {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended.copy()}
