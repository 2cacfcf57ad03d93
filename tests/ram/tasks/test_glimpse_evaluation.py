"""Evaluation of the glimpse task: errors, returns, trajectories and stops."""

import math

import numpy as np
import pytest
import torch

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images.canvas import Canvas
from envs.images.glyphs import Glyphs
from envs.random import EpisodeSeeds
from envs.rewards.answers import CorrectAnswer, EarlyAnswer
from envs.rewards.weighted_sum import WeightedSum
from envs.splits import IGNORE_INDEX
from ram.policies import RandomLocation
from ram.rollout import evaluate_episodes
from ram.tasks.glimpse import GlimpseTask
from tests.ram.glimpse_tasks import (
    WITH_END,
    A,
    B,
    E,
    build_task,
    class_probabilities,
    constant_images,
    followable_task,
    random_images,
)


def test_evaluation_counts_every_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.glimpse.EVALUATION_ROWS", 7)
    task = build_task()
    images = random_images()
    env = task._env("validation", 40)
    env.reset(seed=task._row_seed)
    answers = evaluate_episodes(task.agent, env, torch.arange(40), task._row_seed).logits[-1].argmax(-1)
    expected = 100 * (answers != images.labels).float().mean().item()
    assert task.evaluate("validation")["error"] == pytest.approx(expected)


def test_evaluation_reports_each_component_of_the_reward() -> None:
    rewards = {"correct": CorrectAnswer(), "cost": EarlyAnswer(cost=0.25)}
    metrics = build_task(reward=WeightedSum(rewards, {"cost": 2.0})).evaluate("test")
    for suffix in ("", "_sampled", "_random"):
        correct, cost = metrics[f"reward/correct{suffix}"], metrics[f"reward/cost{suffix}"]
        assert correct == pytest.approx(1 - metrics[f"error{suffix}"] / 100)
        assert cost == pytest.approx(2 * (correct - 3 * 0.25))  # three glimpses
        assert metrics[f"return{suffix}"] == pytest.approx(correct + cost)


def test_evaluation_does_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task()
    errors = []
    for rows in (7, 40, 64):
        monkeypatch.setattr("ram.tasks.glimpse.EVALUATION_ROWS", rows)
        task._evaluation_envs.clear()
        errors.append(task.evaluate("test"))
    assert errors[0].keys() == {
        *("error", "error_sampled", "error_mc", "error_random"),
        *("return", "return_sampled", "return_random"),
    }
    for other in errors[1:]:
        assert other == pytest.approx(errors[0], abs=1e-9)


def test_a_random_policy_has_random_locations_in_evaluation() -> None:
    task = build_task(policy=RandomLocation)
    env = task._env("test", 40)
    env.reset(seed=0)
    location = evaluate_episodes(task.agent, env, torch.arange(40), 0).location
    assert location[1:].std() > 0.4
    assert task.diagnostics(0) == {}


@pytest.mark.parametrize("first_location", ["random", "center"])
def test_trajectories_have_the_first_location_of_the_environment(first_location: str) -> None:
    task = build_task()
    env = GlimpseVectorEnv(
        random_images(),
        GlimpseSensor(4),
        num_envs=40,
        num_glimpses=3,
        split="test",
        first_location=first_location,  # type: ignore[arg-type]
        output="torch",
        autoreset_mode="Disabled",
    )
    env.reset(seed=0)
    first, second = (
        evaluate_episodes(task.agent, env, torch.arange(40), 0, "sampled", number).location for number in (0, 1)
    )
    assert torch.equal(first[0], second[0]) is (first_location == "center")
    assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize("rows", [3, 1000])
def test_an_image_counts_as_an_error_if_any_answer_is_wrong(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("ram.tasks.glimpse.EVALUATION_ROWS", rows)
    scenes = [  # brightness, labels, number of correct answers, and whether all are correct
        (0.25, [A, B, E], 3, True),
        (0.25, [A, A, E], 2, False),  # the second answer is wrong
        (0.5, [B, E, IGNORE_INDEX], 2, True),  # no third answer is due
        (0.5, [A, B, A], 0, False),  # all answers are wrong
        (1.0, [E, IGNORE_INDEX, IGNORE_INDEX], 1, True),
        (1.0, [B, E, IGNORE_INDEX], 1, False),
        (0.15, [A, A, B], 3, True),
        (0.1, [A, A, B], 2, False),  # only the last answer is wrong
    ]
    brightness, labels, correct, all_correct = zip(*scenes, strict=True)
    task, _ = followable_task(constant_images(*brightness), list(labels), WITH_END, glimpses_per_answer=2)
    metrics = task.evaluate("test")
    # The images are constant, so locations make no difference.
    for name in ("error", "error_sampled", "error_mc", "error_random"):
        assert metrics[name] == pytest.approx(100 * all_correct.count(False) / 8)
    for name in ("return", "return_sampled", "return_random"):
        assert metrics[name] == pytest.approx(sum(correct) / 8)
    assert task.evaluate("validation")["error"] == pytest.approx(50)
    assert (task.monitor, task.maximize) == ("error", False)


def test_an_agent_that_may_stop_is_evaluated_at_its_stop() -> None:
    scenes = [  # brightness, looks until h exceeds 1.1, the class nearest to h then, and the label
        (1.0, 2, E, E),
        (0.6, 2, B, B),
        (0.5, 3, E, B),  # the answer after two looks would be B, and after one look A
        (0.3, 4, B, E),  # the answer after five looks would be E
        (0.1, 6, A, A),  # never stops
    ]
    brightness, looks, answers, labels = zip(*scenes, strict=True)
    task, _ = followable_task(
        constant_images(*brightness), list(labels), ("a", "b", "c"), stop=True, reward=EarlyAnswer(0.1)
    )
    metrics = task.evaluate("test")
    correct = [answer == label for answer, label in zip(answers, labels, strict=True)]
    for suffix in ("", "_random"):
        assert metrics[f"error{suffix}"] == pytest.approx(100 * correct.count(False) / 5)
        assert metrics[f"glimpses{suffix}"] == pytest.approx(sum(looks) / 5)
        assert metrics[f"return{suffix}"] == pytest.approx((sum(correct) - 0.1 * sum(looks)) / 5)
    assert (task.monitor, task.maximize) == ("return", True)


def sampled_probabilities(task: GlimpseTask, stop: bool) -> tuple[np.ndarray, np.ndarray]:
    """Computes, by hand, class probabilities (10, 60, A, K) and numbers of looks (10, 60) of sampled trajectories."""
    env = task._env("test", 60)
    probabilities, looks = [], np.full((10, 60), 6)
    for number in range(10):
        rollout = evaluate_episodes(task.agent, env, torch.arange(60), 0, "sampled", number)
        for row in range(60):
            stops = [look for look, action in enumerate(rollout.actions, 1) if stop and action["stop"][row]]
            looks[number, row] = min([*stops, 6])
            due = [looks[number, row]] if stop else [3, 6]
            probabilities.append([class_probabilities(rollout.features[look - 1, row].item()) for look in due])
    return np.reshape(probabilities, (10, 60, -1, 3)), looks


@pytest.mark.parametrize("stop", [False, True])
def test_monte_carlo_errors_are_those_of_averaged_probabilities(stop: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = 0.6 * torch.rand(60, 1, 8, 8, generator=generator)
    random = torch.randint(3, (60, 1 if stop else 2), generator=generator).numpy()
    options = {"stop": True, "reward": EarlyAnswer()} if stop else {"glimpses_per_answer": 3}

    def build(labels: np.ndarray) -> GlimpseTask:
        return followable_task(images, (labels[:, 0] if stop else labels).tolist(), WITH_END, **options)[0]

    # Labels do not change the trajectories up to the end of an episode. They are random where all trajectories agree,
    # and elsewhere the answers of averaged probabilities, so that no other way to combine answers has fewer errors.
    probabilities, _ = sampled_probabilities(build(np.zeros_like(random)), stop)
    answers, averaged = probabilities.argmax(-1), probabilities.mean(0).argmax(-1)
    labels = np.where((answers == answers[0]).all(0), random, averaged)
    if not stop:
        labels[labels[:, 0] == E, 1] = IGNORE_INDEX

    def error(answers: np.ndarray) -> float:
        return 100 * ((answers != labels) & (labels != IGNORE_INDEX)).any(-1).mean()

    task = build(labels)
    probabilities, looks = sampled_probabilities(task, stop)
    answers, averaged = probabilities.argmax(-1), probabilities.mean(0).argmax(-1)
    majority = np.eye(3)[answers].sum(0).argmax(-1)
    metrics = task.evaluate("test")
    assert metrics["error_sampled"] == pytest.approx(error(answers))
    assert metrics["error_mc"] == pytest.approx(error(averaged))
    assert metrics["error_sampled"] > metrics["error_mc"] + 5  # the mean error of the trajectories differs clearly,
    assert error(majority) > metrics["error_mc"] + 5  # and so does the error of the majority vote
    if stop:
        assert metrics["glimpses_sampled"] == pytest.approx(looks.mean())
        assert 1.5 < looks.mean() < 5.5


@pytest.mark.parametrize("rows", [3, 1000])
def test_pointing_is_the_share_of_scenes_whose_last_look_is_at_the_target(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ram.tasks.glimpse.EVALUATION_ROWS", rows)
    canvas = Canvas(Glyphs(num_train=16, num_validation=10, num_test=10), size=(36, 84))
    task = build_task(canvas)
    task.agent.location.mean[0].bias.data = torch.tensor([0.3, -0.2])
    task.agent.location.path.zero_()  # every look after the first is at tanh(0.3), tanh(-0.2)
    metrics = task.evaluate("test")
    index = torch.arange(10)
    seeds = EpisodeSeeds(0, 10, "test", torch.device("cpu"))
    box = canvas.load("test").draw(index, seeds.by_scene(None, index)).annotations["target"]
    x, y = math.tanh(0.3), math.tanh(-0.2)
    hits = [left <= x <= right and top <= y <= bottom for left, top, right, bottom in box.tolist()]
    assert 0 < sum(hits) < 10
    assert metrics["pointing"] == pytest.approx(10 * sum(hits))
    assert {"pointing_sampled", "pointing_random"} <= metrics.keys()
    assert "pointing_mc" not in metrics
    assert task.higher_is_better("pointing")
