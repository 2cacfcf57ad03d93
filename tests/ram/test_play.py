"""The command that has a captioner describe a picture."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ram
from ram import evaluate, play, train

SMALL = [
    *("experiment=scenes", "corpus.num_train=16", "encoder.widths=[4,8,8]", "encoder.encoder.size=8"),
    *("decoder.size=8", "task.model.embedding.size=8", "trainer.max_steps=1"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 8)


def _command(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])  # type: ignore[attr-defined]
    module.main()  # type: ignore[attr-defined]


def _refusal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    with pytest.raises(SystemExit) as refused:
        _command(monkeypatch, play, *arguments)
    return str(refused.value.code)


def test_a_picture_of_any_size_is_described_and_drawn_and_beams_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save("b.png")
    capsys.readouterr()
    _command(monkeypatch, play, "run=runs/a", "image=b.png")
    told = capsys.readouterr().out.splitlines()
    image = np.asarray(Image.open("b.png"))[None, None]
    model = ram.load("runs/a")
    assert told == [model.caption(torch.from_numpy(image.copy()))[0], "  runs/a/b_caption.png"]
    with Image.open("runs/a/b_caption.png") as drawn:
        assert drawn.size[0] > 300
    Image.fromarray(np.zeros((20, 90, 3), np.uint8)).save("wide.jpg")
    _command(monkeypatch, play, "run=runs/a", "image=wide.jpg")
    assert Path("runs/a/wide_caption.png").is_file()
    assert "nothing.png cannot be read as a picture" in _refusal(monkeypatch, "run=runs/a", "image=nothing.png")
    assert "Name a run and a picture" in _refusal(monkeypatch, "run=runs/a")
    assert "nothing else" in _refusal(monkeypatch, "run=runs/a", "image=b.png", "beam_size=2")

    capsys.readouterr()
    _command(monkeypatch, evaluate, "run=runs/a", "beam_sizes=1,2")
    head, _, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.startswith("| beam | bleu_1 |") and "| cider |" in head and head.endswith("| right | seconds |")
    assert [row.split("|")[1].strip() for row in rows] == ["1", "2"]
    with Image.open("runs/a/beams.png") as drawn:
        assert drawn.size[0] > 300


def test_another_run_describes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["experiment=negation", "corpus.size=64", "encoder.size=8", "trainer.max_epochs=1"]
    _command(monkeypatch, train, *small, "hydra.run.dir=runs/b")
    assert "has not learnt to describe images" in _refusal(monkeypatch, "run=runs/b", "image=b.png")
