"""The glimpse task: who is trained by what, what an evaluation counts, and whether the gaze is learnt."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from envs import GlimpseSensor, GlimpseVectorEnv, InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.rewards import Reward
from envs.rewards.correct_answer import CorrectAnswer
from envs.rewards.early_answer import EarlyAnswer
from envs.rewards.target_distance import TargetDistance
from envs.rewards.weighted_sum import WeightedSum
from envs.scene import END
from envs.splits import IGNORE_INDEX
from ram.agent import RecurrentAttention
from ram.baselines import LearnedBaseline, LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.networks import CoreNetwork, GlimpseNetwork, LocationNetwork, RandomLocation
from ram.rollout import evaluate_episodes, run_episode
from ram.tasks.glimpse import GlimpsePredictor, GlimpseTask, Weights


def _images(count: int = 40, size: int = 10, classes: int = 3) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, 1, size, size, generator=generator)
    labels = torch.arange(count) % classes
    return ImageSet(images, labels, tuple("abcdefghij"[:classes]))


def _task(
    images: ImageSet | None = None,
    policy: object = LocationNetwork,
    num_glimpses: int = 3,
    reward: Reward | None = None,
    **options: object,
) -> GlimpseTask:
    env = partial(
        GlimpseVectorEnv,
        images=images or _images(),
        sensor=GlimpseSensor(4),
        num_glimpses=num_glimpses,
        reward=reward,
    )
    agent = partial(
        RecurrentAttention,
        glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=16),
        core=partial(CoreNetwork, size=16),
        policy=policy,
    )
    options = {"baseline": NoBaseline, "batch_size": 8} | options
    return GlimpseTask(env, agent, **options)  # type: ignore[arg-type]


def _touched(task: GlimpseTask, loss: Tensor) -> set[str]:
    """The networks that a loss sends a gradient to."""
    task.zero_grad()
    loss.backward(retain_graph=True)
    with_gradient = {
        name for name, value in task.named_parameters() if value.grad is not None and value.grad.abs().max() > 0
    }
    return {".".join(name.split(".")[:2]) for name in with_gradient}


def _only(**weights: float) -> Weights:
    return Weights(**({"answer": 0.0, "baseline": 0.0} | weights))


def test_the_supervised_loss_gives_the_location_network_nothing() -> None:
    task = _task()
    rollout = run_episode(task.agent, task.env, {"location": torch.randn(3, 8, 2)}, {"episode": 0})
    answer = torch.nn.functional.cross_entropy(rollout.logits.flatten(0, 1), rollout.label.flatten())
    assert _touched(task, answer) == {"agent.glimpse", "agent.core", "agent.action"}


def test_the_policy_loss_reaches_the_location_network_alone() -> None:
    task = _task(weights=_only())
    losses = [task(step).loss for step in range(5)]  # some step has a right answer
    assert set().union(*(_touched(task, loss) for loss in losses)) == {"agent.location"}


def test_through_core_opens_the_way_into_the_core() -> None:
    task = _task(policy=partial(LocationNetwork, backprop_into_core=True), weights=_only())
    losses = [task(step).loss for step in range(5)]
    assert set().union(*(_touched(task, loss) for loss in losses)) == {
        "agent.location",
        "agent.core",
        "agent.glimpse",
    }


def test_the_baseline_loss_trains_the_baseline_alone() -> None:
    task = _task(baseline=LearnedBaseline, weights=_only(baseline=1.0))
    for parameter in task.agent.location.parameters():
        parameter.requires_grad_(False)
    assert _touched(task, task(0).loss) == {"baseline.head"}


def test_a_baseline_through_the_core_trains_what_it_reads() -> None:
    task = _task(baseline=partial(LearnedBaseline, backprop_into_core=True), weights=_only(baseline=1.0))
    for parameter in task.agent.location.parameters():
        parameter.requires_grad_(False)
    assert _touched(task, task(0).loss) == {"baseline.head", "agent.core", "agent.glimpse"}


@pytest.mark.parametrize("num_glimpses", [1, 2, 5])
def test_neither_the_first_nor_the_never_used_location_is_scored(num_glimpses: int) -> None:
    task = _task(num_glimpses=num_glimpses)
    rollout = run_episode(task.agent, task.env, {"location": torch.randn(num_glimpses, 8, 2)}, {"episode": 0})
    # num_glimpses looks: the first is given, so there are num_glimpses - 1 choices, each scored where it was made.
    assert rollout.mask.sum(0).tolist() == [num_glimpses - 1] * 8
    assert not rollout.mask[-1].any()


def test_with_one_glimpse_there_is_nothing_to_learn_about_where_to_look() -> None:
    task = _task(num_glimpses=1, weights=_only())
    assert _touched(task, task(0).loss) == set()


def test_the_last_sample_changes_nothing() -> None:
    task = _task(weights=_only())
    noise = torch.randn(3, 8, 2)
    other = noise.clone()
    other[-1] += 1
    rollouts = [run_episode(task.agent, task.env, {"location": each}, {"episode": 0}) for each in (noise, other)]
    assert torch.equal(rollouts[0].location, rollouts[1].location)
    assert torch.equal(rollouts[0].logits, rollouts[1].logits)
    assert torch.equal(rollouts[0].reward, rollouts[1].reward)


def test_the_rollout_scores_the_raw_sample_and_the_world_sees_it_clamped() -> None:
    task = _task()
    noise = torch.full((3, 8, 2), 20.0)
    rollout = run_episode(task.agent, task.env, {"location": noise}, {"episode": 0})
    assert rollout.sample[:-1].min() > 1
    assert torch.equal(rollout.location[1:], torch.ones(2, 8, 2))
    expected = task.agent.location(rollout.features).log_prob(rollout.sample)
    torch.testing.assert_close(rollout.log_prob, expected)


def test_a_label_is_due_at_the_end_alone() -> None:
    task = _task()
    rollout = run_episode(
        task.agent, task.env, {"location": torch.randn(3, 8, 2)}, {"episode": 0, "index": torch.arange(8)}
    )
    assert rollout.logits.shape == (1, 8, 3)
    assert torch.equal(rollout.label[-1], _images().labels[:8])
    right = rollout.logits[-1].argmax(-1) == rollout.label[-1]
    assert torch.equal(rollout.reward.sum(0), right.float())


def test_an_epoch_shows_every_image_once_in_a_new_order() -> None:
    task = _task(batch_size=8)
    epochs = [torch.cat([task._batch(step) for step in range(5 * epoch, 5 * epoch + 5)]) for epoch in range(2)]
    assert all(torch.equal(epoch.sort().values, torch.arange(40)) for epoch in epochs)
    assert not torch.equal(*epochs)


def test_a_step_is_a_function_of_seed_and_step() -> None:
    task, again, other = _task(seed=3), _task(seed=3), _task(seed=4)
    for _ in range(3):
        task(0)  # what happened before does not matter
    assert torch.equal(task(7).loss, again(7).loss)
    assert not torch.equal(task(7).loss, other(7).loss)


def test_differently_seeded_runs_share_no_row() -> None:
    first, second = _task(seed=0), _task(seed=1)
    noise = torch.cat([task._noise(0)["location"] for task in (first, second)], dim=1).transpose(0, 1).flatten(1)
    assert len(noise.unique(dim=0)) == 16


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline, LeaveOneOutBaseline])
def test_every_baseline_trains_and_reports_the_documented_metrics(baseline: type) -> None:
    policy = partial(LocationNetwork, learn_std=True)
    task = _task(policy=policy, baseline=baseline, rollouts_per_image=2, weights=Weights(entropy=0.1))
    result = task(0)
    result.loss.backward()
    metrics = result.metrics()
    assert {"loss/policy", "loss/answer", "loss/baseline", "policy/entropy"} <= metrics.keys()
    assert result.loss.item() == pytest.approx(
        metrics["loss/policy"] + metrics["loss/answer"] + metrics["loss/baseline"] - 0.1 * metrics["policy/entropy"],
        rel=1e-5,
    )


def test_diagnostics_leave_no_trace_and_repeat() -> None:
    task = _task(baseline=MovingAverageBaseline)
    task(0)
    before = {name: value.clone() for name, value in task.state_dict().items() if isinstance(value, Tensor)}
    first, second = task.diagnostics(1), task.diagnostics(2)
    assert first == second
    assert first["grad/variance_location"] > 0
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items() if name in before)
    assert task.training


def test_the_measured_variance_is_that_of_single_episodes() -> None:
    task = _task(images=_images(8))
    task.agent.requires_grad_(True)
    env = task._env("train", 8, 1)
    env.reset(seed=task._row_seed)
    gradients = []
    rollout = run_episode(task.agent, env, task._noise(0, env), {"index": torch.arange(8), "episode": 0})
    for row in range(8):
        score = (rollout.log_prob[:-1, row] * rollout.reward[-1, row]).sum()
        parts = torch.autograd.grad(score, list(task.agent.location.parameters()), retain_graph=True)
        gradients.append(torch.cat([part.flatten() for part in parts]))
    expected = torch.stack(gradients).var(0).sum().item()
    measured = task.diagnostics(0)
    assert measured["grad/variance_location"] == pytest.approx(expected, rel=1e-4)
    assert measured["grad/variance_ratio"] == pytest.approx(1.0)


def test_leave_one_out_lowers_the_variance() -> None:
    task = _task(baseline=LeaveOneOutBaseline, rollouts_per_image=8)
    assert task.diagnostics(0)["grad/variance_ratio"] < 0.8


def test_evaluation_counts_every_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.glimpse._EVALUATION_ROWS", 7)
    task = _task()
    images = _images()
    env = task._env("test", 40)
    env.reset(seed=task._row_seed)
    answers = evaluate_episodes(task.agent, env, torch.arange(40), task._row_seed).logits[-1].argmax(-1)
    expected = 100 * (answers != images.labels).float().mean().item()
    assert task.evaluate("validation")["error"] == pytest.approx(expected)


def test_evaluation_tells_what_each_part_of_the_reward_pays() -> None:
    parts = {"right": CorrectAnswer(), "cost": EarlyAnswer(cost=0.25)}
    measured = _task(reward=WeightedSum(parts, {"cost": 2.0})).evaluate("test")
    for suffix in ("", "_sampled", "_random"):
        right, cost = measured[f"reward/right{suffix}"], measured[f"reward/cost{suffix}"]
        assert right == pytest.approx(1 - measured[f"error{suffix}"] / 100)
        assert cost == pytest.approx(2 * (right - 3 * 0.25))  # three glimpses
        assert measured[f"return{suffix}"] == pytest.approx(right + cost)


def test_evaluation_does_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task()
    errors = []
    for rows in (7, 40, 64):
        monkeypatch.setattr("ram.tasks.glimpse._EVALUATION_ROWS", rows)
        task._evaluation_envs.clear()
        errors.append(task.evaluate("test"))
    assert errors[0].keys() == {
        *("error", "error_sampled", "error_mc", "error_random"),
        *("return", "return_sampled", "return_random"),
    }
    for other in errors[1:]:
        assert other == pytest.approx(errors[0], abs=1e-9)


def test_a_random_policy_is_evaluated_by_random_looks() -> None:
    task = _task(policy=RandomLocation)
    env = task._env("test", 40)
    env.reset(seed=0)
    location = evaluate_episodes(task.agent, env, torch.arange(40), 0).location
    assert location[1:].std() > 0.4
    assert task.diagnostics(0) == {}


@pytest.mark.parametrize("first_location", ["random", "center"])
def test_trajectories_start_where_the_environment_says(first_location: str) -> None:
    task = _task()
    env = GlimpseVectorEnv(
        _images(),
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


def test_predict_plays_each_image_on_its_own() -> None:
    task = _task()
    images = _images()
    arguments = {
        "env": partial(GlimpseVectorEnv, images=images, sensor=GlimpseSensor(4), num_glimpses=3),
        "agent": partial(
            RecurrentAttention,
            glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=16),
            core=partial(CoreNetwork, size=16),
        ),
        "seed": 0,
        "device": "cpu",
    }
    model = GlimpseTask.restore(task.state_dict(), arguments)
    assert isinstance(model, GlimpsePredictor)
    prediction = model.predict(images.images)
    alone = model.predict(images.images[3:4])
    torch.testing.assert_close(alone.probability[0], prediction.probability[3])
    env = task._env("test", 40)
    options = {"index": torch.arange(40), "location": prediction.location[:, 0]}
    env.reset(seed=0)
    rollout = run_episode(task.agent, env, {"location": torch.zeros(3, 40, 2)}, options, greedy=True)
    torch.testing.assert_close(rollout.logits[-1].softmax(-1), prediction.probability)
    assert prediction.label == tuple(images.classes[best] for best in rollout.logits[-1].argmax(-1).tolist())
    assert prediction.location.shape == (40, 3, 2)
    torch.testing.assert_close(prediction.probability.sum(-1), torch.ones(40))
    other_size = model.predict(np.zeros((2, 1, 30, 17), np.uint8))
    assert len(other_size.label) == 2
    with pytest.raises(InputError, match=r"\(N, 1, H, W\)"):
        model.predict(torch.zeros(2, 3, 10, 10))
    with pytest.raises(InputError, match=r"floats in \[0, 1\]"):
        model.predict(255 * images.images)


# Agents that can be followed by hand: where all pixels looked at have the brightness v, look t leaves h = t * v.

CENTRES = (0.5, 1.0, 1.5)
"""The logit of a class is 4 (c h - c^2 / 2), so that the likeliest class is the one whose c is nearest to h."""


def _probability(h: float) -> list[float]:
    """The probability of every class: exp(-2 (h - c)^2) over the sum of these."""
    density = [math.exp(-2 * (h - centre) ** 2) for centre in CENTRES]
    return [each / sum(density) for each in density]


def _plain(*brightness: float) -> Tensor:
    """Images, each of one brightness everywhere."""
    return torch.tensor(brightness)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()


def _by_hand(
    images: Tensor, labels: list[list[int]] | list[int], classes: tuple[str, ...], **options: object
) -> tuple[GlimpseTask, GlimpsePredictor]:
    """A task with such an agent, and what is restored from it.

    A look reads one pixel: first in the middle, then at x = tanh(h / 2), y = -x. Where the agent may stop, the logit of
    stopping is h - 1.1, over 0: it prefers to once h exceeds 1.1.
    """
    arguments = {
        "env": partial(
            GlimpseVectorEnv,
            images=ImageSet(images, torch.tensor(labels), classes),
            sensor=GlimpseSensor(1),
            num_glimpses=6,
            first_location="center",
            **options,
        ),
        "agent": partial(
            RecurrentAttention,
            glimpse=partial(GlimpseNetwork, patch_features=1, location_features=1, output_size=1),
            core=partial(CoreNetwork, size=1),
        ),
    }
    task = GlimpseTask(**arguments, baseline=NoBaseline, batch_size=1)  # type: ignore[arg-type]
    centre = torch.tensor(CENTRES)
    weights = {
        "glimpse.patch.weight": torch.ones(1, 1),
        "glimpse.merge.weight": torch.tensor([[1.0, 0.0]]),
        "core.layers.0.glimpse.weight": torch.ones(1, 1),
        "core.layers.0.hidden.weight": torch.ones(1, 1),
        "location.mean.0.weight": torch.tensor([[0.5], [-0.5]]),
        "action.logits.0.weight": 4 * centre[:, None],
        "action.logits.0.bias": -2 * centre**2,
        "stop.logits.weight": torch.tensor([[0.0], [1.0]]),
        "stop.logits.bias": torch.tensor([0.0, -1.1]),
    }
    for name, parameter in task.agent.named_parameters():
        parameter.data = weights.get(name, torch.zeros_like(parameter))
    model = GlimpseTask.restore(task.state_dict(), arguments | {"seed": 0, "device": "cpu"})
    return task, model


A, B, E = range(3)
WITH_END = ("a", "b", END)


def _paths(looks: dict[float, int], longest: int) -> Tensor:
    """Where the agent looks at images of the given brightness until it has seen enough; then its last look repeats."""
    x = [[math.tanh(min(t, looks[v] - 1) * v / 2) for t in range(longest)] for v in looks]
    return torch.stack([torch.tensor(x), -torch.tensor(x)], dim=-1)


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (WITH_END, ("a b", "b", "a a a", "a a b", "")),
        (("a", "b", "c"), ("a b c", "b c c", "a a a", "a a b", "c c c")),
    ],
)
def test_several_answers_are_predicted_up_to_the_end(classes: tuple[str, ...], labels: tuple[str, ...]) -> None:
    _, model = _by_hand(_plain(0.5), [[A, A, A]], classes, glimpses_per_answer=2)
    brightness = (0.25, 0.5, 0.1, 0.15, 1.0)
    prediction = model.predict(_plain(*brightness))
    assert prediction.label == labels
    # Answers after looks 2, 4 and 6: (N, A, K), also those after the end.
    expected = torch.tensor([[_probability(t * v) for t in (2, 4, 6)] for v in brightness])
    torch.testing.assert_close(prediction.probability, expected)
    torch.testing.assert_close(prediction.location, _paths(dict.fromkeys(brightness, 6), 6))


def test_a_sequence_of_one_answer_is_predicted_when_it_is_due() -> None:
    _, model = _by_hand(_plain(0.5), [[A]], ("a", "b", "c"), glimpses_per_answer=3)
    prediction = model.predict(_plain(0.2, 0.4))  # h is 0.6 and 1.2 after three looks, twice as much after six
    assert prediction.label == ("a", "b")
    torch.testing.assert_close(prediction.probability, torch.tensor([_probability(0.6), _probability(1.2)]))
    assert prediction.location.shape == (2, 3, 2)


def test_predict_asks_for_nothing_that_the_agents_own_reward_needs() -> None:
    _, model = _by_hand(_plain(0.5), [A], ("a", "b", "c"))
    model.env = partial(model.env, reward=TargetDistance())
    assert model.predict(_plain(0.1, 0.5)).label == ("a", "c")


@pytest.mark.parametrize("rows", [3, 1000])
def test_an_image_is_in_error_if_any_of_its_answers_is_wrong(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("ram.tasks.glimpse._EVALUATION_ROWS", rows)
    scenes = [  # brightness, what is right, how many of the answers due are right, and whether all are
        (0.25, [A, B, E], 3, True),
        (0.25, [A, A, E], 2, False),  # one is wrong, in the middle
        (0.5, [B, E, IGNORE_INDEX], 2, True),  # no third is due
        (0.5, [A, B, A], 0, False),  # all are wrong, in one image
        (1.0, [E, IGNORE_INDEX, IGNORE_INDEX], 1, True),
        (1.0, [B, E, IGNORE_INDEX], 1, False),
        (0.15, [A, A, B], 3, True),
        (0.1, [A, A, B], 2, False),  # the last one alone is wrong
    ]
    brightness, labels, right, faultless = zip(*scenes, strict=True)
    task, _ = _by_hand(_plain(*brightness), list(labels), WITH_END, glimpses_per_answer=2)
    measured = task.evaluate("test")
    # A brightness looks the same everywhere: where the agent looks makes no difference.
    for name in ("error", "error_sampled", "error_mc", "error_random"):
        assert measured[name] == pytest.approx(100 * faultless.count(False) / 8)
    for name in ("return", "return_sampled", "return_random"):
        assert measured[name] == pytest.approx(sum(right) / 8)
    assert task.evaluate("validation")["error"] == pytest.approx(50)
    assert (task.monitor, task.maximize) == ("error", False)


def test_who_may_stop_is_measured_by_the_answer_and_the_looks_until_then() -> None:
    scenes = [  # brightness, looks until h exceeds 1.1, the class nearest to h by then, and the right class
        (1.0, 2, E, E),
        (0.6, 2, B, B),
        (0.5, 3, E, B),  # after two looks it would have been right, and after one look A
        (0.3, 4, B, E),  # after five looks it would have been right
        (0.1, 6, A, A),  # never stops
    ]
    brightness, looks, said, labels = zip(*scenes, strict=True)
    task, _ = _by_hand(_plain(*brightness), list(labels), ("a", "b", "c"), stop=True, reward=EarlyAnswer(0.1))
    measured = task.evaluate("test")
    right = [first == second for first, second in zip(said, labels, strict=True)]
    for suffix in ("", "_random"):
        assert measured[f"error{suffix}"] == pytest.approx(100 * right.count(False) / 5)
        assert measured[f"glimpses{suffix}"] == pytest.approx(sum(looks) / 5)
        assert measured[f"return{suffix}"] == pytest.approx((sum(right) - 0.1 * sum(looks)) / 5)
    assert (task.monitor, task.maximize) == ("return", True)


def test_who_may_stop_predicts_by_then_and_its_last_look_repeats() -> None:
    _, model = _by_hand(_plain(0.5), [A], ("a", "b", "c"), stop=True, reward=EarlyAnswer())
    looks = {1.0: 2, 0.6: 2, 0.5: 3, 0.3: 4, 0.1: 6}
    prediction = model.predict(_plain(*looks))
    assert prediction.label == ("c", "b", "c", "b", "a")
    expected = torch.tensor([_probability(count * v) for v, count in looks.items()])
    torch.testing.assert_close(prediction.probability, expected)
    torch.testing.assert_close(prediction.location, _paths(looks, 6))
    # There are as many looks as the slowest image needs.
    quick = {1.0: 2, 0.5: 3}
    torch.testing.assert_close(model.predict(_plain(*quick)).location, _paths(quick, 3))


@pytest.mark.parametrize("stop", [False, True])
def test_the_averaged_answers_of_an_image_are_those_of_averaged_probabilities(stop: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = 0.6 * torch.rand(60, 1, 8, 8, generator=generator)
    first, second = (torch.randint(3, (60,), generator=generator).tolist() for _ in range(2))
    several = [[one, IGNORE_INDEX if one == E else other] for one, other in zip(first, second, strict=True)]
    options = {"stop": True, "reward": EarlyAnswer()} if stop else {"glimpses_per_answer": 3}
    labels = [[one] for one in first] if stop else several
    task, _ = _by_hand(images, first if stop else several, WITH_END, **options)
    env = task._env("test", 60)
    env.reset(seed=task._row_seed)
    played = [
        evaluate_episodes(task.agent, env, torch.arange(60), task._row_seed, "sampled", number) for number in range(10)
    ]

    wrong = np.zeros((60, 11), bool)  # after every trajectory, and by their mean
    looks = np.full((60, 10), 6)
    for row, right in enumerate(labels):
        said = []
        for number, rollout in enumerate(played):
            stops = [look for look, action in enumerate(rollout.actions) if stop and action["stop"][row]]
            looks[row, number] = stops[0] + 1 if stops else 6
            due = [looks[row, number]] if stop else [3, 6]
            said.append([_probability(rollout.features[look - 1, row].item()) for look in due])
        for number, probabilities in enumerate([*said, np.mean(said, axis=0)]):
            answers = np.argmax(probabilities, axis=-1).tolist()
            wrong[row, number] = any(a != b for a, b in zip(answers, right, strict=True) if b != IGNORE_INDEX)

    measured = task.evaluate("test")
    assert measured["error_sampled"] == pytest.approx(100 * wrong[:, :10].mean())
    assert measured["error_mc"] == pytest.approx(100 * wrong[:, 10].mean())
    assert abs(measured["error_mc"] - measured["error_sampled"]) > 1  # so that they cannot be taken for one another
    if stop:
        assert measured["glimpses_sampled"] == pytest.approx(looks.mean())
        assert 1.5 < looks.mean() < 5.5


def test_pictures_are_drawn() -> None:
    pictures = _task().pictures("test")
    assert pictures.keys() == {"glimpses.png", "glimpses.gif", "locations.png"}
    still = pictures["glimpses.png"]
    assert isinstance(still, np.ndarray)
    assert still.dtype == np.uint8
    assert still.shape[-1] == 3


def test_the_state_of_other_classes_is_refused() -> None:
    with pytest.raises((KeyError, RuntimeError)):
        _task(_images(classes=3)).load_state_dict(_task(_images(classes=4)).state_dict())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"batch_size": 0}, r"task\.batch_size"),
        ({"batch_size": 41}, r"task\.batch_size"),
        ({"rollouts_per_image": 0}, r"task\.rollouts_per_image"),
        ({"gamma": 1.5}, r"task\.gamma"),
        ({"location_lr_scale": 0.0}, r"task\.location_lr_scale"),
        ({"weights": Weights(entropy=0.1)}, r"task\.weights\.entropy"),
        ({"baseline": LeaveOneOutBaseline}, r"task\.rollouts_per_image"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=name):
        _task(**options)


def _signpost(count: int) -> ImageSet:
    """The middle says in which corner the class stands; the other corners hold any class.

    One look at the middle and one at a corner: who looks where the sign points is always right, who looks anywhere
    else is right half the time.
    """
    random = RowRandom(torch.arange(count), torch.zeros(count, dtype=torch.long))
    corner, label = random.integers("corner", 4), random.integers("label", 2)
    bits = (random.uniform("bits", 4) < 0.5).long()
    bits[torch.arange(count), corner] = label
    images = torch.zeros(count, 1, 12, 12)
    for place, (row, column) in enumerate([(0, 0), (0, 8), (8, 0), (8, 8)]):
        images[:, 0, row : row + 4, column : column + 4] = 0.25 + 0.75 * bits[:, place, None, None]
        sign_row, sign_column = 4 + 2 * (row > 0), 4 + 2 * (column > 0)
        images[corner == place, 0, sign_row : sign_row + 2, sign_column : sign_column + 2] = 1
    return ImageSet(images, label, ("dark", "bright"))


def _error_after_training(policy: object) -> float:
    env = partial(
        GlimpseVectorEnv, images=_signpost(512), sensor=GlimpseSensor(4), num_glimpses=2, first_location="center"
    )
    agent = partial(
        RecurrentAttention,
        glimpse=partial(GlimpseNetwork, patch_features=32, location_features=32, output_size=32),
        core=partial(CoreNetwork, size=32),
        policy=policy,
    )
    task = GlimpseTask(env, agent, LeaveOneOutBaseline, batch_size=64, rollouts_per_image=4, seed=1)
    optimizer = torch.optim.Adam(task.parameters(), 3e-3)
    for step in range(800):
        loss = task(step).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return task.evaluate("validation")["error"]


def test_the_gaze_is_learnt() -> None:
    assert _error_after_training(partial(LocationNetwork, std=0.7)) < 15
    assert _error_after_training(RandomLocation) > 30
