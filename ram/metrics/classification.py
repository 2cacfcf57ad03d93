"""Classifications of a split: the tables and counts by which errors are studied."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Classification:
    """The classes of N inputs as a model predicts them.

    Attributes:
        inputs: N names of images, or texts.
        labels: (N,) int64, the correct classes.
        probability: (N, K), of every class.
        classes: K names.
    """

    inputs: Sequence[str]
    labels: Tensor
    probability: Tensor
    classes: Sequence[str]

    @classmethod
    def join(
        cls, parts: Iterable[tuple[Tensor, Tensor]], inputs: Sequence[str], classes: Sequence[str]
    ) -> Classification:
        """Joins the labels (n,) and probabilities (n, K) of consecutive inputs, on any device."""
        labels, probability = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
        return cls(inputs, labels, probability.float(), classes)

    def confusion(self) -> Tensor:
        """Returns how many inputs of class i are classified as class j: (K, K) int64."""
        count = len(self.classes)
        return torch.bincount(self.labels * count + self.probability.argmax(-1), minlength=count**2).view(count, count)

    def predictions_csv(self) -> str:
        """Returns a table of the inputs: label and prediction, the probabilities of both, and whether they agree."""
        predicted = self.probability.argmax(-1)
        columns = (
            self.inputs,
            [self.classes[index] for index in self.labels.tolist()],
            [self.classes[index] for index in predicted.tolist()],
            [f"{value:.6f}" for value in self.probability.gather(1, self.labels[:, None])[:, 0].tolist()],
            [f"{value:.6f}" for value in self.probability.amax(-1).tolist()],
            (predicted == self.labels).int().tolist(),
        )
        names = ("input", "label", "prediction", "probability_of_label", "probability_of_prediction", "correct")
        return _csv(names, zip(*columns, strict=True))

    def classes_csv(self) -> str:
        """Returns a table of the classes: inputs, errors, error in percent, and the most frequent wrong prediction."""
        confusion, rows = self.confusion(), []
        for index, (name, row) in enumerate(zip(self.classes, confusion, strict=True)):
            total, wrong = int(row.sum()), row.index_fill(0, torch.tensor([index]), 0)
            errors = int(wrong.sum())
            share = f"{100 * errors / total:.2f}" if total else ""
            rows.append((name, total, errors, share, self.classes[int(wrong.argmax())] if errors else ""))
        return _csv(("class", "inputs", "errors", "error", "most_often_predicted_instead"), rows)


def _csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
