"""An exponential moving average of the weights, which evaluates better than the last of them (Polyak 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Follows the trained parameters of a module.

    Args:
        module: whose parameters are averaged.
        decay: share of the old average that stays at each step, in [0, 1); 0 follows the weights themselves.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._average = [value.detach().clone() for value in self._parameters.values()]
        # A tensor that two layers share has two names.
        numbers = {id(value): number for number, value in enumerate(self._parameters.values())}
        every = module.named_parameters(remove_duplicate=False)
        self._names = {name: numbers[id(value)] for name, value in every if value.requires_grad}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after step ``step``; early on the average is short, or it would hold on to the start."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, list(self._parameters.values()), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the module computes with the averaged weights."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for value, average in zip(self._parameters.values(), self._average, strict=True):
            held = value.clone()
            value.copy_(average)
            average.copy_(held)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by parameter name."""
        return {name: self._average[number] for name, number in self._names.items()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes the averages of :meth:`state_dict`."""
        for name, average in self.state_dict().items():
            average.copy_(state[name])
