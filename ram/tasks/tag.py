"""Sequence labelling: one label per word."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.corpora import Examples
from ram.inference.text import TextTagger
from ram.tasks import Artifact
from ram.tasks.text import TextTask

_NUM_WRITTEN = 12


class TagTask(TextTask):
    """Trains a :class:`ram.sequence.classifiers.Tagger`; see :class:`TextTask`."""

    monitor = "error"
    trained_model = TextTagger

    def higher_is_better(self, metric: str) -> bool:
        return metric == "f1"

    def find_classes(self, train: Examples) -> tuple[str, ...]:
        if train.targets is None or isinstance(train.targets[0], str):
            raise InputError(
                "task=tag needs a corpus with one label per word, such as corpus=multi30k corpus.targets=tags."
            )
        return tuple(sorted({label for labels in train.targets for label in labels}))

    def make_batch(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        for text, labels in zip(examples.texts, examples.targets or (), strict=True):
            if len(text) != len(labels):
                raise InputError(f"A text of {len(text)} words has {len(labels)} labels: {' '.join(text)}.")
        return super().make_batch(examples)

    def evaluate(self, split: Split) -> dict[str, float]:
        """Returns the error in percent of the words, and the macro-averaged F1 of the labels in percent."""
        predicted, targets, _ = (torch.cat(parts) for parts in zip(*self.predictions(split), strict=True))
        count = len(self.classes)
        confusion = (targets * count + predicted).bincount(minlength=count**2).view(count, count).float()
        f1 = 2 * confusion.diag() / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)
        return {
            "error": 100 * float((predicted != targets).float().mean()),
            "f1": 100 * float(f1[confusion.sum(1) > 0].mean()),
        }

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Adds texts with the predicted label of every word, and the target in parentheses if it differs."""
        examples = self.split(split)
        selected = examples.select(list(range(min(_NUM_WRITTEN, len(examples)))))
        token_ids, lengths, targets = self.make_batch(selected)
        predicted = self.model(token_ids, lengths).logits.argmax(-1)
        lines = []
        for text, labels, row in zip(selected.texts, predicted.tolist(), targets.tolist(), strict=True):
            words = [
                f"{word}/{self.classes[label]}" + ("" if label == target else f"({self.classes[target]})")
                for word, label, target in zip(text, labels, row, strict=False)
                if target != IGNORE_INDEX
            ]
            lines.append(" ".join(words))
        return super().pictures(split) | {"tags.txt": "\n".join(lines) + "\n"}
