"""Rollouts: episodes of an agent in a vector environment, and the log-probabilities of its choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from envs import GlimpseVectorEnv
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX
from ram.agent import AgentOutput, RecurrentAttention
from ram.distributions import Distribution
from ram.networks import RandomLocation
from ram.reinforce import Rollout

Behavior = Literal["greedy", "sampled", "random"]
"""Choices of an evaluation: modes of the policies, samples of them, or modes with uniformly random locations."""

Noise = Mapping[str, Tensor]
"""Standard normal numbers (T, B, n) for every kind of choice: ``location``, ``answer``, ``stop``."""


@dataclass(frozen=True)
class GlimpseRollout(Rollout):
    """Episodes of glimpses.

    Attributes:
        entropy: a scalar, the mean entropy of the scored choices in nats, summed over their kinds; with gradient.
        components: the terms of the reward by name, (T, B) each; empty if the reward has no terms.
        logits: (A, B, K), of the answers after the A looks at which answers are due; with gradient. None where the
            environment gives no labels: answers are then sampled, and part of ``log_prob``.
        targets: (A, B) int64, the labels of the answers, IGNORE_INDEX in rows where none is due; None as ``logits``.
        location: (T, B, 2), the location of each look.
        sample: (T, B, 2), the next locations as sampled, before clamping.
        moved: (T, B) bool, True where the episode continues at the sampled location.
        actions: the T actions sent to the environment.
    """

    entropy: Tensor
    components: Mapping[str, Tensor]
    logits: Tensor | None
    targets: Tensor | None
    location: Tensor
    sample: Tensor
    moved: Tensor
    actions: Sequence[Mapping[str, Tensor]]

    def num_glimpses(self) -> Tensor:
        """Returns the number of looks of every row: (B,) float32."""
        return 1 + self.moved.float().sum(0)

    def final_answers(self, several: bool) -> tuple[Tensor, Tensor]:
        """Returns class probabilities (A, B, K) and targets (A, B) of the answers that an evaluation judges.

        Args:
            several: whether an image has several answers, all of which are judged. Otherwise A is 1: the last answer
                of each row.
        """
        assert self.logits is not None
        assert self.targets is not None
        if several:
            return self.logits.softmax(-1), self.targets
        number = torch.arange(len(self.targets), device=self.targets.device)[:, None]
        last = torch.where(self.targets != IGNORE_INDEX, number, 0).amax(0, keepdim=True)
        logits = self.logits.gather(0, last[..., None].expand(-1, -1, self.logits.shape[-1]))
        return logits.softmax(-1), self.targets.gather(0, last)


@dataclass(frozen=True)
class _ScoredChoice:
    """A sampled stop or answer: its log-probability (B,), entropy (B,), and the rows where it is scored (B,) bool."""

    log_prob: Tensor
    entropy: Tensor
    mask: Tensor

    @classmethod
    def of(cls, policy: Distribution, sample: Tensor, mask: Tensor) -> _ScoredChoice:
        log_prob = policy.log_prob(sample)
        return cls(log_prob, policy.entropy().expand_as(log_prob), mask)


@dataclass
class _Step:
    """One step of all rows: what :func:`run_episode` records, as in :class:`GlimpseRollout`."""

    features: Tensor
    location: Tensor
    active: Tensor
    sample: Tensor
    action: dict[str, Tensor]
    scored: dict[str, _ScoredChoice] = field(default_factory=dict)
    logits: Tensor | None = None
    targets: Tensor | None = None
    reward: Tensor = field(init=False)
    components: dict[str, Tensor] = field(init=False)
    moved: Tensor = field(init=False)


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

    def choose(policy: Distribution, name: str, number: int) -> Tensor:
        return policy.mode(noise[name][number]) if greedy else policy.sample(noise[name][number])

    observation, info = env.reset(options=options)
    labels = info["label"] if env.answer_schedule.is_supervised else None
    active = torch.ones_like(info["index"], dtype=torch.bool)
    numbers = torch.arange(env.num_glimpses, device=active.device)
    state, steps = None, list[_Step]()
    for number in range(env.num_glimpses):
        output = agent.step(observation, state)
        state = output.state
        with torch.no_grad():  # locations are scored at the end, all steps at once
            sample = choose(location(output.features, numbers[number]), "location", number)
        # NaN of a diverged network must reach the loss instead of raising an error in the environment.
        action = {"location": sample.clamp(-1, 1).nan_to_num()}
        step = _Step(output.features, observation["location"], active, sample, action)
        _act(agent, env, output, labels, number, choose, step)
        observation, step.reward, terminated, _, info = env.step(step.action)
        step.components = {name: value for name, value in info.items() if name.startswith("reward/")}
        step.moved = active = ~terminated
        steps.append(step)
        if not active.any():
            break
    return _score(env, location, steps, numbers[: len(steps)])


def _act(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    output: AgentOutput,
    labels: Tensor | None,
    number: int,
    choose: Callable[[Distribution, str, int], Tensor],
    step: _Step,
) -> None:
    """Adds the stop and the answer to the action of a step."""
    due, is_due = step.active, env.answer_schedule.is_due(number)
    if agent.stop is not None:
        policy = agent.stop(output.features)
        stop = step.action["stop"] = choose(policy, "stop", number)
        is_last = number == env.num_glimpses - 1  # the episode ends there anyway
        step.scored["stop"] = _ScoredChoice.of(policy, stop, torch.zeros_like(due) if is_last else due)
        due = due if is_due else due & (stop == 1)
    if agent.action is None:
        return
    may_be_due = is_due or agent.stop is not None
    if not may_be_due and env.answer != "log_probs":
        step.action["answer"] = (
            torch.zeros_like(due, dtype=torch.long) if env.answer == "label" else step.sample.new_zeros(len(due), 4)
        )
        return
    policy = agent.action(output.action_features)
    if labels is None:
        answer = choose(policy, "answer", number)
        step.scored["answer"] = _ScoredChoice.of(policy, answer, due)
        step.action["answer"] = answer.clamp(-1, 1).nan_to_num() if env.answer == "box" else answer
        return
    logits = policy.logits.detach()
    if env.answer == "label":
        step.action["answer"] = logits.argmax(-1)
    else:
        step.action["answer"] = logits.log_softmax(-1).nan_to_num(nan=0.0, neginf=-math.inf)
    if may_be_due:
        label = labels if labels.ndim == 1 else labels[:, number // env.answer_schedule.glimpses_per_answer]
        step.logits, step.targets = policy.logits, torch.where(due, label, IGNORE_INDEX)


def _score(env: GlimpseVectorEnv, location: nn.Module, steps: Sequence[_Step], numbers: Tensor) -> GlimpseRollout:
    """Stacks the steps of an episode and computes the log-probabilities of its choices."""

    def stack(name: str) -> Tensor:
        return torch.stack([getattr(step, name) for step in steps])

    features, sample, moved = stack("features"), stack("sample"), stack("moved")
    policy = location(features, numbers)
    log_prob, mask = policy.log_prob(sample), moved
    entropy = _masked_mean(policy.entropy(), mask)
    for kind in ("stop", "answer"):
        choices = [step.scored[kind] for step in steps if kind in step.scored]
        if choices:
            scored = torch.stack([choice.mask for choice in choices])
            choice_log_prob = torch.stack([choice.log_prob for choice in choices])
            log_prob = torch.where(mask, log_prob, 0) + torch.where(scored, choice_log_prob, 0)
            entropy = entropy + _masked_mean(torch.stack([choice.entropy for choice in choices]), scored)
            mask = mask | scored
    logits = [step.logits for step in steps if step.logits is not None]
    targets = [step.targets for step in steps if step.targets is not None]
    return GlimpseRollout(
        features=features,
        log_prob=log_prob,
        entropy=entropy,
        active=stack("active"),
        mask=mask,
        reward=stack("reward"),
        components={name: torch.stack([step.components[name] for step in steps]) for name in steps[0].components},
        logits=torch.stack(logits) if logits else None,
        targets=torch.stack(targets) if targets else None,
        group=torch.arange(env.num_envs, device=features.device) // env.rollouts_per_image,
        location=stack("location"),
        sample=sample,
        moved=moved,
        actions=[step.action for step in steps],
    )


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of the values where ``mask`` is True; 0 if it is nowhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


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
