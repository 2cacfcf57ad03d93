"""The schedule of answers: when answers are due, their targets, and when an episode ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX

Answer = Literal["label", "log_probs", "box"]
"""The answer of an action: a class, the log-probability of every class, or a box."""


class AnswerSchedule:
    """Determines which answers are due, from the annotations of the scenes and the options of the environment.

    Args:
        annotations: of any scene of the data.
        horizon: the number of answers after which a dynamic scene ends; None for static scenes.
        answer: as in :class:`envs.vector_env.GlimpseVectorEnv`, like the arguments below.
        num_glimpses: the largest number of looks of an episode.
        glimpses_per_answer: None for one answer, at the end.
        stop: whether the agent may end its episodes.

    Attributes:
        is_supervised: whether the annotation ``label`` holds the correct answers.
        label_shape: the shape of the label of one scene, () or (A,); None if not supervised.
        num_answers: the largest number of labelled answers of a scene; 0 if not supervised.
        is_common: whether all rows answer and end at the same looks, whatever they see and do.

    Raises:
        InputError: the scenes give no such answers, or the answers do not fit into an episode.
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
        names_class = answer in ("label", "log_probs")
        self.is_supervised = names_class and "label" in annotations
        self.label_shape = tuple(annotations["label"].shape[1:]) if self.is_supervised else None
        self.num_answers = 0 if self.label_shape is None else math.prod(self.label_shape)
        self.is_common = not (stop or self.label_shape or "over" in annotations)

        if names_class and not self.is_supervised and horizon is None:
            raise InputError(f"env.answer={answer} needs scenes with labels: set env.answer to null.")
        if answer == "box" and "target" not in annotations:
            raise InputError("env.answer=box needs scenes with a target object: set env.answer=label.")
        if horizon is not None:
            self._check_dynamic(horizon, answer)
        needed = self.glimpses_per_answer * self.num_answers
        if self.num_answers > 1 and stop:
            raise InputError("env.stop=true ends an episode with one answer, but these scenes have several.")
        if self.num_answers > 1 and num_glimpses < needed:
            raise InputError(
                f"These scenes have up to {self.num_answers} answers: with env.glimpses_per_answer="
                f"{self.glimpses_per_answer} set env.num_glimpses to at least {needed}, not {num_glimpses}."
            )

    def _check_dynamic(self, horizon: int, answer: Answer | None) -> None:
        """Refuses options that do not fit scenes that change with every answer."""
        if answer != "label":
            raise InputError(f"These scenes change with the agent's answers: set env.answer=label, not {answer}.")
        if self.glimpses_per_answer > 1:
            raise InputError("These scenes change after every look: set env.glimpses_per_answer=1.")
        if self.num_glimpses < horizon:
            raise InputError(
                f"These scenes end after {horizon} answers: set env.num_glimpses to at least {horizon}, "
                f"not {self.num_glimpses}."
            )

    def due_and_last_of_all(self, look: int) -> tuple[bool, bool]:
        """Returns whether answers are due after the look with index ``look``, and whether it ends all episodes."""
        return self.is_due(look), look == self.num_glimpses - 1

    def is_due(self, look: int) -> bool:
        """Whether every row must answer after the look with index ``look``, from 0."""
        return (look + 1) % self.glimpses_per_answer == 0 or look == self.num_glimpses - 1

    def due_and_last(
        self, look: Tensor, annotations: Mapping[str, Tensor], stop: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns which rows have an answer due after their look, and for which rows the episode ends.

        Args:
            look: (B,) int64, the index of each row's look, from 0.
            annotations: of every row's scene.
            stop: (B,) bool, the rows that choose to end the episode; None where the agent may not stop.

        Returns:
            Two (B,) bool.
        """
        last = look == self.num_glimpses - 1
        due = last | ((look + 1) % self.glimpses_per_answer == 0)
        if self.is_supervised and annotations["label"].ndim == 2:
            number = look // self.glimpses_per_answer + 1
            next_label = self._label_at(annotations["label"], number)
            last = last | due & ((number >= self.num_answers) | (next_label == IGNORE_INDEX))
        if stop is not None:
            due, last = due | stop, last | stop
        if "over" in annotations:
            last = last | annotations["over"]
        return due, last

    def current_label(self, look: Tensor, annotations: Mapping[str, Tensor]) -> Tensor:
        """Returns the correct class of the answer that is due after each row's look, or else next: (B,) int64."""
        label = annotations["label"]
        return label if label.ndim == 1 else self._label_at(label, look // self.glimpses_per_answer)

    @staticmethod
    def _label_at(labels: Tensor, number: Tensor) -> Tensor:
        """Returns labels (B, A) at each row's number (B,), the last one where the number is too large: (B,)."""
        return labels.gather(1, number.clamp(max=labels.shape[1] - 1)[:, None])[:, 0]
