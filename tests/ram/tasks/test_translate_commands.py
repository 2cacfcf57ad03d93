"""Sequences by the commands: trained, compared by length, used on a file, searched with wider beams."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import ram
from ram import compare, evaluate, train
from ram.corpora.reversal import Reversal
from ram.tasks.translate import TextTranslator, bleu_and_chrf

SMALL = [
    "experiment=reversal",
    "corpus.size=64",
    "corpus.max_length=3",
    "encoder.size=8",
    "decoder.size=8",
    "task.model.embedding.size=8",
    "trainer.max_epochs=1",
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def _command(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])  # type: ignore[attr-defined]
    module.main()  # type: ignore[attr-defined]


def _refusal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    with pytest.raises(SystemExit) as refused:
        _command(monkeypatch, evaluate, *arguments)
    return str(refused.value.code)


def _width(picture: str) -> int:
    with Image.open(picture) as opened:
        return opened.size[0]


def test_a_run_translates_a_file_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    model = ram.load("runs/a")
    assert isinstance(model, TextTranslator)
    for beam in (None, 3):
        capsys.readouterr()
        options = [] if beam is None else [f"task.search.beam_size={beam}"]
        _command(monkeypatch, evaluate, "run=runs/a", "source=source.txt", *options)
        said = capsys.readouterr().out.split("\n")
        first, second, third = model.translate(["abc", "d", "b a"], beam)
        assert said == [first, "", second, third, ""]


def test_the_best_few_of_a_line_stand_one_below_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    monkeypatch.setattr(evaluate, "_AT_ONCE", 2)
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    model = ram.load("runs/a")
    capsys.readouterr()
    _command(monkeypatch, evaluate, "run=runs/a", "source=source.txt", "n_best=2")
    printed = capsys.readouterr()
    first, second, third = model.n_best(["abc", "d", "b a"], 2)
    assert printed.out.split("\n") == [*first, "", "", *second, *third, ""]
    assert "4/4" in printed.err  # how far it is


def test_what_is_said_is_measured_against_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    Path("source.txt").write_text("abc\n\nd\nb a\n")
    first, second, third = ram.load("runs/a").translate(["abc", "d", "b a"])
    Path("target.txt").write_text(f"{first.upper()}\n\n{second}?\n{third} \n")
    capsys.readouterr()
    _command(monkeypatch, evaluate, "run=runs/a", "source=source.txt", "target=target.txt")
    told = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert told.keys() == {"exact", "bleu", "chrf"} and told["exact"] == "75.00"
    Path("target.txt").write_text("a\n")
    refused = _refusal(monkeypatch, "run=runs/a", "source=source.txt", "target=target.txt")
    assert refused == "Error: source.txt has 4 lines and target.txt 1: line by line they must go together."
    assert "not n_best" in _refusal(monkeypatch, "run=runs/a", "source=source.txt", "target=target.txt", "n_best=2")


def test_who_reads_no_further_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    Path("source.txt").write_text("abc\n" * 5_000)
    command = [sys.executable, "-m", "ram.evaluate", "run=runs/a", "source=source.txt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        told = running.stderr.read()
    assert "Traceback" not in told and "Error" not in told
    assert running.returncode == 0


def test_files_that_cannot_be_translated_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = "encoder.positions._target_=ram.attention.positions.LearnedPositions"
    transformer = ["encoder=transformer", learned, "encoder.num_heads=2", "encoder.num_layers=1", "pooling=sum"]
    _command(monkeypatch, train, *SMALL, *transformer, "hydra.run.dir=runs/a")
    Path("long.txt").write_text("abc\n" + "a" * 129 + "\n")
    told = _refusal(monkeypatch, "run=runs/a", "source=long.txt")
    assert told.startswith(
        "Error: A text in long.txt, line 2, has 129 words or pieces, and the model positions for 128"
    )
    Path("empty.txt").write_text("\n\n")
    assert _refusal(monkeypatch, "run=runs/a", "source=empty.txt") == "Error: empty.txt has no line with a word."
    Path("bytes.txt").write_bytes(b"abc\n\xff\n")
    assert "bytes.txt, line 2: byte 0xff is not UTF-8" in _refusal(monkeypatch, "run=runs/a", "source=bytes.txt")
    assert "nowhere.txt cannot be read" in _refusal(monkeypatch, "run=runs/a", "source=nowhere.txt")
    Path("fine.txt").write_text("abc\n")
    told = _refusal(monkeypatch, "run=runs/a", "source=fine.txt", "task.search.beam_size=0")
    assert "task.search.beam_size must be at least 1, got 0" in told
    assert "not beam_sizes" in _refusal(monkeypatch, "run=runs/a", "source=fine.txt", "beam_sizes=1,2")
    assert "not seed" in _refusal(monkeypatch, "run=runs/a", "source=fine.txt", "seed=1")


def test_a_wider_beam_is_measured_on_the_test_split(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "task.bleu=true", "hydra.run.dir=runs/a")
    model = ram.load("runs/a")
    examples = Reversal(size=64, max_length=3).load("test")
    right = [(model.corpus.detokenize(target),) for target in examples.targets or ()]
    printed = []
    for beam in (1, 4):
        capsys.readouterr()
        _command(monkeypatch, evaluate, "run=runs/a", f"task.search.beam_size={beam}")
        said = model.translate([model.corpus.detokenize(text) for text in examples.texts], beam)
        printed.append(capsys.readouterr().out)
        told = dict(line.split() for line in printed[-1].splitlines())
        assert told["test/chrf"] == f"{bleu_and_chrf(said, right)['chrf']:.2f}"
    assert printed[0] != printed[1]


def test_other_runs_do_not_translate(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["experiment=negation", "corpus.size=64", "encoder.size=8", "trainer.max_epochs=1"]
    _command(monkeypatch, train, *small, "hydra.run.dir=runs/b")
    Path("fine.txt").write_text("abc\n")
    assert "has not learnt to translate" in _refusal(monkeypatch, "run=runs/b", "source=fine.txt")
    assert "has no option task.search.beam_size" in _refusal(monkeypatch, "run=runs/b", "task.search.beam_size=2")
    assert "needs the run of a translator or captioner" in _refusal(monkeypatch, "run=runs/b", "beam_sizes=1,2")


def test_wider_beams_are_measured_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _command(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    capsys.readouterr()
    _command(monkeypatch, evaluate, "run=runs/a", "beam_sizes=1,3")
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| beam | exact | seconds |"
    assert [line.split("|")[1].strip() for line in table[2:4]] == ["1", "3"]
    assert _width("runs/a/beams.png") > 300
    assert "beam_sizes must be whole numbers" in _refusal(monkeypatch, "run=runs/a", "beam_sizes=1,x")


def test_compared_runs_are_drawn_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    for decoder in ("lstm", "luong"):
        _command(monkeypatch, train, *SMALL, f"decoder={decoder}", "decoder.size=8", f"hydra.run.dir=runs/{decoder}")
    written = Path("runs/luong/lengths.csv").read_text().splitlines()
    assert written[0] == "length,right,texts"
    assert [line.split(",")[0] for line in written[1:]] == ["1", "2", "3"]
    assert sum(int(line.split(",")[2]) for line in written[1:]) == 1000
    _, rows = compare.compare([Path("runs")])
    luong = next(row for row in rows if row.options == {"decoder": "luong"})
    assert luong.lengths == {
        int(n): (int(right), int(texts)) for n, right, texts in (x.split(",") for x in written[1:])
    }
    _command(monkeypatch, compare, "runs")
    assert _width("compare_lengths.png") > 300
    Path("runs/luong/lengths.csv").write_text("length,right,texts\n1,one,2\n")
    with pytest.raises(SystemExit, match=r"lengths\.csv is damaged: repeat the run, or leave it out"):
        _command(monkeypatch, compare, "runs")
