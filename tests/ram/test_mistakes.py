"""Mistakes on the command line, each with the sentence that answers it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ram import train

MISTAKES = {
    # Names.
    "polcy=gaussian": "polcy is not an option or a group; did you mean policy?",
    "lr=0.1": "lr is not an option or a group; did you mean optimizer.lr?",
    "policy.stdd=0.1": "policy.stdd is not an option or a group; did you mean policy.std?",
    "trainer.maxepochs=3": "trainer.maxepochs is not an option or a group; did you mean trainer.max_epochs?",
    "zzzz=1": "zzzz is not an option or a group.",
    "policy=gausian": "policy=gausian does not exist; did you mean policy=gaussian? The options are gaussian, ",
    "experiment=mnist": "experiment=mnist does not exist; did you mean experiment=mnist_28x28? The options are ",
    "corpus=names": "corpus is not a group of this task; it is one of task=caption, task=classify_text, ",
    "score=dot": "score is a group of parts: name the place of the part, as in score@decoder.context.score=NAME.",
    "score@policy.scor=dot": "score@policy.scor: there is no group score at this place.",
    "+policy.std=0.1": "Could not append to config. An item is already at 'policy.std'.",
    "=3": "=3 is not of the form NAME=VALUE.",
    "policy.std=[0.1": "policy.std=[0.1 is not of the form NAME=VALUE; quote values with spaces or brackets.",
    # Values.
    "optimizer.lr=fast": "optimizer.lr must be a number, got 'fast'.",
    "trainer.schedule=cosin": "trainer.schedule must be one of constant, linear, cosine, exponential, got 'cosin'.",
    "device=gpu": "device=gpu is not the name of a device, such as cpu, cuda or cuda:1.",
    "device=cuda:7": "device=cuda:7 cannot be used: torch finds no such device here; set device=cpu.",
    "seed=12345678901234567890": "seed must be below 2147483648, got 12345678901234567890.",
    "task.batch_size=100000000": "task.batch_size (100000000) is larger than the training split (40000 images).",
    "seed=-1": "seed must be a whole number of at least 0, got -1.",
}


@pytest.mark.parametrize(("argument", "sentence"), MISTAKES.items())
def test_a_mistake_is_answered_by_one_sentence(
    argument: str, sentence: str, refusal: Callable[..., str], empty_folder: Path
) -> None:
    answer = refusal(train, argument)
    assert answer.startswith(f"Error: {sentence}") and "\n" not in answer
    assert answer == f"Error: {sentence}" or sentence.endswith((", ", "are "))
    assert not list(empty_folder.rglob("checkpoints"))
