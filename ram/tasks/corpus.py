"""What every task on a corpus shares: its splits, batches of it, cross-entropy, and REINFORCE for hard choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.batches import Batches, pad
from ram.corpora.captions import Captions
from ram.corpora.vocabulary import END, START
from ram.reinforce import Rollout, reinforce
from ram.sequence.classifiers import ModelOutput
from ram.tasks import StepResult, Task

EVALUATION_BATCH = 256

Examples_ = TypeVar("Examples_", Examples, Captions)


class CorpusTask(Task, Generic[Examples_]):
    """Trains a network on the texts or captions of a corpus.

    A subclass builds the network, and what the reward of its hard choices is compared with, as ``baseline``. It may say
    the same several times in a step, in adjacent rows whose choices differ, as ``rollouts``.

    Args:
        corpus: where the texts come from.
        batch_size: texts a step.
        min_count: how often a word must come up in training to be known.
        policy_weight: of the hard choices' loss.
        seed: of weights, batches and noise.
        device: where all is held.

    Attributes:
        examples: what a split of the corpus must be.
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
        self.corpus, self.seed, self.device, self.policy_weight = corpus, seed, torch.device(device), policy_weight
        # All are read at once, so that a mistake in the files ends the run before any training.
        splits: list[Split] = ["train", "validation", "test"]
        self._splits: dict[Split, Examples_] = {split: corpus.load(split) for split in splits}
        for loaded in self._splits.values():
            if not isinstance(loaded, self.examples):
                told = {Examples: "texts", Captions: "images with captions"}
                raise InputError(f"This task needs a corpus of {told[self.examples]}: choose another corpus or task.")
        self._batches = Batches(self.lengths(self.split("train")), batch_size, seed)
        self.steps_per_epoch, self.examples_per_step = self._batches.steps_per_epoch, batch_size

    @staticmethod
    @abstractmethod
    def lengths(examples: Examples_) -> list[int]:
        """What the examples of a batch have about the same of."""

    def split(self, split: Split) -> Examples_:
        """The examples of a split."""
        return self._splits[split]

    def begin(self, step: int) -> Examples_:
        """The examples of a training step, whose dropout and choices are functions of (seed, step) from here on."""
        torch.manual_seed(((self.seed << 32) + step) % 2**63)
        return self.split("train").choose(self._batches(step))

    def end(
        self,
        said: ModelOutput,
        right: Tensor,
        losses: Tensor,
        terms: dict[str, Tensor],
        gamma: float = 1.0,
        causal: bool = True,
    ) -> StepResult:
        """What a training step yields.

        Args:
            said: answers, and the log-probability of the hard choices on the way to them.
            right: the right classes, -100 where none is asked for.
            losses: shaped as ``right``, minus the log-probability of each.
            terms: of the loss, by name; those of the hard choices are added.
            gamma: discount of what later answers earn a choice.
            causal: whether a choice changes no answer before it.
        """
        asked = right != IGNORE_INDEX
        if said.log_prob is not None:
            policy, terms["loss/baseline"] = hard_attention_loss(
                said, -losses, asked, self.baseline, gamma, causal, self.rollouts
            )
            terms["loss/policy"] = self.policy_weight * policy

        @torch.no_grad()
        def metrics() -> dict[str, float]:
            share = self.correct(said, right)[asked].float().mean()
            return {name: float(value) for name, value in terms.items()} | {"train/accuracy": 100 * float(share)}

        return StepResult(torch.stack(list(terms.values())).sum(), metrics)

    def correct(self, said: ModelOutput, right: Tensor) -> Tensor:
        """Which answers are right, shaped as ``right``."""
        return said.logits.argmax(-1) == right

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of a task that knew other words, classes or images."""
        check_same(state, self.get_extra_state())

    def by_length(self, split: Split) -> Iterator[Examples_]:
        """All examples of a split, those of about one length together."""
        examples = self.split(split)
        lengths = self.lengths(examples)
        order = sorted(range(len(lengths)), key=lambda number: lengths[number])
        for start in range(0, len(order), EVALUATION_BATCH):
            yield examples.choose(order[start : start + EVALUATION_BATCH])


def tokenized(corpus: Corpus, texts: Sequence[str], verb: str) -> tuple[Tokens, ...]:
    """The words of some texts that somebody gave; ``verb`` is what the model does with them.

    Raises:
        InputError: if there are no texts, or one has no words.
    """
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"A model {verb} a list of at least one text.")
    words = tuple(map(corpus.tokenize, texts))
    for number, text in enumerate(words):
        if not text:
            raise InputError(f"Text {number} has no words: {texts[number]!r}.")
    return words


def check_length(where: str, text: Tokens, length: int, most: int | None) -> None:
    """Refuses a text that is longer than a model has positions for."""
    if most is not None and length > most:
        raise InputError(
            f"A text {where} has {length} words or pieces, and the model positions for {most}: raise their max_length, "
            f"or leave it out ({' '.join(text[:8])} ...)."
        )


def check_same(saved: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuses words or classes that are not those a checkpoint was written with; names one that differs."""
    for kind, known in present.items():
        if kind not in saved:
            raise InputError(f"it was trained without {kind} of a corpus: name a run of this task.")
        if saved[kind] != known:
            old, new = (each if isinstance(each, list) else [] for each in (saved[kind], known))
            if not old + new or not all(isinstance(word, str) for word in old + new):
                raise InputError(
                    f"the {kind} of the corpus is {known}, and was {saved[kind]}: set its options as then."
                )
            differing = sorted(set(old) ^ set(new))
            told = f", {differing[0][:40]!r} for one" if differing else ""
            raise InputError(f"the {kind} of the corpus are not those it was trained on{told}: restore its files.")


def answer_loss(
    logits: Tensor, right: Tensor, smoothing: float = 0.0, known: int | None = None
) -> tuple[Tensor, Tensor]:
    """What answers cost.

    Args:
        logits: (..., K).
        right: (...), the right classes, -100 where none is asked for.
        smoothing: share of the answer that is spread over the first ``known`` classes (Szegedy et al. 2016, section 7).
        known: how many those are; None for all.

    Returns:
        The cross-entropies, shaped as ``right`` and not smoothed; and the mean to descend.
    """
    losses, asked = cross_entropy(logits, right), right != IGNORE_INDEX
    mean = losses.sum() / asked.sum()
    if smoothing:
        known = logits.shape[-1] if known is None else known
        spread = -logits.log_softmax(-1)[..., :known].sum(-1)[asked].mean() / known
        mean = mean.lerp(spread, smoothing)
    return losses, mean


def teacher_forcing_batch(said: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """What B sequences go on from, the start symbol before each, and what is to be said, the end after: (B, T) int64.

    The former is filled up with 0, the latter with -100.
    """
    inputs, _ = pad([[START, *words] for words in said], device)
    return inputs, pad([[*words, END] for words in said], device, IGNORE_INDEX)[0]


def cross_entropy(logits: Tensor, right: Tensor) -> Tensor:
    """In nats, shaped as ``right``; 0 where nothing is asked."""
    flat = F.cross_entropy(logits.flatten(0, -2), right.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
    return flat.view_as(right)


def hard_attention_loss(
    said: ModelOutput,
    reward: Tensor,
    scored: Tensor,
    baseline: Baseline,
    gamma: float = 1.0,
    causal: bool = True,
    rollouts: int = 1,
) -> tuple[Tensor, Tensor]:
    """What trains the hard choices on the way to some answers.

    A choice is paid for the answers it may have changed: that of its own place and those after it, or all of the text's
    where what is chosen at one place is seen at every other.

    Args:
        said: with the choices' log-probability, (B,) or (B, T).
        reward: (B,) or (B, T), the log-probability of the right answers; its gradient is not used.
        scored: shaped as ``reward``, whether an answer is due.
        baseline: what the return is compared with.
        gamma: discount of the rewards of later places.
        causal: whether a choice changes no answer before it.
        rollouts: how many adjacent rows say the same.

    Returns:
        The policy's loss for each answer due, as the cross-entropy is told, and the baseline's; scalars.
    """
    assert said.log_prob is not None
    rows = len(reward)
    paid = torch.where(scored, reward.detach(), 0).view(rows, -1).mT  # (T, B)
    due = scored.mT if said.log_prob.ndim == 2 else torch.ones(1, rows, dtype=torch.bool, device=reward.device)
    if said.log_prob.ndim == 1:
        paid = paid.sum(0, keepdim=True)
    elif not causal:  # the whole reward at the end, so that every choice has all of it as its return
        total = paid.sum(0, keepdim=True)
        paid = torch.cat([torch.zeros_like(paid[1:]), total])
    features = said.features.transpose(0, 1) if said.features.ndim == 3 else said.features.expand(len(paid), -1, -1)
    group = torch.arange(rows, device=reward.device) // rollouts
    rollout = Rollout(features, said.log_prob.view(rows, -1).mT, due, due, paid, group)
    estimate = reinforce(rollout, baseline, gamma)
    return estimate.policy_loss * rows / scored.sum(), estimate.baseline_loss
