"""The recurrence of the agent over an episode, with gradients: look by look, or for all looks at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from ram.networks import GlimpseNetwork, ReLUCell, State


class StepOutput(NamedTuple):
    """The output of one step of the agent.

    Attributes:
        features: h_t of the upper core layer, (B, size): the input of the location and stop networks and of the
            baseline.
        action_features: h_t of the lower core layer, (B, size): the input of the action network. The same tensor unless
            the core has two layers.
        state: the state of every core layer for the next step.
        patch_features: h_g of the glimpse network, (B, patch_features), computed without the encoding of the location.
    """

    features: Tensor
    action_features: Tensor
    state: tuple[State, ...]
    patch_features: Tensor


class Unroll:
    """One episode of an agent, by automatic differentiation of every step.

    Args:
        step: :meth:`ram.agent.RecurrentAttention.step` of the agent.
    """

    def __init__(self, step: Callable[..., StepOutput]) -> None:
        self._step = step
        self._state: tuple[State | None, ...] | None = None
        self._outputs: list[StepOutput] = []

    def step(self, observation: Mapping[str, Any]) -> StepOutput:
        """Processes one observation of B rows. Losses are computed from :meth:`features`, which have a gradient."""
        output = self._step(observation, self._state)
        self._state = output.state
        self._outputs.append(output)
        return output

    def features(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns features, action features and patch features of the T steps so far, (T, B, D), with gradient."""
        names = "features", "action_features", "patch_features"
        features, action_features, patches = ([getattr(output, name) for output in self._outputs] for name in names)
        stacked = torch.stack(features)
        is_same = all(ours is theirs for ours, theirs in zip(features, action_features, strict=True))
        return stacked, stacked if is_same else torch.stack(action_features), torch.stack(patches)


class BatchedUnroll(Unroll):
    """One episode of the networks of Mnih et al. (2014), whose gradients are computed for all looks at once.

    The gradient does not flow through the sampled locations, so that the glimpse networks of different looks are
    independent. The weight gradients of an episode are then single matrix products over T * B rows, and only the
    backward pass through h_t = ReLU(W_h h_{t-1} + ...) is computed step by step. The results equal those of
    :class:`Unroll` up to rounding.

    Args:
        glimpse: the glimpse network.
        cell: the core, of one layer.
        num_glimpses: the largest number of steps.
    """

    _slices: Iterator[tuple[Tensor, ...]]  # of the activations, for each step
    _previous: Tensor | None

    def __init__(self, glimpse: GlimpseNetwork, cell: ReLUCell, num_glimpses: int) -> None:
        self._glimpse, self._cell, self._length, self._count = glimpse, cell, num_glimpses, 0

    def step(self, observation: Mapping[str, Any]) -> StepOutput:
        with torch.no_grad():
            if self._count == 0:
                self._allocate(observation["patches"])
            patches, features = self._compute(observation["patches"], observation["location"], *next(self._slices))
        self._count += 1
        return StepOutput(features, features, (features,), patches)

    def _allocate(self, patches: Tensor) -> None:
        """Allocates the activations of all looks at patches (B, scales, C, h, w)."""
        glimpse, cell, (rows, *shape) = self._glimpse, self._cell, patches.shape
        widths = math.prod(shape), 2, glimpse.merge.in_features, glimpse.output_size, cell.hidden.in_features
        self._activations = [patches.new_empty(self._length, rows, width) for width in widths]
        inputs, locations, hidden, merged, features = self._activations
        parts = hidden.split([glimpse.patch.out_features, glimpse.location.out_features], dim=2)
        slices = inputs.view(self._length, rows, *shape), inputs, locations, *parts, hidden, merged, features
        self._slices = zip(*(each.unbind(0) for each in slices), strict=True)
        layers = glimpse.patch, glimpse.location, glimpse.merge, cell.glimpse
        self._layers = [(layer.bias, layer.weight.T) for layer in layers]
        self._recurrent, self._previous = cell.hidden.weight.T, None

    def _compute(self, patches: Tensor, location: Tensor, *slices: Tensor) -> tuple[Tensor, Tensor]:
        """Computes one step into slices of the activations; returns h_g and h."""
        scaled, inputs, locations, of_patch, of_location, hidden, merged, features = slices
        patch_layer, location_layer, merge_layer, core_layer = self._layers
        torch.div(patches, self._glimpse.input_scale.rms, out=scaled)
        locations.copy_(location)
        torch.addmm(patch_layer[0], inputs, patch_layer[1], out=of_patch)
        torch.addmm(location_layer[0], locations, location_layer[1], out=of_location)
        hidden.relu_()
        torch.addmm(merge_layer[0], hidden, merge_layer[1], out=merged).relu_()
        torch.addmm(core_layer[0], merged, core_layer[1], out=features)
        if self._previous is not None:
            features.addmm_(self._previous, self._recurrent)
        self._previous = features.relu_()
        return of_patch, features

    def features(self) -> tuple[Tensor, Tensor, Tensor]:
        glimpse, cell = self._glimpse, self._cell
        layers = glimpse.patch, glimpse.location, glimpse.merge, cell.glimpse
        parameters = [value for layer in layers for value in (layer.weight, layer.bias)]
        activations = [each[: self._count] for each in self._activations]
        features, patches = _Backward.apply(*activations, *parameters, cell.hidden.weight)
        return features, features, patches


class _Backward(torch.autograd.Function):
    """Returns h and h_g of an episode that has been computed, and computes its gradients.

    The activations are (T, B, width): inputs and locations; h_g and h_l side by side; g; and h, the features.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, *values: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*values)
        ctx.set_materialize_grads(False)
        _, _, hidden, _, features, patch, *_ = values
        return features.view_as(features), hidden[..., : len(patch)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, of_patches: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs, places, hidden, merged, features, *parameters = ctx.saved_tensors
        patch, _, _, _, merge, _, core, _, recurrent = parameters
        # Through the core, from the last step to the first.
        # The gradient of h_t becomes that of W_g g_t + W_h h_{t-1} + b, in place.
        into = torch.zeros_like(features) if gradient is None else gradient.clone()
        steps = list(zip(into.unbind(0), features.unbind(0), strict=True))
        later = _relu_backward(*steps.pop())
        for of_step, output in reversed(steps):
            later = _relu_backward(of_step.addmm_(later, recurrent), output)
        recurrent_gradient = into[1:].flatten(0, 1).T @ features[:-1].flatten(0, 1)
        # Through the glimpse network, all steps at once.
        inputs, places, hidden, merged, into = (each.flatten(0, 1) for each in (inputs, places, hidden, merged, into))
        of_merged = _relu_backward(into @ core, merged)
        of_hidden = of_merged @ merge
        if of_patches is not None:
            of_hidden[:, : len(patch)] += of_patches.flatten(0, 1)
        of_hidden = _relu_backward(of_hidden, hidden)
        of_patch, of_location = of_hidden.split([len(patch), len(hidden.T) - len(patch)], dim=1)
        pairs = (of_patch, inputs), (of_location, places), (of_merged, hidden), (into, merged)
        gradients = [value for output, given in pairs for value in (output.T @ given, output.sum(0))]
        return *[None] * 5, *gradients, recurrent_gradient


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """Turns the gradient of the output of a ReLU into that of its input, in place."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
