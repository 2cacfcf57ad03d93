"""Play episodes: an agent in every row of an environment, and what it knew, chose and was paid at every step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from envs import GlimpseVectorEnv
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX
from ram.agent import RecurrentAttention
from ram.distributions import Distribution
from ram.networks import RandomLocation
from ram.reinforce import Rollout

Look = Literal["greedy", "sampled", "random"]
"""How an evaluation chooses: what the policy prefers, a sample of it, or locations anywhere."""

Noise = Mapping[str, Tensor]
"""Standard normal numbers (T, B, n) for every choice that is sampled."""


@dataclass(frozen=True)
class GlimpseRollout(Rollout):
    """Episodes of looks, and all there is to say of them.

    Attributes:
        entropy: a scalar, of the distributions of a step's choices, in nats; with gradient.
        components: what the reward is the sum of, by name, (T, B) each; empty where it has no parts.
        logits: (A, B, K), of the answers after the A looks at which some were due, in order; with gradient. None where
            the world tells no right answers; then answers are choices, and ``log_prob`` has them.
        label: (A, B) int64, the right answers, -100 for a row of which none was due; or None.
        location: (T, B, 2), where each look was.
        sample: (T, B, 2), the next locations as drawn, before clamping.
        moved: (T, B) bool, whether the gaze followed the sample.
        actions: T of them, as the environment took them.
    """

    entropy: Tensor
    components: Mapping[str, Tensor]
    logits: Tensor | None
    label: Tensor | None
    location: Tensor
    sample: Tensor
    moved: Tensor
    actions: Sequence[Mapping[str, Tensor]]


def draw_noise(random: RowRandom, env: GlimpseVectorEnv, name: str = "policy") -> Noise:
    """What all choices of an episode are sampled with, in the rows of ``random``."""
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
    """Plays one episode in every row.

    Where the world tells the right answer, the likeliest one is given and its logits are kept, to be supervised.
    Elsewhere the answer is sampled and scored, as all other choices are.

    Args:
        agent: who looks and answers.
        env: whose rows all start now.
        noise: as :func:`draw_noise` gives it.
        options: of ``env.reset``.
        greedy: choose what is preferred instead of sampling.
        location: chooses in place of the agent's location network.
    """
    location = location or agent.location
    observation, info = env.reset(options=options)
    right = info["label"] if env.answer_schedule.is_supervised else None
    active = torch.ones_like(info["index"], dtype=torch.bool)
    everybody, nobody, no_answer = active, ~active, torch.zeros_like(info["index"])
    state = None
    features, locations, samples, actions, rewards, parts, moved = [], [], [], [], [], [], []
    logits, labels = [], []
    stops, answers = _Scores(), _Scores()
    for step in range(env.num_glimpses):

        def choose(policy: Distribution, name: str, step: int = step) -> Tensor:
            return policy.mode(noise[name][step]) if greedy else policy.sample(noise[name][step])

        thought = agent.step(observation, state)
        state = thought.state
        with torch.no_grad():  # what is chosen; where to look is scored below, all steps at once
            sample = choose(location(thought.features), "location")
        # Where a network has broken down, the world goes on and the loss will tell.
        action = {"location": sample.clamp(-1, 1).nan_to_num()}
        regular = env.answer_schedule.asks(step)
        due = active
        if agent.stop is not None:
            policy = agent.stop(thought.features)
            action["stop"] = choose(policy, "stop")
            final = step == env.num_glimpses - 1  # then nothing depends on it
            stops.add(policy, action["stop"], nobody if final else active)
            due = active if regular else active & (action["stop"] == 1)
        if agent.action is not None:
            if not (regular or agent.stop is not None or env.answer == "log_probs"):
                action["answer"] = no_answer if env.answer == "label" else sample.new_zeros(len(active), 4)
            else:
                said = agent.action(thought.answering)
                if right is None:
                    answer = choose(said, "answer")
                    answers.add(said, answer, due)
                    action["answer"] = answer.clamp(-1, 1).nan_to_num() if env.answer == "box" else answer
                else:
                    likely = said.logits.detach()
                    if env.answer == "label":
                        action["answer"] = likely.argmax(-1)
                    else:
                        action["answer"] = likely.log_softmax(-1).nan_to_num(nan=0.0, neginf=-math.inf)
                    if regular or agent.stop is not None:
                        asked = right if right.ndim == 1 else right[:, step // env.answer_schedule.glimpses_per_answer]
                        logits.append(said.logits)
                        labels.append(torch.where(due, asked, IGNORE_INDEX))
        features.append(thought.features)
        locations.append(observation["location"])
        samples.append(sample)
        actions.append(action)
        observation, reward, terminated, _, info = env.step(action)
        rewards.append(reward)
        parts.append({name: value for name, value in info.items() if name.startswith("reward/")})
        active = ~terminated
        moved.append(active)
        if not active.any():
            break

    known, sampled, went_on = torch.stack(features), torch.stack(samples), torch.stack(moved)
    place = location(known)
    log_prob, mask = place.log_prob(sampled), went_on
    entropy = _mean(place.entropy(), mask)
    for scores in (stops, answers):
        if scores.log_prob:
            scored = torch.stack(scores.mask)
            log_prob = torch.where(mask, log_prob, 0) + torch.where(scored, torch.stack(scores.log_prob), 0)
            entropy = entropy + _mean(torch.stack(scores.entropy), scored)
            mask = mask | scored
    return GlimpseRollout(
        features=known,
        log_prob=log_prob,
        entropy=entropy,
        active=torch.stack([everybody, *moved[:-1]]),
        mask=mask,
        reward=torch.stack(rewards),
        components={name: torch.stack([each[name] for each in parts]) for name in parts[0]},
        logits=torch.stack(logits) if logits else None,
        label=torch.stack(labels) if labels else None,
        group=torch.arange(env.num_envs, device=known.device) // env.rollouts_per_image,
        location=torch.stack(locations),
        sample=sampled,
        moved=went_on,
        actions=actions,
    )


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Of the values that count; 0 if none does."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


class _Scores:
    """Of the choices of one kind, step by step."""

    def __init__(self) -> None:
        self.log_prob: list[Tensor] = []
        self.entropy: list[Tensor] = []
        self.mask: list[Tensor] = []

    def add(self, policy: Distribution, choice: Tensor, mask: Tensor) -> None:
        log_prob = policy.log_prob(choice)
        self.log_prob.append(log_prob)
        self.entropy.append(policy.entropy().expand_as(log_prob))
        self.mask.append(mask)


def evaluate_episodes(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    index: Tensor,
    seed: int,
    look: Look = "greedy",
    trajectory: int = 0,
) -> GlimpseRollout:
    """Evaluates: one trajectory a scene, of which all that is drawn depends on seed, scene and trajectory alone.

    Args:
        agent: who looks and answers.
        env: of a split other than training, seeded with ``seed``.
        index: (B,) int64, the scenes.
        seed: of first locations and noise.
        look: how choices are made; with "random" all but the locations are the preferred ones.
        trajectory: its number; each has its own noise and, where the first location is random, its own start.
    """
    random = RowRandom(torch.full_like(index, seed), index)
    options: dict[str, Any] = {"index": index}
    if trajectory and env.first_location == "random":
        options["location"] = random.uniform(f"first_location/{trajectory}", 2) * 2 - 1
    noise = draw_noise(random, env, f"policy/{trajectory}")
    location = RandomLocation(agent.core.size) if look == "random" else None
    return run_episode(agent, env, noise, options, greedy=look != "sampled", location=location)
