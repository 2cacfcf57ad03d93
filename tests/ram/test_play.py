"""The command that describes an image with a captioner."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ram
from ram import evaluate, play, train

SMALL = [
    *("experiment=scenes", "corpus.num_train=16", "image_encoder.widths=[4,8,8]", "image_encoder.encoder.size=8"),
    *("decoder.size=8", "task.model.embedding.size=8", "trainer.max_steps=1"),
]


@pytest.fixture(autouse=True)
def _few_examples(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 8)


def test_an_image_of_any_size_is_described_and_drawn(
    command: Callable[..., None], refusal: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    command(train, *SMALL, "hydra.run.dir=runs/a")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save("b.png")
    capsys.readouterr()
    command(play, "run=runs/a", "image=b.png")
    printed = capsys.readouterr().out.splitlines()
    image = np.asarray(Image.open("b.png"))[None, None]
    model = ram.load("runs/a")
    assert printed == [model.caption(torch.from_numpy(image.copy()))[0], "  runs/a/b_caption.png"]
    with Image.open("runs/a/b_caption.png") as figure:
        assert figure.size[0] > 300
    Image.fromarray(np.zeros((20, 90, 3), np.uint8)).save("wide.jpg")
    command(play, "run=runs/a", "image=wide.jpg")
    assert Path("runs/a/wide_caption.png").is_file()
    assert "nothing.png cannot be read as an image" in refusal(play, "run=runs/a", "image=nothing.png")
    assert "Give a run and an image" in refusal(play, "run=runs/a")
    assert "no other option" in refusal(play, "run=runs/a", "image=b.png", "beam_size=2")


def test_help_explains_the_arguments(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command(play, "--help")
    assert capsys.readouterr().out.startswith("usage: python -m ram.play run=DIR image=FILE")


def test_beam_sizes_are_compared_on_the_validation_split(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(train, *SMALL, "hydra.run.dir=runs/a")
    capsys.readouterr()
    command(evaluate, "run=runs/a", "beam_sizes=1,2")
    head, _, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.startswith("| beam | bleu_1 |") and "| cider |" in head and head.endswith("| correct | seconds |")
    assert [row.split("|")[1].strip() for row in rows] == ["1", "2"]
    with Image.open("runs/a/beams.png") as figure:
        assert figure.size[0] > 300


def test_a_run_of_another_task_is_refused(command: Callable[..., None], refusal: Callable[..., str]) -> None:
    small = ["experiment=negation", "corpus.size=64", "encoder.size=8", "trainer.max_epochs=1"]
    command(train, *small, "hydra.run.dir=runs/b")
    assert "is not a run of a captioner" in refusal(play, "run=runs/b", "image=b.png")
