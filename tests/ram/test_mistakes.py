"""Mistakes on the command line, each with the sentence that answers it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from ram import compare, evaluate, predict, publish, train

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
    "name=a/b": "name must be a part of the name of a folder, got 'a/b'.",
    "precision=fp16": "precision must be one of float32, bf16, got 'fp16'.",
    "optimizer.lr=-1": "optimizer: Invalid learning rate: -1.",
    "trainer.max_epochs=0": "trainer.max_epochs must be at least 1, got 0.",
    "num_processes=1000": "task.batch_size=512 is too small for 1000 processes: use at most 512.",
    "env.num_glimpses=1000000000": "env.num_glimpses must be at most 10000, got 1000000000.",
    "env.num_glimpses=10000 task.batch_size=20000": "A training step needs over ",
    "env.context_size=1000": "env.context_size (1000, 1000) is larger than the images, (32, 32).",
    "sensor.patch_size=0": "sensor.patch_size must be a whole number of at least 1, or a pair of them, got 0.",
    "policy.std=0": "policy.std must be positive and finite, got 0.",
    "task.patch_reward=-1": "task.patch_reward must be a number of at least 0, got -1.",
    "reward=box_overlap": "BoxOverlap does not fit this environment: transition.target is not ",
    "answers=box": "env.answer=box needs scenes with a target object: set env.answer=label.",
    "baseline=leave_one_out": "baseline=leave_one_out needs at least 2 rollouts of each image: set ",
    # Files.
    "images=folder": "images.root has no default: set images.root=VALUE.",
    "images=folder images.root=nowhere": "images.root=nowhere is not a folder: name a folder with a subfolder for ",
    "images=folder images.root=empty": "images.root=empty has a class folder without images: fill or remove empty/a.",
    "images=folder images.root=damaged": "damaged/a/x.png cannot be read as an image (",
    "images=folder images.root=single task.batch_size=16": "All images have the label 'a': there must be another.",
    "init=nowhere": "nowhere is not the folder of a run: it has no .hydra/config.yaml.",
    "resume=nowhere": "nowhere is not the folder of a run: it has no .hydra/config.yaml.",
    "repeat=a resume=b": "Give either resume=DIR or repeat=DIR, not both.",
    "hydra.run.dir=/proc/x": "/proc/x cannot be written: No such file or directory.",
    "~experiment task=classify_text corpus=labelled_file corpus.path=none.tsv": "none.tsv cannot be read: ",
}
OTHER_COMMANDS = {
    (evaluate, ""): "Name the folder of a run: python -m ram.evaluate run=DIR.",
    (evaluate, "run=nowhere"): "nowhere is not the folder of a run: it has no .hydra/config.yaml.",
    (compare, "nowhere"): "nowhere is not a folder: name folders of runs, or of sweeps.",
    (predict, "run=glyphs images=nowhere output=a.csv"): "nowhere cannot be read as an image (",
    (predict, "run=glyphs texts=nowhere output=a.csv"): "The model of glyphs predicts for images: give images=PATH.",
    (publish, "run=nowhere name=x"): "nowhere is not the folder of a run: it has no .hydra/config.yaml.",
}


@pytest.fixture(autouse=True)
def _files(empty_folder: Path) -> None:
    """Folders of images: without images, with a damaged one, and with one class."""
    for name in ("empty/a", "damaged/a", "single/a"):
        (empty_folder / name).mkdir(parents=True)
    (empty_folder / "damaged/a/x.png").write_text("not an image")
    for number in range(30):
        Image.new("L", (32, 32)).save(empty_folder / f"single/a/{number}.png")


@pytest.mark.parametrize(
    ("module", "arguments", "sentence"),
    [
        *((train, argument, sentence) for argument, sentence in MISTAKES.items()),
        *((command, arguments, sentence) for (command, arguments), sentence in OTHER_COMMANDS.items()),
    ],
    ids=[*MISTAKES, *(f"{command.__name__} {arguments}" for command, arguments in OTHER_COMMANDS)],
)
def test_a_mistake_is_answered_by_one_sentence(
    module: ModuleType, arguments: str, sentence: str, refusal: Callable[..., str], empty_folder: Path
) -> None:
    answer = refusal(module, *arguments.split())
    assert answer.startswith(f"Error: {sentence}") and "\n" not in answer
    assert answer == f"Error: {sentence}" or not sentence.endswith(".")
    assert not list(empty_folder.rglob("checkpoints"))
