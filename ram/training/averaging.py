"""An exponential moving average of the weights, which evaluates better than the last of them (Polyak 1992)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from envs.errors import InputError


class WeightAverage:
    """Follows the trained parameters of a module, and has statistics of its own for batch normalisation.

    Args:
        module: whose parameters are averaged; called with the number of a training step, it computes that step.
        decay: share of the old average that stays at each step, in [0, 1); 0 follows the weights themselves.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self._module = decay, module
        self._parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._average = [value.detach().clone() for value in self._parameters.values()]
        # A tensor that two layers share has two names.
        numbers = {id(value): number for number, value in enumerate(self._parameters.values())}
        every = module.named_parameters(remove_duplicate=False)
        self._names = {name: numbers[id(value)] for name, value in every if value.requires_grad}
        self._norms = {name: each for name, each in module.named_modules() if isinstance(each, _BatchNorm)}
        self._statistics = {name: _statistics(each) for name, each in self._norms.items()}
        first = {id(each): name for name, each in self._norms.items()}
        modules = module.named_modules(remove_duplicate=False)
        self._norm_names = {name: first[id(each)] for name, each in modules if id(each) in first}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after step ``step``; early on the average is short, or it would hold on to the start."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, list(self._parameters.values()), 1 - decay)

    @torch.no_grad()
    def gather_statistics(self, steps: Iterable[int]) -> None:
        """Gathers what batch normalisation needs from some training steps, without a trace in the module.

        What training gathers belongs to other weights, and the average may fail with it (Izmailov et al. 2018,
        section 3.2).
        """
        if not self._norms:
            return
        training = self._module.training
        kept = [(value, value.clone()) for value in self._module.buffers()]
        momenta = {name: each.momentum for name, each in self._norms.items()}
        with self.applied():
            for name, norm in self._norms.items():
                _restore(norm, self._statistics[name])  # the module's own, which what is not trained keeps
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.zero_()
                norm.momentum = None  # the mean of all batches
            self._module.train()
            for step in steps:
                self._module(step)
                if not any(norm.num_batches_tracked for norm in self._norms.values()):
                    break  # nothing is gathered
            for name, norm in self._norms.items():
                norm.momentum = momenta[name]
        for value, held in kept:
            value.copy_(held)
        self._module.train(training)

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
        for name, norm in self._norms.items():
            present = _statistics(norm)
            _restore(norm, self._statistics[name])
            self._statistics[name] = present

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by parameter name, and the statistics by the names of their buffers."""
        every = ((name, self._statistics[first]) for name, first in self._norm_names.items())
        statistics = {f"{name}.{kind}": value for name, each in every for kind, value in each.items()}
        return {name: self._average[number] for name, number in self._names.items()} | statistics

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes the averages and statistics of :meth:`state_dict`. Raises :class:`InputError` where one is missing."""
        if missing := self.state_dict().keys() - state.keys():
            raise InputError(f"The checkpoint has no average of {min(missing)}: another version wrote it.")
        for name, average in self.state_dict().items():
            average.copy_(state[name])


def _statistics(norm: _BatchNorm) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in norm.named_buffers(recurse=False)}


def _restore(norm: _BatchNorm, statistics: dict[str, Tensor]) -> None:
    for name, value in norm.named_buffers(recurse=False):
        value.copy_(statistics[name])
