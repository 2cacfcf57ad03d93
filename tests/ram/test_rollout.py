"""Rollouts: scored choices, their log-probabilities, and supervised answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.random import RowRandom
from envs.rewards import Transition
from envs.rewards.answers import EarlyAnswer
from envs.rewards.targets import BoxOverlap
from envs.rewards.weighted_sum import WeightedSum
from envs.scene import Scene
from envs.splits import IGNORE_INDEX, Split
from ram.agent import RecurrentAttention
from ram.baselines import NoBaseline
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.policies import ActionNetwork, LocationNetwork
from ram.reinforce import reinforce
from ram.rollout import GlimpseRollout, draw_noise, run_episode


@dataclass(frozen=True)
class NoiseScenes:
    """Scenes with given annotations; scene i is its own noise image."""

    annotations: Mapping[str, Tensor]
    classes: tuple[str, ...] = ("a", "b", "c")

    __hash__ = object.__hash__

    def load(self, split: Split, device: torch.device | str = "cpu") -> NoiseScenes:
        return self

    def __len__(self) -> int:
        return len(next(iter(self.annotations.values())))

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        images = RowRandom(index, index).uniform("image", 1, 6, 6)
        return Scene(images, {name: value[index] for name, value in self.annotations.items()})


class Walk(NoiseScenes):
    """Scenes with a number that answers change by -1, 0 or 1."""

    horizon = 1

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        return self.advance({"number": torch.zeros_like(index)}, torch.ones_like(index))

    def advance(self, annotations: Mapping[str, Tensor], answer: Tensor) -> Scene:
        number = annotations["number"] + answer - 1
        return Scene((number.float() / 10 + 0.5)[:, None, None, None].expand(-1, 1, 6, 6), {"number": number})


@dataclass(frozen=True)
class Number:
    def __call__(self, transition: Transition) -> Tensor:
        return transition.number.float() * transition.last  # type: ignore[attr-defined]


LABELS = NoiseScenes({"label": torch.tensor([0, 1, 2])})


def build(images: Any, **options: Any) -> tuple[RecurrentAttention, GlimpseVectorEnv]:
    torch.manual_seed(0)
    options = {"num_envs": 3, "num_glimpses": 3, "output": "torch", "autoreset_mode": "Disabled"} | options
    env = GlimpseVectorEnv(images, GlimpseSensor(3), **options)
    env.reset(seed=0)
    agent = RecurrentAttention(
        **env.interface,
        glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=16),
        core=partial(CoreNetwork, size=16),
    )
    return agent, env


def rollout_of(agent: RecurrentAttention, env: GlimpseVectorEnv, seed: int = 0, **options: Any) -> GlimpseRollout:
    rows = torch.arange(env.num_envs)
    noise = draw_noise(RowRandom(rows + 100 * seed, rows), env)
    return run_episode(agent, env, noise, {"index": rows % len(env.scenes)}, **options)


def force_stops(agent: RecurrentAttention, probability: float) -> None:
    assert agent.stop is not None
    agent.stop.logits.bias.data = torch.tensor([1 - probability, probability]).log()


def test_each_of_several_answers_has_its_own_target() -> None:
    scenes = NoiseScenes({"label": torch.tensor([[0, 1], [2, IGNORE_INDEX], [1, 1]])})
    rollout = rollout_of(*build(scenes, num_glimpses=4, glimpses_per_answer=2))
    assert rollout.logits is not None
    assert rollout.logits.shape == (2, 3, 3)
    assert rollout.targets is not None
    assert rollout.targets.tolist() == [[0, 2, 1], [1, IGNORE_INDEX, 1]]
    # The second scene ended with its only answer, after look 2.
    assert rollout.moved.tolist() == [[True] * 3, [True, False, True], [True, False, True], [False] * 3]
    assert torch.equal(rollout.mask, rollout.moved)


def test_a_stop_is_scored_before_the_last_look_and_its_answer_has_a_target() -> None:
    agent, env = build(NoiseScenes({"label": torch.arange(64) % 3}), num_envs=64, stop=True, reward=EarlyAnswer(0.1))
    force_stops(agent, 0.5)
    rollout = rollout_of(agent, env)
    stopped = torch.stack([action["stop"] for action in rollout.actions]) == 1
    assert agent.stop is not None
    assert rollout.targets is not None
    active = torch.ones(64, dtype=torch.bool)
    lengths = set()
    for step in range(3):
        scored = active if step < 2 else torch.zeros_like(active)  # the last look ends the episode anyway
        assert torch.equal(rollout.mask[step], scored)
        continues = active & ~stopped[step] & torch.tensor(step < 2)
        assert torch.equal(rollout.moved[step], continues)
        ended = active & ~continues
        assert torch.equal(rollout.targets[step] != IGNORE_INDEX, ended)
        stop_log_prob = agent.stop(rollout.features[step]).log_prob(rollout.actions[step]["stop"])
        location_log_prob = agent.location(rollout.features[step], torch.tensor(step)).log_prob(rollout.sample[step])
        expected = torch.where(continues, location_log_prob, 0) + stop_log_prob
        torch.testing.assert_close(rollout.log_prob[step][scored], expected[scored])
        lengths |= {step} if ended.any() else set()
        active = continues
    assert lengths == {0, 1, 2}
    # The return of a correct answer after n looks is 1 - n / 10.
    looks = 1 + rollout.moved.sum(0)
    assert torch.equal(rollout.num_glimpses(), looks.float())
    assert rollout.logits is not None
    correct = ((rollout.logits.argmax(-1) == rollout.targets) & (rollout.targets != IGNORE_INDEX)).any(0)
    torch.testing.assert_close(rollout.reward.sum(0), correct.float() - 0.1 * looks)


def test_the_rollout_ends_when_all_rows_have_stopped() -> None:
    agent, env = build(LABELS, stop=True)
    force_stops(agent, 1 - 1e-9)
    rollout = rollout_of(agent, env)
    assert rollout.reward.shape == (1, 3)
    assert not rollout.moved.any()


def test_answers_without_labels_are_sampled_and_scored() -> None:
    agent, env = build(Walk({"number": torch.zeros(3)}), num_envs=200, glimpses_per_answer=1, reward=Number())
    rollout = rollout_of(agent, env)
    assert rollout.logits is None
    assert rollout.targets is None
    answers = torch.stack([action["answer"] for action in rollout.actions])
    assert answers.unique().tolist() == [0, 1, 2]
    assert torch.equal(rollout.reward.sum(0), (answers - 1).sum(0).float())
    assert rollout.mask.all()  # the last answer still changes the number
    assert agent.action is not None
    location = agent.location(rollout.features, torch.arange(len(answers))).log_prob(rollout.sample)
    expected = agent.action(rollout.features).log_prob(answers) + torch.where(rollout.moved, location, 0)
    torch.testing.assert_close(rollout.log_prob, expected)


def test_greedy_choices_are_the_modes() -> None:
    builds = [build(Walk({"number": torch.zeros(3)}), glimpses_per_answer=1, reward=Number()) for _ in range(2)]
    first, second = (rollout_of(*each, seed, greedy=True) for seed, each in enumerate(builds))
    agent = builds[0][0]
    assert all(torch.equal(a["answer"], b["answer"]) for a, b in zip(first.actions, second.actions, strict=True))
    assert agent.action is not None
    mode = agent.action(first.features).logits.argmax(-1)
    assert torch.equal(torch.stack([action["answer"] for action in first.actions]), mode)


def test_a_box_is_scored_as_sampled_and_sent_clamped() -> None:
    target = torch.tensor([[-0.5, -0.5, 0.5, 0.5]]).expand(3, 4)
    agent, env = build(NoiseScenes({"target": target}), answer="box", num_glimpses=2, reward=BoxOverlap())
    noise = dict(draw_noise(RowRandom(torch.arange(3), torch.arange(3)), env))
    noise["answer"] = torch.full_like(noise["answer"], 20.0)
    rollout = run_episode(agent, env, noise, {"index": torch.arange(3)})
    assert torch.equal(rollout.actions[-1]["answer"], torch.ones(3, 4))
    assert agent.action is not None
    box = agent.action(rollout.features[-1])
    torch.testing.assert_close(rollout.log_prob[-1], box.log_prob(box.mean + 20 * box.std))
    assert rollout.mask.all()


def test_a_box_at_the_end_is_scored_once() -> None:
    target = torch.tensor([[-0.5, -0.5, 0.5, 0.5]]).expand(4, -1)
    agent, env = build(NoiseScenes({"target": target}), answer="box", num_glimpses=3, reward=BoxOverlap())
    noise = {"location": torch.zeros(3, env.num_envs, 2), "answer": torch.ones(3, env.num_envs, 4)}
    rollout = run_episode(agent, env, noise, {"episode": 0})
    location = agent.location(rollout.features, torch.arange(3))
    torch.testing.assert_close(rollout.log_prob[:-1], location.log_prob(rollout.sample)[:-1])
    box = agent.action(rollout.features[-1])
    torch.testing.assert_close(rollout.log_prob[-1], box.log_prob(box.mean + box.std))


def test_components_of_the_reward_are_recorded() -> None:
    reward = WeightedSum({"early": EarlyAnswer(0.1), "again": EarlyAnswer(0.0)}, {"again": 2.0})
    rollout = rollout_of(*build(LABELS, reward=reward))
    assert rollout.components.keys() == {"reward/early", "reward/again"}
    torch.testing.assert_close(sum(rollout.components.values()), rollout.reward)


def test_the_mean_estimate_of_sampled_answers_is_the_exact_gradient() -> None:
    """All nine sequences of two answers, under a grid of equally probable noise; the reward is the final number."""
    side = 150
    walk = Walk({"number": torch.zeros(1)})
    agent, env = build(walk, num_envs=side * side, num_glimpses=2, glimpses_per_answer=1, reward=Number())
    assert isinstance(agent.action, ActionNetwork)
    torch.nn.init.normal_(agent.action.logits[0].weight, std=0.5, generator=torch.Generator().manual_seed(1))
    parameter = agent.action.logits[0].weight
    quantiles = torch.special.ndtri((torch.arange(side) + 0.5) / side)
    noise = {
        "location": torch.zeros(2, side * side, 2),
        "answer": torch.stack([quantiles.repeat_interleave(side), quantiles.repeat(side)])[..., None],
    }
    options = {"index": torch.zeros(side * side, dtype=torch.long), "location": torch.zeros(side * side, 2)}
    rollout = run_episode(agent, env, noise, options)
    loss = reinforce(rollout, NoBaseline(16, 1)).policy_loss
    (estimate,) = torch.autograd.grad(-loss, parameter)

    answers = torch.stack([action["answer"] for action in rollout.actions])
    sequence = 3 * answers[0] + answers[1]
    rows = [int((sequence == number).nonzero()[0]) for number in range(9)]  # one row for each sequence
    again = run_episode(agent, env, noise, options)
    log_prob = agent.action(again.features).log_prob(answers).sum(0)
    expected_return = (log_prob[rows].exp() * rollout.reward.sum(0)[rows]).sum()
    assert float(log_prob.detach()[rows].exp().sum()) == pytest.approx(1, abs=1e-5)
    (exact,) = torch.autograd.grad(expected_return, parameter)
    torch.testing.assert_close(estimate, exact, rtol=0.05, atol=0.02 * float(exact.abs().max()))


def test_the_policy_loss_trains_the_upper_layer_and_the_context_and_answers_train_the_lower_layer() -> None:
    torch.manual_seed(0)
    env = GlimpseVectorEnv(
        LABELS, GlimpseSensor(3), num_envs=3, num_glimpses=3, output="torch", autoreset_mode="Disabled", context_size=4
    )
    env.reset(seed=0)
    upper, lower = {"core.layers.1", "context.layers", "location.mean"}, {"core.layers.0", "glimpse"}

    def trained(agent: RecurrentAttention, loss: Tensor) -> set[str]:
        agent.zero_grad()
        loss.backward(retain_graph=True)
        names = [name for name, value in agent.named_parameters() if value.grad is not None and value.grad.any()]
        return {part for part in upper | lower | {"action"} if any(name.startswith(part) for name in names)}

    for backprop_into_core in (False, True):
        agent = RecurrentAttention(
            **env.interface,
            core=partial(CoreNetwork, cell="lstm", size=16, num_layers=2),
            policy=partial(LocationNetwork, backprop_into_core=backprop_into_core),
        )
        torch.nn.init.normal_(agent.location.mean[0].weight)  # it begins at 0
        rollout = rollout_of(agent, env)
        assert rollout.logits is not None
        assert trained(agent, rollout.log_prob[rollout.moved].sum()) == (upper | lower if backprop_into_core else upper)
        assert trained(agent, rollout.logits.square().sum()) == lower | {"action"}


def test_pointing_compares_the_last_look_with_the_target() -> None:
    box = torch.tensor([[-0.5, -1.0, 0.0, 0.5]])
    scenes = NoiseScenes({"label": torch.zeros(4, dtype=torch.long), "target": box.expand(4, 4)})
    rollout = rollout_of(*build(scenes, num_envs=4, num_glimpses=3))
    assert torch.equal(rollout.target, box.expand(4, 4))
    active = torch.tensor([[True] * 4, [True, True, False, True], [True, False, False, True]])
    location = torch.full((3, 4, 2), 0.9)
    location[2, 0] = torch.tensor([-0.5, 0.5])  # on the corner of the box
    location[1, 1] = torch.tensor([-0.2, -0.9])  # the last look of row 1
    location[1, 2] = torch.tensor([-0.2, -0.9])  # after the end of row 2
    location[2, 3] = torch.tensor([-0.2, 0.6])  # below
    pointing = replace(rollout, active=active, location=location).pointing()
    assert pointing.tolist() == [True, True, False, False]
    assert replace(rollout, target=None).pointing() is None
