"""The agent: networks wired into one that sees a glimpse, remembers, chooses where to look and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from envs.errors import InputError
from ram.networks import (
    ActionNetwork,
    BoxNetwork,
    ContextNetwork,
    CoreNetwork,
    GlimpseNetwork,
    GridLocation,
    LocationNetwork,
    RandomLocation,
    State,
    StopNetwork,
)


class AgentOutput(NamedTuple):
    """What the agent makes of the looks so far.

    Attributes:
        features: (B, D), from which ``location`` and ``stop`` choose, and baselines judge.
        answering: (B, D), from which ``action`` answers; the same unless the core has two layers.
        state: of the core, for the next step.
    """

    features: Tensor
    answering: Tensor
    state: tuple[State, ...]


class RecurrentAttention(nn.Module):
    """The Recurrent Attention Model (Mnih et al. 2014), with the parts of its successor (Ba et al. 2015) if asked for.

    The first arguments are what :attr:`envs.GlimpseVectorEnv.interface` says of a world.

    Args:
        patch_shape: (scales, C, h, w) of an observation.
        answer: what is answered: "label", "log_probs", "box", or None for nothing.
        num_classes: how many classes there are to answer.
        num_goals: how many classes may be named as what to look for; 0 where none is.
        context_shape: (C, h, w) of the coarse view, or None.
        can_stop: whether the agent may end its episodes.
        glimpse: builds the glimpse network from ``patch_shape`` and ``num_goals``.
        core: builds the core network from the glimpse network's width.
        policy: builds the location network from the core's width.
        action: builds the action network from the core's width and ``num_classes``.
        box: builds what answers in its place where a box is asked for, from the core's width.
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
        self.glimpse = glimpse(tuple(patch_shape), num_goals)
        self.core = core(self.glimpse.output_size)
        self.location = policy(self.core.size)
        self.action: nn.Module | None = None
        if answer == "box":
            self.action = box(self.core.size)
        elif answer:
            self.action = action(self.core.size, num_classes)
        self.stop = stop(self.core.size) if can_stop else None
        self.context = context(tuple(context_shape), self.core.size) if context_shape else None
        if len(self.core.layers) > 1:
            if not answer:
                raise InputError("core.num_layers=2 answers from the lower layer, but here nothing is asked: set 1.")
            # The policy trains the layer that it reads; the way into the core leads on from there.
            if isinstance(self.location, LocationNetwork | GridLocation):
                self.core.through, self.location.backprop_into_core = self.location.backprop_into_core, True

    def step(self, observation: Mapping[str, Any], state: tuple[State, ...] | None = None) -> AgentOutput:
        """Takes in one look.

        Args:
            observation: ``patches`` (B, scales, C, h, w), ``location`` (B, 2), and where the world gives them ``goal``
                (B,) and ``context`` (B, C, h, w).
            state: of the last step; None before the first look.
        """
        glimpse = self.glimpse(observation["patches"], observation["location"], observation.get("goal"))
        before: tuple[State | None, ...] | None = state
        if state is None and self.context is not None:
            before = self.core.begin(self.context(observation["context"]))
        return AgentOutput(*self.core(glimpse, before))

    def anneal(self, progress: float) -> None:
        """Sets what is scheduled when a share of the budget, in [0, 1], is spent."""
        self.location.anneal(progress)
        if isinstance(self.action, BoxNetwork):
            self.action.anneal(progress)
