"""What a step is worth: a reward is a frozen dataclass called with a Transition, one number a row."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from envs.errors import InputError

_CURES = {
    "log_probs": "set env.answer=log_probs",
    "previous_log_probs": "set env.answer=log_probs",
    "answer": "set env.answer=label",
    "label": "take a world with right answers, such as images=glyphs",
    "target": "take a world that asks for one object, such as images=locate",
    "goal": "take a world that names a class, such as images=search",
    "caught": "take images=catch",
}


class MissingField(InputError, AttributeError):
    """A reward asked for what its world does not give."""


class Transition:
    """All that a reward may judge about one step of B rows.

    Every world gives ``location`` to ``last``. The rest depends on the world and on what the agent answers; to read
    what is not given raises :class:`MissingField`, already when the environment is built.

    Locations and boxes are in the units of the image: -1 and 1 are the centres of its border pixels. A box is
    (left, top, right, bottom), the centres of the pixels in its corners.

    Attributes:
        location: (B, 2) float32, where the action moved the gaze, clamped to [-1, 1]; unmoved on the last step.
        previous_location: (B, 2) float32, where the gaze was when the action was chosen.
        step: (B,) int64, the number of the action, from 0.
        stop: (B,) bool, whether the agent chose to end the episode here; False where it may not choose.
        due: (B,) bool, whether the answer of this step counts.
        last: (B,) bool, whether the episode ends with this step.
        answer: (B,) int64, the class named by the action; the likeliest one if the agent gives ``log_probs``. With
            ``env.answer=box`` it is the box named, (B, 4) float32.
        log_probs: (B, K) float32, of every class, with ``env.answer=log_probs``.
        previous_log_probs: (B, K) float32, those of the step before; before the first step, and where several answers
            are due in turn before the first step of each, all classes are alike.
        label: (B,) int64, the right class of the answer that is due now or next.
        target: (B, 4) float32, the box of the object that is asked for.
        goal: (B,) int64, the class that the agent is told to look for.
        boxes: (B, N, 4) float32, of all objects of the scene.
        labels: (B, N) int64, their classes.
        present: (B, N) bool, which of the N there are.
        caught: (B,) bool, in Catch, whether the ball has just fallen on the paddle; there are also ``ball``, ``speed``,
            ``paddle`` and ``over``, see :class:`envs.catch.Games`.
    """

    location: Tensor
    previous_location: Tensor
    step: Tensor
    stop: Tensor
    due: Tensor
    last: Tensor
    answer: Tensor
    log_probs: Tensor
    previous_log_probs: Tensor
    label: Tensor
    target: Tensor
    goal: Tensor
    boxes: Tensor
    labels: Tensor
    present: Tensor
    caught: Tensor

    def __init__(self, **fields: Tensor) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        given = ", ".join(sorted(self.__dict__))
        cure = _CURES.get(name, "take another world, or another reward")
        raise MissingField(f"transition.{name} is not given by this world and its actions ({cure}); there are {given}.")


class Reward(Protocol):
    """Judges a step.

    One that is a sum may also have a method ``components(transition)``, which returns what each part adds to it, (B,)
    float32 by the part's name; the environment then calls that instead and tells it in ``info``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        """Returns (B,) float32. Rows that have ended are ignored."""
        ...
