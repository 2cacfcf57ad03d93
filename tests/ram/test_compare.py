"""Runs side by side: of folders made by hand, and of a sweep."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from envs import InputError
from ram import compare, train

BAR = (0x9C, 0xC4, 0xE6)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(name: str, typed: list[str], error: float, **more: Any) -> Path:
    """The folder of a finished run."""
    folder = Path("runs") / name
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {word}\n" for word in typed))
    metrics = {"test/error": error, "test/loss": error / 10, "validation/error": error + 1}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"parameters": 1234, "seconds": 10.0} | more))
    return folder


def named(rows: list[compare.Row]) -> dict[str, tuple[float, ...]]:
    return {row.name: row.values for row in rows}


def test_rows_are_means_over_seeds_by_hand() -> None:
    run("0", ["experiment=negation", "pooling=sum", "seed=0"], 50, parameters=100, seconds=10)
    run("1", ["experiment=negation", "pooling=sum", "seed=1"], 52, parameters=100, seconds=20)
    run("2", ["experiment=negation", "pooling=sum", "seed=2"], 48, parameters=100, seconds=60)
    run("3", ["experiment=negation", "pooling=fixed", "seed=0"], 30, parameters=12345, seconds=7.4)
    metric, rows = compare.compare([Path("runs")])
    assert metric == "test/error"
    assert rows == [
        compare.Row({"pooling": "fixed"}, (30,), 12345, 7.4, {}),
        compare.Row({"pooling": "sum"}, (50, 52, 48), 100, 30, {}),
    ]
    assert [row.spread for row in rows] == [0, pytest.approx(2)]  # squares of 0, 2 and -2 over two
    assert compare.table(metric, rows).splitlines() == [
        "| | test/error | runs | parameters | seconds |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| pooling=fixed | 30.00 | 1 | 12,345 | 7 |",
        "| pooling=sum | 50.00 ± 2.00 | 3 | 100 | 30 |",
    ]


def test_only_what_differs_is_named() -> None:
    run("0", ["experiment=negation", "pooling=fixed", "attention@pooling=dot", "encoder.size=8"], 30)
    run("1", ["experiment=negation", "pooling=fixed", "attention@pooling=general", "encoder.size=8"], 20)
    run("2", ["experiment=negation", "pooling=fixed", "attention@pooling=dot", "encoder.size=16"], 10)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {
        "attention@pooling=dot, size=16": (10,),
        "attention@pooling=general, size=8": (20,),
        "attention@pooling=dot, size=8": (30,),
    }


def test_a_name_is_as_long_as_it_must_be_to_tell() -> None:
    run("0", ["encoder.size=8", "task.model.embedding.size=4", "encoder=lstm", "a.b.rate=1", "b.rate=2"], 2)
    run("1", ["encoder.size=9", "task.model.embedding.size=5", "encoder=gru", "a.b.rate=3", "b.rate=4"], 1)
    _, rows = compare.compare([Path("runs")])
    assert rows[0].options == {"a.b.rate": "3", "b.rate": "4", "encoder": "gru", "encoder.size": "9", "words.size": "5"}


def test_what_one_run_alone_was_told_sets_it_apart() -> None:
    run("0", ["experiment=negation"], 30)
    run("1", ["experiment=negation", "+trainer.patience=3"], 20)
    run("2", ["experiment=negation", "~task.dropout=0.5"], 10)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {"dropout=0.5": (10,), "patience=3": (20,), "all": (30,)}


def test_seeds_and_folds_repeat_one_another() -> None:
    for fold in range(3):
        for seed in range(2):
            run(f"{fold}{seed}", [f"corpus.fold={fold}", f"seed={seed}", "encoder=lstm"], 10 * fold + seed)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {"all": (0, 1, 10, 11, 20, 21)}
    assert rows[0].options == {}
    run("x", ["encoder=gru"], 5.0)  # a seed that nobody typed is one more
    _, rows = compare.compare([Path("runs")])
    assert [row.name for row in rows] == ["encoder=gru", "encoder=lstm"]


def test_an_option_may_hold_an_equals_sign_or_none() -> None:
    run("0", ["corpus.path=a=b.tsv", "'encoder={size: 3}'"], 2)
    run("1", ["corpus.path=c.tsv", "~reader"], 1)
    _, rows = compare.compare([Path("runs")])
    assert [row.options.get("path") for row in rows] == ["c.tsv", "a=b.tsv"]


def test_the_metric_is_the_test_figure_of_what_chose_the_checkpoint() -> None:
    folder = run("0", ["seed=0"], 2)
    told = {"test/perplexity": 7.5, "test/error": 3.0, "validation/perplexity": 8.0, "seconds": 1.0, "parameters": 5}
    (folder / "metrics.json").write_text(json.dumps(told))
    metric, rows = compare.compare([folder])
    assert (metric, rows[0].values) == ("test/perplexity", (7.5,))
    metric, rows = compare.compare([folder], "test/error")
    assert (metric, rows[0].values) == ("test/error", (3.0,))
    assert compare.compare([folder], "seconds")[1][0].values == (1.0,)


def test_any_metric_may_be_asked_for() -> None:
    run("0", ["pooling=sum"], 50, **{"test/f1": 20.0})
    run("1", ["pooling=last"], 40, **{"test/f1": 30.0})
    _, rows = compare.compare([Path("runs")], "test/f1")
    assert named(rows) == {"pooling=sum": (20,), "pooling=last": (30,)}
    assert [row.name for row in rows] == ["pooling=last", "pooling=sum"]  # the most first, where more is better


def test_folders_of_runs_and_runs_may_be_mixed_and_unfinished_ones_do_not_count() -> None:
    first, second = run("sweep/0", ["encoder=lstm"], 2), run("sweep/1", ["encoder=gru"], 1)
    third = run("alone", ["encoder=rnn"], 3)
    (run("sweep/2", ["encoder=words"], 4) / "metrics.json").unlink()
    second.joinpath("metrics.step12.json").write_text("{}")  # the record of a shorter budget
    for folders in ([Path("runs/sweep"), third], [first, second, third], [Path("runs")]):
        _, rows = compare.compare(folders)
        assert named(rows) == {"encoder=gru": (1,), "encoder=lstm": (2,), "encoder=rnn": (3,)}


def test_a_run_counts_once_however_often_it_is_named() -> None:
    folder = run("0", ["encoder=lstm"], 2)
    _, rows = compare.compare([folder, Path("runs"), folder])
    assert named(rows) == {"all": (2,)}


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    Path("empty").mkdir()
    with pytest.raises(InputError, match=r"There is no finished run in empty, runs: a run ends with a metrics\.json"):
        compare.compare([Path("empty"), Path("runs")])
    first = run("0", ["encoder=lstm"], 2)
    with pytest.raises(InputError, match=r"0/metrics\.json has no test/f1; it has test/error, test/loss, valid"):
        compare.compare([first], "test/f1")
    other = run("1", ["encoder=gru"], 2)
    other.joinpath("metrics.json").write_text(json.dumps({"test/perplexity": 3.0, "validation/perplexity": 4.0}))
    with pytest.raises(InputError, match=r"1/metrics\.json has no test/error; it has test/perplexity, validation"):
        compare.compare([first, other])
    (first / ".hydra" / "overrides.yaml").unlink()
    with pytest.raises(InputError, match=r"0 is not the folder of a run: it has no \.hydra/overrides\.yaml"):
        compare.compare([first])


def widths(picture: np.ndarray) -> list[int]:
    """Of the bars, from above to below."""
    rows = (picture == np.array(BAR, np.uint8)).all(-1)
    starts = [n for n in range(1, len(rows)) if rows[n].any() and not rows[n - 1].any()]
    middles = [n + next(k for k in range(len(rows)) if not rows[n + k].any()) // 4 for n in starts]  # above the dots
    return [int(rows[n].nonzero()[0].max() - rows[n].nonzero()[0].min() + 1) for n in middles]


def test_the_bars_are_the_means_in_the_order_of_the_rows() -> None:
    rows = [
        compare.Row({"encoder": "gru"}, (10.0,), 1, 1.0, {}),
        compare.Row({"encoder": "lstm"}, (15.0, 25.0), 1, 1.0, {}),
        compare.Row({}, (40.0,), 1, 1.0, {}),
    ]
    picture = compare.picture("test/error", rows)
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[-1] == 3
    first, second, third = widths(picture)
    assert second == pytest.approx(2 * first, abs=3)
    assert third == pytest.approx(4 * first, abs=3)
    assert len(compare.picture("test/error", rows[:1])) < len(picture)


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["ram.compare", *words])
    compare.main()


def test_the_command_prints_the_table_and_draws_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("a=b", ["encoder=lstm"], 2)
    run("c", ["encoder=gru"], 1)
    command(monkeypatch, "runs")
    printed = capsys.readouterr().out
    assert printed == compare.table(*compare.compare([Path("runs")])) + "\n  compare.png\n"
    command(monkeypatch, "runs/a=b", "runs/c", "metric=test/loss", "picture=there.png")
    assert "| encoder=gru | 0.10 | 1 | 1,234 | 10 |" in capsys.readouterr().out
    for name in ("compare.png", "there.png"):
        with Image.open(name) as picture:
            assert len(widths(np.asarray(picture))) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Name folders of runs: python -m ram.compare DIR"),
        (["metric=test/error"], "Name folders of runs"),
        (["runs", "metrics=test/error"], "Name folders of runs"),
        (["nosuch"], "nosuch is not a folder: name those of runs, or of sweeps"),
        (["runs/0/metrics.json"], "metrics.json is not a folder"),
        (["runs", "metric=test/f1"], "has no test/f1; it has test/error, test/loss, validation/error"),
        (["empty"], "There is no finished run in empty"),
        pytest.param(
            ["runs", "picture=nosuch/there.png"],
            "nosuch",
        ),
        pytest.param(
            ["damaged"],
            "metrics.json",
        ),
    ],
)
def test_a_users_mistake_is_one_sentence(monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    run("0", ["encoder=lstm"], 2)
    Path("empty").mkdir()
    (run("../damaged", ["encoder=lstm"], 2) / "metrics.json").write_text('{"test/err')
    with pytest.raises(SystemExit) as refused:
        command(monkeypatch, *words)
    sentence = str(refused.value.code)
    assert sentence.startswith("Error: ") and "\n" not in sentence
    assert told in sentence
    assert not Path("compare.png").exists()


def test_a_sweep_over_scores_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=negation", "encoder=words", "pooling=fixed", "attention@pooling=dot,additive", "seed=0,1"]
    words += ["corpus.size=16", "task.model.embedding.size=4", "trainer.max_steps=1", "trainer.picture_every=0"]
    monkeypatch.setattr(sys, "argv", ["ram.train", "--multirun", *words])
    train.main()
    capsys.readouterr()
    command(monkeypatch, "runs")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| | test/error |")
    assert {line.split(" | ")[0] for line in lines[2:4]} == {"| attention@pooling=dot", "| attention@pooling=additive"}
    assert [line.split(" | ")[2] for line in lines[2:4]] == ["2", "2"]
    sizes = {line.split(" | ")[0][len("| attention@pooling=") :]: int(line.split(" | ")[3]) for line in lines[2:4]}
    assert sizes["additive"] - sizes["dot"] == 4 * 4 + 4 * 4 + 4
    assert math.isfinite(float(lines[2].split(" | ")[1].split()[0]))
