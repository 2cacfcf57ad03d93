"""What there is to see: a scene is a batch of images and what is known about them; a scene set holds a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from envs.random import RowRandom

END = "end"
"""The class that says that there is nothing more to name."""


@dataclass(frozen=True)
class Scene:
    """B images, and what is known about each.

    Attributes:
        images: (B, C, H, W) float32 in [0, 1].
        facts: tensors (B, ...) by the names of :class:`envs.rewards.Transition`, as far as the world gives them.
            ``label`` is (B,), or (B, A) where A answers are due one after another, with ``IGNORE_INDEX`` after an image's
            last; ``goal`` (B,) int64 is the class that the agent is told to look for.
    """

    images: Tensor
    annotations: Mapping[str, Tensor] = field(default_factory=dict)


class SceneSet(Protocol):
    """One split of a world.

    Attributes:
        classes: the name of every answer, or of every goal where no answer is asked for.
    """

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """The scenes of the given numbers (B,); what they leave to chance is drawn from ``random``, of B rows."""
        ...


@runtime_checkable
class DynamicScenes(Protocol):
    """A scene set whose scenes change under the agent's answers.

    Attributes:
        horizon: after how many answers every scene is over, at the latest.
    """

    @property
    def horizon(self) -> int: ...

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        """What B scenes become after an answer (B,); an episode ends where the fact ``over`` (B,) bool is true."""
        ...
