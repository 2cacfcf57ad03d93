"""The agent: four networks wired into one that sees a glimpse, remembers, chooses where to look and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ram.networks import ActionNetwork, CoreNetwork, GlimpseNetwork, LocationNetwork, RandomLocation, State


class RecurrentAttention(nn.Module):
    """The Recurrent Attention Model (Mnih et al. 2014).

    Args:
        patch_shape: (scales, C, h, w) of an observation.
        num_classes: how many answers there are.
        glimpse: builds the glimpse network from ``patch_shape``.
        core: builds the core network from the glimpse network's width.
        policy: builds the location network from the core's width.
        action: builds the action network from the core's width and ``num_classes``.
    """

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        num_classes: int,
        glimpse: Callable[..., GlimpseNetwork] = GlimpseNetwork,
        core: Callable[..., CoreNetwork] = CoreNetwork,
        policy: Callable[..., LocationNetwork | RandomLocation] = LocationNetwork,
        action: Callable[..., ActionNetwork] = ActionNetwork,
    ) -> None:
        super().__init__()
        self.glimpse = glimpse(patch_shape)
        self.core = core(self.glimpse.output_size)
        self.location = policy(self.core.size)
        self.action = action(self.core.size, num_classes)

    def step(self, observation: Mapping[str, Any], state: State | None = None) -> tuple[Tensor, State]:
        """Takes in one look.

        Args:
            observation: ``patches`` (B, scales, C, h, w) and ``location`` (B, 2).
            state: of the last step; None before the first look.

        Returns:
            The features h_t (B, D), from which ``location`` and ``action`` choose, and the next state.
        """
        glimpse = self.glimpse(observation["patches"], observation["location"])
        return self.core(glimpse, state)
