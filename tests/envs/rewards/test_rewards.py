"""Rewards: what each pays, worked out by hand, and which worlds it refuses."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.rewards import MissingField, Reward, Transition
from envs.rewards.box_overlap import BoxOverlap
from envs.rewards.correct_answer import CorrectAnswer
from envs.rewards.cross_entropy import NegativeCrossEntropy
from envs.rewards.early_answer import EarlyAnswer
from envs.rewards.hit_target import HitTarget
from envs.rewards.information_gain import InformationGain
from envs.rewards.log_prob_gain import LogProbGain
from envs.rewards.target_distance import TargetDistance
from envs.rewards.weighted_sum import WeightedSum
from envs.scene import Scene
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import IGNORE_INDEX, Split
from envs.vector_env import GlimpseVectorEnv
from ram.config import build, check, config_folder

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_reward"
SENSOR = GlimpseSensor(3)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
INF = math.inf


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def logs(*rows: tuple[float, ...]) -> Tensor:
    """Log-probabilities of probabilities; 0 gives -inf."""
    return torch.tensor(rows).log()


def assert_pays(reward: Reward, transition: Transition, expected: list[float]) -> None:
    paid = reward(transition)
    assert paid.dtype == torch.float32
    torch.testing.assert_close(paid, torch.tensor(expected, dtype=torch.float32), rtol=1e-6, atol=1e-6)


# By hand.


ANSWERED = Transition(
    answer=torch.tensor([2, 2, 1, 0]),
    label=torch.tensor([2, 2, 2, IGNORE_INDEX]),
    due=flags(1, 0, 1, 0),
    last=flags(1, 0, 1, 1),
)


def test_correct_answer_pays_right_answers_that_are_due() -> None:
    assert_pays(CorrectAnswer(), ANSWERED, [1, 0, 0, 0])


def test_early_answer_takes_its_cost_at_every_step() -> None:
    assert_pays(EarlyAnswer(0.25), ANSWERED, [0.75, -0.25, -0.25, -0.25])
    assert_pays(EarlyAnswer(0), ANSWERED, [1, 0, 0, 0])


def test_early_answer_pays_no_right_answer_on_the_way() -> None:
    on_the_way = Transition(**vars(ANSWERED) | {"last": flags(0, 0, 0, 1)})
    assert_pays(CorrectAnswer(), on_the_way, [1, 0, 0, 0])
    assert_pays(EarlyAnswer(0.25), on_the_way, [-0.25] * 4)


BELIEFS = Transition(
    # learnt; unlearnt; from impossible to certain; the same for an answer that nobody asks for
    log_probs=logs((0.5, 0.25, 0.25), (0.1, 0.8, 0.1), (0, 0, 1), (0.5, 0.5, 0)),
    previous_log_probs=logs((0.25, 0.25, 0.5), (0.4, 0.4, 0.2), (1, 0, 0), (0.5, 0.5, 0)),
    label=torch.tensor([0, 2, 2, IGNORE_INDEX]),
    due=flags(1, 0, 1, 0),
)


def test_log_prob_gain_is_the_logarithm_of_the_ratio_of_probabilities() -> None:
    assert_pays(LogProbGain(), BELIEFS, [math.log(2), math.log(0.5), 20, 0])
    assert_pays(LogProbGain(floor=-3), BELIEFS, [math.log(2), math.log(0.5), 3, 0])


def test_negative_cross_entropy_pays_at_answers_that_are_due() -> None:
    assert_pays(NegativeCrossEntropy(), BELIEFS, [math.log(0.5), 0, 0, 0])


def test_an_impossible_class_costs_no_more_than_the_floor() -> None:
    sure = Transition(log_probs=logs((1, 0)), label=torch.tensor([1]), due=flags(1))
    assert_pays(NegativeCrossEntropy(), sure, [-20])
    assert_pays(NegativeCrossEntropy(floor=-1.5), sure, [-1.5])


def test_information_gain_is_the_drop_in_entropy() -> None:
    ln2 = math.log(2)
    before = -0.8 * math.log(0.4) - 0.2 * math.log(0.2)
    after = -0.8 * math.log(0.8) - 0.2 * math.log(0.1)
    # (1/4, 1/4, 1/2) and (1/2, 1/4, 1/4) are equally uncertain, (1, 0, 0) and (0, 0, 1) not at all
    assert_pays(InformationGain(), BELIEFS, [0, before - after, 0, 0])
    certain = Transition(log_probs=logs((1, 0, 0, 0)), previous_log_probs=logs((0.25,) * 4))
    assert_pays(InformationGain(), certain, [2 * ln2])
    doubtful = Transition(log_probs=logs((0.5, 0.5, 0, 0)), previous_log_probs=logs((0, 1, 0, 0)))
    assert_pays(InformationGain(), doubtful, [-ln2])


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-200, 200, width=32)] * 4), min_size=1, max_size=6),
    st.integers(0, 3),
)
def test_gains_add_up_to_what_is_known_at_the_end(logits: list[tuple[float, ...]], label: int) -> None:
    beliefs = [torch.full((1, 4), -math.log(4)), *torch.tensor(logits).log_softmax(-1)[:, None]]
    totals = [torch.zeros(1), torch.zeros(1)]
    for before, after in pairwise(beliefs):
        step = Transition(log_probs=after, previous_log_probs=before, label=torch.tensor([label]), due=flags(1))
        for number, reward in enumerate((LogProbGain(floor=-500), InformationGain())):
            totals[number] = totals[number] + reward(step)
    last = beliefs[-1][0].double()
    assert totals[0].item() == pytest.approx(float(last[label]) + math.log(4), abs=1e-3)
    assert totals[1].item() == pytest.approx(math.log(4) + float((last.exp() * last).sum()), abs=1e-4)


@pytest.mark.parametrize("reward", [LogProbGain(), NegativeCrossEntropy(), InformationGain()], ids=repr)
@given(values=st.lists(st.tuples(*[st.sampled_from([-INF, -3e38, -1.0, 0.0, INF])] * 6), min_size=1, max_size=4))
def test_no_log_probabilities_make_a_reward_infinite(reward: Reward, values: list[tuple[float, ...]]) -> None:
    beliefs = torch.tensor(values)
    count = len(values)
    paid = reward(
        Transition(
            log_probs=beliefs[:, :3],
            previous_log_probs=beliefs[:, 3:],
            label=torch.arange(count) % 3,
            due=torch.ones(count, dtype=torch.bool),
        )
    )
    assert paid.shape == (count,) and paid.dtype == torch.float32
    assert paid.isfinite().all()


GAZES = Transition(
    # inside; on a corner; outside on one axis alone; at an exact border; inside, but at the end; outside at the end
    location=torch.tensor([[0.0, 0.25], [-0.5, 0.0], [0.0, 0.75], [0.5, 0.5], [0.0, 0.25], [0.0, -0.25]]),
    target=torch.tensor([[-0.5, 0.0, 0.5, 0.5]]).expand(6, 4),
    last=flags(0, 0, 0, 0, 1, 1),
)


def test_hit_target_pays_every_look_in_the_box_that_was_moved_to() -> None:
    assert_pays(HitTarget(), GAZES, [1, 1, 0, 1, 0, 0])


def test_hit_target_can_pay_for_where_the_gaze_is_at_the_end_alone() -> None:
    assert_pays(HitTarget(every_look=False), GAZES, [0, 0, 0, 0, 1, 0])


def test_a_box_is_not_widened() -> None:
    beyond = np.nextafter(np.float32(0.5), np.float32(1)).item()
    near = Transition(
        location=torch.tensor([[beyond, 0.5], [0.5, beyond]]),
        target=torch.tensor([[0.0, 0, 0.5, 0.5]] * 2),
        last=flags(0, 0),
    )
    assert_pays(HitTarget(), near, [0, 0])


def test_target_distance_is_euclidean_to_the_centre() -> None:
    # The centre is (0, 0.25).
    diagonal = Transition(
        location=torch.tensor([[0.3, 0.65], [0.0, 0.25], [0.3, 0.65]]),
        target=torch.tensor([[-0.5, 0.0, 0.5, 0.5]] * 3),
        last=flags(0, 0, 1),
    )
    assert_pays(TargetDistance(), diagonal, [-0.5, 0, 0])


TARGET = (-0.5, -0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("answer", "target", "overlap"),
    [
        (TARGET, TARGET, 1),
        ((0.0, 0.0, 1.0, 1.0), TARGET, 0.25 / 1.75),
        ((-1.0, -1.0, 1.0, 1.0), TARGET, 0.25),
        ((-0.5, -0.25, 0.5, 0.25), TARGET, 0.5),
        ((-0.5, -0.5, 0.0, 0.5), TARGET, 0.5),
        ((0.5, -0.5, 1.0, 0.5), TARGET, 0),  # a side in common
        ((0.6, 0.6, 1.0, 1.0), TARGET, 0),
        ((-1.0, 0.6, 1.0, 1.0), TARGET, 0),  # apart on one axis alone
        ((0.0, 0.0, 0.0, 0.0), TARGET, 0),
        ((-0.5, 0.0, 0.5, 0.0), TARGET, 0),
        ((0.5, -0.5, -0.5, 0.5), TARGET, 0),
        ((0.5, 0.5, -0.5, -0.5), TARGET, 0),
        ((0.5, 0.5, -0.5, -0.5), (0.5, 0.5, -0.5, -0.5), 0),
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0),
    ],
)
def test_box_overlap_is_intersection_over_union(answer: Any, target: Any, overlap: float) -> None:
    boxes = Transition(answer=torch.tensor([answer] * 2), target=torch.tensor([target] * 2), due=flags(1, 0))
    assert_pays(BoxOverlap(), boxes, [overlap, 0])


corner = st.integers(0, 6)


@given(answer=st.tuples(*[corner] * 4), target=st.tuples(*[corner] * 4))
def test_box_overlap_is_that_of_the_cells_of_a_grid(answer: tuple[int, ...], target: tuple[int, ...]) -> None:
    ours, theirs = ({(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])} for box in (answer, target))
    boxes = Transition(answer=torch.tensor([answer]) / 4 - 0.75, target=torch.tensor([target]) / 4 - 0.75, due=flags(1))
    assert_pays(BoxOverlap(), boxes, [len(ours & theirs) / max(len(ours | theirs), 1)])


def test_weighted_sum_adds_its_components() -> None:
    reward = WeightedSum(
        {"right": CorrectAnswer(), "early": EarlyAnswer(0.5), "gain": InformationGain()}, {"early": 2.0, "gain": -1}
    )
    step = Transition(
        **vars(ANSWERED),
        log_probs=logs((1, 0), (0.5, 0.5), (0.5, 0.5), (1, 0)),
        previous_log_probs=logs((0.5, 0.5), (0.5, 0.5), (1, 0), (1, 0)),
    )
    parts = reward.components(step)
    ln2 = math.log(2)
    assert list(parts) == ["right", "early", "gain"]
    expected = {"right": [1.0, 0, 0, 0], "early": [1.0, -1, -1, -1], "gain": [-ln2, 0, ln2, 0]}
    for name, values in expected.items():
        torch.testing.assert_close(parts[name], torch.tensor(values))
    assert_pays(reward, step, [2 - ln2, -1, -1 + ln2, -1])


def test_components_weigh_one_unless_it_is_said_otherwise() -> None:
    assert_pays(WeightedSum({"a": CorrectAnswer(), "b": CorrectAnswer()}), ANSWERED, [2, 0, 0, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyAnswer(-0.1), r"reward\.cost must be a finite number of at least 0, got -0\.1"),
        (lambda: EarlyAnswer(INF), r"reward\.cost"),
        (lambda: LogProbGain(0.0), r"reward\.floor must be a finite number below 0, got 0\.0"),
        (lambda: NegativeCrossEntropy(-INF), r"reward\.floor must be a finite number below 0, got -inf"),
        (lambda: WeightedSum({}), r"reward\.rewards must name at least one"),
        (lambda: WeightedSum({"a": CorrectAnswer()}, {"b": 1.0}), r"reward\.weights\.b is .* no reward: there are a\."),
        (lambda: WeightedSum({"a": CorrectAnswer()}, {"a": math.nan}), r"reward\.weights\.a must be a finite number"),
        (lambda: WeightedSum({"a": CorrectAnswer()}, {"a": "much"}), r"reward\.weights\.a must .*, got 'much'"),  # type: ignore[dict-item]
    ],
)
def test_options_out_of_range_are_refused(make: Callable[[], Reward], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# In worlds.


IMAGES = ImageSet(torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3, tuple("abc"))


@dataclass(frozen=True)
class Targets:
    """Blank images with a class and the box of an object, known to all."""

    classes: tuple[str, ...] = ("a", "b")

    def __len__(self) -> int:
        return 5

    def load(self, split: Split, device: torch.device | str = "cpu") -> Targets:
        return self

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        target = torch.tensor([TARGET]).expand(len(index), 4)
        return Scene(torch.zeros(len(index), 1, 6, 6), {"label": index % 2, "target": target})


class Unlabelled(Targets):
    """The same, but no one knows the classes."""

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        scene = super().draw(index, random)
        return Scene(scene.images, {"target": scene.annotations["target"]})


TARGETS = Targets()


def vector_env(reward: Reward, **options: Any) -> GlimpseVectorEnv:
    defaults = {"images": IMAGES, "sensor": SENSOR, "num_envs": 4, "num_glimpses": 3}
    return GlimpseVectorEnv(**{**defaults, "reward": reward, **options})


def actions(env: GlimpseVectorEnv, seed: int) -> dict[str, Any]:
    env.action_space.seed(seed)
    return env.action_space.sample()


@pytest.mark.parametrize(
    ("reward", "options"),
    [
        (CorrectAnswer(), {}),
        (EarlyAnswer(), {"stop": True}),
        (LogProbGain(), {"answer": "log_probs"}),
        (NegativeCrossEntropy(), {"answer": "log_probs", "glimpses_per_answer": 1}),
        (InformationGain(), {"answer": "log_probs"}),
        (HitTarget(), {"images": TARGETS}),
        (HitTarget(), {"images": TARGETS, "answer": None}),
        (TargetDistance(), {"images": TARGETS}),
        (BoxOverlap(), {"images": TARGETS, "answer": "box"}),
        (WeightedSum({"a": CorrectAnswer(), "b": TargetDistance()}), {"images": TARGETS}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_every_reward_is_paid_in_a_world_that_fits(reward: Reward, options: dict[str, Any]) -> None:
    env = vector_env(reward, **options)
    env.reset(seed=0)
    paid = [env.step(actions(env, step))[1] for step in range(7)]
    assert all(each.shape == (4,) and each.dtype == np.float32 for each in paid)
    assert np.isfinite(paid).all()


@pytest.mark.parametrize(
    ("reward", "options", "field"),
    [
        (CorrectAnswer(), {"answer": None}, "answer"),
        (EarlyAnswer(), {"answer": None}, "answer"),
        (CorrectAnswer(), {"images": TARGETS, "answer": "box"}, "answer is a box, not a class: set env.answer=label"),
        (LogProbGain(), {}, "log_probs"),
        (NegativeCrossEntropy(), {}, "log_probs"),
        (InformationGain(), {}, "previous_log_probs"),
        (HitTarget(), {}, "target"),
        (TargetDistance(), {}, "target"),
        (BoxOverlap(), {}, "target"),
        (BoxOverlap(), {"images": TARGETS}, "answer is a class, not a box: set env.answer=box"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict | str) else "",
)
def test_a_reward_that_does_not_fit_is_refused_when_the_world_is_built(
    reward: Reward, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(
        InputError, match=rf"{type(reward).__name__} does not fit this world: transition\.{field}"
    ) as told:
        vector_env(reward, **options)
    assert isinstance(told.value.__cause__, MissingField)


@dataclass(frozen=True)
class Reads:
    """Pays nothing, but looks at one field."""

    field: str

    def __call__(self, transition: Transition) -> Tensor:
        getattr(transition, self.field)
        return torch.zeros_like(transition.location[:, 0])


CURES = [
    ("log_probs", {}, "set env.answer=log_probs"),
    ("previous_log_probs", {}, "set env.answer=log_probs"),
    ("answer", {"answer": None}, "set env.answer=label"),
    ("label", {"answer": None, "images": Unlabelled()}, "take a world with right answers, such as images=glyphs"),
    ("target", {}, "take a world that asks for one object, such as images=locate"),
    ("goal", {}, "take a world that names a class, such as images=search"),
    ("caught", {}, "take images=catch"),
    ("flavour", {}, "take another world, or another reward"),
]


@pytest.mark.parametrize(("field", "options", "cure"), CURES, ids=[cure[0] for cure in CURES])
def test_what_a_world_does_not_give_is_told_with_what_to_do(field: str, options: dict[str, Any], cure: str) -> None:
    told = f"Reads does not fit this world: transition.{field} is not given by this world and its actions ({cure}); "
    with pytest.raises(InputError, match="^" + re.escape(told)):
        vector_env(Reads(field), **options)


@pytest.mark.parametrize(
    ("field", "answer"), [("log_probs", "log_probs"), ("previous_log_probs", "log_probs"), ("answer", "label")]
)
def test_the_answer_that_is_advised_gives_what_was_missing(field: str, answer: str) -> None:
    env = vector_env(Reads(field), answer=answer)
    env.reset(seed=0)
    assert env.step(actions(env, 0))[1].tolist() == [0] * 4


DIGITS = ["images@images.objects=glyphs", "images.objects.num_test=4"]


@pytest.mark.parametrize(
    ("field", "world", "more"),
    [("label", "glyphs", []), ("target", "locate", DIGITS), ("goal", "search", DIGITS), ("caught", "catch", [])],
)
def test_the_world_that_is_advised_ships_and_gives_what_was_missing(field: str, world: str, more: list[str]) -> None:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", [f"images={world}", "images.num_test=4", *more])
    few = build(config.images).load("test")
    zero = torch.zeros(1, dtype=torch.int64)
    assert field in few.draw(zero, RowRandom(zero, zero)).annotations


def test_a_part_that_does_not_fit_is_named() -> None:
    reward = WeightedSum({"right": CorrectAnswer(), "way": TargetDistance()})
    message = r"WeightedSum does not fit this world: in reward\.rewards\.way, transition\.target is not given"
    with pytest.raises(InputError, match=message):
        vector_env(reward)


def test_an_episode_by_hand() -> None:
    env = vector_env(
        WeightedSum({"hit": HitTarget(), "end": HitTarget(every_look=False), "way": TargetDistance()}, {"way": 10.0}),
        images=TARGETS,
        num_envs=1,
        answer=None,
        autoreset_mode=DISABLED,
    )
    env.reset(seed=0, options={"location": [[0.0, 0.0]]})
    moves = [(0.6, 0.8), (0.3, 0.4), (1.0, 1.0)]  # the last one is ignored
    paid = []
    for move in moves:
        _, reward, _, _, info = env.step({"location": np.array([move], np.float32)})
        paid.append([float(info[f"reward/{name}"][0]) for name in ("hit", "end", "way")])
        assert reward[0] == pytest.approx(sum(paid[-1]))
    np.testing.assert_allclose(paid, [[0, 0, -10], [1, 0, -5], [0, 1, 0]], rtol=1e-6)


LN2 = math.log(2)
# Four classes, of which the first is right: asked for twice, and once.
TWO_QUESTIONS = ImageSet(IMAGES.images[:1], torch.tensor([[0, 0]]), tuple("abcd"))
ONE_QUESTION = ImageSet(IMAGES.images[:1], torch.tensor([0]), tuple("abcd"))


def believing(reward: Reward, beliefs: Tensor, **options: Any) -> list[float]:
    """What the log-probabilities (T, B, K) of an episode are paid, step by step: (T * B) in turn."""
    count = beliefs.shape[1]
    env = vector_env(
        reward, answer="log_probs", num_envs=count, num_glimpses=len(beliefs), autoreset_mode=DISABLED, **options
    )
    env.reset(seed=0)
    place = np.zeros((count, 2), np.float32)
    results = [env.step({"location": place, "answer": answer.numpy()}) for answer in beliefs]
    assert [result[2].all() for result in results] == [False] * (len(beliefs) - 1) + [True]
    return [float(value) for result in results for value in result[1]]


THOUGHTS = logs((0.5, 0.25, 0.25, 0), (1, 0, 0, 0), (1, 0, 0, 0), (0.5, 0.5, 0, 0))[:, None]


@pytest.mark.parametrize(
    ("reward", "several", "one"),
    [
        # in units of log 2; the class a has the probabilities 1/4 at first, 1/2, 1, 1 and 1/2
        (LogProbGain(), [1, 1, 2, -1], [1, 1, 0, -1]),
        # entropies of 2 at first, 3/2, 0, 0 and 1
        (InformationGain(), [0.5, 1.5, 2, -1], [0.5, 1.5, 0, -1]),
    ],
    ids=["LogProbGain", "InformationGain"],
)
def test_gains_begin_anew_with_every_question(reward: Reward, several: list[float], one: list[float]) -> None:
    for images, expected in [(TWO_QUESTIONS, several), (ONE_QUESTION, one)]:
        paid = believing(reward, THOUGHTS, images=images, glimpses_per_answer=2)
        assert paid == pytest.approx([LN2 * value for value in expected], abs=1e-6)


@pytest.mark.parametrize("reward", [LogProbGain(), InformationGain()], ids=["LogProbGain", "InformationGain"])
def test_whoever_is_right_twice_is_paid_twice(reward: Reward) -> None:
    right = logs((1, 0, 0, 0), (1, 0, 0, 0))[:, None]
    paid = believing(reward, right, images=TWO_QUESTIONS, glimpses_per_answer=1)
    assert paid == pytest.approx([2 * LN2, 2 * LN2])
    paid = believing(reward, right, images=ONE_QUESTION, glimpses_per_answer=1)
    assert paid == pytest.approx([2 * LN2, 0])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 5), st.integers(0, 2**31))
def test_the_gains_of_every_answer_add_up_to_its_log_probability(
    answers: int, looks: int, classes: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(classes, (1, answers), generator=generator)
    images = ImageSet(IMAGES.images[:1], label, tuple("abcde"[:classes]))
    beliefs = torch.randn(answers * looks, 2, classes, generator=generator).log_softmax(-1)
    due = beliefs[looks - 1 :: looks]  # (answers, 2, classes)
    said = due.gather(-1, label.view(-1, 1, 1).expand(-1, 2, 1))[..., 0]
    known = math.log(classes) + (due.exp() * due).sum(-1)
    for reward, expected in [(LogProbGain(), said + math.log(classes)), (InformationGain(), known)]:
        paid = torch.tensor(believing(reward, beliefs, images=images, glimpses_per_answer=looks))
        torch.testing.assert_close(paid.view(answers, looks, 2).sum(1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 5.0, -5.0])
def test_whoever_calls_all_classes_alike_is_paid_as_one_who_knows_nothing(value: float) -> None:
    alike = torch.full((2, 1, 4), value)
    for reward, expected in [(LogProbGain(), 0), (InformationGain(), 0), (NegativeCrossEntropy(), -2 * LN2)]:
        paid = believing(reward, alike, images=ONE_QUESTION, glimpses_per_answer=1)
        assert paid == pytest.approx([expected] * 2, abs=1e-6)


def test_log_probabilities_are_paid_for_what_they_say() -> None:
    beliefs = logs((0.5, 0.25, 0.25, 0), (0.125, 0.875, 0, 0))[:, None]
    for shift in (0.0, 5.0):
        paid = believing(NegativeCrossEntropy(), beliefs + shift, images=ONE_QUESTION, glimpses_per_answer=1)
        assert paid == pytest.approx([-LN2, -3 * LN2], abs=1e-6)


@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_early_answer_never_pays_to_go_on_when_the_answer_is_known(cost: float) -> None:
    env = vector_env(
        EarlyAnswer(cost), num_envs=4, num_glimpses=4, glimpses_per_answer=1, stop=True, autoreset_mode=DISABLED
    )
    _, info = env.reset(seed=0)
    paid = []
    for step in range(4):  # row i stops after look i, and the last one not at all
        stop = (np.arange(4) == step) & (step < 3)
        action = {"location": np.zeros((4, 2), np.float32), "answer": info["label"], "stop": stop}
        paid.append(env.step(action)[1])
    assert np.sum(paid, axis=0).tolist() == [1 - cost * looks for looks in (1, 2, 3, 4)]


# What the parts of a sum have paid is told in info.


@dataclass(frozen=True)
class Steps:
    """The number of the action, from 1."""

    def __call__(self, transition: Transition) -> Tensor:
        return transition.step.float() + 1


SUM = WeightedSum({"steps": Steps(), "right": CorrectAnswer()}, {"steps": 2.0})


def test_an_environment_without_parts_tells_none() -> None:
    env = vector_env(CorrectAnswer())
    env.reset(seed=0)
    assert env.step(actions(env, 0))[4].keys() == {"index", "label", "_index", "_label"}


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_rows_that_have_ended_are_paid_nothing(output: str) -> None:
    env = vector_env(SUM, stop=True, output=output, autoreset_mode=DISABLED)
    _, info = env.reset(seed=0)
    assert not any("reward" in name for name in info)
    stops = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    paid = []
    for stop in stops:
        action = {"location": torch.zeros(4, 2), "answer": torch.as_tensor(info["label"]), "stop": torch.tensor(stop)}
        _, reward, _, _, info = env.step(action)
        parts = [info["reward/steps"], info["reward/right"]]
        assert all(str(part.dtype).endswith("float32") and part.shape == (4,) for part in parts)
        assert (parts[0] + parts[1]).tolist() == reward.tolist()
        paid.append([part.tolist() for part in parts])
    assert paid == [[[2, 2, 2, 2], [0, 0, 1, 0]], [[4, 4, 0, 4], [1, 0, 0, 0]], [[0, 6, 0, 6], [0, 1, 0, 1]]]


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_parts_are_told_as_gymnasium_tells_them_of_single_environments(mode: AutoresetMode) -> None:
    options = {"images": IMAGES, "sensor": SENSOR, "num_glimpses": 3, "reward": SUM, "stop": True}
    ours = vector_env(SUM, stop=True, autoreset_mode=mode)
    reference = SyncVectorEnv([lambda: GlimpseEnv(**options)] * 4, autoreset_mode=mode)
    ours.reset(seed=3)
    reference.reset(seed=3)
    nothing = np.zeros(4)
    ended = 0
    for step in range(12):
        action = actions(ours, step)
        mine, theirs = (env.step(action) for env in (ours, reference))
        np.testing.assert_array_equal(mine[1], theirs[1])
        ended += int(mine[2].sum())
        pairs = [(mine[4], theirs[4])]
        assert ("final_info" in mine[4]) == ("final_info" in theirs[4])
        if "final_info" in mine[4]:
            pairs.append((mine[4]["final_info"], theirs[4]["final_info"]))
        for info, expected in pairs:
            for name in ("reward/steps", "reward/right"):
                # Gymnasium leaves out what no row has.
                present = expected.get(f"_{name}", nothing.astype(bool))
                np.testing.assert_array_equal(info[f"_{name}"], present)
                np.testing.assert_array_equal(info[name][present], expected.get(name, nothing)[present])
    assert ended >= 12


def test_the_single_environment_tells_the_parts_of_its_row() -> None:
    env = GlimpseEnv(images=IMAGES, sensor=SENSOR, num_glimpses=1, reward=SUM)
    _, info = env.reset(seed=0)
    *_, info = env.step({"location": np.zeros(2, np.float32), "answer": info["label"]})
    assert (info["reward/steps"], info["reward/right"]) == (2, 1)


@dataclass(frozen=True)
class Wrong:
    """Returns what it is told to."""

    result: Any

    def __call__(self, transition: Transition) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (1.0, "reward/mine must return a tensor, got float"),
        (torch.ones(4, 1), r"reward/mine must return \(4,\) float32 on cpu, got \(4, 1\) float32"),
        (torch.ones(3), r"reward/mine must return \(4,\) float32 on cpu, got \(3,\) float32"),
        (torch.ones(4).double(), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) float64"),
        (torch.full((4,), torch.nan), "reward/mine returned NaN"),
        ([1.0] * 4, "reward/mine must return a tensor, got list"),
        (None, "reward/mine must return a tensor, got NoneType"),
        (torch.ones(4, dtype=torch.int64), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) int64"),
        (torch.ones(4, dtype=torch.bool), r"reward/mine must return \(4,\) float32 on cpu, got \(4,\) bool"),
    ],
)
@pytest.mark.parametrize("weights", [None, {"mine": 2}, {"mine": 0.5}], ids=["unweighted", "twice", "half"])
def test_a_wrong_part_is_named_at_the_first_step(result: Any, message: str, weights: dict[str, float] | None) -> None:
    env = vector_env(WeightedSum({"right": CorrectAnswer(), "mine": Wrong(result)}, weights))
    env.reset(seed=0)
    with pytest.raises(InputError, match=message):
        env.step(actions(env, 0))


# A user's own.


def test_the_example_of_an_own_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setitem(sys.modules, "my_rewards", sys)  # so that what is imported now is forgotten afterwards
    del sys.modules["my_rewards"]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("config", ["hydra.searchpath=[file://.]", "reward=my_reward", "reward.cost=0.2"])
    check(config)
    reward = build(config.reward)
    assert type(reward).__name__ == "MyReward"
    travelled = Transition(
        answer=torch.tensor([1, 1, 0]),
        label=torch.tensor([1, 1, 1]),
        due=flags(1, 0, 1),
        location=torch.tensor([[0.3, 0.4], [0.0, 0.0], [0.5, 0.0]]),
        previous_location=torch.tensor([[0.0, 0.0], [0.6, 0.8], [0.5, 0.0]]),
    )
    assert_pays(reward, travelled, [0.9, -0.2, 0])
