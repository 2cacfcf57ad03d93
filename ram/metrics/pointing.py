"""Metrics of attention maps: entropy, change from word to word, and agreement with the boxes of the named objects."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pointing(
    maps: Sequence[Tensor],
    grid: tuple[int, int],
    image_size: Sequence[int],
    boxes: Tensor | None,
    named: Sequence[Sequence[Sequence[int]]],
) -> dict[str, float]:
    """Computes how attention maps change from word to word, and how they agree with the boxes of the named objects.

    A map points to an object if the cell of its largest weight overlaps the object's box; for a word that may name
    several objects, the union of their boxes counts. Two controls ignore the word: the cell in the center of the
    image, and the maps of other captions.

    Args:
        maps: N maps (T, rows * columns), the attention weights of every word of a caption; T may differ.
        grid: (rows, columns).
        image_size: (height, width) of the images, in pixels.
        boxes: (N, M, 4), of the objects in each caption's image: left, top, right and bottom pixel; None if unknown.
        named: for every word of the N captions, the indices of the objects it may name; empty if it names none.

    Returns:
        ``map_entropy`` in nats (if no weight is negative) and ``map_change``, the total variation distance of
        consecutive maps in [0, 1], each if there are enough words; with boxes ``pointing``, ``pointing_center``,
        ``pointing_shuffled`` and ``mass_in_box`` (the attention mass inside the boxes) in percent, averaged over the
        words that name an object.
    """
    every_map = torch.cat(list(maps))
    per_word = {"map_change": torch.cat([each.diff(dim=0).abs().sum(-1) / 2 for each in maps])}
    if (every_map >= 0).all():  # the entropy of unnormalized weights is undefined
        per_word["map_entropy"] = entropy(every_map)
    metrics = {name: float(values.mean()) for name, values in per_word.items() if len(values)}
    naming = [(row, word) for row, words in enumerate(named) for word, objects in enumerate(words) if objects]
    if boxes is None or not naming:
        return metrics
    overlaps = _overlap(boxes.flatten(0, 1), grid, image_size).unflatten(0, boxes.shape[:2])
    overlap = torch.stack([overlaps[row, list(named[row][word])].amax(0) for row, word in naming])
    weights = torch.stack([maps[row][word] for row, word in naming])
    shuffled = weights.roll(len(weights) // 2, 0)
    center = grid[0] // 2 * grid[1] + grid[1] // 2
    shares = {
        "pointing": overlap.gather(1, weights.argmax(-1, keepdim=True)) > 0,
        "pointing_center": overlap[:, center] > 0,
        "pointing_shuffled": overlap.gather(1, shuffled.argmax(-1, keepdim=True)) > 0,
        "mass_in_box": (weights * overlap).sum(-1),
    }
    return metrics | {name: 100 * float(values.float().mean()) for name, values in shares.items()}


def entropy(maps: Tensor) -> Tensor:
    """Computes the entropy of normalized attention maps in nats: (..., rows * columns) -> (...)."""
    # The gradient of w ln w at 0 is infinite: after a softmax that underflows it would become NaN.
    return -torch.special.xlogy(maps, maps.clamp(min=torch.finfo(maps.dtype).tiny)).sum(-1)


def _overlap(boxes: Tensor, grid: tuple[int, int], image_size: Sequence[int]) -> Tensor:
    """Computes the share of every cell's area that is inside each box: (n, 4) -> (n, rows * columns)."""
    widths, heights = (
        torch.minimum(edges[1:], boxes[:, last, None] + 1) - torch.maximum(edges[:-1], boxes[:, first, None])
        for edges, first, last in (
            (torch.arange(grid[1] + 1) * (image_size[1] / grid[1]), 0, 2),
            (torch.arange(grid[0] + 1) * (image_size[0] / grid[0]), 1, 3),
        )
    )
    cell_area = image_size[0] * image_size[1] / (grid[0] * grid[1])
    return (heights.clamp(min=0)[:, :, None] * widths.clamp(min=0)[:, None] / cell_area).flatten(1)
