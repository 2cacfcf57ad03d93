"""Catch (Mnih et al. 2014, section 4.2): a ball falls, and the agent moves a paddle to catch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.rewards import Transition
from envs.scene import Scene
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import Split, check_split
from envs.validation import check_integer
from envs.vector_env import GlimpseVectorEnv

MOVES = ("left", "stay", "right")
"""The classes of the answers: the moves of the paddle."""


@dataclass(frozen=True)
class Catch:
    """The source of the games; with the sizes of the paper by default.

    On a square screen of black (0) and white (1) pixels, a ball of one pixel starts in the top row and falls one row
    with every answer. Its column is uniform, and so is its horizontal speed, in [-1, 1] pixels per row. It is reflected
    at the first and the last column, and shown in the nearest column. The paddle is in the bottom row and moves one
    pixel with every answer, within the screen. The game ends when the ball reaches the bottom row, after size - 1
    answers; the ball is caught if it lands on the paddle. The paper does not give the first position of the paddle;
    here it is uniform, so that the agent has to find the paddle too.

    Training games are unlimited: every row and episode has its own. The games of validation and test are numbered, and
    no two splits share a game.

    Attributes:
        size: height and width of the screen in pixels, at least 2.
        paddle_width: in pixels, 1 .. size.
        num_train: games an epoch.
        num_validation: validation games.
        num_test: test games.
    """

    size: int = 24
    paddle_width: int = 2
    num_train: int = 50_000
    num_validation: int = 5_000
    num_test: int = 10_000

    def __post_init__(self) -> None:
        check_integer("scenes.size", self.size, 2)
        for name in ("num_train", "num_validation", "num_test"):
            check_integer(f"scenes.{name}", getattr(self, name), 1)
        if not 1 <= self.paddle_width <= self.size:
            raise InputError(f"scenes.paddle_width must be in 1 .. scenes.size ({self.size}), got {self.paddle_width}.")

    def load(self, split: Split, device: torch.device | str = "cpu") -> CatchScenes:
        """Returns the games of one split; no file is read."""
        check_split(split)
        return CatchScenes(self.size, self.paddle_width, getattr(self, f"num_{split}"))


@dataclass(frozen=True)
class CatchScenes:
    """One split of the games, as :class:`envs.scene.DynamicScenes`. The answers are ``MOVES`` and have no labels.

    The annotations are ``ball`` (B, 2) float32, its column, which may be fractional, and row; ``speed`` (B,) float32,
    in columns a row; ``paddle`` (B,) int64, its first column; ``over`` (B,) bool, whether the ball has reached the
    bottom row; and ``caught`` (B,) bool, whether it has landed on the paddle.

    Attributes:
        size: height and width of the screen in pixels.
        paddle_width: in pixels.
        count: the number of games.
    """

    size: int
    paddle_width: int
    count: int

    classes: ClassVar[tuple[str, ...]] = MOVES

    @property
    def horizon(self) -> int:
        """The number of answers of a game."""
        return self.size - 1

    def __len__(self) -> int:
        return self.count

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """Returns new games (B,), drawn from ``random`` alone; on validation and test it depends on the index."""
        column = random.integers("column", self.size).float()
        ball = torch.stack([column, torch.zeros_like(column)], dim=1)
        speed = random.uniform("speed") * 2 - 1
        return self._scene(ball, speed, random.integers("paddle", self.size - self.paddle_width + 1))

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        """Returns the games after the balls fell one row and the paddles made the moves (B,)."""
        column, row = annotations["ball"].unbind(1)
        unreflected = column + annotations["speed"]
        column = unreflected.abs()
        column = torch.minimum(column, 2 * (self.size - 1) - column)  # reflected at column 0 and at the last column
        speed = torch.where(column == unreflected, annotations["speed"], -annotations["speed"])
        paddle = (annotations["paddle"] + answer - 1).clamp(0, self.size - self.paddle_width)
        return self._scene(torch.stack([column, row + 1], dim=1), speed, paddle)

    def _scene(self, ball: Tensor, speed: Tensor, paddle: Tensor) -> Scene:
        """Returns the screens (B, 1, size, size) and annotations of games in progress."""
        pixel = (ball + 0.5).long()
        column, row = pixel.unbind(1)
        bottom = (self.size - 1) * self.size
        white = [row * self.size + column, *(bottom + paddle + offset for offset in range(self.paddle_width))]
        screen = torch.zeros(len(ball), self.size**2, device=ball.device)
        screen = screen.scatter_(1, torch.stack(white, dim=1), 1.0).view(-1, 1, self.size, self.size)
        over = row == self.size - 1
        distance = column - paddle
        caught = over & (distance >= 0) & (distance < self.paddle_width)
        return Scene(screen, {"ball": ball, "speed": speed, "paddle": paddle, "over": over, "caught": caught})


@dataclass(frozen=True)
class Caught:
    """r = 1 when the ball lands on the paddle, else 0 (Mnih et al. 2014, section 4.2)."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.caught.float()


class CatchVectorEnv(GlimpseVectorEnv):
    """A batch of games of Catch, observed through glimpses of 6 x 6 pixels at three scales.

    An action is a dict of ``location`` (B, 2) and ``answer`` (B,), the index of one of ``MOVES``; the reward is 1 when
    the ball is caught. ``images`` is a :class:`Catch`. The other arguments are those of :class:`GlimpseVectorEnv`;
    None for ``sensor``, ``reward``, ``num_glimpses`` or ``glimpses_per_answer`` selects the default of the game.
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
        raise InputError(
            f"Catch needs an envs.catch.Catch as images, got {images!r}; use ram/Glimpse-v0 for other images."
        )
    defaults = {
        "images": images,
        "sensor": GlimpseSensor(6, 3),
        "reward": Caught(),
        "num_glimpses": images.size - 1,
        "glimpses_per_answer": 1,
    }
    given = {name: value for name, value in arguments.items() if value is not None or name not in defaults}
    return defaults | given
