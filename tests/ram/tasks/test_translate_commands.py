"""Translation by the commands: files, beam sizes and the comparison by length."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import ram
from ram import compare, evaluate, train
from ram.corpora.reversal import Reversal
from ram.inference.translation import TextTranslator
from ram.metrics.translation import bleu_and_chrf

SMALL = [
    "experiment=reversal",
    "corpus.size=64",
    "corpus.max_length=3",
    "encoder.size=8",
    "decoder.size=8",
    "task.model.embedding.size=8",
    "trainer.max_epochs=1",
]
pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def trained(command: Callable[..., None]) -> str:
    """Trains a small translator in runs/a and returns the option that names its run."""
    command(train, *SMALL, "hydra.run.dir=runs/a")
    return "run=runs/a"


def _width(picture: str) -> int:
    with Image.open(picture) as opened:
        return opened.size[0]


def test_file_is_translated_line_by_line(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], trained: str
) -> None:
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    model = ram.load("runs/a")
    assert isinstance(model, TextTranslator)
    for beam in (None, 3):
        capsys.readouterr()
        options = [] if beam is None else [f"task.search.beam_size={beam}"]
        command(evaluate, trained, "source=source.txt", *options)
        printed = capsys.readouterr().out.split("\n")
        first, second, third = model.translate(["abc", "d", "b a"], beam)
        assert printed == [first, "", second, third, ""]


def test_n_best_translations_of_a_line_are_printed_below_one_another(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, trained: str
) -> None:
    monkeypatch.setattr("ram.inference.translation_files._LINES", 2)
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    model = ram.load("runs/a")
    capsys.readouterr()
    command(evaluate, trained, "source=source.txt", "n_best=2")
    printed = capsys.readouterr()
    first, second, third = model.n_best(["abc", "d", "b a"], 2)
    assert printed.out.split("\n") == [*first, "", "", *second, *third, ""]
    assert "4/4" in printed.err  # the progress bar


def test_translations_are_scored_against_a_file(
    command: Callable[..., None], refusal: Callable[..., str], capsys: pytest.CaptureFixture[str], trained: str
) -> None:
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    first, second, third = ram.load("runs/a").translate(["abc", "d", "b a"])
    Path("target.txt").write_text(f"{first.upper()}\n\n{second}?\n{third} \n")
    capsys.readouterr()
    command(evaluate, trained, "source=source.txt", "target=target.txt")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed.keys() == {"exact", "bleu", "chrf"} and printed["exact"] == "75.00"
    Path("target.txt").write_text("a\n")
    error = refusal(evaluate, trained, "source=source.txt", "target=target.txt")
    assert error == "Error: source.txt has 4 lines and target.txt has 1: they must have equally many lines."
    assert "not n_best" in refusal(evaluate, trained, "source=source.txt", "target=target.txt", "n_best=2")


def test_closed_output_ends_the_command_without_an_error(trained: str) -> None:
    Path("source.txt").write_text("abc\n" * 5_000)
    command = [sys.executable, "-m", "ram.evaluate", trained, "source=source.txt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        errors = running.stderr.read()
    assert "Traceback" not in errors and "Error" not in errors
    assert running.returncode == 0


def test_files_that_cannot_be_translated_are_refused(command: Callable[..., None], refusal: Callable[..., str]) -> None:
    learned = "encoder.positions._target_=ram.attention.positions.LearnedPositions"
    transformer = ["encoder=transformer", learned, "encoder.num_heads=2", "encoder.num_layers=1", "pooling=sum"]
    command(train, *SMALL, *transformer, "hydra.run.dir=runs/a")
    Path("long.txt").write_text("abc\n" + "a" * 129 + "\n")
    error = refusal(evaluate, "run=runs/a", "source=long.txt")
    assert error.startswith("Error: A text in long.txt, line 2, has 129 tokens, but the model has 128 positions")
    Path("empty.txt").write_text("\n\n")
    assert refusal(evaluate, "run=runs/a", "source=empty.txt") == "Error: empty.txt has no line with a word."
    Path("bytes.txt").write_bytes(b"abc\n\xff\n")
    assert "bytes.txt, line 2: byte 0xff is not UTF-8" in refusal(evaluate, "run=runs/a", "source=bytes.txt")
    assert "nowhere.txt cannot be read" in refusal(evaluate, "run=runs/a", "source=nowhere.txt")
    Path("fine.txt").write_text("abc\n")
    error = refusal(evaluate, "run=runs/a", "source=fine.txt", "task.search.beam_size=0")
    assert "task.search.beam_size must be at least 1, got 0" in error
    assert "not beam_sizes" in refusal(evaluate, "run=runs/a", "source=fine.txt", "beam_sizes=1,2")
    assert "not seed" in refusal(evaluate, "run=runs/a", "source=fine.txt", "seed=1")


def test_evaluate_uses_the_beam_size_of_the_command(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(train, *SMALL, "task.bleu=true", "hydra.run.dir=runs/a")
    model = ram.load("runs/a")
    examples = Reversal(size=64, max_length=3).load("test")
    references = [(model.corpus.detokenize(target),) for target in examples.targets or ()]
    printed = []
    for beam in (1, 4):
        capsys.readouterr()
        command(evaluate, "run=runs/a", f"task.search.beam_size={beam}")
        translations = model.translate([model.corpus.detokenize(text) for text in examples.texts], beam)
        printed.append(capsys.readouterr().out)
        metrics = dict(line.split() for line in printed[-1].splitlines())
        assert metrics["test/chrf"] == f"{bleu_and_chrf(translations, references)['chrf']:.2f}"
    assert printed[0] != printed[1]


def test_runs_of_other_tasks_do_not_translate(command: Callable[..., None], refusal: Callable[..., str]) -> None:
    small = ["experiment=negation", "corpus.size=64", "encoder.size=8", "trainer.max_epochs=1"]
    command(train, *small, "hydra.run.dir=runs/b")
    Path("fine.txt").write_text("abc\n")
    assert "is not a run of a translator" in refusal(evaluate, "run=runs/b", "source=fine.txt")
    assert "has no option task.search.beam_size" in refusal(evaluate, "run=runs/b", "task.search.beam_size=2")
    assert "needs a run of task=translate, task=decoder_only or task=caption" in refusal(
        evaluate, "run=runs/b", "beam_sizes=1,2"
    )


def test_beam_sizes_are_compared_and_drawn(
    command: Callable[..., None], refusal: Callable[..., str], capsys: pytest.CaptureFixture[str], trained: str
) -> None:
    capsys.readouterr()
    command(evaluate, trained, "beam_sizes=1,3")
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| beam | exact | seconds |"
    assert [line.split("|")[1].strip() for line in table[2:4]] == ["1", "3"]
    assert _width("runs/a/beams.png") > 300
    assert "beam_sizes must be whole numbers" in refusal(evaluate, trained, "beam_sizes=1,x")


def test_compared_runs_are_drawn_by_length_of_the_source(command: Callable[..., None]) -> None:
    for decoder in ("lstm", "luong"):
        command(train, *SMALL, f"decoder={decoder}", "decoder.size=8", f"hydra.run.dir=runs/{decoder}")
    written = Path("runs/luong/lengths.csv").read_text().splitlines()
    assert written[0] == "length,correct,texts"
    assert [line.split(",")[0] for line in written[1:]] == ["1", "2", "3"]
    assert sum(int(line.split(",")[2]) for line in written[1:]) == 1000
    _, rows = compare.compare([Path("runs")])
    luong = next(row for row in rows if row.options == {"decoder": "luong"})
    assert luong.lengths == {
        int(length): (int(correct), int(texts)) for length, correct, texts in (x.split(",") for x in written[1:])
    }
    command(compare, "runs")
    assert _width("runs/compare_lengths.png") > 300
    Path("runs/luong/lengths.csv").write_text("length,correct,texts\n1,one,2\n")
    with pytest.raises(SystemExit, match=r"lengths\.csv is damaged: repeat the run, or leave it out"):
        command(compare, "runs")
