"""Exponential moving average of the weights (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from envs.errors import InputError


class WeightAverage:
    """Averages the trained parameters of a module, with its own statistics for batch normalization.

    Args:
        module: the module with the parameters; ``module(step)`` computes a training step.
        decay: weight of the old average at each step, in [0, 1); 0 for the last weights.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self._module = decay, module
        self._parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._average = [value.detach().clone() for value in self._parameters.values()]
        # A tensor that two layers share has two names.
        indices = {id(value): index for index, value in enumerate(self._parameters.values())}
        parameters = module.named_parameters(remove_duplicate=False)
        self._names = {name: indices[id(value)] for name, value in parameters if value.requires_grad}
        self._norms = {name: norm for name, norm in module.named_modules() if isinstance(norm, _BatchNorm)}
        self._statistics = {name: _statistics(norm) for name, norm in self._norms.items()}
        first_names = {id(norm): name for name, norm in self._norms.items()}
        modules = module.named_modules(remove_duplicate=False)
        self._norm_names = {name: first_names[id(value)] for name, value in modules if id(value) in first_names}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Adds the weights after step ``step``, with a smaller decay at first so that the initial weights fade."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, list(self._parameters.values()), 1 - decay)

    @torch.no_grad()
    def gather_statistics(self, steps: Iterable[int]) -> None:
        """Computes the statistics of batch normalization for the averaged weights over some training steps.

        Those of training belong to other weights (Izmailov et al. 2018, section 3.2). The module is left unchanged.
        """
        if not self._norms:
            return
        training = self._module.training
        saved = [(value, value.clone()) for value in self._module.buffers()]
        momenta = {name: norm.momentum for name, norm in self._norms.items()}
        with self.applied():
            for name, norm in self._norms.items():
                _restore(norm, self._statistics[name])  # frozen norms keep the statistics of the module
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.zero_()
                norm.momentum = None  # the mean of all batches
            self._module.train()
            for step in steps:
                self._module(step)
                if not any(norm.num_batches_tracked for norm in self._norms.values()):
                    break  # all norms are frozen
            for name, norm in self._norms.items():
                norm.momentum = momenta[name]
        for value, copy in saved:
            value.copy_(copy)
        self._module.train(training)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the module has the averaged weights."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for value, average in zip(self._parameters.values(), self._average, strict=True):
            previous = value.clone()
            value.copy_(average)
            average.copy_(previous)
        for name, norm in self._norms.items():
            statistics = _statistics(norm)
            _restore(norm, self._statistics[name])
            self._statistics[name] = statistics

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the averages by parameter name, and the statistics by buffer name."""
        buffers = ((name, self._statistics[first]) for name, first in self._norm_names.items())
        statistics = {f"{name}.{buffer}": value for name, tensors in buffers for buffer, value in tensors.items()}
        return {name: self._average[index] for name, index in self._names.items()} | statistics

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Loads the result of :meth:`state_dict`. Raises :class:`InputError` if an average is missing."""
        if missing := self.state_dict().keys() - state.keys():
            raise InputError(f"The checkpoint has no average of {min(missing)}: it belongs to another version.")
        for name, average in self.state_dict().items():
            average.copy_(state[name])


def _statistics(norm: _BatchNorm) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in norm.named_buffers(recurse=False)}


def _restore(norm: _BatchNorm, statistics: dict[str, Tensor]) -> None:
    for name, value in norm.named_buffers(recurse=False):
        value.copy_(statistics[name])
