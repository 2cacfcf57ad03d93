"""What is asked of an agent: which answers are due after which look, what would be right, and when an episode ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX

Answer = Literal["label", "log_probs", "box"]
"""What an action answers with: a class, the log-probability of every class, or a box."""


class AnswerSchedule:
    """What a world and the options of its environment ask; both together must make sense.

    Args:
        facts: of some scene of the world.
        horizon: after how many answers a scene that moves is over; None where scenes stand still.
        answer: as for :class:`envs.vector_env.GlimpseVectorEnv`, like all that follow.
        num_glimpses: looks an episode, at most.
        glimpses_per_answer: None for one answer, at the end.
        stop: whether the agent may end its episodes.

    Attributes:
        is_supervised: whether the fact ``label`` tells the right answers.
        label_shape: of a scene's label, () or (A,), where it does.
        num_answers: how many answers a scene asks for that can be right or wrong, at most.

    Raises:
        InputError: the world cannot judge such answers, or they do not fit into an episode.
    """

    def __init__(
        self,
        annotations: Mapping[str, Tensor],
        horizon: int | None,
        answer: Answer | None,
        num_glimpses: int,
        glimpses_per_answer: int | None,
        stop: bool,
    ) -> None:
        self.num_glimpses = num_glimpses
        self.glimpses_per_answer = glimpses_per_answer or num_glimpses
        named = answer in ("label", "log_probs")
        self.is_supervised = named and "label" in annotations
        self.label_shape = tuple(annotations["label"].shape[1:]) if self.is_supervised else None
        self.num_answers = 0 if self.label_shape is None else math.prod(self.label_shape)

        if named and not self.is_supervised and horizon is None:
            raise InputError(f"env.answer={answer} needs a world with classes to name: set env.answer to null.")
        if answer == "box" and "target" not in annotations:
            raise InputError("env.answer=box needs a world that asks for one object: set env.answer=label.")
        if horizon is not None:
            if answer != "label":
                raise InputError(f"This world moves with the agent's answers: set env.answer=label, not {answer}.")
            if self.glimpses_per_answer > 1:
                raise InputError("This world moves with every look: set env.glimpses_per_answer=1.")
            if num_glimpses < horizon:
                raise InputError(
                    f"This world is over after {horizon} answers: set env.num_glimpses to at least as many, "
                    f"not {num_glimpses}."
                )
        if self.num_answers > 1:
            needed = self.glimpses_per_answer * self.num_answers
            if stop:
                raise InputError("env.stop=true ends an episode with one answer, but this world asks for several.")
            if num_glimpses < needed:
                raise InputError(
                    f"This world asks up to {self.num_answers} answers: with env.glimpses_per_answer="
                    f"{self.glimpses_per_answer} set env.num_glimpses to at least {needed}, not {num_glimpses}."
                )

    def asks(self, look: int) -> bool:
        """Whether every row must answer after look number ``look``, from 0."""
        return (look + 1) % self.glimpses_per_answer == 0 or look == self.num_glimpses - 1

    def ending(self, look: Tensor, annotations: Mapping[str, Tensor], stop: Tensor | None) -> tuple[Tensor, Tensor]:
        """Which answers are due after each row's look, and whose is the last one.

        Args:
            look: (B,) int64, from 0.
            facts: of every row's scene.
            stop: (B,) bool, who chooses to end the episode here; None where nobody may.

        Returns:
            Two (B,) bool.
        """
        last = look == self.num_glimpses - 1
        due = last | ((look + 1) % self.glimpses_per_answer == 0)
        if self.is_supervised and annotations["label"].ndim == 2:
            following = look // self.glimpses_per_answer + 1
            last = last | due & (
                (following >= self.num_answers) | (self._label(annotations["label"], following) == IGNORE_INDEX)
            )
        if stop is not None:
            due, last = due | stop, last | stop
        if "over" in annotations:
            last = last | annotations["over"]
        return due, last

    def label(self, look: Tensor, annotations: Mapping[str, Tensor]) -> Tensor:
        """The right class of the answer that is due after each row's look, or else next: (B,) int64."""
        label = annotations["label"]
        return label if label.ndim == 1 else self._label(label, look // self.glimpses_per_answer)

    @staticmethod
    def _label(label: Tensor, number: Tensor) -> Tensor:
        """Of the answers (B, A) each row's one of the given number (B,), the last one if there are not as many."""
        return label.gather(1, number.clamp(max=label.shape[1] - 1)[:, None])[:, 0]
