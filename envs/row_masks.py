"""State of the rows of an environment that costs nothing while it is the same in every row: masks and looks."""

from __future__ import annotations

import torch
from torch import Tensor


class RowMasks:
    """Operations on masks (B,) bool, with shortcuts for the two constant masks, which are known by identity.

    While all rows of an environment are at the same step of their episodes, all of its masks are constant, and no
    operation of a device is needed to know that.

    Args:
        rows: the number of rows, B.
        device: of the masks.

    Attributes:
        all: True in every row.
        none: False in every row.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.all, self.none = (torch.full((rows,), value, device=device) for value in (True, False))

    def constant(self, value: bool) -> Tensor:
        """Returns the constant mask of a value."""
        return self.all if value else self.none

    def any(self, mask: Tensor) -> bool:
        """Returns whether a mask is True in any row."""
        return mask is self.all or (mask is not self.none and bool(mask.any()))

    def invert(self, mask: Tensor) -> Tensor:
        """Returns the rows that are not in a mask."""
        if mask is self.all:
            return self.none
        return self.all if mask is self.none else ~mask

    def both(self, first: Tensor, second: Tensor) -> Tensor:
        """Returns the rows that are in both masks."""
        if first is self.all or second is self.none:
            return second
        return first if second is self.all or first is self.none else first & second

    def either(self, first: Tensor, second: Tensor) -> Tensor:
        """Returns the rows that are in either mask."""
        if first is self.none or second is self.all:
            return second
        return first if second is self.none or first is self.all else first | second

    def where(self, mask: Tensor, values: Tensor, others: Tensor) -> Tensor:
        """Returns the values (B, ...) in the rows of the mask and the others (B, ...) elsewhere."""
        if mask is self.all:
            return values
        if mask is self.none:
            return others
        return torch.where(mask.view(-1, *[1] * (values.ndim - 1)), values, others)


class LookCounter:
    """The index of every row's look, which is known without a device while all rows are at the same look.

    Args:
        num_looks: the number of looks of an episode.
        masks: of the rows.

    Attributes:
        look: (B,) int64, from 0.
        common: the look of all rows; None while they differ.
    """

    def __init__(self, num_looks: int, masks: RowMasks) -> None:
        self._masks = masks
        self._looks = [torch.full_like(masks.all, look, dtype=torch.int64) for look in range(num_looks)]
        self.look = self._looks[0]
        self.common: int | None = 0

    def advance(self, rows: Tensor) -> None:
        """Begins the next look in the masked rows (B,)."""
        if rows is self._masks.all and self.common is not None:
            self.common += 1
            self.look = self._looks[self.common]
        elif rows is not self._masks.none:
            self.look, self.common = self.look + rows, None

    def restart(self, rows: Tensor | None) -> None:
        """Begins the first look in the given rows (n,), or in all."""
        if rows is None:
            self.look, self.common = self._looks[0], 0
        else:
            self.look, self.common = self.look.index_fill(0, rows, 0), None
