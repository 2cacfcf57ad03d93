"""Classification of texts: one label per text."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import Split
from ram.corpora import Examples
from ram.corpora.batches import EVALUATION_BATCH_SIZE
from ram.inference.text import TextClassifier
from ram.metrics.classification import Classification
from ram.plots.text import direction_of_words, weights_over_words
from ram.tasks import Artifact, Embedding
from ram.tasks.text import TextTask

_NUM_DRAWN = 12
_NUM_EMBEDDED = 2000  # most frequent words, in the projector


class ClassifyTextTask(TextTask):
    """Trains a :class:`ram.sequence.classifiers.Classifier`; see :class:`TextTask`."""

    monitor = "error"
    trained_model = TextClassifier

    def find_classes(self, train: Examples) -> tuple[str, ...]:
        if train.targets is None or not isinstance(train.targets[0], str):
            raise InputError("task=classify_text needs a corpus with one label per text, such as corpus=negation.")
        classes = tuple(sorted(set(map(str, train.targets))))
        if len(classes) < 2:
            raise InputError(f"All texts of the corpus have the label {classes[0]!r}: there must be another.")
        return classes

    def evaluate(self, split: Split) -> dict[str, float]:
        """Returns the error in percent of the texts and the cross-entropy in nats."""
        predicted, targets, losses = (torch.cat(parts) for parts in zip(*self.predictions(split), strict=True))
        return {"error": 100 * float((predicted != targets).float().mean()), "loss": float(losses.mean())}

    @torch.no_grad()
    def classify(self, split: Split) -> Classification:
        examples = self.split(split)
        parts = []
        for start in range(0, len(examples), EVALUATION_BATCH_SIZE):
            batch = range(start, min(start + EVALUATION_BATCH_SIZE, len(examples)))
            token_ids, lengths, labels = self.make_batch(examples.select(batch))
            parts.append((labels, self.model(token_ids, lengths).logits.softmax(-1)))
        return Classification.join(parts, [" ".join(text) for text in examples.texts], self.classes)

    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Adds the attention weights and gradients of the words of some texts, and the class of single words."""
        examples = self.split(split)
        count = min(_NUM_DRAWN, len(examples))
        selected = examples.select([round(index) for index in np.linspace(0, len(examples) - 1, count)])
        token_ids, lengths, targets = self.make_batch(selected)
        vectors = self.model.embedding(token_ids).detach().requires_grad_()
        # In evaluation mode cuDNN's recurrent layers have no gradient; torch's own do.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            output = self.model.forward_embedded(vectors, lengths)
            (gradient,) = torch.autograd.grad(output.logits.amax(-1).sum(), vectors)
        weights = None if output.weights is None else output.weights.detach()
        predicted, correct = self._names(output.logits.argmax(-1)), self._names(targets)
        drawn = weights_over_words(selected.texts, weights, gradient.norm(dim=-1), predicted, correct)
        return super().pictures(split) | {"attention.png": drawn} | self._word_pictures()

    @torch.no_grad()
    def _word_pictures(self) -> dict[str, Artifact]:
        """Draws the log-odds of words of two classes, and returns the embeddings of words with their class."""
        words = self.vocabulary.tokens[:_NUM_EMBEDDED]
        logits = self.model(*self.vocabulary.encode_batch([(word,) for word in words], self.device)).logits.cpu()
        first = len(self.vocabulary) - len(self.vocabulary.tokens)
        vectors = self.model.embedding.table.weight.detach()[first:][:_NUM_EMBEDDED].cpu()
        artifacts: dict[str, Artifact] = {
            "words": Embedding(vectors, {"word": words, "class": self._names(logits.argmax(-1))})
        }
        if len(self.classes) == 2:
            artifacts["words.png"] = direction_of_words(words, logits[:, 1] - logits[:, 0], self.classes)
        return artifacts

    def _names(self, indices: Tensor) -> list[str]:
        """Returns the names of classes (B,)."""
        return [self.classes[index] for index in indices.tolist()]
