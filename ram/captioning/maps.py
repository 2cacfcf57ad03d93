"""Where attention looks while it speaks, and whether that is what the words name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pointing(
    maps: Sequence[Tensor],
    grid: tuple[int, int],
    size: Sequence[int],
    boxes: Tensor | None,
    named: Sequence[Sequence[Sequence[int]]],
) -> dict[str, float]:
    """How attention maps differ from word to word, and how they meet the boxes of what the words name.

    A map points to a box if the cell of its largest weight overlaps it; where a word may name several objects, any of
    their boxes will do. Beside it stand two controls that know nothing of the words: the cell in the middle, and the
    maps of other captions.

    Args:
        maps: N times (T, rows * columns), the weights of every word of a caption, T of its own for each.
        grid: rows and columns.
        size: height and width of the images, in pixels.
        boxes: (N, M, 4), of the objects of each caption's image: left, top, right and bottom pixel; None where that is
            not known.
        named: N times, for every word, the numbers of the objects it may name; none where it names nothing.

    Returns:
        ``map_entropy`` in nats and ``map_change``, half the sum of what weights differ by from one word to the next, in
        [0, 1], as far as there are words; with boxes ``pointing``, ``pointing_centre``, ``pointing_shuffled`` and
        ``mass_in_box`` in percent of the words that name something.
    """
    together = torch.cat(list(maps))
    of_words = {"map_change": torch.cat([each.diff(dim=0).abs().sum(-1) / 2 for each in maps])}
    if (together >= 0).all():  # there is no entropy of unnormalised weights
        of_words["map_entropy"] = entropy(together)
    measured = {name: float(values.mean()) for name, values in of_words.items() if len(values)}
    asked = [(number, place) for number, row in enumerate(named) for place, things in enumerate(row) if things]
    if boxes is None or not asked:
        return measured
    cells = _inside(boxes.flatten(0, 1), grid, size).unflatten(0, boxes.shape[:2])
    inside = torch.stack([cells[number, list(named[number][place])].amax(0) for number, place in asked])
    weights = torch.stack([maps[number][place] for number, place in asked])
    others = weights.roll(len(weights) // 2, 0)
    centre = grid[0] // 2 * grid[1] + grid[1] // 2
    shares = {
        "pointing": inside.gather(1, weights.argmax(-1, keepdim=True)) > 0,
        "pointing_centre": inside[:, centre] > 0,
        "pointing_shuffled": inside.gather(1, others.argmax(-1, keepdim=True)) > 0,
        "mass_in_box": (weights * inside).sum(-1),
    }
    return measured | {name: 100 * float(each.float().mean()) for name, each in shares.items()}


def entropy(maps: Tensor) -> Tensor:
    """Of maps whose weights are shares, in nats: (..., rows * columns) -> (...)."""
    # The slope of w ln w at 0 is infinite, and a softmax that underflows would pass it on as NaN.
    return -torch.special.xlogy(maps, maps.clamp(min=torch.finfo(maps.dtype).tiny)).sum(-1)


def _inside(boxes: Tensor, grid: tuple[int, int], size: Sequence[int]) -> Tensor:
    """Which share of every cell lies in each of some boxes: (n, 4) -> (n, rows * columns)."""
    across, down = (
        torch.minimum(edges[1:], boxes[:, last, None] + 1) - torch.maximum(edges[:-1], boxes[:, first, None])
        for edges, first, last in (
            (torch.arange(grid[1] + 1) * (size[1] / grid[1]), 0, 2),
            (torch.arange(grid[0] + 1) * (size[0] / grid[0]), 1, 3),
        )
    )
    area = size[0] * size[1] / (grid[0] * grid[1])
    return (down.clamp(min=0)[:, :, None] * across.clamp(min=0)[:, None] / area).flatten(1)
