"""The reward of locations for the log-probability of the label given their patch alone."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from envs import GlimpseSensor, GlimpseVectorEnv, InputError
from envs.catch import Catch, Caught
from envs.images import ImageSet
from envs.splits import IGNORE_INDEX
from ram.agent import RecurrentAttention
from ram.baselines import NoBaseline
from ram.reinforce import discounted_returns
from ram.rollout import GlimpseRollout, run_episode
from ram.tasks.glimpse import GlimpseTask
from ram.tasks.glimpse_weights import LossWeights
from tests.ram.glimpse_tasks import build_task, random_images


def rollout_of(task: GlimpseTask, step: int = 0) -> GlimpseRollout:
    return run_episode(task.agent, task.env, task._noise(step), {"index": task._batches(step), "episode": step})


def patch_log_prob_of(task: GlimpseTask, rollout: GlimpseRollout, labels: Tensor) -> Tensor:
    """The log-probability of labels (T, B), from the weights of the classifier."""
    layer = task.patch_classifier.logits
    probability = (rollout.patch_features @ layer.weight.T + layer.bias).exp()
    return (probability / probability.sum(-1, keepdim=True)).gather(-1, labels[..., None])[..., 0].log()


def test_the_next_glimpse_rewards_a_location_without_discount() -> None:
    task = build_task(patch_reward=0.5, gamma=0.9, baseline=NoBaseline)
    rollout = rollout_of(task)
    labels = task.env.scenes.labels[task._batches(0)]
    log_prob = patch_log_prob_of(task, rollout, labels.expand(3, 8))
    expected = discounted_returns(rollout.reward, 0.9)
    expected[:2] += 0.5 * log_prob[1:].clamp(min=-4)
    estimate = task._estimate(rollout, task._patch_log_prob(rollout))
    torch.testing.assert_close(estimate.returns, expected)
    torch.testing.assert_close(estimate.advantage, expected)
    result = task(0)
    assert result.metrics()["loss/patch"] == pytest.approx(-float(log_prob.detach().mean()))


def test_the_reward_is_at_least_minus_four_nats() -> None:
    task = build_task(patch_reward=1.0)
    rollout = rollout_of(task)
    layer = task.patch_classifier.logits
    layer.weight.data.zero_()
    layer.bias.data = torch.tensor([0.0, 50.0, 50.0])
    labels = task.env.scenes.labels[task._batches(0)]
    returns = task._estimate(rollout, task._patch_log_prob(rollout)).returns - discounted_returns(rollout.reward)
    expected = torch.where(labels == 0, -4.0, -math.log(2))
    torch.testing.assert_close(returns[:2], expected.expand(2, 8))
    assert not returns[2].any()


def test_the_label_is_that_of_the_answer_that_is_due_next() -> None:
    labels = torch.tensor([[0, 1], [2, IGNORE_INDEX]] * 4)
    images = ImageSet(torch.rand(8, 1, 10, 10), labels, ("a", "b", "c"))
    task = build_task(images, num_glimpses=4, glimpses_per_answer=2, patch_reward=1.0)
    rollout = rollout_of(task)
    shown = labels[task._batches(0)]
    due = torch.stack([shown[:, 0], shown[:, 0], shown[:, 1], shown[:, 1]])
    expected = torch.where(due == IGNORE_INDEX, 0, patch_log_prob_of(task, rollout, due.clamp(min=0)))
    assert torch.equal(due != IGNORE_INDEX, rollout.active)
    torch.testing.assert_close(task._patch_log_prob(rollout), expected)
    immediate = task._estimate(rollout, expected).returns - discounted_returns(rollout.reward)
    # Where the episode goes on, the log-probability given the next patch; where it has ended, nothing.
    torch.testing.assert_close(immediate[:3], torch.where(due[1:] == IGNORE_INDEX, 0, expected[1:]))


def test_the_patch_loss_trains_the_patch_features_and_the_classifier() -> None:
    task = build_task(patch_reward=1.0)
    task._patch_log_prob(rollout_of(task)).sum().backward()
    trained = {name for name, value in task.named_parameters() if value.grad is not None and value.grad.any()}
    layers = (
        "agent.glimpse.patch",
        "patch_classifier.logits",
    )  # the location would tell the class that the agent believes
    assert trained == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def test_the_patch_loss_has_a_weight() -> None:
    losses = [build_task(patch_reward=1.0, weights=LossWeights(patch=weight))(0) for weight in (0.0, 2.0)]
    difference = float((losses[1].loss - losses[0].loss).detach())
    assert difference == pytest.approx(2 * losses[0].metrics()["loss/patch"], rel=1e-4)


def test_without_the_reward_there_is_no_classifier() -> None:
    task = build_task()
    assert task.patch_classifier is None and "loss/patch" not in task(0).metrics()


@pytest.mark.parametrize("reward", [-1.0, math.nan, math.inf])
def test_invalid_rewards_are_refused(reward: float) -> None:
    with pytest.raises(InputError, match=r"^task\.patch_reward must be a number of at least 0"):
        build_task(patch_reward=reward)


def test_scenes_without_labels_are_refused() -> None:
    env = partial(GlimpseVectorEnv, Catch(size=8), num_glimpses=7, glimpses_per_answer=1, reward=Caught())
    with pytest.raises(InputError, match=r"^task\.patch_reward needs answers that are classes"):
        GlimpseTask(env, RecurrentAttention, NoBaseline, batch_size=8, patch_reward=1.0)


def test_a_stop_must_not_be_rewarded() -> None:
    env = partial(GlimpseVectorEnv, random_images(), GlimpseSensor(4), num_glimpses=3, stop=True)
    with pytest.raises(InputError, match=r"^task\.patch_reward would reward stops: set env\.stop=false"):
        GlimpseTask(env, RecurrentAttention, NoBaseline, batch_size=8, patch_reward=1.0)
