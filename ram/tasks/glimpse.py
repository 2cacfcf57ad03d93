"""Classify images through glimpses: REINFORCE teaches where to look, cross-entropy what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from envs import GlimpseVectorEnv
from envs.errors import InputError
from envs.images import ImageSet, Split
from envs.random import RowRandom
from envs.rendering import grid, location_heatmap
from ram.agent import RecurrentAttention
from ram.baselines import Baseline
from ram.networks import RandomLocation
from ram.reinforce import Rollout, discounted_returns, policy_gradient_loss
from ram.tasks import Animation, StepResult, Task

Look = Literal["greedy", "sampled", "random"]
"""How an evaluation chooses locations: the policy's mean, a sample of it, or anywhere."""

_TRAJECTORIES = 10  # sampled for every image, and averaged by the Monte Carlo protocol
_EVALUATION_ROWS = 1000
_DIAGNOSTIC_IMAGES = 64
_PICTURED = 16


@dataclass(frozen=True)
class Weights:
    """Of the terms beside the policy's loss.

    Attributes:
        answer: of the cross-entropy.
        baseline: of the baseline's own loss.
        entropy: of the policy's entropy, which is rewarded.
    """

    answer: float = 1.0
    baseline: float = 1.0
    entropy: float = 0.0


def collect(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    noise: Tensor,
    options: Mapping[str, Any],
    greedy: bool = False,
    location: nn.Module | None = None,
) -> Rollout:
    """Plays one episode in every row.

    Args:
        agent: who looks and answers.
        env: whose rows all start now.
        noise: (T, B, 2), standard normal, with which locations are sampled.
        options: of ``env.reset``.
        greedy: look where the policy prefers instead, at a Gaussian's mean.
        location: chooses in place of the agent's location network.
    """
    location = location or agent.location
    observation, info = env.reset(options=options)
    state = None
    final = env.num_glimpses - 1
    features, locations, samples, rewards, logits = [], [], [], [], []
    for step in range(env.num_glimpses):
        hidden, state = agent.step(observation, state)
        with torch.no_grad():  # what is chosen; the choices are scored below, all steps at once
            policy = location(hidden)
            sample = policy.preferred(noise[step]) if greedy else policy.sample(noise[step])
        answer = torch.zeros_like(info["label"])
        if step == final:
            logits.append(agent.action(hidden))
            answer = logits[-1].argmax(-1)
        features.append(hidden)
        locations.append(observation["location"])
        samples.append(sample)
        # Where a network has broken down, the world goes on and the loss will tell.
        action = {"location": sample.clamp(-1, 1).nan_to_num(), "answer": answer}
        observation, reward, _, _, _ = env.step(action)
        rewards.append(reward)

    known, sampled = torch.stack(features), torch.stack(samples)
    mask = torch.ones(known.shape[:2], dtype=torch.bool, device=known.device)
    mask[final] = False  # nobody looks where the last action points
    policy = location(known)
    return Rollout(
        features=known,
        log_prob=policy.log_prob(sampled),
        entropy=policy.entropy(),
        mask=mask,
        reward=torch.stack(rewards),
        logits=torch.stack(logits),
        label=info["label"][None],
        group=torch.arange(env.num_envs, device=known.device) // env.rollouts_per_image,
        location=torch.stack(locations),
        sample=sampled,
    )


def play(
    agent: RecurrentAttention,
    env: GlimpseVectorEnv,
    index: Tensor,
    seed: int,
    look: Look = "greedy",
    trajectory: int = 0,
) -> Rollout:
    """Evaluates: one trajectory an image, of which all that is drawn depends on seed, image and trajectory alone.

    Args:
        agent: who looks and answers.
        env: of a split other than training, seeded with ``seed``.
        index: (B,) int64, the images.
        seed: of first locations and noise.
        look: how locations are chosen.
        trajectory: its number; each has its own noise and, where the first location is random, its own start.
    """
    random = RowRandom(torch.full_like(index, seed), index)
    options: dict[str, Any] = {"index": index}
    if trajectory and env.first_location == "random":
        options["location"] = random.uniform(f"first_location/{trajectory}", 2) * 2 - 1
    noise = random.normal(f"policy/{trajectory}", env.num_glimpses, 2).transpose(0, 1)
    location = RandomLocation(agent.core.size) if look == "random" else None
    return collect(agent, env, noise, options, greedy=look == "greedy", location=location)


@dataclass(frozen=True)
class Prediction:
    """What a trained model says about N images.

    Attributes:
        label: N class names.
        probability: (N, K), of every class.
        location: (N, T, 2), where each look was.
    """

    label: tuple[str, ...]
    probability: Tensor
    location: Tensor


class GlimpseModel:
    """A trained agent with the sensor it learnt to see through; what :func:`ram.load` returns.

    Args:
        env: builds the environment, as for :class:`GlimpseTask`.
        agent: the trained agent.
        classes: the names of its answers.
        channels: of the images it reads.
        seed: of the first locations.
        device: where it computes.
    """

    def __init__(
        self,
        env: Callable[..., GlimpseVectorEnv],
        agent: RecurrentAttention,
        classes: tuple[str, ...],
        channels: int,
        seed: int,
        device: str,
    ) -> None:
        self.env, self.agent, self.classes = env, agent.eval(), classes
        self.channels, self.seed, self.device = channels, seed, device

    @torch.no_grad()
    def predict(self, images: Tensor | np.ndarray) -> Prediction:
        """Looks at images and names their classes, along one trajectory to the policy's mean.

        All images are first looked at in the same place, so that none depends on the others.

        Args:
            images: (N, C, H, W), float in [0, 1] or uint8; C as in training, H and W as one likes.

        Raises:
            InputError: if the images have another shape or type.
        """
        tensor = torch.as_tensor(images)
        if tensor.is_floating_point():
            tensor = tensor.float()
            if not ((tensor >= 0) & (tensor <= 1)).all():
                raise InputError("predict needs floats in [0, 1], or uint8: divide the images by their largest value.")
        if tensor.ndim != 4 or tensor.shape[1] != self.channels or len(tensor) == 0:
            raise InputError(
                f"predict needs images of shape (N, {self.channels}, H, W) with N of at least 1, "
                f"got {tuple(tensor.shape)}."
            )
        unlabelled = torch.zeros(len(tensor), dtype=torch.long)
        env = self.env(
            images=ImageSet(tensor, unlabelled, self.classes),
            num_envs=len(tensor),
            split="test",
            output="torch",
            device=self.device,
            autoreset_mode=AutoresetMode.DISABLED,
        )
        env.reset(seed=self.seed)
        everyone = torch.zeros(len(tensor), dtype=torch.long, device=self.device)
        random = RowRandom(everyone + self.seed, everyone)
        options: dict[str, Any] = {"index": torch.arange(len(tensor), device=self.device)}
        if env.first_location == "random":
            options["location"] = random.uniform("first_location", 2) * 2 - 1
        noise = random.normal("policy/0", env.num_glimpses, 2).transpose(0, 1)
        rollout = collect(self.agent, env, noise, options, greedy=True)
        probability = rollout.logits[-1].softmax(-1)
        labels = tuple(self.classes[best] for best in probability.argmax(-1).tolist())
        return Prediction(labels, probability, rollout.location.transpose(0, 1))


class GlimpseTask(Task):
    """Trains a :class:`RecurrentAttention` agent in a :class:`GlimpseVectorEnv`.

    Args:
        env: builds the environment; given ``num_envs``, ``split``, ``rollouts_per_image``, ``output``, ``device`` and
            ``autoreset_mode``.
        agent: builds the agent; given ``patch_shape`` and ``num_classes``.
        baseline: builds the baseline; given ``feature_size`` and ``rollouts_per_image``.
        batch_size: distinct images a step.
        rollouts_per_image: episodes an image and step.
        gamma: discount of later rewards, in [0, 1].
        location_rate: learning rate of the location network, as a share of the others'. Optimizers that divide by the
            size of the gradient, such as Adam, let a policy drift on noise alone once nearly all answers are right.
        weights: of the loss terms.
        compile: whether torch.compile fuses the agent's step.
        seed: of weights, batches, first locations and policy noise.
        device: where all is held.
    """

    unit = "images"
    monitor = "error"
    maximize = False

    def __init__(
        self,
        env: Callable[..., GlimpseVectorEnv],
        agent: Callable[..., RecurrentAttention],
        baseline: Callable[..., Baseline],
        batch_size: int = 128,
        rollouts_per_image: int = 1,
        gamma: float = 1.0,
        location_rate: float = 1.0,
        weights: Weights | None = None,
        compile: bool = False,  # noqa: A002
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        for name, value in [("batch_size", batch_size), ("rollouts_per_image", rollouts_per_image)]:
            if value < 1:
                raise InputError(f"task.{name} must be at least 1, got {value}.")
        if not 0 <= gamma <= 1:
            raise InputError(f"task.gamma must be in [0, 1], got {gamma}.")
        if location_rate <= 0:
            raise InputError(f"task.location_rate must be positive, got {location_rate}.")
        self.gamma, self.location_rate, self.weights = gamma, location_rate, weights or Weights()
        self._row_seed, self.device = _row_seed(seed), torch.device(device)
        self._env = lambda split, num_envs, rollouts=1, **options: env(
            num_envs=num_envs,
            split=split,
            rollouts_per_image=rollouts,
            output="torch",
            device=device,
            autoreset_mode=AutoresetMode.DISABLED,
            **options,
        )
        self.env = self._env("train", batch_size * rollouts_per_image, rollouts_per_image)
        self.env.reset(seed=self._row_seed)
        self._evaluation_envs: dict[Split, GlimpseVectorEnv] = {}
        self._epoch = -1
        images = len(self.env.image_set)
        if images < batch_size:
            raise InputError(f"task.batch_size ({batch_size}) is larger than the training split ({images} images).")
        self.steps_per_epoch, self.examples_per_step = images // batch_size, batch_size

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._patch_shape = self.env.sensor.patch_shape(self.env.image_set.images.shape[1])
            self.agent = agent(patch_shape=self._patch_shape, num_classes=len(self.env.classes))
            self.baseline = baseline(feature_size=self.agent.core.size, rollouts_per_image=rollouts_per_image)
        self.to(self.device)
        if self.weights.entropy and not any("std" in name for name, _ in self.agent.location.named_parameters()):
            raise InputError("task.weights.entropy moves nothing but a learned deviation: set policy.learn_std=true.")
        if compile:
            self.agent.step = torch.compile(self.agent.step)  # type: ignore[method-assign]

    def forward(self, step: int) -> StepResult:
        self.agent.location.anneal(self.progress)
        rollout = collect(self.agent, self.env, self._noise(step), {"index": self._batch(step), "episode": step})
        returns = discounted_returns(rollout.reward, self.gamma)
        estimate = self.baseline(rollout, returns)
        advantage = (returns - estimate.value).detach()

        policy = policy_gradient_loss(rollout.log_prob, advantage, rollout.mask)
        answer = F.cross_entropy(rollout.logits.flatten(0, 1), rollout.label.flatten())
        loss = policy + self.weights.answer * answer + self.weights.baseline * estimate.loss
        if self.weights.entropy:
            loss = loss - self.weights.entropy * rollout.entropy

        def metrics() -> dict[str, float]:
            with torch.no_grad():
                right = rollout.logits.argmax(-1) == rollout.label
                scored = rollout.mask
                values = {
                    "loss/policy": policy,
                    "loss/answer": answer,
                    "loss/baseline": estimate.loss,
                    "train/reward": rollout.reward.sum(0).mean(),
                    "train/accuracy": 100 * right.float().mean(),
                    "policy/advantage_mean": advantage[scored].mean(),
                    "policy/advantage_std": advantage[scored].std(),
                    "policy/entropy": rollout.entropy,
                    "policy/clamped": (rollout.sample[scored].abs() > 1).any(-1).float().mean(),
                    "baseline/explained_variance": _explained_variance(estimate.value[scored], returns[scored]),
                }
                return {name: float(value) for name, value in values.items()}

        return StepResult(loss, metrics)

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:  # type: ignore[override]
        """Errors in percent. Validation: one trajectory to the policy's mean. Test: all four protocols."""
        (error,) = self._errors(split, "greedy")
        if split != "test":
            return {"error": error}
        *sampled, averaged = self._errors(split, "sampled", _TRAJECTORIES)
        (at_random,) = self._errors(split, "random")
        return {
            "error": error,
            "error_sampled": sum(sampled) / len(sampled),
            "error_mc": averaged,
            "error_random": at_random,
        }

    def _errors(self, split: Split, look: Look, trajectories: int = 1) -> list[float]:
        """The shares of wrong answers of a split, in percent, every image once.

        Returns:
            One of every trajectory, and if there are several, that of their averaged class probabilities.
        """
        env = self._evaluation_env(split)
        wrong = torch.zeros(trajectories + (trajectories > 1), device=self.device)
        for index, counted in _batches(len(env.image_set), env.num_envs, self.device):
            played = [play(self.agent, env, index, self._row_seed, look, number) for number in range(trajectories)]
            answers = torch.stack([rollout.logits[-1].softmax(-1) for rollout in played])
            if trajectories > 1:
                answers = torch.cat([answers, answers.mean(0, keepdim=True)])
            wrong += ((answers.argmax(-1) != env.image_set.labels[index]) & counted).sum(-1)
        return (100 * wrong.double() / len(env.image_set)).tolist()

    def diagnostics(self, step: int) -> dict[str, float]:
        """The variance of one episode's policy gradient, summed over the location network's parameters.

        The images, first locations and policy noise are the same at every call.
        """
        location = self.agent.location
        parameters = {name: value.detach() for name, value in location.named_parameters()}
        if not parameters:
            return {}
        images = min(_DIAGNOSTIC_IMAGES, len(self.env.image_set))
        rollouts = self.env.rollouts_per_image
        env = self._env("train", images * rollouts, rollouts)
        env.reset(seed=self._row_seed)
        training = self.training
        self.eval()
        with torch.no_grad():
            index = torch.arange(images, device=self.device)
            rollout = collect(self.agent, env, self._noise(0, env), {"index": index, "episode": 0})
            returns = discounted_returns(rollout.reward, self.gamma)
            advantage = returns - self.baseline(rollout, returns).value
        self.train(training)

        def score(parameters: dict[str, Tensor], features: Tensor, sample: Tensor, weight: Tensor) -> Tensor:
            return (functional_call(location, parameters, (features,)).log_prob(sample) * weight).sum()

        def variance(weight: Tensor) -> float:
            weight = torch.where(rollout.mask, weight, 0)
            per_episode = vmap(grad(score), in_dims=(None, 1, 1, 1))
            gradients = per_episode(parameters, rollout.features, rollout.sample, weight)
            return float(sum(gradient.var(0).sum() for gradient in gradients.values()))

        with_baseline, without = variance(advantage), variance(returns)
        return {
            "grad/variance_location": with_baseline,
            "grad/variance_ratio": with_baseline / without if without > 0 else math.nan,
        }

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, np.ndarray | Animation]:  # type: ignore[override]
        """Gazes over some images, still and moving, and where the looks at all images of the split fell."""
        every = self._evaluation_env(split)
        env = self._env(split, min(_PICTURED, len(every.image_set)), render_mode="rgb_array")
        env.reset(seed=self._row_seed)
        index = torch.linspace(0, len(env.image_set) - 1, env.num_envs, device=self.device).long()
        rollout = play(self.agent, env, index, self._row_seed)
        env.reset(options={"index": index})
        frames = [env.render()]
        for sample in rollout.sample:
            env.step({"location": sample.clamp(-1, 1), "answer": rollout.logits[-1].argmax(-1)})
            frames.append(env.render())
        sheets = [grid(rows, columns=8) for rows in frames if rows is not None]
        looks = [
            play(self.agent, every, index, self._row_seed).location[:, counted]
            for index, counted in _batches(len(every.image_set), every.num_envs, self.device)
        ]
        return {
            "glimpses.png": sheets[-1],
            "glimpses.gif": Animation(tuple(sheets)),
            "locations.png": location_heatmap(torch.cat(looks, dim=1)),
        }

    def parameter_groups(self) -> list[dict[str, Any]]:
        location = list(self.agent.location.parameters())
        chosen = {id(value) for value in location}
        others = [value for value in self.parameters() if id(value) not in chosen]
        groups = [{"params": others, "rate": 1.0}, {"params": location, "rate": self.location_rate}]
        return [group for group in groups if group["params"]]

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        return {"classes": list(self.env.classes), "patch_shape": list(self._patch_shape)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of other classes or patches."""
        if state != self.get_extra_state():
            raise KeyError(f"classes or patches differ: {state}")

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> GlimpseModel:
        known = state["_extra_state"]
        agent = arguments["agent"](patch_shape=tuple(known["patch_shape"]), num_classes=len(known["classes"]))
        prefix = "agent."
        agent.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        return GlimpseModel(
            env=arguments["env"],
            agent=agent.to(arguments["device"]),
            classes=tuple(known["classes"]),
            channels=known["patch_shape"][1],
            seed=_row_seed(arguments["seed"]),
            device=arguments["device"],
        )

    def _noise(self, step: int, env: GlimpseVectorEnv | None = None) -> Tensor:
        """Of the policy at a training step: (T, B, 2), standard normal."""
        env = env or self.env
        rows = torch.arange(env.num_envs, device=self.device) + self._row_seed
        random = RowRandom(rows, torch.full_like(rows, step))
        return random.normal("policy", env.num_glimpses, 2).transpose(0, 1)

    def _batch(self, step: int) -> Tensor:
        """Which images training step ``step`` shows: a slice of the epoch's permutation."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch != epoch:
            key = torch.tensor([self._row_seed, epoch], device=self.device)
            random = RowRandom(key[:1], key[1:])
            self._order = random.bits("order", len(self.env.image_set))[0].argsort()
            self._epoch = epoch
        return self._order[position * self.examples_per_step :][: self.examples_per_step]

    def _evaluation_env(self, split: Split) -> GlimpseVectorEnv:
        if split not in self._evaluation_envs:
            env = self._env(split, num_envs=_EVALUATION_ROWS)
            env.reset(seed=self._row_seed)
            self._evaluation_envs[split] = env
        return self._evaluation_envs[split]


def _row_seed(seed: int) -> int:
    """Keeps the rows of differently seeded runs apart, for row i of an environment draws from its seed + i."""
    return seed << 24


def _batches(images: int, rows: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Every number below ``images`` once: index (rows,), and which rows count, for the last batch is filled up."""
    for start in range(0, images, rows):
        index = torch.arange(start, start + rows, device=device)
        yield index.clamp(max=images - 1), index < images


def _explained_variance(value: Tensor, returns: Tensor) -> Tensor:
    """1 - Var[return - value] / Var[return]; NaN where all returns are equal."""
    return 1 - (returns - value).var() / returns.var()
