"""Small corpora in memory, and a training loop, for the tests of tasks on texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ram.corpora import Examples, Tokens
from ram.tasks import Task


@dataclass(frozen=True)
class InMemoryCorpus:
    """A corpus of given examples; validation and test default to the training split."""

    train: Examples
    validation: Examples | None = None
    test: Examples | None = None

    def load(self, split: str) -> Examples:
        return getattr(self, split) or self.train

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)


class UnavailableCorpus(InMemoryCorpus):
    """A corpus that must not be loaded."""

    def load(self, split: str) -> Examples:
        raise AssertionError("The corpus must not be loaded.")


def labelled(*lines: str) -> Examples:
    """Builds classification examples from lines such as "label: some words"."""
    labels, texts = zip(*(line.split(": ") for line in lines), strict=True)
    return Examples(tuple(tuple(text.split()) for text in texts), labels)


def tagged(*lines: str) -> Examples:
    """Builds tagging examples from lines such as "word/label word/label"."""
    pairs = [[word.split("/") for word in line.split()] for line in lines]
    return Examples(
        tuple(tuple(word for word, _ in text) for text in pairs),
        tuple(tuple(label for _, label in text) for text in pairs),
    )


def parallel(*lines: str, **fields: Any) -> Examples:
    """Builds translation examples from lines such as "ein hund: a dog"."""
    sides = zip(*(line.split(": ") for line in lines), strict=True)
    texts, targets = (tuple(tuple(side.split()) for side in lines) for lines in sides)
    return Examples(texts, targets, **fields)


def train(task: Task, steps: range, optimizer: torch.optim.Optimizer) -> list[float]:
    """Trains a task and returns the losses."""
    losses = []
    for step in steps:
        loss = task(step).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
