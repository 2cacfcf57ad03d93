"""What the tasks on texts share: a corpus as numbers, cross-entropy, and REINFORCE for the hard choices on the way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.images import Split
from envs.inputs import check_counts
from envs.scene import UNASKED
from ram.attention import record_weights
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Words
from ram.corpora.batches import Batches, pad
from ram.corpora.vocabulary import Vocabulary
from ram.reinforce import Rollout, discounted_returns, policy_gradient_loss
from ram.sequence.models import Said
from ram.sequence.pictures import alignment
from ram.tasks import Picture, StepResult, Task

_EVALUATION_BATCH = 256
_CHOSEN_FROM = 12


class TrainedOnTexts:
    """A trained network with its vocabulary; what :func:`ram.load` returns.

    Args:
        model: the network.
        vocabulary: the words it knows.
        classes: what it tells apart.
        corpus: of the kind it was trained on, for its way to tell words.
        device: where it computes.
    """

    def __init__(
        self, model: nn.Module, vocabulary: Vocabulary, classes: Sequence[str], corpus: Corpus, device: str
    ) -> None:
        self.model, self.vocabulary, self.classes = model.to(device).eval(), vocabulary, tuple(classes)
        self.corpus, self.device = corpus, torch.device(device)

    def read(self, texts: Sequence[str]) -> tuple[tuple[Words, ...], Tensor, Tensor]:
        """The words of some texts, their numbers (B, N) and lengths (B,). Unknown words are one word.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise InputError("A model reads a list of at least one text.")
        words = tuple(map(self.corpus.tokenize, texts))
        for number, text in enumerate(words):
            if not text:
                raise InputError(f"Text {number} has no words: {texts[number]!r}.")
        return words, *self.vocabulary.numbers(words, self.device)


class TextTask(Task):
    """Trains a network by cross-entropy, and its hard choices, if it makes any, by REINFORCE.

    A subclass says what is asked of a text and sets ``classes``.

    Args:
        corpus: where the texts come from.
        model: builds the network; given ``vocabulary_size`` and what :meth:`sizes` adds.
        baseline: builds what the reward of hard choices is compared with.
        batch_size: texts a step.
        min_count: how often a word must come up in training to be known.
        policy_weight: of the hard choices' loss.
        seed: of weights, batches and noise.
        device: where all is held.
    """

    unit = "texts"
    maximize = False
    trained: ClassVar[type[TrainedOnTexts]]
    classes: tuple[str, ...]
    model: Any

    def __init__(
        self,
        corpus: Corpus,
        model: Callable[..., nn.Module],
        baseline: Callable[..., Baseline],
        batch_size: int = 32,
        min_count: int = 1,
        policy_weight: float = 1.0,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        check_counts("task", batch_size=batch_size, min_count=min_count)
        self.corpus, self.seed, self.device, self.policy_weight = corpus, seed, torch.device(device), policy_weight
        # All are read at once, so that a mistake in the files ends the run before any training.
        splits: list[Split] = ["train", "validation", "test"]
        self._splits: dict[Split, Examples] = {split: corpus.load(split) for split in splits}
        self.vocabulary = Vocabulary.of(self._splits["train"].texts, min_count)
        if not self.vocabulary.known:
            raise InputError(f"No word comes up as often as task.min_count={min_count}: lower it.")
        self.classes = self.name_classes(self._splits["train"])
        self._number = {name: number for number, name in enumerate(self.classes)}
        self._batches = Batches([len(text) for text in self._splits["train"].texts], batch_size, seed)
        self.steps_per_epoch, self.examples_per_step = self._batches.steps_per_epoch, batch_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(vocabulary_size=len(self.vocabulary), **self.sizes(self.classes))
            self.baseline = baseline(feature_size=self.model.words.size, rollouts_per_image=1)
        self.to(self.device)
        for split, examples in self._splits.items():
            longest = max(examples.texts, key=len)
            check_length(f"of the {split} split", longest, self.asked_length(longest), self.model.encoder.max_length)
            self.ask(examples)

    @abstractmethod
    def name_classes(self, train: Examples) -> tuple[str, ...]:
        """What is told apart. Raises :class:`InputError` where the corpus does not ask for it."""

    @abstractmethod
    def ask(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers (B, N), lengths (B,) and right classes, (B,) or (B, N) with -100 where none is asked for."""

    @staticmethod
    def asked_length(text: Words) -> int:
        """How many words of a text the network is given."""
        return len(text)

    @staticmethod
    def sizes(classes: Sequence[str]) -> dict[str, int]:
        """What a network must know beside the size of the vocabulary."""
        return {"num_classes": len(classes)}

    def split(self, split: Split) -> Examples:
        """The examples of a split."""
        return self._splits[split]

    def forward(self, step: int) -> StepResult:
        torch.manual_seed(((self.seed << 32) + step) % 2**63)  # dropout and choices are functions of (seed, step)
        numbers, lengths, right = self.ask(self.split("train").choose(self._batches(step)))
        said = self.model(numbers, lengths)
        losses, asked = _cross_entropy(said, right), right != UNASKED
        terms = {"loss/answer": losses.sum() / asked.sum()}
        if said.log_prob is not None:
            looks_back = self.model.encoder.looks_back
            policy, terms["loss/baseline"] = choices_loss(said, -losses, asked, self.baseline, looks_back=looks_back)
            terms["loss/policy"] = self.policy_weight * policy

        @torch.no_grad()
        def metrics() -> dict[str, float]:
            share = (said.logits.argmax(-1) == right)[asked].float().mean()
            return {name: float(value) for name, value in terms.items()} | {"train/accuracy": 100 * float(share)}

        return StepResult(torch.stack(list(terms.values())).sum(), metrics)

    @torch.no_grad()
    def answers(self, split: Split) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All answers of a split: given and right classes, and losses in nats, (n,) each; batch by batch."""
        examples = self.split(split)
        order = sorted(range(len(examples)), key=lambda number: len(examples.texts[number]))
        for start in range(0, len(order), _EVALUATION_BATCH):
            numbers, lengths, right = self.ask(examples.choose(order[start : start + _EVALUATION_BATCH]))
            said = self.model(numbers, lengths)
            asked = right != UNASKED
            yield said.logits.argmax(-1)[asked], right[asked], _cross_entropy(said, right)[asked]

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Picture]:
        """What every attention of the model weighs in one text, of middle length among the first."""
        examples = self.split(split)
        first = sorted(range(min(_CHOSEN_FROM, len(examples))), key=lambda number: len(examples.texts[number]))
        numbers, lengths, _ = self.ask(examples.choose([first[len(first) // 2]]))
        with record_weights(self.model) as records:
            self.model(numbers, lengths)
        words = self.vocabulary.decode(numbers[0].tolist())
        return {
            f"weights_{name.removesuffix('.attention')}.png": _alignment(calls, words, name)
            for name, calls in records.items()
        }

    def labels(self, targets: Sequence[Any] | None) -> Tensor:
        """The numbers of classes, (B,); or of each word's (B, N), -100 after the end."""
        number = self._number
        try:
            if targets and not isinstance(targets[0], str):
                return pad([[number[label] for label in row] for row in targets], self.device, UNASKED)[0]
            return torch.tensor([number[target] for target in targets or ()], device=self.device)
        except KeyError as error:
            raise InputError(f"The label {error.args[0]!r} of validation or test is not in training.") from error

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        return {"words": list(self.vocabulary.known), "classes": list(self.classes)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of other words or classes."""
        check_same(state, self.get_extra_state())

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> TrainedOnTexts:
        known = state["_extra_state"]
        vocabulary = Vocabulary(known["words"])
        model = arguments["model"](vocabulary_size=len(vocabulary), **cls.sizes(known["classes"]))
        prefix = "model."
        model.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        return cls.trained(model, vocabulary, known["classes"], arguments["corpus"], arguments["device"])


def check_length(where: str, text: Words, length: int, most: int | None) -> None:
    """Refuses a text that is longer than a model has positions for."""
    if most is not None and length > most:
        raise InputError(
            f"A text {where} has {length} words or pieces, and the model positions for {most}: raise their max_length, "
            f"or leave it out ({' '.join(text[:8])} ...)."
        )


def check_same(saved: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuses words or classes that are not those a checkpoint was written with; names one that differs."""
    for kind, known in present.items():
        if saved.get(kind) != known:
            old, new = (each if isinstance(each, list) else [] for each in (saved.get(kind), known))
            differing = sorted(set(old) ^ set(new))
            told = f", {differing[0]!r} for one" if differing else ""
            raise InputError(f"the {kind} of the corpus are not those it was trained on{told}: restore its files.")


def _cross_entropy(said: Said, right: Tensor) -> Tensor:
    """In nats, shaped as ``right``; 0 where nothing is asked."""
    flat = F.cross_entropy(said.logits.flatten(0, -2), right.flatten(), reduction="none", ignore_index=UNASKED)
    return flat.view_as(right)


def _alignment(calls: Sequence[Tensor], words: Sequence[str], title: str) -> np.ndarray:
    """Draws what one attention has weighed over a text in one call or, step by step, in several."""
    known = [F.pad(call[0], (0, len(words) - call.shape[-1])) for call in calls]  # (Q, N), or of heads (H, Q, N)
    weights = torch.cat(known, dim=-2)
    queries = words if weights.shape[-2] == len(words) else [f"query {n + 1}" for n in range(weights.shape[-2])]
    return alignment(weights, queries, words, title)


def choices_loss(
    said: Said, reward: Tensor, scored: Tensor, baseline: Baseline, gamma: float = 1.0, looks_back: bool = True
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
        looks_back: whether a choice changes no answer before it.

    Returns:
        The policy's loss for each answer due, as the cross-entropy is told, and the baseline's; scalars.
    """
    assert said.log_prob is not None
    paid = torch.where(scored, reward.detach(), 0).view(len(reward), -1).mT  # (T, B)
    if said.log_prob.ndim == 1:
        paid = paid.sum(0, keepdim=True)
    log_prob = said.log_prob.view(len(reward), -1).mT
    returns = discounted_returns(paid, gamma) if looks_back else paid.sum(0, keepdim=True).expand_as(paid)
    known = said.known.transpose(0, 1) if said.known.ndim == 3 else said.known.expand(len(paid), -1, -1)
    due = torch.ones_like(paid, dtype=torch.bool) if said.log_prob.ndim == 1 else scored.mT
    rollout = Rollout(known, log_prob, due, due, paid, torch.arange(len(reward), device=reward.device))
    estimate = baseline(rollout, returns)
    policy = policy_gradient_loss(rollout.log_prob, returns - estimate.value, rollout.mask)
    return policy * len(reward) / scored.sum(), estimate.loss
