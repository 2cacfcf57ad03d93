"""Answers: several, with a stop, as log-probabilities or boxes; goals, contexts and dynamic scenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.rewards import Transition
from envs.scene import Scene
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import IGNORE_INDEX, Split
from envs.vector_env import GlimpseVectorEnv
from tests.envs.helpers import DISABLED, Values

NAMES = ("a", "b", "c", "end")


@dataclass(frozen=True)
class FixedScenes:
    """Scenes with given annotations; all pixels of scene i are i / 10."""

    annotations: Mapping[str, Tensor]
    classes: tuple[str, ...] = NAMES

    __hash__ = object.__hash__

    def load(self, split: Split, device: torch.device | str = "cpu") -> FixedScenes:
        return self

    def __len__(self) -> int:
        return len(next(iter(self.annotations.values())))

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        images = (index.float() / 10)[:, None, None, None].expand(-1, 1, 6, 8)
        return Scene(images, {name: value[index] for name, value in self.annotations.items()})


SEQUENCES = FixedScenes({"label": torch.tensor([[0, 1, 3], [2, 3, IGNORE_INDEX], [3, IGNORE_INDEX, IGNORE_INDEX]])})
CLASSES = FixedScenes({"label": torch.tensor([0, 1, 2])})
BOXES = torch.tensor([[-1.0, -1.0, 0.0, 0.0], [0.0, -0.5, 0.5, 0.5], [-0.25, -0.25, 1.0, 1.0]])


@dataclass(frozen=True)
class RecordingReward:
    """Records the transitions; returns 1."""

    transitions: list[Transition]

    def __call__(self, transition: Transition) -> Tensor:
        self.transitions.append(transition)
        return torch.ones_like(transition.location[:, 0])


def vector_env(images: Any, **options: Any) -> GlimpseVectorEnv:
    options = {"sensor": GlimpseSensor(2), "num_envs": 3, "autoreset_mode": DISABLED, "output": "torch"} | options
    return GlimpseVectorEnv(images, **options)


def start(env: GlimpseVectorEnv) -> Any:
    return env.reset(seed=0, options={"index": torch.arange(env.num_envs)})


def act(env: GlimpseVectorEnv, **parts: Any) -> Any:
    return env.step({"location": torch.zeros(env.num_envs, 2)} | {n: torch.tensor(v) for n, v in parts.items()})


# Several answers.


def test_answers_are_due_in_order_and_a_row_ends_with_its_last_answer() -> None:
    env = vector_env(SEQUENCES, num_glimpses=6, glimpses_per_answer=2)
    _, info = start(env)
    assert torch.equal(info["label"], SEQUENCES.annotations["label"])
    assert env.answer_schedule.num_answers == 3
    assert [env.answer_schedule.is_due(look) for look in range(6)] == [False, True] * 3
    # The correct answers in order; answers between the due looks are ignored.
    answers = [[0, 2, 3], [0, 2, 3], [1, 3, 0], [1, 3, 0], [3, 0, 0], [3, 0, 0]]
    rewards, ended = [], []
    for answer in answers:
        _, reward, terminated, truncated, _ = act(env, answer=answer)
        rewards.append(reward.tolist())
        ended.append(terminated.tolist())
        assert not truncated.any()
    assert rewards == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert ended == [[0, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1]]


def test_each_of_several_answers_is_rewarded_separately() -> None:
    env = vector_env(SEQUENCES, num_envs=1, num_glimpses=3, glimpses_per_answer=1)
    start(env)
    assert [float(act(env, answer=[answer])[1]) for answer in (1, 1, 3)] == [0, 1, 1]


def test_one_label_may_be_due_after_every_look() -> None:
    env = vector_env(CLASSES, num_glimpses=3, glimpses_per_answer=1)
    start(env)
    assert [act(env, answer=answer)[1].tolist() for answer in ([0, 0, 0], [0, 1, 0], [0, 1, 2])] == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


def test_the_reward_receives_the_label_of_the_next_due_answer() -> None:
    transitions: list[Transition] = []
    env = vector_env(SEQUENCES, num_glimpses=6, glimpses_per_answer=2, reward=RecordingReward(transitions))
    start(env)
    transitions.clear()
    for _ in range(4):
        act(env, answer=[0, 0, 0])
    assert [each.label[0].item() for each in transitions] == [0, 0, 1, 1]
    assert [each.due.tolist() for each in transitions[:2]] == [[False] * 3, [True] * 3]
    assert [each.last.tolist() for each in transitions] == [
        [False] * 3,
        [False, False, True],
        [False] * 3,
        [False, True, False],
    ]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_rows_that_end_early_are_reset_separately(mode: AutoresetMode) -> None:
    env = vector_env(SEQUENCES, num_glimpses=3, glimpses_per_answer=1, autoreset_mode=mode)
    start(env)
    observation, _, terminated, _, _ = act(env, answer=[0, 2, 3])
    assert terminated.tolist() == [False, False, True]
    assert observation["step"].tolist() == [1, 1, 0]
    observation, reward, terminated, _, _ = act(env, answer=[1, 3, 0])
    assert reward.tolist()[:2] == [1, 1]
    assert terminated.tolist()[1]
    if mode is AutoresetMode.NEXT_STEP:
        assert reward.tolist()[2] == 0
        assert observation["step"].tolist()[2] == 0


# Stopping.


def test_a_stop_ends_the_row_with_its_answer() -> None:
    env = vector_env(CLASSES, num_glimpses=3, stop=True)
    start(env)
    _, reward, terminated, _, _ = act(env, answer=[0, 1, 2], stop=[True, False, False])
    assert reward.tolist() == [1, 0, 0]
    assert terminated.tolist() == [True, False, False]
    _, reward, terminated, _, _ = act(env, answer=[0, 0, 0], stop=[True, True, False])
    assert reward.tolist() == [0, 0, 0]  # the first has ended, the second is wrong, the third continues
    assert terminated.tolist() == [True, True, False]
    _, reward, terminated, _, _ = act(env, answer=[0, 1, 2], stop=[0, 0, 0])
    assert reward.tolist() == [0, 0, 1]
    assert terminated.tolist() == [True] * 3


def test_a_stopped_row_does_not_move() -> None:
    env = vector_env(CLASSES, num_glimpses=3, stop=True)
    before, _ = start(env)
    after, *_ = act(env, location=[[0.5, 0.5]] * 3, answer=[0, 1, 2], stop=[1, 0, 0])
    assert torch.equal(after["location"][0], before["location"][0])
    assert after["location"][1].tolist() == [0.5, 0.5]
    assert after["step"].tolist() == [0, 1, 1]


# Log-probabilities.


def test_the_reward_receives_the_previous_log_probabilities() -> None:
    transitions: list[Transition] = []
    env = vector_env(CLASSES, num_glimpses=2, answer="log_probs", reward=RecordingReward(transitions))
    start(env)
    transitions.clear()
    first, second = (torch.randn(3, 4, generator=torch.Generator().manual_seed(n)).log_softmax(-1) for n in (0, 1))
    act(env, answer=first.tolist())
    act(env, answer=second.tolist())
    torch.testing.assert_close(transitions[0].previous_log_probs, torch.full((3, 4), 0.25).log())
    torch.testing.assert_close(transitions[0].log_probs, first)
    torch.testing.assert_close(transitions[1].previous_log_probs, first)
    assert torch.equal(transitions[1].answer, second.argmax(-1))
    start(env)
    act(env, answer=first.tolist())
    torch.testing.assert_close(transitions[2].previous_log_probs, torch.full((3, 4), 0.25).log())


UNIFORM = torch.full((3, 4), 0.25).log()


def test_previous_log_probabilities_are_uniform_at_the_start_of_each_answer() -> None:
    transitions: list[Transition] = []
    env = vector_env(
        SEQUENCES, num_glimpses=6, glimpses_per_answer=2, answer="log_probs", reward=RecordingReward(transitions)
    )
    start(env)
    transitions.clear()
    log_probs = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    for each in log_probs:
        act(env, answer=each.tolist())
    for step in range(6):  # the third row has ended after two steps, the second after four
        active = slice(0, (3, 3, 2, 2, 1, 1)[step])
        expected = log_probs[step - 1] if step % 2 else UNIFORM
        torch.testing.assert_close(transitions[step].previous_log_probs[active], expected[active])


def test_previous_log_probabilities_are_reset_only_in_rows_that_answered() -> None:
    transitions: list[Transition] = []
    env = vector_env(
        SEQUENCES, num_glimpses=6, glimpses_per_answer=2, answer="log_probs", reward=RecordingReward(transitions)
    )
    start(env)
    first, second = (torch.randn(3, 4, generator=torch.Generator().manual_seed(n)).log_softmax(-1) for n in (0, 1))
    act(env, answer=first.tolist())
    env.reset(options={"index": torch.arange(3), "reset_mask": torch.tensor([False, True, False])})
    act(env, answer=second.tolist())  # the second look of the first row, the first one of the second
    act(env, answer=first.tolist())
    assert transitions[-2].due.tolist() == [True, False, True]
    torch.testing.assert_close(transitions[-1].previous_log_probs[:2], torch.stack([UNIFORM[0], second[1]]))


def test_previous_log_probabilities_of_a_single_label_are_kept_after_due_answers() -> None:
    transitions: list[Transition] = []
    env = vector_env(
        CLASSES, num_glimpses=3, glimpses_per_answer=1, answer="log_probs", reward=RecordingReward(transitions)
    )
    start(env)
    transitions.clear()
    log_probs = torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    for each in log_probs:
        act(env, answer=each.tolist())
    assert all(each.due.all() for each in transitions)
    torch.testing.assert_close(torch.stack([each.previous_log_probs for each in transitions[1:]]), log_probs[:2])


LOG_PROBS = torch.tensor([[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]]).log()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (LOG_PROBS, LOG_PROBS),
        (LOG_PROBS + 5, LOG_PROBS),
        (LOG_PROBS - 30, LOG_PROBS),
        (torch.zeros(3, 4), UNIFORM),
        (torch.full((3, 4), 5.0), UNIFORM),
        (torch.full((3, 4), -3e38), UNIFORM),
    ],
    ids=["log-probabilities", "more than one", "less than one", "zeros", "fives", "almost -infinity"],
)
def test_log_probabilities_are_normalized(given: Tensor, expected: Tensor) -> None:
    transitions: list[Transition] = []
    env = vector_env(CLASSES, num_glimpses=2, answer="log_probs", reward=RecordingReward(transitions))
    start(env)
    answer = given.clone()
    for _ in range(2):
        env.step({"location": torch.zeros(3, 2), "answer": answer})
    for log_probs in (transitions[-1].log_probs, transitions[-1].previous_log_probs):
        torch.testing.assert_close(log_probs, expected, rtol=1e-6, atol=1e-5)
    assert torch.equal(answer, given)


def test_a_class_may_have_probability_zero() -> None:
    env = vector_env(CLASSES, num_glimpses=1, answer="log_probs")
    start(env)
    _, reward, *_ = act(env, answer=[[0.0, -np.inf, -np.inf, -np.inf]] * 3)
    assert reward.tolist() == [1, 0, 0]


# Boxes, goals and contexts.


def test_the_reward_receives_answer_boxes_and_target_boxes() -> None:
    transitions: list[Transition] = []
    scenes = FixedScenes({"target": BOXES})
    env = vector_env(scenes, num_glimpses=1, answer="box", reward=RecordingReward(transitions))
    start(env)
    transitions.clear()
    act(env, answer=BOXES.flip(0).tolist())
    assert torch.equal(transitions[0].answer, BOXES.flip(0))
    assert torch.equal(transitions[0].target, BOXES)
    assert not env.answer_schedule.is_supervised
    assert env.answer_schedule.num_answers == 0


def test_the_goal_is_observed_and_no_answer_is_due() -> None:
    transitions: list[Transition] = []
    scenes = FixedScenes({"goal": torch.tensor([2, 0, 1]), "target": BOXES})
    env = vector_env(scenes, num_glimpses=2, answer=None, reward=RecordingReward(transitions))
    observation, info = start(env)
    transitions.clear()
    assert observation["goal"].tolist() == [2, 0, 1]
    assert info.keys() == {"index", "target"}
    assert env.single_action_space.keys() == {"location"}
    observation, *_ = act(env)
    assert observation["goal"].tolist() == [2, 0, 1]
    assert transitions[0].goal.tolist() == [2, 0, 1]
    assert env.interface["num_goals"] == 4


def test_the_context_is_the_image_averaged_down() -> None:
    class Ramps(FixedScenes):
        def draw(self, index: Tensor, random: RowRandom) -> Scene:
            images = torch.arange(48).view(1, 1, 6, 8).expand(len(index), -1, -1, -1) / 48
            return Scene(images + 0 * index[:, None, None, None], super().draw(index, random).annotations)

    env = vector_env(Ramps(CLASSES.annotations), num_glimpses=2, context_size=(2, 4))
    observation, _ = start(env)
    expected = (torch.arange(48).view(2, 3, 4, 2) / 48).mean((1, 3))
    torch.testing.assert_close(observation["context"], expected.expand(3, 1, 2, 4))
    assert env.interface["context_shape"] == [1, 2, 4]


# Dynamic scenes.


class Counter(FixedScenes):
    """Dynamic scenes of a number that the answers increase: all pixels are number / 10, and the scene ends at 3."""

    horizon = 5

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        return self._scene(index)

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        return self._scene(annotations["number"] + answer)

    def _scene(self, number: Tensor) -> Scene:
        images = (number.float() / 10)[:, None, None, None].expand(-1, 1, 6, 8)
        return Scene(images, {"number": number, "over": number >= 3})


@dataclass(frozen=True)
class Number:
    """Returns the number."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.number.float()  # type: ignore[attr-defined]


@pytest.mark.parametrize("rollouts", [1, 3])
def test_dynamic_scenes_change_with_the_answers(rollouts: int) -> None:
    scenes = Counter({"number": torch.zeros(4)})
    options = {"reward": Number(), "rollouts_per_image": rollouts, "sensor": GlimpseSensor(1)}
    env = vector_env(scenes, num_glimpses=5, glimpses_per_answer=1, **options)
    env.reset(seed=0, options={"index": torch.zeros(3 // rollouts, dtype=torch.long)})
    observation, reward, terminated, _, info = act(env, answer=[0, 1, 3])
    assert (10 * observation["patches"]).flatten().round().tolist() == [0, 1, 3]  # the third row has ended
    assert reward.tolist() == [0, 1, 3]
    assert terminated.tolist() == [False, False, True]
    assert "label" not in info
    observation, reward, terminated, _, _ = act(env, answer=[1, 1, 2])
    assert (10 * observation["patches"]).flatten().round().tolist() == [1, 2, 3]
    assert reward.tolist() == [1, 2, 0]


def test_the_single_environment_has_several_answers() -> None:
    env = GlimpseEnv(images=SEQUENCES, sensor=GlimpseSensor(2), num_glimpses=3, glimpses_per_answer=1)
    _, info = env.reset(seed=0, options={"index": 1})
    assert info["label"].tolist() == [2, 3, IGNORE_INDEX]
    assert env.step({"location": np.zeros(2, np.float32), "answer": 2})[1:3] == (1.0, False)
    assert env.step({"location": np.zeros(2, np.float32), "answer": 0})[1:3] == (0.0, True)


@pytest.mark.parametrize(
    "options",
    [
        {"images": SEQUENCES, "num_glimpses": 6, "glimpses_per_answer": 2},
        {"images": CLASSES, "stop": True, "context_size": 2},
        {"images": FixedScenes({"target": BOXES}), "answer": "box", "reward": RecordingReward([])},
        {"images": FixedScenes({"goal": torch.tensor([0, 1, 2])}), "answer": None, "reward": RecordingReward([])},
        {"images": Counter({"number": torch.zeros(4)}), "glimpses_per_answer": 1, "reward": Number()},
    ],
    ids=["several", "stop", "box", "goal", "dynamic"],
)
def test_every_kind_of_answer_passes_the_checker_of_gymnasium(options: Values) -> None:
    env = GlimpseEnv(sensor=GlimpseSensor(2), render_mode="rgb_array", **options)
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    picture = env.render()
    assert picture is not None
    assert picture.dtype == np.uint8


def test_a_sequence_of_one_answer_may_be_ended_by_a_stop() -> None:
    env = vector_env(FixedScenes({"label": torch.tensor([[0], [1], [2]])}), num_glimpses=4, stop=True)
    start(env)
    _, reward, terminated, *_ = act(env, answer=[0, 0, 2], stop=[True, True, False])
    assert reward.tolist() == [1, 0, 0]
    assert terminated.tolist() == [True, True, False]


# Errors.


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (SEQUENCES, {"num_glimpses": 6}, "have up to 3 answers: .* set env.num_glimpses to at least 18, not 6"),
        (SEQUENCES, {"num_glimpses": 5, "glimpses_per_answer": 2}, "at least 6, not 5"),
        (SEQUENCES, {"num_glimpses": 6, "glimpses_per_answer": 2, "stop": True}, "env.stop=true ends an episode"),
        (CLASSES, {"answer": "box"}, "env.answer=box needs scenes with a target object"),
        (FixedScenes({"target": BOXES}), {}, "env.answer=label needs scenes with labels"),
        (CLASSES, {"answer": "word"}, "env.answer must be one of None, label, log_probs, box"),
        (
            CLASSES,
            {"answer": None},
            r"CorrectAnswer does not fit this environment: transition\.answer is not available",
        ),
        (CLASSES, {"glimpses_per_answer": 0}, "env.glimpses_per_answer must be a whole number of at least 1"),
        (CLASSES, {"glimpses_per_answer": "2"}, "env.glimpses_per_answer must be a whole number .*, got '2'"),
        *(
            (CLASSES, {"context_size": size}, "env.context_size must be a whole number of at least 1, or")
            for size in [(2, 0), (2,), (2, 2, 2), 2.0, "2"]
        ),
        (CLASSES, {"context_size": 7}, r"env.context_size \(7, 7\) is larger than the images, \(6, 8\)"),
        (Counter({"number": torch.zeros(4)}), {"answer": "log_probs"}, "change with the agent's answers"),
    ],
)
def test_options_that_do_not_fit_the_scenes_are_refused_when_built(images: Any, options: Values, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vector_env(images, **options)


NO_FINITE_LOG_PROB = r"action\['answer'\] must have a finite log-probability in every row, and none of \+inf"


@pytest.mark.parametrize(
    ("options", "parts", "message"),
    [
        ({"stop": True}, {"answer": [0, 0, 0]}, "An action must be a dict of answer and location and stop"),
        ({"stop": True}, {"answer": [0, 0, 0], "stop": [0.0, 1.0, 0.0]}, r"action\['stop'\] must be \(3,\) bool"),
        ({"stop": True}, {"answer": [0, 0, 0], "stop": [2, 0, 0]}, r"action\['stop'\] must be \(3,\) bool"),
        ({"answer": "log_probs"}, {"answer": [[0.0] * 3] * 3}, r"must be \(3, 4\) floating point numbers"),
        ({"answer": "log_probs"}, {"answer": [[np.nan] * 4] * 3}, r"action\['answer'\] must not be NaN"),
        ({"answer": "log_probs"}, {"answer": [[0.0] * 4, [-np.inf] * 4, [0.0] * 4]}, NO_FINITE_LOG_PROB),
        ({"answer": "log_probs"}, {"answer": [[0.0] * 4, [0.0] * 4, [np.inf, 0.0, 0.0, 0.0]]}, NO_FINITE_LOG_PROB),
        ({"answer": "log_probs"}, {"answer": [[np.inf] * 4] * 3}, NO_FINITE_LOG_PROB),
    ],
)
def test_invalid_answers_and_stops_are_refused(options: Values, parts: Values, message: str) -> None:
    env = vector_env(CLASSES, **options)
    start(env)
    with pytest.raises(InputError, match=message):
        act(env, **parts)
