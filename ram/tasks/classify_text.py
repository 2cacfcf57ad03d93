"""Say what a text is: one label a text, by whatever encoder and reader a configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split
from ram.corpora import Examples, Tokens
from ram.plots.text import direction_of_words, weights_over_words
from ram.tasks import Artifact, Embedding
from ram.tasks.text import TextModel, TextTask

_PICTURED = 12
_EMBEDDED = 2000  # of the commonest words, in the projector


@dataclass(frozen=True)
class Prediction:
    """What a trained model says about N texts.

    Attributes:
        label: N class names.
        probability: (N, K), of every class.
        words: N texts, as the model read them.
        weights: N times what each word counted, (Q, words), where the model weighs them; else None.
    """

    label: tuple[str, ...]
    probability: Tensor
    words: tuple[Tokens, ...]
    weights: tuple[Tensor, ...] | None


class TextClassifier(TextModel):
    """A trained :class:`ram.sequence.classifiers.Classifier`."""

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> Prediction:
        """Names the class of every text.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        words, numbers, lengths = self.read(texts)
        said = self.model(numbers, lengths)
        weights = said.weights
        return Prediction(
            label=tuple(self.classes[best] for best in said.logits.argmax(-1).tolist()),
            probability=said.logits.softmax(-1),
            words=words,
            weights=None if weights is None else tuple(w[:, : len(t)] for w, t in zip(weights, words, strict=True)),
        )


class ClassifyTextTask(TextTask):
    """Trains a :class:`ram.sequence.classifiers.Classifier`; see :class:`TextTask`."""

    monitor = "error"
    trained = TextClassifier

    def name_classes(self, train: Examples) -> tuple[str, ...]:
        if train.targets is None or not isinstance(train.targets[0], str):
            raise InputError("task=classify_text needs a corpus with one label a text, such as corpus=negation.")
        classes = tuple(sorted(set(map(str, train.targets))))
        if len(classes) < 2:
            raise InputError(f"All texts of the corpus have the label {classes[0]!r}: there must be another.")
        return classes

    def ask(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        return *self.vocabulary.numbers(examples.texts, self.device), self.labels(examples.targets)

    def evaluate(self, split: Split) -> dict[str, float]:
        """The error in percent of the texts, and the cross-entropy in nats."""
        given, right, losses = (torch.cat(parts) for parts in zip(*self.answers(split), strict=True))
        return {"error": 100 * float((given != right).float().mean()), "loss": float(losses.mean())}

    def pictures(self, split: Split) -> dict[str, Artifact]:
        """What every word counts in some texts, where words lean by themselves, and their vectors."""
        examples = self.split(split)
        chosen = examples.choose([round(n) for n in np.linspace(0, len(examples) - 1, min(_PICTURED, len(examples)))])
        numbers, lengths, right = self.ask(chosen)
        vectors = self.model.embedding(numbers).detach().requires_grad_()
        # In evaluation mode cuDNN's recurrent layers have no gradient; torch's own do.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            said = self.model.read(vectors, lengths)
            (slope,) = torch.autograd.grad(said.logits.amax(-1).sum(), vectors)
        pictures = super().pictures(split) | {
            "attention.png": weights_over_words(
                chosen.texts,
                None if said.weights is None else said.weights.detach(),
                slope.norm(dim=-1),
                [self.classes[best] for best in said.logits.argmax(-1).tolist()],
                [self.classes[label] for label in right.tolist()],
            )
        }
        known = self.vocabulary.known[:_EMBEDDED]
        with torch.no_grad():
            alone = self.model(*self.vocabulary.numbers([(word,) for word in known], self.device)).logits.cpu()
        if len(self.classes) == 2:
            pictures["words.png"] = direction_of_words(known, alone[:, 1] - alone[:, 0], self.classes)
        leaning = [self.classes[best] for best in alone.argmax(-1).tolist()]
        first = len(self.vocabulary) - len(self.vocabulary.known)
        table = self.model.embedding.table.weight.detach()[first:][:_EMBEDDED].cpu()
        pictures["words"] = Embedding(table, {"word": known, "class": leaning})
        return pictures
