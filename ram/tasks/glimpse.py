"""Look at scenes through glimpses: REINFORCE teaches where, and cross-entropy what was seen, if the world tells."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode
from torch import Tensor
from torch.func import functional_call, grad, vmap

from envs import GlimpseVectorEnv
from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.rendering import grid, location_heatmap
from envs.rewards.correct_answer import CorrectAnswer
from envs.scene import END
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers, read_images
from ram.agent import RecurrentAttention
from ram.baselines import Baseline
from ram.networks import GridLocation
from ram.reinforce import discounted_returns, reinforce
from ram.rollout import GlimpseRollout, Look, Noise, draw_noise, evaluate_episodes, run_episode
from ram.tasks import Animation, StepResult, Task, part

_TRAJECTORIES = 10  # sampled for every image, and averaged by the Monte Carlo protocol
_EVALUATION_ROWS = 1000
_EVALUATION_SEED = 0  # whatever the run's: all are judged by the same scenes, first locations and noise
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


@dataclass(frozen=True)
class Prediction:
    """What a trained model says about N images.

    Attributes:
        label: N class names; where several answers are due, those of an image with spaces between, up to the end.
        probability: (N, K), of every class; where A answers are due, (N, A, K).
        location: (N, T, 2), where each look was; where the agent has seen enough of an image, its last look repeats.
    """

    label: tuple[str, ...]
    probability: Tensor
    location: Tensor


class GlimpsePredictor:
    """A trained agent with the sensor it learnt to see through; what :func:`ram.load` returns.

    Args:
        env: builds the environment, as for :class:`GlimpseTask`.
        agent: the trained agent.
        world: what :meth:`GlimpseTask.get_extra_state` tells of the world it was trained in.
        seed: of the first locations.
        device: where it computes.
    """

    def __init__(
        self,
        env: Callable[..., GlimpseVectorEnv],
        agent: RecurrentAttention,
        world: Mapping[str, Any],
        seed: int,
        device: str,
    ) -> None:
        self.env, self.agent, self.seed, self.device = env, agent.eval(), seed, device
        self.classes = tuple(world["classes"])
        self._label_shape, self._interface = world["label_shape"], world["interface"]

    @torch.no_grad()
    def predict(self, images: Tensor | np.ndarray) -> Prediction:
        """Looks at images and names their classes, along one trajectory to the policy's mean.

        All images are first looked at in the same place, so that none depends on the others.

        Args:
            images: (N, C, H, W), float in [0, 1] or uint8; C as in training, H and W as one likes.

        Raises:
            InputError: if the images have another shape or type.
        """
        if self._label_shape is None or self._interface["num_goals"]:
            raise InputError("predict names classes, which this agent has not learnt: step its environment instead.")
        tensor = read_images("predict", images)
        channels = self._interface["patch_shape"][1]
        if tensor.ndim != 4 or tensor.shape[1] != channels or len(tensor) == 0:
            raise InputError(
                f"predict needs images of shape (N, {channels}, H, W) with N of at least 1, got {tuple(tensor.shape)}."
            )
        several = math.prod(self._label_shape) > 1
        unlabelled = torch.zeros(len(tensor), *self._label_shape, dtype=torch.long)
        env = self.env(
            images=ImageSet(tensor, unlabelled, self.classes),
            reward=CorrectAnswer(),  # the agent's own may need to know more of a scene
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
        rollout = run_episode(self.agent, env, draw_noise(random, env, "policy/0"), options, greedy=True)
        each = _probabilities(rollout, several).transpose(0, 1)
        names = [[self.classes[best] for best in row] for row in each.argmax(-1).tolist()]
        told = tuple(" ".join(takewhile(END.__ne__, row)) if several else row[0] for row in names)
        return Prediction(told, each if several else each[:, 0], rollout.location.transpose(0, 1))


class GlimpseTask(Task):
    """Trains a :class:`RecurrentAttention` agent in a :class:`GlimpseVectorEnv`.

    Args:
        env: builds the environment; given ``num_envs``, ``split``, ``rollouts_per_image``, ``output``, ``device`` and
            ``autoreset_mode``.
        agent: builds the agent; given what ``env.interface`` tells.
        baseline: builds the baseline; given ``feature_size`` and ``rollouts_per_image``.
        batch_size: distinct images a step.
        rollouts_per_image: episodes an image and step.
        gamma: discount of later rewards, in [0, 1].
        location_lr_scale: learning rate of the location network, as a share of the others'. Optimizers that divide by the
            size of the gradient, such as Adam, let a policy drift on noise alone once nearly all answers are right.
        weights: of the loss terms.
        compile: whether torch.compile fuses the agent's step.
        seed: of weights, batches, first locations and policy noise.
        device: where all is held.
    """

    unit = "images"

    def __init__(
        self,
        env: Callable[..., GlimpseVectorEnv],
        agent: Callable[..., RecurrentAttention],
        baseline: Callable[..., Baseline],
        batch_size: int = 128,
        rollouts_per_image: int = 1,
        gamma: float = 1.0,
        location_lr_scale: float = 1.0,
        weights: Weights | None = None,
        compile: bool = False,  # noqa: A002
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        check_positive_integers("task", batch_size=batch_size, rollouts_per_image=rollouts_per_image)
        if not 0 <= gamma <= 1:
            raise InputError(f"task.gamma must be in [0, 1], got {gamma}.")
        if location_lr_scale <= 0:
            raise InputError(f"task.location_lr_scale must be positive, got {location_lr_scale}.")
        self.gamma, self.location_lr_scale, self.weights = gamma, location_lr_scale, weights or Weights()
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
        images = len(self.env.scenes)
        if images < batch_size:
            raise InputError(f"task.batch_size ({batch_size}) is larger than the training split ({images} images).")
        self.steps_per_epoch, self.examples_per_step = images // batch_size, batch_size
        # Where the agent may stop, its error alone says nothing of the time it took.
        self.monitor = "error" if self.env.answer_schedule.is_supervised and not self.env.stop else "return"
        self.maximize = self.monitor == "return"

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.agent = agent(**self.env.interface)
            self.baseline = baseline(feature_size=self.agent.core.size, rollouts_per_image=rollouts_per_image)
        self.to(self.device)
        learns_std = any("std" in name for name, _ in self.agent.named_parameters())
        chooses = self.agent.stop is not None or (
            self.env.answer == "label" and not self.env.answer_schedule.is_supervised
        )
        chooses = chooses or isinstance(self.agent.location, GridLocation)
        if self.weights.entropy and not (learns_std or chooses):
            raise InputError(
                "task.weights.entropy moves nothing here, where only looks of a fixed deviation are sampled: set "
                "policy.learn_std=true or task.weights.entropy=0."
            )
        if compile:
            self.agent.step = torch.compile(self.agent.step)  # type: ignore[method-assign]

    def forward(self, step: int) -> StepResult:
        self.agent.anneal(self.progress)
        rollout = run_episode(self.agent, self.env, self._noise(step), {"index": self._batch(step), "episode": step})
        estimate = reinforce(rollout, self.baseline, self.gamma)
        loss = estimate.policy_loss + self.weights.baseline * estimate.baseline_loss
        terms = {"loss/policy": estimate.policy_loss, "loss/baseline": estimate.baseline_loss}
        if rollout.logits is not None and rollout.label is not None:
            terms["loss/answer"] = F.cross_entropy(rollout.logits.flatten(0, 1), rollout.label.flatten())
            loss = loss + self.weights.answer * terms["loss/answer"]
        if self.weights.entropy:
            loss = loss - self.weights.entropy * rollout.entropy

        @torch.no_grad()
        def metrics() -> dict[str, float]:
            values = {
                **terms,
                **estimate.metrics(),
                "train/return": rollout.reward.sum(0).mean(),
                **{name: value.sum(0).mean() for name, value in rollout.components.items()},
                "policy/entropy": rollout.entropy,
                "policy/clamped": (rollout.sample[rollout.moved].abs() > 1).any(-1).float().mean(),
            }
            if rollout.logits is not None and rollout.label is not None:
                asked = rollout.label != IGNORE_INDEX
                right = rollout.logits.argmax(-1) == rollout.label
                values["train/accuracy"] = 100 * right[asked].float().mean()
            if self.env.stop:
                values["train/glimpses"] = _glimpses(rollout).mean()
            return {name: float(value) for name, value in values.items()}

        return StepResult(loss, metrics)

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Mean return and what its parts pay, and where answers can be right or wrong, the error in percent.

        An image is in error if any of its answers is wrong. Validation: the policy's preferred choices. Test: also
        with sampled choices (the mean over ten trajectories), with their class probabilities averaged, and with
        locations anywhere.
        """
        measured = self._measure(split, "greedy")[0]
        if split == "test":
            *sampled, averaged = self._measure(split, "sampled", _TRAJECTORIES)
            at_random = self._measure(split, "random")[0]
            names = list(measured)
            measured |= {f"{name}_sampled": sum(each[name] for each in sampled) / len(sampled) for name in names}
            measured |= {f"{name}_mc": value for name, value in averaged.items()}
            measured |= {f"{name}_random": at_random[name] for name in names}
        return measured

    def _measure(self, split: Split, look: Look, trajectories: int = 1) -> list[dict[str, float]]:
        """Means over a split, every scene once.

        Returns:
            Those of every trajectory, and at the end the error of the averaged class probabilities, if any.
        """
        env = self._evaluation_env(split)
        totals = [defaultdict[str, float](float) for _ in range(trajectories + 1)]
        for index, counted in _batches(len(env.scenes), env.num_envs, self.device):
            played = [
                evaluate_episodes(self.agent, env, index, _EVALUATION_SEED, look, number)
                for number in range(trajectories)
            ]
            for total, rollout in zip(totals, played, strict=False):
                for name, paid in {"return": rollout.reward, **rollout.components}.items():
                    total[name] += float(paid.sum(0)[counted].double().sum())
                if env.stop:
                    total["glimpses"] += float(_glimpses(rollout)[counted].sum())
            if env.answer_schedule.is_supervised:
                several = self.env.answer_schedule.num_answers > 1
                said = [_probabilities(rollout, several) for rollout in played]
                right = _right_answers(played[0], several)
                for total, probabilities in zip(totals, [*said, torch.stack(said).mean(0)], strict=True):
                    wrong = ((probabilities.argmax(-1) != right) & (right != IGNORE_INDEX)).any(0)
                    total["error"] += 100 * float((wrong & counted).sum())
        return [{name: value / len(env.scenes) for name, value in total.items()} for total in totals]

    def diagnostics(self, step: int) -> dict[str, float]:
        """The variance of one episode's policy gradient, summed over the location network's parameters.

        The images, first locations and policy noise are the same at every call.
        """
        location = self.agent.location
        parameters = {name: value.detach() for name, value in location.named_parameters()}
        if not parameters:
            return {}
        images = min(_DIAGNOSTIC_IMAGES, len(self.env.scenes))
        rollouts = self.env.rollouts_per_image
        env = self._env("train", images * rollouts, rollouts)
        env.reset(seed=self._row_seed)
        training = self.training
        self.eval()
        with torch.no_grad():
            index = torch.arange(images, device=self.device)
            rollout = run_episode(self.agent, env, self._noise(0, env), {"index": index, "episode": 0})
            returns = discounted_returns(rollout.reward, self.gamma)
            advantage = returns - self.baseline(rollout, returns).value
        self.train(training)

        def score(parameters: dict[str, Tensor], features: Tensor, sample: Tensor, weight: Tensor) -> Tensor:
            return (functional_call(location, parameters, (features,)).log_prob(sample) * weight).sum()

        def variance(weight: Tensor) -> float:
            weight = torch.where(rollout.moved, weight, 0)
            per_episode = vmap(grad(score), in_dims=(None, 1, 1, 1))
            gradients = per_episode(parameters, rollout.features, rollout.sample, weight)
            return float(sum(gradient.var(0).sum() for gradient in gradients.values()))

        with_baseline, without = variance(advantage), variance(returns)
        return {
            "grad/variance_location": with_baseline,
            "grad/variance_ratio": with_baseline / without if without > 0 else math.nan,
        }

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, np.ndarray | Animation]:
        """Gazes over some images, still and moving, and where the looks at all images of the split fell."""
        every = self._evaluation_env(split)
        env = self._env(split, min(_PICTURED, len(every.scenes)), render_mode="rgb_array")
        env.reset(seed=_EVALUATION_SEED)
        index = torch.linspace(0, len(env.scenes) - 1, env.num_envs, device=self.device).long()
        rollout = evaluate_episodes(self.agent, env, index, _EVALUATION_SEED)
        env.reset(options={"index": index})
        frames = [env.render()]
        for action in rollout.actions:
            env.step(action)
            frames.append(env.render())
        sheets = [grid(rows, columns=8) for rows in frames if rows is not None]
        looks = []
        for index, counted in _batches(len(every.scenes), every.num_envs, self.device):
            location = evaluate_episodes(self.agent, every, index, _EVALUATION_SEED).location[:, counted]
            rest = every.num_glimpses - len(location)
            looks.append(torch.cat([location, location[-1:].expand(rest, -1, -1)]))
        return {
            "glimpses.png": sheets[-1],
            "glimpses.gif": Animation(tuple(sheets), env.metadata["render_fps"]),
            "locations.png": location_heatmap(torch.cat(looks, dim=1)),
        }

    def parameter_groups(self) -> list[dict[str, Any]]:
        location = list(self.agent.location.parameters())
        chosen = {id(value) for value in location}
        others = [value for value in self.parameters() if id(value) not in chosen]
        groups = [{"params": others, "rate": 1.0}, {"params": location, "rate": self.location_lr_scale}]
        return [group for group in groups if group["params"]]

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        shape = self.env.answer_schedule.label_shape
        return {
            "classes": list(self.env.classes),
            "label_shape": None if shape is None else list(shape),
            "interface": self.env.interface,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of another world."""
        if state != self.get_extra_state():
            raise KeyError(f"what is seen and asked differs: {state}")

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> GlimpsePredictor:
        known = state["_extra_state"]
        agent = arguments["agent"](**known["interface"])
        agent.load_state_dict(part(state, "agent."))
        return GlimpsePredictor(
            env=arguments["env"],
            agent=agent.to(arguments["device"]),
            world=known,
            seed=_row_seed(arguments["seed"]),
            device=arguments["device"],
        )

    def _noise(self, step: int, env: GlimpseVectorEnv | None = None) -> Noise:
        """Of the choices at a training step."""
        env = env or self.env
        rows = torch.arange(env.num_envs, device=self.device) + self._row_seed
        return draw_noise(RowRandom(rows, torch.full_like(rows, step)), env)

    def _batch(self, step: int) -> Tensor:
        """Which images training step ``step`` shows: a slice of the epoch's permutation."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch != epoch:
            key = torch.tensor([self._row_seed, epoch], device=self.device)
            random = RowRandom(key[:1], key[1:])
            self._order = random.bits("order", len(self.env.scenes))[0].argsort()
            self._epoch = epoch
        return self._order[position * self.examples_per_step :][: self.examples_per_step]

    def _evaluation_env(self, split: Split) -> GlimpseVectorEnv:
        if split not in self._evaluation_envs:
            scenes = len(self._env(split, num_envs=1).scenes)
            env = self._env(split, num_envs=min(_EVALUATION_ROWS, scenes))
            env.reset(seed=_EVALUATION_SEED)
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


def _asked_last(rollout: GlimpseRollout) -> Tensor:
    """At which of the A answers each row's last was due: (1, B)."""
    assert rollout.label is not None
    number = torch.arange(len(rollout.label), device=rollout.label.device)[:, None]
    return torch.where(rollout.label != IGNORE_INDEX, number, 0).amax(0, keepdim=True)


def _probabilities(rollout: GlimpseRollout, several: bool) -> Tensor:
    """Of every class, at each of the A answers if there are several to one image, else at the last: (A or 1, B, K)."""
    assert rollout.logits is not None
    if several:
        return rollout.logits.softmax(-1)
    at = _asked_last(rollout)[..., None].expand(-1, -1, rollout.logits.shape[-1])
    return rollout.logits.gather(0, at).softmax(-1)


def _right_answers(rollout: GlimpseRollout, several: bool) -> Tensor:
    """What :func:`_probabilities` should say: (A or 1, B)."""
    assert rollout.label is not None
    return rollout.label if several else rollout.label.gather(0, _asked_last(rollout))


def _glimpses(rollout: GlimpseRollout) -> Tensor:
    """How many looks every row took: (B,)."""
    return 1 + rollout.moved.float().sum(0)
