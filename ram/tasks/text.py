"""Base class of tasks that classify texts, label words or model text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.attention import record_weights
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.batches import pad
from ram.corpora.vocabulary import Vocabulary, build_vocabulary
from ram.inference.text import TextModel, check_length
from ram.plots.alignment import recorded_alignment
from ram.tasks import Artifact, StepResult, substate
from ram.tasks.corpus import CorpusTask, answer_loss, cross_entropy

_NUM_CANDIDATES = 12  # the drawn text has the median length of this many


class TextTask(CorpusTask[Examples]):
    """Base class of tasks on texts: cross-entropy, and REINFORCE for hard attention.

    A subclass defines the classes and the targets.

    Args:
        corpus: the data set.
        model: builds the model; called with ``vocabulary_size`` and :meth:`sizes`.
        baseline: builds the baseline of hard attention.
        batch_size: texts per step.
        min_count: minimum number of occurrences of a word in training; other words are unknown.
        policy_weight: weight of the loss of hard attention.
        seed: of weights, batches and noise.
        device: of the model and the batches.
    """

    class_layers = ("model.out.",)
    trained_model: ClassVar[type[TextModel]]
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
        super().__init__(corpus, batch_size, min_count, policy_weight, seed, device)
        self.vocabulary = build_vocabulary(self._splits["train"].texts, min_count)
        self.classes = self.find_classes(self._splits["train"])
        self._class_indices = {name: index for index, name in enumerate(self.classes)}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(vocabulary_size=len(self.vocabulary), **self.sizes(self.classes))
            self.baseline = baseline(feature_size=self.model.embedding.size, rollouts_per_image=1)
        self.to(self.device)
        for split, examples in self._splits.items():
            index = max(range(len(examples)), key=lambda index: len(examples.texts[index]))
            longest, max_length = examples.texts[index], self.model.encoder.max_length
            check_length(examples.describe_location(index, split), longest, self.input_length(longest), max_length)
            self.make_batch(examples)

    @abstractmethod
    def find_classes(self, train: Examples) -> tuple[str, ...]:
        """Returns the names of the classes. Raises :class:`InputError` if the corpus has no such targets."""

    def make_batch(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        """Returns token ids (B, N), lengths (B,) and targets, (B,) or (B, N) with IGNORE_INDEX for none."""
        token_ids, lengths = self.vocabulary.encode_batch(examples.texts, self.device)
        return token_ids, lengths, self._class_targets(examples)

    @staticmethod
    def lengths(examples: Examples) -> list[int]:
        return list(map(len, examples.texts))

    @staticmethod
    def input_length(text: Tokens) -> int:
        """Returns the number of input tokens of a text."""
        return len(text)

    @staticmethod
    def sizes(classes: Sequence[str]) -> dict[str, int]:
        """Returns the arguments of a model that depend on the classes."""
        return {"num_classes": len(classes)}

    def forward(self, step: int) -> StepResult:
        token_ids, lengths, targets = self.make_batch(self.training_batch(step))
        output, mask = self.model(token_ids, lengths), targets != IGNORE_INDEX
        output = replace(output, logits=output.logits[mask])
        losses, mean = answer_loss(output.logits, targets[mask])
        return self.step_result(output, targets, losses, {"loss/answer": mean}, causal=self.model.encoder.causal)

    @torch.no_grad()
    def predictions(self, split: Split) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Returns predictions, targets and losses in nats of every batch of a split, (n,) each, on the CPU."""

        def predict(examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
            token_ids, lengths, targets = self.make_batch(examples)
            logits = self.model(token_ids, lengths).logits
            mask, losses = targets != IGNORE_INDEX, cross_entropy(logits, targets)
            return logits.argmax(-1)[mask].cpu(), targets[mask].cpu(), losses[mask].cpu()

        return self.map_by_length(predict, split)

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Draws the weights of every attention module of the model over one text."""
        examples = self.split(split)
        indices = sorted(range(min(_NUM_CANDIDATES, len(examples))), key=lambda index: len(examples.texts[index]))
        token_ids, lengths, _ = self.make_batch(examples.select([indices[len(indices) // 2]]))
        with record_weights(self.model) as records:
            self.model(token_ids, lengths)
        tokens = self.vocabulary.decode(token_ids[0].tolist())
        return {
            f"weights_{name.removesuffix('.attention').removesuffix('.self_attention')}.png": recorded_alignment(
                calls, tokens, name
            )
            for name, calls in records.items()
        }

    def _class_targets(self, examples: Examples) -> Tensor:
        """Returns class indices: (B,), or (B, N) padded with IGNORE_INDEX if there is one label per word."""
        indices, targets = self._class_indices, examples.targets or ()
        try:
            if targets and not isinstance(targets[0], str):
                return pad([[indices[label] for label in row] for row in targets], self.device, IGNORE_INDEX)[0]
            return torch.tensor([indices[target] for target in targets], device=self.device)
        except KeyError as error:
            raise InputError(f"The label {error.args[0]!r} of validation or test is not in training.") from error

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the words and classes, which :meth:`restore` needs besides the weights."""
        return {"words": list(self.vocabulary.tokens), "classes": list(self.classes)}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> TextModel:
        extra = state["_extra_state"]
        vocabulary = Vocabulary(extra["words"])
        model = arguments["model"](vocabulary_size=len(vocabulary), **cls.sizes(extra["classes"]))
        model.load_state_dict(substate(state, "model."))
        return cls.trained_model(model, vocabulary, extra["classes"], arguments["corpus"], arguments["device"])
