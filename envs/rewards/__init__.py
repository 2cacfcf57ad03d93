"""Interface of rewards: a reward is called with a :class:`Transition` and returns one number for each row."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from envs.errors import InputError

_REMEDIES = {
    "log_probs": "set env.answer=log_probs",
    "previous_log_probs": "set env.answer=log_probs",
    "answer": "set env.answer=label",
    "label": "choose scenes with labels, such as scenes=none",
    "target": "choose scenes with a target object, such as scenes=locate",
    "goal": "choose scenes with a goal class, such as scenes=search",
    "caught": "choose scenes=catch",
}


class MissingField(InputError, AttributeError):
    """Raised when a reward reads a field of the transition that its environment does not provide."""


class Transition:
    """One step of B rows, as a reward sees it.

    The fields from ``location`` to ``last`` are always present; the others depend on the scenes and on ``env.answer``.
    Reading an absent field raises :class:`MissingField`, which is checked when the environment is constructed.

    Locations and boxes are in units of the image: -1 and 1 are the centers of its border pixels. A box is (left, top,
    right, bottom), given by the centers of its corner pixels.

    Attributes:
        location: (B, 2) float32, the location chosen by the action, clamped to [-1, 1]; in the last step the previous
            one, because no glimpse follows.
        previous_location: (B, 2) float32, the location of the glimpse before the action.
        step: (B,) int64, the index of the action in the episode, from 0.
        stop: (B,) bool, whether the action ends the episode; False without ``env.stop``.
        due: (B,) bool, whether the answer of this step counts.
        last: (B,) bool, whether the episode ends with this step.
        answer: (B,) int64, the class answered; the most probable class with ``env.answer=log_probs``. With
            ``env.answer=box`` (B, 4) float32, the box answered.
        log_probs: (B, K) float32, the log-probabilities of the classes; with ``env.answer=log_probs``.
        previous_log_probs: (B, K) float32, those of the previous step; uniform before the first step, and with several
            answers before the first step of each.
        label: (B,) int64, the class of the answer that is due now or next.
        target: (B, 4) float32, the box of the target object.
        goal: (B,) int64, the class to search for, which the agent observes.
        boxes: (B, N, 4) float32, the boxes of all objects of the scene.
        labels: (B, N) int64, their classes.
        present: (B, N) bool, which of the N objects the scene has.
        caught: (B,) bool, in Catch, whether the ball has landed on the paddle in this step. Catch also has ``ball``,
            ``speed``, ``paddle`` and ``over``; see :class:`envs.catch.CatchScenes`.
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
        fields = ", ".join(sorted(self.__dict__))
        remedy = _REMEDIES.get(name, "choose other scenes, or another reward")
        raise MissingField(f"transition.{name} is not available here ({remedy}); the available fields are {fields}.")


class Reward(Protocol):
    """A reward function.

    A reward that is a sum may have a method ``components(transition)`` that returns its summands by name, (B,) float32
    each. The environment then calls that method instead, and reports every summand as ``info["reward/<name>"]``.
    """

    def __call__(self, transition: Transition) -> Tensor:
        """Returns the rewards (B,) float32. Those of rows whose episode has ended are ignored."""
        ...
