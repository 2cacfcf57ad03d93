"""Training of the glimpse task: gradients, batches, metrics, diagnostics and options."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from envs import GlimpseSensor, GlimpseVectorEnv, InputError
from envs.images import ImageSet
from envs.random import RowRandom
from ram.agent import RecurrentAttention
from ram.baselines import LearnedBaseline, LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.policies import LocationNetwork, RandomLocation
from ram.rollout import run_episode
from ram.tasks import Animation
from ram.tasks.glimpse import GlimpseTask
from ram.tasks.glimpse_weights import LossWeights
from tests.ram.glimpse_tasks import build_task, random_images


def _trained_by(task: GlimpseTask, loss: Tensor) -> set[str]:
    """Returns the networks that have a gradient of a loss."""
    task.zero_grad()
    loss.backward(retain_graph=True)
    with_gradient = {
        name for name, value in task.named_parameters() if value.grad is not None and value.grad.abs().max() > 0
    }
    return {".".join(name.split(".")[:2]) for name in with_gradient}


def _weights(**weights: float) -> LossWeights:
    return LossWeights(**({"answer": 0.0, "baseline": 0.0} | weights))


def test_the_supervised_loss_does_not_train_the_location_network() -> None:
    task = build_task()
    rollout = run_episode(task.agent, task.env, {"location": torch.randn(3, 8, 2)}, {"episode": 0})
    answer = torch.nn.functional.cross_entropy(rollout.logits.flatten(0, 1), rollout.targets.flatten())
    assert _trained_by(task, answer) == {"agent.glimpse", "agent.core", "agent.action"}


def test_the_policy_loss_trains_only_the_location_network() -> None:
    task = build_task(weights=_weights())
    losses = [task(step).loss for step in range(5)]  # with a correct answer in some step
    assert set().union(*(_trained_by(task, loss) for loss in losses)) == {"agent.location"}


def test_backprop_into_core_lets_the_policy_loss_train_the_core() -> None:
    task = build_task(policy=partial(LocationNetwork, backprop_into_core=True), weights=_weights())
    torch.nn.init.normal_(task.agent.location.mean[0].weight)  # it begins at 0
    losses = [task(step).loss for step in range(5)]
    assert set().union(*(_trained_by(task, loss) for loss in losses)) == {
        "agent.location",
        "agent.core",
        "agent.glimpse",
    }


def test_the_location_network_has_a_learning_rate_of_its_own() -> None:
    task = build_task(policy=partial(LocationNetwork, lr_scale=0.25))
    others, location = task.parameter_groups()
    assert (others["lr_scale"], location["lr_scale"]) == (1.0, 0.25)
    assert [id(value) for value in location["params"]] == [id(value) for value in task.agent.location.parameters()]
    assert len(others["params"]) + len(location["params"]) == len(list(task.parameters()))
    (together,) = build_task(policy=partial(LocationNetwork, lr_scale=1.0)).parameter_groups()
    assert len(together["params"]) == len(list(task.parameters()))


def test_the_baseline_loss_trains_only_the_baseline() -> None:
    task = build_task(baseline=LearnedBaseline, weights=_weights(baseline=1.0))
    for parameter in task.agent.location.parameters():
        parameter.requires_grad_(False)
    assert _trained_by(task, task(0).loss) == {"baseline.head"}


def test_backprop_into_core_lets_the_baseline_loss_train_the_core() -> None:
    task = build_task(baseline=partial(LearnedBaseline, backprop_into_core=True), weights=_weights(baseline=1.0))
    for parameter in task.agent.location.parameters():
        parameter.requires_grad_(False)
    assert _trained_by(task, task(0).loss) == {"baseline.head", "agent.core", "agent.glimpse"}


@pytest.mark.parametrize("num_glimpses", [1, 2, 5])
def test_the_first_and_the_unused_last_location_are_not_scored(num_glimpses: int) -> None:
    task = build_task(num_glimpses=num_glimpses)
    rollout = run_episode(task.agent, task.env, {"location": torch.randn(num_glimpses, 8, 2)}, {"episode": 0})
    # The first location is given, so num_glimpses - 1 choices are scored, each in the step before its look.
    assert rollout.mask.sum(0).tolist() == [num_glimpses - 1] * 8
    assert not rollout.mask[-1].any()


def test_with_one_glimpse_the_policy_loss_has_no_gradient() -> None:
    task = build_task(num_glimpses=1, weights=_weights())
    assert _trained_by(task, task(0).loss) == set()


def test_the_last_location_sample_has_no_effect() -> None:
    task = build_task(weights=_weights())
    noise = torch.randn(3, 8, 2)
    other = noise.clone()
    other[-1] += 1
    rollouts = [run_episode(task.agent, task.env, {"location": each}, {"episode": 0}) for each in (noise, other)]
    assert torch.equal(rollouts[0].location, rollouts[1].location)
    assert torch.equal(rollouts[0].logits, rollouts[1].logits)
    assert torch.equal(rollouts[0].reward, rollouts[1].reward)


def test_the_unclamped_sample_is_scored_and_the_clamped_one_is_sent() -> None:
    task = build_task()
    noise = torch.full((3, 8, 2), 20.0)
    rollout = run_episode(task.agent, task.env, {"location": noise}, {"episode": 0})
    assert rollout.sample[:-1].min() > 1
    assert torch.equal(rollout.location[1:], torch.ones(2, 8, 2))
    expected = task.agent.location(rollout.features, torch.arange(3)).log_prob(rollout.sample)
    torch.testing.assert_close(rollout.log_prob, expected)


def test_the_answer_is_due_at_the_last_step() -> None:
    task = build_task()
    rollout = run_episode(
        task.agent, task.env, {"location": torch.randn(3, 8, 2)}, {"episode": 0, "index": torch.arange(8)}
    )
    assert rollout.logits.shape == (1, 8, 3)
    assert torch.equal(rollout.targets[-1], random_images().labels[:8])
    correct = rollout.logits[-1].argmax(-1) == rollout.targets[-1]
    assert torch.equal(rollout.reward.sum(0), correct.float())


def test_an_epoch_is_a_new_permutation_of_the_images() -> None:
    task = build_task(batch_size=8)
    epochs = [torch.cat([task._batches(step) for step in range(5 * epoch, 5 * epoch + 5)]) for epoch in range(2)]
    assert all(torch.equal(epoch.sort().values, torch.arange(40)) for epoch in epochs)
    assert not torch.equal(*epochs)


def test_a_step_is_a_function_of_seed_and_step() -> None:
    task, again, other = build_task(seed=3), build_task(seed=3), build_task(seed=4)
    for _ in range(3):
        task(0)  # earlier steps have no effect
    assert torch.equal(task(7).loss, again(7).loss)
    assert not torch.equal(task(7).loss, other(7).loss)


def test_runs_of_different_seeds_share_no_noise() -> None:
    first, second = build_task(seed=0), build_task(seed=1)
    noise = torch.cat([task._noise(0)["location"] for task in (first, second)], dim=1).transpose(0, 1).flatten(1)
    assert len(noise.unique(dim=0)) == 16


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline, LeaveOneOutBaseline])
def test_every_baseline_trains_and_reports_the_documented_metrics(baseline: type) -> None:
    policy = partial(LocationNetwork, final_std=None, learn_std=True)
    weights = LossWeights(policy=0.5, answer=2.0, baseline=3.0, entropy=0.1)
    task = build_task(
        policy=policy, baseline=baseline, rollouts_per_image=2, weights=weights, patch_reward=1.0, gamma=0.5
    )
    result = task(0)
    result.loss.backward()
    metrics = result.metrics()
    assert {"loss/policy", "loss/answer", "loss/baseline", "policy/entropy"} <= metrics.keys()
    assert result.loss.item() == pytest.approx(
        0.5 * metrics["loss/policy"]
        + 2 * metrics["loss/answer"]
        + 3 * metrics["loss/baseline"]
        + metrics["loss/patch"]
        - 0.1 * metrics["policy/entropy"],
        rel=1e-5,
    )


def test_diagnostics_change_no_state_and_repeat() -> None:
    task = build_task(baseline=MovingAverageBaseline)
    task(0)
    before = {name: value.clone() for name, value in task.state_dict().items() if isinstance(value, Tensor)}
    first, second = task.diagnostics(1), task.diagnostics(2)
    assert first == second
    assert first["grad/variance_location"] > 0
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items() if name in before)
    assert task.training


def test_the_gradient_variance_is_that_of_single_episodes() -> None:
    task = build_task(images=random_images(8))
    task.agent.requires_grad_(True)
    env = task._env("train", 8, 1)
    env.reset(seed=task._row_seed)
    gradients = []
    rollout = run_episode(task.agent, env, task._noise(0, env), {"index": torch.arange(8), "episode": 0})
    for row in range(8):
        score = (rollout.log_prob[:-1, row] * rollout.reward[-1, row]).sum()
        gradient = torch.autograd.grad(score, list(task.agent.location.parameters()), retain_graph=True)
        gradients.append(torch.cat([each.flatten() for each in gradient]))
    expected = torch.stack(gradients).var(0).sum().item()
    metrics = task.diagnostics(0)
    assert metrics["grad/variance_location"] == pytest.approx(expected, rel=1e-4)
    assert metrics["grad/variance_ratio"] > 1  # there is no baseline


def test_leave_one_out_reduces_the_gradient_variance() -> None:
    task = build_task(baseline=LeaveOneOutBaseline, rollouts_per_image=8)
    assert task.diagnostics(0)["grad/variance_ratio"] < 0.9


def test_artifacts_show_the_glimpses_and_the_locations() -> None:
    artifacts = build_task().pictures("test")
    assert artifacts.keys() == {"glimpses.png", "glimpses.gif", "locations.png"}
    image, animation, locations = (artifacts[name] for name in ("glimpses.png", "glimpses.gif", "locations.png"))
    assert isinstance(image, np.ndarray) and isinstance(animation, Animation) and isinstance(locations, np.ndarray)
    assert len(animation.frames) == 4  # the first look, and one frame for each of three actions
    assert np.array_equal(animation.frames[-1], image)
    assert all(frame.shape == image.shape and frame.dtype == np.uint8 for frame in animation.frames)
    assert all(
        (first != second).any() for first, second in zip(animation.frames[:2], animation.frames[1:3], strict=True)
    )
    assert locations.dtype == np.uint8 and locations.shape[2] == 3 and locations.shape[1] > 2 * locations.shape[0]


def test_a_state_with_other_classes_is_refused() -> None:
    with pytest.raises((KeyError, RuntimeError)):
        build_task(random_images(classes=3)).load_state_dict(build_task(random_images(classes=4)).state_dict())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"batch_size": 0}, r"task\.batch_size"),
        ({"batch_size": 41}, r"task\.batch_size"),
        ({"rollouts_per_image": 0}, r"task\.rollouts_per_image"),
        ({"gamma": 1.5}, r"task\.gamma"),
        ({"weights": partial(LossWeights, policy=math.nan)}, r"task\.weights\.policy"),
        ({"weights": partial(LossWeights, patch=-1.0)}, r"task\.weights\.patch"),
        ({"weights": LossWeights(entropy=0.1)}, r"task\.weights\.entropy"),
        ({"baseline": LeaveOneOutBaseline}, r"task\.rollouts_per_image"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=name):
        build_task(**{key: value() if isinstance(value, partial) else value for key, value in options.items()})


def _signpost_images(count: int) -> ImageSet:
    """Returns images whose center shows which corner has the class; the other corners are random.

    With one look at the center and one at a corner, a policy that follows the sign is always correct, any other policy
    in half of the images.
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
        GlimpseVectorEnv, images=_signpost_images(512), sensor=GlimpseSensor(4), num_glimpses=2, first_location="center"
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


def test_the_location_policy_is_learned() -> None:
    assert _error_after_training(partial(LocationNetwork, std=0.7)) < 15
    assert _error_after_training(RandomLocation) > 30


def test_images_of_one_class_are_refused() -> None:
    with pytest.raises(InputError, match=r"^All images have the label 'a': there must be another\.$"):
        build_task(images=random_images(classes=1))
