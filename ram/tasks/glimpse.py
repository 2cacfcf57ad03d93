"""The glimpse task: REINFORCE trains where to look, cross-entropy what to answer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs import GlimpseVectorEnv
from envs.errors import InputError
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers, check_weight
from ram.agent import RecurrentAttention
from ram.baselines import Baseline
from ram.distributed import global_mean, parallel_map, world
from ram.inference.glimpse import GlimpsePredictor
from ram.metrics.classification import Classification
from ram.patch_classifier import PatchClassifier
from ram.plots.glimpses import glimpse_frames, location_histogram
from ram.reinforce import Estimate, estimator_variances, masked_mean, policy_gradients, reinforce
from ram.rollout import Behavior, GlimpseRollout, Noise, draw_noise, evaluate_episodes, run_episode
from ram.tasks import Animation, Artifact, StepResult, Task, check_classes, substate
from ram.tasks.glimpse_weights import LossWeights
from ram.tasks.image_batches import (
    EVALUATION_ROWS,
    EVALUATION_SEED,
    SCALE_IMAGES,
    ImageBatches,
    evaluation_batches,
    first_row_seed,
    image_names,
)

_TRAJECTORIES = 10  # per image, for the Monte Carlo protocol
_DIAGNOSTIC_IMAGES, _PLOTTED_IMAGES = 64, 16


class GlimpseTask(Task):
    """Trains a :class:`RecurrentAttention` agent in a :class:`GlimpseVectorEnv`.

    Args:
        env: builds the environment; called with ``num_envs``, ``split``, ``rollouts_per_image``, ``output``, ``device``
            and ``autoreset_mode``.
        agent: builds the agent; called with the entries of ``env.interface``.
        baseline: builds the baseline; called with ``feature_size`` and ``rollouts_per_image``.
        batch_size: distinct images per step, over all processes.
        rollouts_per_image: episodes per image and step.
        gamma: discount factor, in [0, 1].
        patch_reward: weight of an additional reward of each location: the log-probability, in nats, of the label given
            the next patch alone, at least -4; see :class:`ram.patch_classifier.PatchClassifier`. It is not part of the
            return of earlier choices. 0 for no such reward.
        weights: weights of the loss terms.
        compile: compile the agent's step with torch.compile.
        seed: of weights, batches, first locations and policy noise.
        device: of the task and its environments.
    """

    unit, class_layers = "images", ("agent.action.", "agent.glimpse.goal.")

    def __init__(
        self,
        env: Callable[..., GlimpseVectorEnv],
        agent: Callable[..., RecurrentAttention],
        baseline: Callable[..., Baseline],
        batch_size: int = 128,
        rollouts_per_image: int = 1,
        gamma: float = 1.0,
        patch_reward: float = 0.0,
        weights: LossWeights | None = None,
        compile: bool = False,  # noqa: A002
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        check_positive_integers("task", batch_size=batch_size, rollouts_per_image=rollouts_per_image)
        if not 0 <= gamma <= 1:
            raise InputError(f"task.gamma must be in [0, 1], got {gamma}.")
        self.gamma, self.weights = gamma, weights or LossWeights()
        self._row_seed, self.device = first_row_seed(seed), torch.device(device)
        self._build = env
        share, self._weight = world().share(batch_size), world().weight(batch_size)
        # The batch size is checked before anything of this size is allocated.
        self._batches = ImageBatches(len(self._env("train", 1).scenes), batch_size, self._row_seed, self.device)
        self.env = self._env("train", len(share) * rollouts_per_image, rollouts_per_image, share.start)
        if self.env.answer_schedule.is_supervised:
            check_classes(self.env.classes)
        self._evaluation_envs: dict[Split, GlimpseVectorEnv] = {}
        self.steps_per_epoch, self.examples_per_step = self._batches.steps_per_epoch, batch_size
        # With early stopping the return, not the error, includes the cost of glimpses.
        self.monitor = "error" if self.env.answer_schedule.is_supervised and not self.env.stop else "return"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.agent = agent(**self.env.interface)
            self.baseline = baseline(feature_size=self.agent.core.size, rollouts_per_image=rollouts_per_image)
            self.patch_classifier = self._build_patch_classifier(patch_reward)
        self.to(self.device)
        self._fit_input_scales()
        self._check_entropy()
        if compile:
            self.agent.compile_step()

    def _build_patch_classifier(self, weight: float) -> PatchClassifier | None:
        check_weight("task.patch_reward", weight)
        if not weight:
            return None
        if not self.env.answer_schedule.is_supervised:
            raise InputError("task.patch_reward needs answers that are classes: set task.patch_reward=0.")
        if self.env.stop:  # log-probabilities are negative
            raise InputError("task.patch_reward would reward stops: set env.stop=false or task.patch_reward=0.")
        return PatchClassifier(self.agent.glimpse.patch_features, self.env.interface["num_classes"], weight)

    def step_bytes(self) -> int:
        activations = math.prod(self.env.interface["patch_shape"]) + 2 * self.agent.glimpse.merge.in_features
        activations += 2 * self.agent.glimpse.output_size + 8 * self.agent.core.size
        return 4 * self.env.num_envs * self.env.num_glimpses * activations

    def _fit_input_scales(self) -> None:
        """Fits the scales of the agent's inputs to the training split, independently of the batch size."""
        env = self._env("train", min(SCALE_IMAGES, len(self.env.scenes)))
        index = torch.linspace(0, len(env.scenes) - 1, env.num_envs, device=self.device).long()
        location = 2 * RowRandom(index + self._row_seed, torch.zeros_like(index)).uniform("location", 2) - 1
        self.agent.fit_input_scales(env.reset(options={"index": index, "location": location})[0])

    def _check_entropy(self) -> None:
        """Raises InputError if the weight of the entropy is set where no entropy can be trained."""
        sampled_answer = None if self.env.answer_schedule.is_supervised else self.agent.action
        policies = [each for each in (self.agent.location, self.agent.stop, sampled_answer) if each is not None]
        features = torch.zeros(1, self.agent.core.size, device=self.device)
        if self.weights.entropy and not any(policy(features).entropy().requires_grad for policy in policies):
            raise InputError(
                "task.weights.entropy has no effect on locations of fixed standard deviation: set "
                "policy.learn_std=true or task.weights.entropy=0."
            )

    def forward(self, step: int) -> StepResult:
        self.agent.anneal(self.progress)
        rollout = run_episode(self.agent, self.env, self._noise(step), {"index": self._batches(step), "episode": step})
        patch_log_prob = self._patch_log_prob(rollout)
        estimate = self._estimate(rollout, patch_log_prob)
        terms = {
            "loss/policy": self._global_mean(estimate.policy_loss),
            "loss/baseline": self._global_mean(estimate.baseline_loss, rollout.active),
        }
        loss = self.weights.policy * terms["loss/policy"] + self.weights.baseline * terms["loss/baseline"]
        if patch_log_prob is not None:
            terms["loss/patch"] = -self._global_mean(masked_mean(patch_log_prob, rollout.active), rollout.active)
            loss = loss + self.weights.patch * terms["loss/patch"]
        if rollout.logits is not None and rollout.targets is not None:
            mean = F.cross_entropy(rollout.logits.flatten(0, 1), rollout.targets.flatten())
            terms["loss/answer"] = self._global_mean(mean, rollout.targets != IGNORE_INDEX)
            loss = loss + self.weights.answer * terms["loss/answer"]
        if self.weights.entropy:
            loss = loss - self.weights.entropy * rollout.entropy()
        return StepResult(loss, lambda: self._metrics(rollout, estimate, terms))

    def _patch_log_prob(self, rollout: GlimpseRollout) -> Tensor | None:
        """Returns the log-probability of the label given each patch alone, if it is rewarded: (T, B), with gradient.

        Where there are several labels, it is that of the answer that is due next. 0 after the end of an episode.
        """
        if self.patch_classifier is None:
            return None
        labels, active = rollout.labels, rollout.active
        assert labels is not None
        if labels.ndim == 2:
            answers = torch.arange(len(active), device=active.device) // self.env.answer_schedule.glimpses_per_answer
            labels = labels.T[answers.clamp(max=labels.shape[1] - 1)]
        log_prob = self.patch_classifier(rollout.patch_features, labels.expand(active.shape).clamp(min=0))
        return torch.where(active, log_prob, 0)

    def _estimate(self, rollout: GlimpseRollout, patch_log_prob: Tensor | None) -> Estimate:
        """Computes the REINFORCE losses; the reward of a location includes that of the next patch, if any."""
        immediate = None
        if self.patch_classifier is not None:
            assert patch_log_prob is not None
            following = F.pad(self.patch_classifier.reward(patch_log_prob)[1:], (0, 0, 0, 1))
            immediate = torch.where(rollout.moved, following, 0)
        return reinforce(rollout, self.baseline, self.gamma, immediate)

    def _global_mean(self, mean: Tensor, mask: Tensor | None = None) -> Tensor:
        """Scales a mean over the rows, or over the elements in ``mask``, for the average over the processes.

        Where all rows end and answer at the same looks, all counts are proportional to the rows: nothing is exchanged.
        """
        if mask is not None and not self.env.answer_schedule.is_common:
            return global_mean(mean, mask)
        return mean if self._weight == 1 else self._weight * mean

    @torch.no_grad()
    def _metrics(self, rollout: GlimpseRollout, estimate: Estimate, terms: Mapping[str, Tensor]) -> dict[str, float]:
        """Computes the logged metrics of a training step."""
        values = {
            **terms,
            **estimate.metrics(),
            "policy/entropy": rollout.entropy(),
            "train/return": rollout.reward.sum(0).mean(),
            **{name: value.sum(0).mean() for name, value in rollout.components.items()},
            "policy/clamped": (rollout.sample[rollout.moved].abs() > 1).any(-1).float().mean(),
        }
        if rollout.logits is not None and rollout.targets is not None:
            correct = rollout.logits.argmax(-1) == rollout.targets
            values["train/accuracy"] = 100 * correct[rollout.targets != IGNORE_INDEX].float().mean()
        if self.env.stop:
            values["train/glimpses"] = rollout.num_glimpses().mean()
        return {name: float(value) for name, value in values.items()}

    def higher_is_better(self, metric: str) -> bool:
        return not metric.startswith(("error", "glimpses"))

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Computes the mean return, its terms and, where the answers have labels, the error in percent.

        An image counts as an error if any of its answers is wrong. Where the scenes have a target object, ``pointing``
        is the share of scenes in percent whose last look is inside its box. Choices are the modes of the policies. On
        the test split also with sampled choices (``_sampled``, the mean over ten trajectories), with the class
        probabilities averaged over these (``_mc``), and with uniformly random locations (``_random``).
        """
        metrics = self._evaluate(split, "greedy")[0]
        if split == "test":
            *sampled, averaged = self._evaluate(split, "sampled", _TRAJECTORIES)
            random = self._evaluate(split, "random")[0]
            names = list(metrics)
            metrics |= {f"{name}_sampled": sum(each[name] for each in sampled) / len(sampled) for name in names}
            metrics |= {f"{name}_mc": value for name, value in averaged.items()}
            metrics |= {f"{name}_random": random[name] for name in names}
        return metrics

    def _evaluate(self, split: Split, behavior: Behavior, trajectories: int = 1) -> list[dict[str, float]]:
        """Computes means over all images of a split.

        Returns:
            The metrics of every trajectory, then those of the averaged class probabilities: the error, if any.
        """
        images = len(self._evaluation_env(split).scenes)
        sums = partial(self._sums, split, behavior, trajectories)
        parts = parallel_map(sums, world().parts(images))
        return [
            {name: sum(total[name] for total in totals) / images for name in totals[0]}
            for totals in zip(*parts, strict=True)
        ]

    def _sums(self, split: Split, behavior: Behavior, trajectories: int, images: range) -> list[dict[str, float]]:
        """Computes the sums over some images of the metrics that :meth:`_evaluate` returns."""
        env = self._evaluation_env(split)
        totals = [defaultdict[str, float](float) for _ in range(trajectories + 1)]
        for index, mask in evaluation_batches(images, env.num_envs, self.device):
            rollouts = [
                evaluate_episodes(self.agent, env, index, EVALUATION_SEED, behavior, trajectory)
                for trajectory in range(trajectories)
            ]
            for total, rollout in zip(totals, rollouts, strict=False):
                for name, reward in {"return": rollout.reward, **rollout.components}.items():
                    total[name] += float(reward.sum(0)[mask].double().sum())
                if env.stop:
                    total["glimpses"] += float(rollout.num_glimpses()[mask].sum())
                if (pointing := rollout.pointing()) is not None:
                    total["pointing"] += 100 * float((pointing & mask).sum())
            if env.answer_schedule.is_supervised:
                answers = [rollout.final_answers(env.answer_schedule.num_answers > 1) for rollout in rollouts]
                probabilities, targets = [each for each, _ in answers], answers[0][1]
                for total, each in zip(totals, [*probabilities, torch.stack(probabilities).mean(0)], strict=True):
                    wrong = ((each.argmax(-1) != targets) & (targets != IGNORE_INDEX)).any(0)
                    total["error"] += 100 * float((wrong & mask).sum())
        return [dict(total) for total in totals]

    @torch.no_grad()
    def classify(self, split: Split) -> Classification | None:
        """Returns the answers along the trajectories of :meth:`evaluate`; None if they are not one class an image."""
        env = self._evaluation_env(split)
        if env.answer_schedule.label_shape != ():
            return None
        parts, images = [], range(len(env.scenes))
        for index, mask in evaluation_batches(images, env.num_envs, self.device):
            probability, labels = evaluate_episodes(self.agent, env, index, EVALUATION_SEED).final_answers(False)
            parts.append((labels[0][mask], probability[0][mask]))
        return Classification.join(parts, image_names(env.scenes), env.classes)

    def diagnostics(self, step: int) -> dict[str, float]:
        """Computes the variance of the policy gradient of one episode with respect to the location network.

        ``grad/variance_ratio`` is its ratio to the variance with the best constant as baseline. Images, first locations
        and policy noise are the same at every call.
        """
        if not list(self.agent.location.parameters()):
            return {}
        images, rollouts = min(_DIAGNOSTIC_IMAGES, len(self.env.scenes)), self.env.rollouts_per_image
        env = self._env("train", images * rollouts, rollouts)
        training = self.training
        self.eval()
        with torch.no_grad():
            index = torch.arange(images, device=self.device)
            rollout = run_episode(self.agent, env, self._noise(0, env), {"index": index, "episode": 0})
            estimate = self._estimate(rollout, self._patch_log_prob(rollout))
        self.train(training)
        gradient, without_baseline, score = (
            policy_gradients(self.agent.location, rollout, rollout.sample, torch.where(rollout.moved, weight, 0))
            for weight in (estimate.advantage, estimate.returns, torch.ones_like(estimate.returns))
        )
        variance, best = estimator_variances(gradient, without_baseline, score, rollouts)
        return {"grad/variance_location": variance, "grad/variance_ratio": variance / best if best else math.nan}

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Draws the glimpses at some images, as image and animation, and the locations of all looks of the split."""
        all_images = self._evaluation_env(split)
        env = self._env(split, min(_PLOTTED_IMAGES, len(all_images.scenes)), render_mode="rgb_array")
        index = torch.linspace(0, len(env.scenes) - 1, env.num_envs, device=self.device).long()
        frames = glimpse_frames(env, index, evaluate_episodes(self.agent, env, index, EVALUATION_SEED).actions)
        locations = [
            evaluate_episodes(self.agent, all_images, index, EVALUATION_SEED).location[:, mask]
            for index, mask in evaluation_batches(range(len(all_images.scenes)), all_images.num_envs, self.device)
        ]
        return {
            "glimpses.png": frames[-1],
            "glimpses.gif": Animation(tuple(frames), env.metadata["render_fps"]),
            "locations.png": location_histogram(locations, all_images.num_glimpses),
        }

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what a trained model needs besides its weights."""
        shape = self.env.answer_schedule.label_shape
        return {
            "classes": list(self.env.classes),
            "image_shape": list(self.env.image_shape),
            "label_shape": None if shape is None else list(shape),
            "interface": self.env.interface,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises KeyError if the state is that of another environment."""
        if state != self.get_extra_state():
            raise KeyError(f"the environment differs from that of the checkpoint: {state}")

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> GlimpsePredictor:
        extra, device = state["_extra_state"], arguments["device"]
        agent = arguments["agent"](**extra["interface"])
        agent.load_state_dict(substate(state, "agent."))
        seed = first_row_seed(arguments["seed"])
        return GlimpsePredictor(arguments["env"], agent.to(device).eval(), **extra, seed=seed, device=device)

    def _env(
        self, split: Split, num_envs: int, rollouts_per_image: int = 1, first_image: int = 0, **options: Any
    ) -> GlimpseVectorEnv:
        """Builds a seeded environment; its first row is that of image ``first_image`` of a training batch."""
        env = self._build(
            num_envs=num_envs,
            split=split,
            rollouts_per_image=rollouts_per_image,
            output="torch",
            device=str(self.device),
            autoreset_mode=AutoresetMode.DISABLED,
            **options,
        )
        first_row = first_image * rollouts_per_image
        env.reset(seed=self._row_seed + first_row if split == "train" else EVALUATION_SEED)
        return env

    def _evaluation_env(self, split: Split) -> GlimpseVectorEnv:
        if split not in self._evaluation_envs:
            images = len(self._env(split, num_envs=1).scenes)
            rows = max(map(len, world().parts(images)))
            self._evaluation_envs[split] = self._env(split, num_envs=min(EVALUATION_ROWS, rows))
        return self._evaluation_envs[split]

    def _noise(self, step: int, env: GlimpseVectorEnv | None = None) -> Noise:
        """Draws the noise of the choices of a training step."""
        first_row = self._row_seed
        if env is None:
            env = self.env
            first_row += self._batches.share.start * env.rollouts_per_image
        rows = torch.arange(env.num_envs, device=self.device) + first_row
        return draw_noise(RowRandom(rows, torch.full_like(rows, step)), env)
