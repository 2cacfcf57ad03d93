"""Catch (Mnih et al. 2014, section 4.2): a ball falls, and a paddle that moves left or right must be below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.rewards.caught import Caught
from envs.scene import Scene
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from envs.vector_env import GlimpseVectorEnv

MOVES = ("left", "stay", "right")
"""What an answer tells the paddle to do."""


@dataclass(frozen=True)
class Catch:
    """Describes the game; the paper's by default.

    On a square screen of black (0) and white (1) pixels, a ball of one pixel starts in the top row and falls a row with
    every answer. Its column is uniform, and so is its horizontal speed, in [-1, 1] pixels a row; at the first and the
    last column it bounces, exactly: what it would go beyond, it goes back. It is shown in the nearest column. The
    paddle lies in the bottom row and moves a pixel with every answer, but not beyond the screen. The game is over when
    the ball has reached the bottom row, which takes size - 1 answers, and the ball is caught if it has fallen on the
    paddle. The paper does not say where the paddle starts; here it may be anywhere, so that nothing is known unseen.

    Training games are endless: every row and episode has its own. The games of the other splits are numbered, and
    differ from those of any other split.

    Attributes:
        size: of the screen, in pixels; at least 2.
        paddle: its width in pixels, 1 .. size.
        num_train: games an epoch.
        num_validation: games.
        num_test: games.
    """

    size: int = 24
    paddle: int = 2
    num_train: int = 50_000
    num_validation: int = 5_000
    num_test: int = 10_000

    def __post_init__(self) -> None:
        if self.size < 2:
            raise InputError(f"images.size must be at least 2, got {self.size}.")
        if not 1 <= self.paddle <= self.size:
            raise InputError(f"images.paddle must lie in 1 .. images.size ({self.size}), got {self.paddle}.")
        check_positive_integers(
            "images", num_train=self.num_train, num_validation=self.num_validation, num_test=self.num_test
        )

    def load(self, split: Split, device: torch.device | str = "cpu") -> Games:
        """The games of one split; nothing is read."""
        check_split(split)
        return Games(self.size, self.paddle, getattr(self, f"num_{split}"))


@dataclass(frozen=True)
class Games:
    """One split of the game, a scene set that moves. Its answers are ``MOVES``, of which none is right or wrong.

    The facts are ``ball`` (B, 2) float32, its (column, row) with fractions of a column; ``speed`` (B,) float32, in
    columns a row; ``paddle`` (B,) int64, its first column; ``over`` (B,) bool, whether the ball has reached the bottom
    row; and ``caught`` (B,) bool, whether it has fallen on the paddle.

    Attributes:
        size: of the screen, in pixels.
        paddle: its width in pixels.
        count: how many they are.
    """

    size: int
    paddle: int
    count: int

    @property
    def classes(self) -> tuple[str, ...]:
        return MOVES

    @property
    def horizon(self) -> int:
        """How many answers a game takes."""
        return self.size - 1

    def __len__(self) -> int:
        return self.count

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """New games (B,); the number alone tells nothing, for ``random`` knows it where it matters."""
        column = random.integers("column", self.size).float()
        ball = torch.stack([column, torch.zeros_like(column)], dim=1)
        speed = random.uniform("speed") * 2 - 1
        return self._scene(ball, speed, random.integers("paddle", self.size - self.paddle + 1))

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        """Lets the balls fall a row, and moves the paddles."""
        column, row = annotations["ball"].unbind(1)
        flown = column + annotations["speed"]
        column = flown.abs()
        column = torch.minimum(column, 2 * (self.size - 1) - column)  # mirrored at 0 and at the last column
        speed = torch.where(column == flown, annotations["speed"], -annotations["speed"])
        paddle = (annotations["paddle"] + answer - 1).clamp(0, self.size - self.paddle)
        return self._scene(torch.stack([column, row + 1], dim=1), speed, paddle)

    def _scene(self, ball: Tensor, speed: Tensor, paddle: Tensor) -> Scene:
        """The screens (B, 1, size, size) and facts of games in progress."""
        pixel = (ball + 0.5).long()
        column, row = pixel.unbind(1)
        bottom = (self.size - 1) * self.size
        white = [row * self.size + column, *(bottom + paddle + offset for offset in range(self.paddle))]
        screen = torch.zeros(len(ball), self.size**2, device=ball.device)
        screen = screen.scatter_(1, torch.stack(white, dim=1), 1.0).view(-1, 1, self.size, self.size)
        over = row == self.size - 1
        distance = column - paddle
        caught = over & (distance >= 0) & (distance < self.paddle)
        return Scene(screen, {"ball": ball, "speed": speed, "paddle": paddle, "over": over, "caught": caught})


class CatchVectorEnv(GlimpseVectorEnv):
    """A batch of games of Catch, seen through glimpses of 6 x 6 pixels at three scales.

    The agent sees what its gaze reads and must follow ball and paddle by itself. An action is a ``location`` (B, 2)
    and an ``answer`` (B,), one of ``MOVES``; the reward is 1 when the ball is caught. ``images`` is a :class:`Catch`.
    The other arguments, and the way to use it, are those of :class:`GlimpseVectorEnv`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**_with_defaults(arguments))


class CatchEnv(GlimpseEnv):
    """One game of Catch: a view of :class:`CatchVectorEnv` with one row, in numpy."""

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        super().__init__(render_mode, **_with_defaults(arguments))


def _with_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    images = Catch() if arguments.get("images") is None else arguments["images"]
    if not isinstance(images, Catch):
        raise InputError(f"Catch needs an envs.catch.Catch as images, got {images!r}: see ram/Glimpse-v0 for others.")
    defaults = {
        "images": images,
        "sensor": GlimpseSensor(6, 3),
        "reward": Caught(),
        "num_glimpses": images.size - 1,
        "glimpses_per_answer": 1,
    }
    given = {name: value for name, value in arguments.items() if value is not None or name not in defaults}
    return defaults | given
