"""The agent: glimpse, core, location and action networks combined into one recurrent model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from envs.errors import InputError
from ram.networks import ContextNetwork, CoreNetwork, GlimpseNetwork, ReLUCell, State
from ram.policies import ActionNetwork, BoxNetwork, GridLocation, LocationNetwork, RandomLocation, StopNetwork
from ram.unroll import BatchedUnroll, StepOutput, Unroll


class RecurrentAttention(nn.Module):
    """The Recurrent Attention Model (Mnih et al. 2014), optionally with the extensions of Ba et al. (2015).

    The arguments up to ``can_stop`` are those of :attr:`envs.GlimpseVectorEnv.interface`.

    Args:
        patch_shape: (scales, C, h, w) of an observation.
        answer: kind of answer: "label", "log_probs", "box", or None for no answer.
        num_classes: number of classes to answer.
        num_goals: number of classes to search for; 0 if observations have no goal.
        context_shape: (C, h, w) of the coarse view; None for no view.
        can_stop: whether the agent may end its episodes.
        glimpse: builds the glimpse network from ``patch_shape`` and ``num_goals``.
        core: builds the core network from the glimpse network's width.
        policy: builds the location network from the core's width.
        action: builds the action network from the core's width and ``num_classes``.
        box: builds the network that replaces ``action`` for boxes, from the core's width.
        stop: builds the stop network from the core's width.
        context: builds the context network from ``context_shape`` and the core's width.
    """

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        answer: str | None = "label",
        num_classes: int = 0,
        num_goals: int = 0,
        context_shape: tuple[int, ...] | None = None,
        can_stop: bool = False,
        glimpse: Callable[..., GlimpseNetwork] = GlimpseNetwork,
        core: Callable[..., CoreNetwork] = CoreNetwork,
        policy: Callable[..., LocationNetwork | GridLocation | RandomLocation] = LocationNetwork,
        action: Callable[..., ActionNetwork] = ActionNetwork,
        box: Callable[..., BoxNetwork] = BoxNetwork,
        stop: Callable[..., StopNetwork] = StopNetwork,
        context: Callable[..., ContextNetwork] = ContextNetwork,
    ) -> None:
        super().__init__()
        self._is_compiled = False
        self.glimpse = glimpse(tuple(patch_shape), num_goals)
        self.core = core(self.glimpse.output_size)
        self.location = policy(self.core.size)
        self.action: nn.Module | None = None
        if answer:
            self.action = box(self.core.size) if answer == "box" else action(self.core.size, num_classes)
        self.stop = stop(self.core.size) if can_stop else None
        self.context = context(tuple(context_shape), self.core.size) if context_shape else None
        if len(self.core.layers) > 1:
            if not answer:
                raise InputError("core.num_layers=2 needs answers, which train the lower layer: set core.num_layers=1.")
            # The policy loss always trains the upper layer; the option decides about the lower one.
            if isinstance(self.location, LocationNetwork | GridLocation):
                self.core.backprop_into_lower = self.location.backprop_into_core
                self.location.backprop_into_core = True

    def fit_input_scales(self, observation: Mapping[str, Any]) -> None:
        """Brings patches and context to unit scale, by an observation of many images at random locations."""
        self.glimpse.input_scale.fit(observation["patches"])
        if self.context is not None:
            self.context.input_scale.fit(observation["context"])

    def step(self, observation: Mapping[str, Any], state: tuple[State | None, ...] | None = None) -> StepOutput:
        """Processes one observation.

        Args:
            observation: ``patches`` (B, scales, C, h, w), ``location`` (B, 2), and optionally ``goal`` (B,) and
                ``context`` (B, C, h, w).
            state: the state after the previous step; None before the first.
        """
        glimpse, patch_features = self.glimpse(observation["patches"], observation["location"], observation.get("goal"))
        if state is None and self.context is not None:
            state = self.core.initial_state(self.context(observation["context"]))
        features, action_features, next_state = self.core(glimpse, state)
        return StepOutput(features, action_features, next_state, patch_features)

    def unroll(self, num_glimpses: int) -> Unroll:
        """Begins an episode of at most ``num_glimpses`` looks."""
        cell, glimpse = self.core.layers[0], self.glimpse
        others = self.context, glimpse.goal, glimpse.convolutions, *self.core.layers[1:]
        is_plain = all(other is None for other in others)
        device = glimpse.patch.weight.device.type
        if is_plain and isinstance(cell, ReLUCell) and not (self._is_compiled or torch.is_autocast_enabled(device)):
            return BatchedUnroll(glimpse, cell, num_glimpses)
        return Unroll(self.step)

    def compile_step(self) -> None:
        """Compiles :meth:`step` with torch.compile."""
        self.step = torch.compile(self.step)  # type: ignore[method-assign]
        self._is_compiled = True

    def anneal(self, progress: float) -> None:
        """Applies the schedules of the policies for a fraction ``progress`` of the budget, in [0, 1]."""
        self.location.anneal(progress)
        if isinstance(self.action, BoxNetwork):
            self.action.anneal(progress)
