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
        self._norms = [each for each in module.modules() if isinstance(each, _BatchNorm)]
        self._parameters: list[Tensor] = [value for value in module.parameters() if value.requires_grad]
        self._tensors = [*self._parameters, *(value for norm in self._norms for value in norm.buffers())]
        self._averages = [value.detach().clone() for value in self._tensors]
        averages = dict(zip(map(id, self._tensors), self._averages, strict=True))
        # A tensor that two layers share has two names.
        state = module.state_dict(keep_vars=True)
        self._names = {name: averages[id(value)] for name, value in state.items() if id(value) in averages}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Adds the weights after step ``step``, with a smaller decay at first so that the initial weights fade."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._averages[: len(self._parameters)], self._parameters, 1 - decay)

    @torch.no_grad()
    def gather_statistics(self, steps: Iterable[int]) -> None:
        """Computes the statistics of batch normalization for the averaged weights over some training steps.

        Those of training belong to other weights (Izmailov et al. 2018, section 3.2). The module is left unchanged.
        """
        if not self._norms:
            return
        training = self._module.training
        saved = [(value, value.clone()) for value in self._module.buffers()]
        momenta = [norm.momentum for norm in self._norms]
        with self.applied():
            for value, copy in saved:
                value.copy_(copy)  # frozen norms keep the statistics of the module
            for norm in self._norms:
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.zero_()
                norm.momentum = None  # the mean of all batches
            self._module.train()
            for step in steps:
                self._module(step)
                if not any(norm.num_batches_tracked for norm in self._norms):
                    break  # all norms are frozen
            for norm, momentum in zip(self._norms, momenta, strict=True):
                norm.momentum = momentum
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
        for value, average in zip(self._tensors, self._averages, strict=True):
            previous = value.clone()
            value.copy_(average)
            average.copy_(previous)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the averages by parameter name, and the statistics by buffer name."""
        return dict(self._names)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Loads the result of :meth:`state_dict`. Raises :class:`InputError` if an average is missing."""
        if missing := self._names.keys() - state.keys():
            raise InputError(f"The checkpoint has no average of {min(missing)}: it belongs to another version.")
        for name, average in self._names.items():
            average.copy_(state[name])
