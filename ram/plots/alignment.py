"""Figures of attention weights between queries and keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.rendering import figure_pixels
from ram.plots.style import INK, LETTER, POINTS, new_figure, plain_text

_MAX_LENGTH, _MAX_HEADS = 40, 8  # queries or keys, and heads side by side: more are not legible


def alignment(weights: Tensor, queries: Sequence[str], keys: Sequence[str], title: str = "") -> np.ndarray:
    """Draws attention weights: one row per query, one column per key, dark where the weight is large.

    Weights in [0, 1] are blue. Negative or larger weights go from red to blue, scaled to the largest magnitude. Only
    the first 40 queries and keys and the first 8 heads are drawn.

    Args:
        weights: (Q, N), or (H, Q, N) to draw H heads side by side.
        queries: Q names.
        keys: N names.
        title: the title of the figure.

    Returns:
        (H, W, 3) uint8.
    """
    heads = weights.detach().cpu().reshape(-1, len(queries), len(keys))[:_MAX_HEADS, :_MAX_LENGTH, :_MAX_LENGTH]
    queries, keys = queries[:_MAX_LENGTH], keys[:_MAX_LENGTH]
    in_unit_range = bool(((heads >= 0) & (heads <= 1)).all())
    largest = 1.0 if in_unit_range else float(heads.abs().max())
    colors = {"cmap": "Blues", "vmin": 0} if in_unit_range else {"cmap": "RdBu", "vmin": -largest}
    margin = 0.3 + max(map(len, queries)) * LETTER, 0.5 + max(map(len, keys)) * LETTER
    figure = new_figure(margin[0] + (0.27 * len(keys) + 0.25) * len(heads), margin[1] + 0.27 * len(queries) + 0.15)
    for index, (axes, head) in enumerate(zip(figure.subplots(1, len(heads), squeeze=False)[0], heads, strict=True)):
        axes.imshow(head.numpy(), vmax=largest, **colors)
        axes.set_xticks(range(len(keys)), map(plain_text, keys), rotation=90, fontsize=POINTS)
        axes.set_yticks(range(len(queries)), map(plain_text, queries if index == 0 else [""] * len(queries)))
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelsize=POINTS)
        for spine in axes.spines.values():
            spine.set_color("#d5d9e0")
    figure.suptitle(plain_text(title), fontsize=POINTS, color=INK)
    return figure_pixels(figure)


def recorded_alignment(calls: Sequence[Tensor], tokens: Sequence[str], title: str) -> np.ndarray:
    """Draws the weights that one attention module has over a text, recorded in one call or in one call per step.

    Args:
        calls: (B, Q, N) or (B, H, Q, N) each, of which the first example is drawn; N may grow from call to call.
        tokens: of the text.
        title: the title of the figure.

    Returns:
        (H, W, 3) uint8.
    """
    padded = [F.pad(call[0], (0, len(tokens) - call.shape[-1])) for call in calls]
    weights = torch.cat(padded, dim=-2)
    count = weights.shape[-2]
    queries = tokens if count == len(tokens) else [f"query {index + 1}" for index in range(count)]
    return alignment(weights, queries, tokens, title)
