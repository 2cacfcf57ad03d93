"""Rollouts: episodes of an agent in a vector environment, and the log-probabilities of its choices.

A choice is scored by REINFORCE if it can change the reward. Not scored are locations sampled at or after the step that
ends an episode, because no glimpse follows; the stop at the last look, because the episode ends anyway; and answers
where none is due. The first location is drawn by the environment. Where there are labels, the answer is the most
probable class and is trained by cross-entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from envs import GlimpseVectorEnv
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX
from ram.agent import RecurrentAttention
from ram.distributed import global_mean
from ram.distributions import Distribution
from ram.policies import RandomLocation
from ram.reinforce import Rollout, masked_mean
from ram.unroll import StepOutput, Unroll

Behavior = Literal["greedy", "sampled", "random"]
"""Choices of an evaluation: modes of the policies, samples of them, or modes with uniformly random locations."""

Noise = Mapping[str, Tensor]
"""Standard normal numbers (T, B, n) for every kind of choice: ``location``, ``answer``, ``stop``."""

_Step = dict[str, Tensor]
"""One step of all rows: entries of :class:`GlimpseRollout`, and the choices of stop and answer and their masks."""

_Action = dict[str, Tensor]


@dataclass(frozen=True)
class GlimpseRollout(Rollout):
    """Episodes of glimpses.

    Attributes:
        entropies: for every kind of choice its entropy in nats, (T, B) or a scalar, with gradient; and a mask (T, B),
            True where the choice is scored.
        components: the terms of the reward by name, (T, B) each; empty if the reward has no terms.
        logits: (A, B, K), of the answers after the A looks at which answers are due; with gradient. None where the
            environment gives no labels: answers are then sampled, and part of ``log_prob``.
        targets: (A, B) int64, the labels of the answers, IGNORE_INDEX in rows where none is due; None as ``logits``.
        location: (T, B, 2), the location of each look.
        sample: (T, B, 2), the next locations as sampled, before clamping.
        moved: (T, B) bool, True where the episode continues at the sampled location.
        actions: the T actions sent to the environment.
        patch_features: (T, B, D), h_g of each look; with gradient.
        labels: (B,) or (B, A) int64, of the images; None as ``logits``.
        target: (B, 4), the box of the target object as left, top, right and bottom; None where there is none.
    """

    entropies: Sequence[tuple[Tensor, Tensor]]
    components: Mapping[str, Tensor]
    logits: Tensor | None
    targets: Tensor | None
    location: Tensor
    sample: Tensor
    moved: Tensor
    actions: Sequence[Mapping[str, Tensor]]
    patch_features: Tensor
    labels: Tensor | None
    target: Tensor | None

    def entropy(self) -> Tensor:
        """Returns the mean entropy of the scored choices in nats, summed over their kinds; with gradient."""
        first, *others = [global_mean(masked_mean(values, mask), mask) for values, mask in self.entropies]
        return sum(others, first)

    def num_glimpses(self) -> Tensor:
        """Returns the number of looks of every row: (B,) float32."""
        return 1 + self.moved.float().sum(0)

    def pointing(self) -> Tensor | None:
        """Returns whether the last look of every row is at the target object: (B,) bool; None without targets."""
        if self.target is None:
            return None
        last = self.location[self.active.sum(0) - 1, torch.arange(len(self.target), device=self.target.device)]
        return ((last >= self.target[:, :2]) & (last <= self.target[:, 2:])).all(-1)

    def final_answers(self, several: bool) -> tuple[Tensor, Tensor]:
        """Returns class probabilities (A, B, K) and targets (A, B) of the answers that are evaluated.

        Args:
            several: whether an image has several answers, all of which are evaluated. Otherwise A is 1: the last answer
                of each row.
        """
        assert self.logits is not None
        assert self.targets is not None
        if several:
            return self.logits.softmax(-1), self.targets
        number = torch.arange(len(self.targets), device=self.targets.device)[:, None]
        last = torch.where(self.targets != IGNORE_INDEX, number, 0).amax(0, keepdim=True)
        return self.logits.take_along_dim(last[..., None], 0).softmax(-1), self.targets.gather(0, last)


def draw_noise(random: RowRandom, env: GlimpseVectorEnv, name: str = "policy") -> Noise:
    """Draws the noise of all choices of an episode for the rows of ``random``."""
    widths = {"location": 2}
    if env.answer and not env.answer_schedule.is_supervised:
        widths["answer"] = 4 if env.answer == "box" else 1
    if env.stop:
        widths["stop"] = 1
    return {
        choice: random.normal(f"{name}/{choice}", env.num_glimpses, width).transpose(0, 1)
        for choice, width in widths.items()
    }


def run_episode(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    noise: Noise,
    options: Mapping[str, Any],
    greedy: bool = False,
    location: nn.Module | None = None,
) -> GlimpseRollout:
    """Runs one episode in every row.

    Where the environment gives labels, the answer is the most probable class, and its logits are returned for the
    supervised loss. Elsewhere the answer is sampled and scored, as all other choices are.

    Args:
        agent: the agent.
        env: the environment, with torch output and autoreset disabled.
        noise: from :func:`draw_noise`.
        options: of ``env.reset``.
        greedy: choose the modes of the policies instead of samples.
        location: a location network that replaces the agent's.
    """
    location = location or agent.location

    def choose(policy: Distribution, kind: str, number: int) -> Tensor:
        return policy.mode(noise[kind][number]) if greedy else policy.sample(noise[kind][number])

    without_autocast = torch.autocast(env.device.type, enabled=False)  # patches, locations and rewards stay float32
    with without_autocast:
        observation, info = env.reset(options=options)
    labels, target = info["label"] if env.answer_schedule.is_supervised else None, info.get("target")
    active = torch.ones_like(info["index"], dtype=torch.bool)
    numbers = torch.arange(env.num_glimpses, device=active.device)
    unroll, steps, actions = agent.unroll(env.num_glimpses), list[_Step](), list[_Action]()
    for number in range(env.num_glimpses):
        output = unroll.step(observation)
        with torch.no_grad():  # choices are scored at the end, all steps at once
            sample = choose(location(output.features, numbers[number]), "location", number)
            step = {"location": observation["location"], "active": active, "sample": sample}
            action = _act(agent, env, output, labels, number, choose, step)
        with without_autocast:
            observation, step["reward"], terminated, _, info = env.step(action)
        step["moved"] = active = ~terminated
        steps.append(step | {name: value for name, value in info.items() if name.startswith("reward/")})
        actions.append(action)
        if not env.answer_schedule.is_common and not active.any():
            break
    return _score(agent, env, location, unroll, steps, actions, labels, target)


def _act(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    output: StepOutput,
    labels: Tensor | None,
    number: int,
    choose: Callable[[Distribution, str, int], Tensor],
    step: _Step,
) -> _Action:
    """Returns the action of a step, and adds to the step the choices and targets of its stop and its answer."""
    # NaN of a diverged network must reach the loss instead of raising an error in the environment.
    action = {"location": step["sample"].clamp(-1, 1).nan_to_num()}
    due, is_due = step["active"], env.answer_schedule.is_due(number)
    if agent.stop is not None:
        action["stop"] = step["stop"] = choose(agent.stop(output.features), "stop", number)
        is_last = number == env.num_glimpses - 1  # the episode ends there anyway
        step["stop/mask"] = torch.zeros_like(due) if is_last else due
        due = due if is_due else due & (action["stop"] == 1)
    if agent.action is None:
        return action
    may_be_due = is_due or agent.stop is not None  # the environment ignores other answers
    if labels is not None and env.answer == "label" and not may_be_due:
        action["answer"] = torch.zeros_like(due, dtype=torch.int64)
        return action
    policy = agent.action(output.action_features)
    if labels is None:
        step["answer"] = answer = choose(policy, "answer", number)
        action["answer"] = answer.clamp(-1, 1).nan_to_num() if env.answer == "box" else answer
        step["answer/mask"] = due if may_be_due else torch.zeros_like(due)
    elif env.answer == "label":
        action["answer"] = policy.logits.argmax(-1)
    else:
        action["answer"] = policy.logits.log_softmax(-1).nan_to_num(nan=0.0, neginf=-math.inf)
    if labels is not None and may_be_due:
        label = labels if labels.ndim == 1 else labels[:, number // env.answer_schedule.glimpses_per_answer]
        step["targets"] = torch.where(due, label, IGNORE_INDEX)
    return action


def _score(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    location: nn.Module,
    unroll: Unroll,
    steps: list[_Step],
    actions: list[_Action],
    labels: Tensor | None,
    target: Tensor | None,
) -> GlimpseRollout:
    """Stacks the steps of an episode and computes the log-probabilities of its choices, with gradient."""
    names = dict.fromkeys(name for step in steps for name in step)
    stacked = {name: torch.stack([step[name] for step in steps if name in step]) for name in names}
    features, action_features, patch_features = unroll.features()
    sample, mask = stacked["sample"], stacked["moved"]
    policy = location(features, torch.arange(len(steps), device=features.device))
    log_prob, entropies = policy.log_prob(sample), [(policy.entropy(), mask)]
    for kind, network, given in (("stop", agent.stop, features), ("answer", agent.action, action_features)):
        if kind in stacked:
            assert network is not None
            policy, scored = network(given), stacked[f"{kind}/mask"]
            log_prob = torch.where(mask, log_prob, 0) + torch.where(scored, policy.log_prob(stacked[kind]), 0)
            entropies.append((policy.entropy(), scored))
            mask = mask | scored
    logits = None
    if "targets" in stacked:
        assert agent.action is not None
        due = [number for number, step in enumerate(steps) if "targets" in step]
        if len(due) < len(steps):
            action_features = action_features.index_select(0, torch.tensor(due, device=features.device))
        logits = agent.action(action_features).logits
    return GlimpseRollout(
        **{name: stacked[name] for name in ("active", "reward", "location", "sample", "moved")},
        features=features,
        log_prob=log_prob,
        entropies=entropies,
        mask=mask,
        components={name: value for name, value in stacked.items() if name.startswith("reward/")},
        logits=logits,
        targets=stacked.get("targets"),
        group=torch.arange(env.num_envs, device=features.device) // env.rollouts_per_image,
        actions=actions,
        patch_features=patch_features,
        labels=labels,
        target=target,
    )


def evaluate_episodes(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    index: Tensor,
    seed: int,
    behavior: Behavior = "greedy",
    trajectory: int = 0,
) -> GlimpseRollout:
    """Runs one episode for each of some images, whose random numbers depend on seed, image and trajectory only.

    Args:
        agent: the agent.
        env: an environment of a split other than training, seeded with ``seed``.
        index: (B,) int64, the numbers of the images.
        seed: of first locations and noise.
        behavior: how choices are made.
        trajectory: the number of the trajectory; each has its own noise and, unless fixed by the environment, its own
            first location.
    """
    random = RowRandom(torch.full_like(index, seed), index)
    options: dict[str, Any] = {"index": index}
    if trajectory and env.first_location == "random":
        options["location"] = random.uniform(f"first_location/{trajectory}", 2) * 2 - 1
    noise = draw_noise(random, env, f"policy/{trajectory}")
    location = RandomLocation(agent.core.size) if behavior == "random" else None
    return run_episode(agent, env, noise, options, greedy=behavior != "sampled", location=location)
