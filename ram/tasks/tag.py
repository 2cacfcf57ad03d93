"""Say what every word of a text is: one label a word."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.corpora import Examples
from ram.tasks import Artifact
from ram.tasks.text import TextModel, TextTask

_WRITTEN = 12


class TextTagger(TextModel):
    """A trained :class:`ram.sequence.classifiers.Tagger`."""

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        """Every word of every text with its label.

        Raises:
            InputError: if there are no texts, or one has no words.
        """
        words, numbers, lengths = self.read(texts)
        best = self.model(numbers, lengths).logits.argmax(-1).tolist()
        return [
            [(word, self.classes[label]) for word, label in zip(text, row, strict=False)]
            for text, row in zip(words, best, strict=True)
        ]


class TagTask(TextTask):
    """Trains a :class:`ram.sequence.classifiers.Tagger`; see :class:`TextTask`."""

    monitor = "error"
    trained = TextTagger

    def name_classes(self, train: Examples) -> tuple[str, ...]:
        if train.targets is None or isinstance(train.targets[0], str):
            raise InputError("task=tag needs a corpus with one label a word, such as corpus=multi30k corpus.ask=tags.")
        _check(train)
        return tuple(sorted({label for labels in train.targets for label in labels}))

    def ask(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        _check(examples)
        return *self.vocabulary.numbers(examples.texts, self.device), self.labels(examples.targets)

    def evaluate(self, split: Split) -> dict[str, float]:
        """The error in percent of the words, and the mean F1 of the labels in percent, each label as weighty."""
        given, right, _ = (torch.cat(parts).cpu() for parts in zip(*self.answers(split), strict=True))
        kinds = len(self.classes)
        counts = (right * kinds + given).bincount(minlength=kinds**2).view(kinds, kinds).float()
        f1 = 2 * counts.diag() / (counts.sum(0) + counts.sum(1)).clamp(min=1)
        return {
            "error": 100 * float((given != right).float().mean()),
            "f1": 100 * float(f1[counts.sum(1) > 0].mean()),
        }

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Beside what is weighed: texts, every word with the label it was given, and where that is wrong the right."""
        chosen = self.split(split).choose(list(range(min(_WRITTEN, len(self.split(split))))))
        numbers, lengths, right = self.ask(chosen)
        lines = []
        for text, given, truth in zip(chosen.texts, self.model(numbers, lengths).logits.argmax(-1), right, strict=True):
            words = [
                f"{word}/{self.classes[said]}" + ("" if said == label else f"({self.classes[label]})")
                for word, said, label in zip(text, given.tolist(), truth.tolist(), strict=False)
                if label != IGNORE_INDEX
            ]
            lines.append(" ".join(words))
        return super().pictures(split) | {"tags.txt": "\n".join(lines) + "\n"}


def _check(examples: Examples) -> None:
    for text, labels in zip(examples.texts, examples.targets or (), strict=True):
        if len(text) != len(labels):
            raise InputError(f"A text of {len(text)} words has {len(labels)} labels: {' '.join(text)}.")
