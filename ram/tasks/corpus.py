"""Base class of tasks on corpora: batches, cross-entropy, and REINFORCE for hard attention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers, check_weight
from ram.baselines import Baseline
from ram.corpora import Captions, Examples
from ram.corpora.batches import EVALUATION_BATCH_SIZE, Batches
from ram.distributed import Result, global_mean, parallel_map, world
from ram.sequence.interfaces import ModelOutput
from ram.tasks import StepResult, Task, noise_seed
from ram.tasks.hard_attention import hard_attention_loss

Examples_ = TypeVar("Examples_", Examples, Captions)


class CorpusTask(Task, Generic[Examples_]):
    """Base class of tasks that train a model on the texts or captions of a corpus.

    A subclass builds the model, and ``baseline``, the baseline of its hard attention. It may repeat every example in
    ``rollouts`` adjacent rows, whose choices differ.

    Args:
        corpus: the data set.
        batch_size: texts per step, over all processes.
        min_count: minimum number of occurrences of a word in training; other words are unknown.
        policy_weight: weight of the loss of hard attention.
        seed: of weights, batches and noise.
        device: of the model and the batches.

    Attributes:
        examples: the type of a split of the corpus.
    """

    unit = "texts"
    baseline: Baseline
    rollouts = 1
    examples: type = Examples

    def __init__(
        self, corpus: Any, batch_size: int, min_count: int, policy_weight: float, seed: int, device: str
    ) -> None:
        super().__init__()
        check_positive_integers("task", batch_size=batch_size, min_count=min_count)
        check_weight("task.policy_weight", policy_weight)
        self.corpus, self.seed, self.device, self.policy_weight = corpus, seed, torch.device(device), policy_weight
        # All splits are loaded now, so that an error in the files ends the run before training.
        splits: list[Split] = ["train", "validation", "test"]
        self._splits: dict[Split, Examples_] = {split: corpus.load(split) for split in splits}
        for loaded in self._splits.values():
            if not isinstance(loaded, self.examples):
                needed = {Examples: "texts", Captions: "images with captions"}[self.examples]
                raise InputError(f"This task needs a corpus of {needed}: choose another corpus or task.")
        self._batches = Batches(self.lengths(self.split("train")), batch_size, seed)
        self.steps_per_epoch, self.examples_per_step = self._batches.steps_per_epoch, batch_size

    @staticmethod
    @abstractmethod
    def lengths(examples: Examples_) -> list[int]:
        """Returns the length by which each example is batched with others."""

    def split(self, split: Split) -> Examples_:
        """Returns the examples of a split."""
        return self._splits[split]

    def training_batch(self, step: int) -> Examples_:
        """Returns the examples of a training step that this process computes, and seeds all noise that follows.

        The seed is a function of (seed, step, rank): dropout and sampled choices are those of a single process in
        distribution only.
        """
        torch.manual_seed(noise_seed(self.seed, step, world().rank))
        indices = self._batches(step)
        return self.split("train").select([indices[row] for row in world().share(len(indices))])

    def first_row(self, step: int) -> int:
        """Returns the number of this process's first example in the batch of a training step."""
        return world().share(len(self._batches(step))).start

    def uniform(self, step: int) -> Tensor:
        """Returns a number in [0, 1) for each example of :meth:`training_batch`, the same as in a single process."""
        count, rank = len(self._batches(step)), world().rank
        # Process 0 continues the seeded generator, as dropout does.
        generator = torch.Generator().manual_seed(noise_seed(self.seed, step)) if rank else None
        share = world().share(count)
        return torch.rand(count, generator=generator)[share.start : share.stop]

    def step_result(
        self,
        output: ModelOutput,
        targets: Tensor,
        losses: Tensor,
        terms: dict[str, Tensor],
        gamma: float = 1.0,
        causal: bool = True,
        immediate: Tensor | None = None,
    ) -> StepResult:
        """Adds the losses of hard attention and returns the result of a training step.

        Args:
            output: of the model, with logits (n, K) of the n targets, row by row.
            targets: (B,) or (B, T) class indices; IGNORE_INDEX where there is no target.
            losses: (n,), the negative log-probability of each target.
            terms: the other terms of the loss, by name.
            gamma: discount factor of the rewards of later positions.
            causal: whether a choice affects its own and later positions only.
            immediate: (n,), rewards that are not part of the return of earlier choices; None for 0.
        """
        mask = targets != IGNORE_INDEX
        if output.log_prob is not None:
            zeros = losses.new_zeros(mask.shape)
            reward = zeros.masked_scatter(mask, -losses.detach())
            if immediate is not None:
                immediate = zeros.masked_scatter(mask, immediate)
            policy, terms["loss/baseline"] = hard_attention_loss(
                output, reward, mask, self.baseline, gamma, causal, self.rollouts, immediate
            )
            terms["loss/policy"] = self.policy_weight * policy

        @torch.no_grad()
        def metrics() -> dict[str, float]:
            accuracy = self.correct(output, targets[mask]).float().mean()
            return {name: float(value) for name, value in terms.items()} | {"train/accuracy": 100 * float(accuracy)}

        return StepResult(torch.stack(list(terms.values())).sum(), metrics)

    def correct(self, output: ModelOutput, targets: Tensor) -> Tensor:
        """Returns which predictions are correct, in the shape of ``targets``."""
        return output.logits.argmax(-1) == targets

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of a task with other words, classes or images."""
        check_vocabulary_unchanged(state, self.get_extra_state())

    def map_by_length(self, function: Callable[[Examples_], Result], split: Split) -> list[Result]:
        """Returns the results of batches of similar length, which are all examples of a split.

        Args:
            function: see :func:`ram.distributed.parallel_map`.
            split: the split.
        """
        examples = self.split(split)
        lengths = self.lengths(examples)
        order = sorted(range(len(lengths)), key=lambda index: lengths[index])
        batches = [
            order[start : start + EVALUATION_BATCH_SIZE] for start in range(0, len(order), EVALUATION_BATCH_SIZE)
        ]
        return parallel_map(lambda indices: function(examples.select(indices)), batches)

    def map_parts(self, function: Callable[[Examples_], Sequence[Result]], examples: Examples_) -> list[Result]:
        """Returns one result for every example; each process computes a part of them."""
        parts = world().parts(len(examples))
        return list(chain(*parallel_map(lambda part: function(examples.select(part)), parts)))


def check_vocabulary_unchanged(saved: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuses words or classes that differ from those in a checkpoint, and names one that differs."""
    for kind, value in present.items():
        if kind not in saved:
            raise InputError(f"the checkpoint has no {kind} of a corpus: name a run of this task.")
        if saved[kind] != value:
            old, new = (entry if isinstance(entry, list) else [] for entry in (saved[kind], value))
            if not old + new or not all(isinstance(word, str) for word in old + new):
                raise InputError(
                    f"the {kind} of the corpus is {value} but was {saved[kind]} in training: restore its options."
                )
            differing = sorted(set(old) ^ set(new))
            example = f", for example {differing[0][:40]!r}" if differing else ""
            raise InputError(f"the {kind} of the corpus differ from those of training{example}: restore its files.")


def answer_loss(
    logits: Tensor, targets: Tensor, smoothing: float = 0.0, num_smoothed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Computes the cross-entropy of each target, and the mean loss with label smoothing; see :func:`global_mean`.

    Args:
        logits: (n, K).
        targets: (n,) class indices.
        smoothing: probability mass that is spread over the first ``num_smoothed`` classes (Szegedy et al. 2016,
            section 7).
        num_smoothed: number of classes with smoothed labels; None for all.

    Returns:
        The losses without smoothing, (n,); and the mean with smoothing, a scalar.
    """
    log_probs = logits.log_softmax(-1)
    losses = F.nll_loss(log_probs, targets, reduction="none")
    mean = losses.mean()
    if smoothing:
        mean = mean.lerp(-log_probs[:, :num_smoothed].mean(), smoothing)
    return losses, global_mean(mean, len(targets))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Computes the cross-entropy in nats, in the shape of ``targets``; 0 where the target is IGNORE_INDEX."""
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
    return losses.view_as(targets)
