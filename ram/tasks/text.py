"""What the tasks share that say of a text what it is, or go on with it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.attention import record_weights
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.batches import pad
from ram.corpora.vocabulary import Vocabulary, learned
from ram.plots.text import alignment
from ram.tasks import Artifact, StepResult, part
from ram.tasks.corpus import CorpusTask, answer_loss, check_length, cross_entropy, tokenized

_CHOSEN_FROM = 12


class TextModel:
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

    def read(self, texts: Sequence[str]) -> tuple[tuple[Tokens, ...], Tensor, Tensor]:
        """The words of some texts, their numbers (B, N) and lengths (B,). Unknown words are one word.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        words = tokenized(self.corpus, texts, "reads")
        return words, *self.vocabulary.numbers(words, self.device)


class TextTask(CorpusTask[Examples]):
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

    maximize = False
    trained: ClassVar[type[TextModel]]
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
        self.vocabulary = learned(self._splits["train"].texts, min_count)
        self.classes = self.name_classes(self._splits["train"])
        self._number = {name: number for number, name in enumerate(self.classes)}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(vocabulary_size=len(self.vocabulary), **self.sizes(self.classes))
            self.baseline = baseline(feature_size=self.model.embedding.size, rollouts_per_image=1)
        self.to(self.device)
        for split, examples in self._splits.items():
            number = max(range(len(examples)), key=lambda number: len(examples.texts[number]))
            longest, most = examples.texts[number], self.model.encoder.max_length
            check_length(examples.where(number, split), longest, self.asked_length(longest), most)
            self.ask(examples)

    @abstractmethod
    def name_classes(self, train: Examples) -> tuple[str, ...]:
        """What is told apart. Raises :class:`InputError` where the corpus does not ask for it."""

    @abstractmethod
    def ask(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers (B, N), lengths (B,) and right classes, (B,) or (B, N) with -100 where none is asked for."""

    @staticmethod
    def lengths(examples: Examples) -> list[int]:
        return list(map(len, examples.texts))

    @staticmethod
    def asked_length(text: Tokens) -> int:
        """How many words of a text the network is given."""
        return len(text)

    @staticmethod
    def sizes(classes: Sequence[str]) -> dict[str, int]:
        """What a network must know beside the size of the vocabulary."""
        return {"num_classes": len(classes)}

    def forward(self, step: int) -> StepResult:
        numbers, lengths, right = self.ask(self.begin(step))
        said = self.model(numbers, lengths)
        losses, mean = answer_loss(said.logits, right)
        return self.end(said, right, losses, {"loss/answer": mean}, causal=self.model.encoder.causal)

    @torch.no_grad()
    def answers(self, split: Split) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All answers of a split: given and right classes, and losses in nats, (n,) each; batch by batch."""
        for examples in self.by_length(split):
            numbers, lengths, right = self.ask(examples)
            said = self.model(numbers, lengths)
            asked = right != IGNORE_INDEX
            yield said.logits.argmax(-1)[asked], right[asked], cross_entropy(said.logits, right)[asked]

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
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
                return pad([[number[label] for label in row] for row in targets], self.device, IGNORE_INDEX)[0]
            return torch.tensor([number[target] for target in targets or ()], device=self.device)
        except KeyError as error:
            raise InputError(f"The label {error.args[0]!r} of validation or test is not in training.") from error

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        return {"words": list(self.vocabulary.known), "classes": list(self.classes)}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> TextModel:
        known = state["_extra_state"]
        vocabulary = Vocabulary(known["words"])
        model = arguments["model"](vocabulary_size=len(vocabulary), **cls.sizes(known["classes"]))
        model.load_state_dict(part(state, "model."))
        return cls.trained(model, vocabulary, known["classes"], arguments["corpus"], arguments["device"])


def _alignment(calls: Sequence[Tensor], words: Sequence[str], title: str) -> np.ndarray:
    """Draws what one attention has weighed over a text in one call or, step by step, in several."""
    known = [F.pad(call[0], (0, len(words) - call.shape[-1])) for call in calls]  # (Q, N), or of heads (H, Q, N)
    weights = torch.cat(known, dim=-2)
    queries = words if weights.shape[-2] == len(words) else [f"query {n + 1}" for n in range(weights.shape[-2])]
    return alignment(weights, queries, words, title)
