"""The comparison of runs: of folders written by the test, and of a sweep."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from envs import InputError
from ram import compare, train
from ram.plots.curves import comparison_bars
from ram.tasks import Task
from ram.tasks.caption import CaptionTask
from ram.tasks.classify_text import ClassifyTextTask
from ram.tasks.glimpse import GlimpseTask
from ram.tasks.language_model import LanguageModelTask
from ram.tasks.tag import TagTask
from ram.tasks.translate import TranslateTask

BAR = (0x9C, 0xC4, 0xE6)


pytestmark = pytest.mark.usefixtures("empty_folder")


def run(name: str, overrides: list[str], error: float, **more: Any) -> Path:
    """The folder of a finished run."""
    folder = Path("runs") / name
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {word}\n" for word in overrides))
    metrics = {"test/error": error, "test/loss": error / 10, "validation/error": error + 1}
    metrics |= {"monitor": "error", "higher_is_better": [], "parameters": 1234, "seconds": 10.0}
    (folder / "metrics.json").write_text(json.dumps(metrics | more))
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


def test_only_differing_options_are_in_the_names() -> None:
    run("0", ["experiment=negation", "pooling=fixed", "score@pooling.score=dot", "encoder.size=8"], 30)
    run("1", ["experiment=negation", "pooling=fixed", "score@pooling.score=general", "encoder.size=8"], 20)
    run("2", ["experiment=negation", "pooling=fixed", "score@pooling.score=dot", "encoder.size=16"], 10)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {
        "size=16, score=dot": (10,),
        "size=8, score=general": (20,),
        "size=8, score=dot": (30,),
    }


def test_option_names_are_shortened_as_far_as_they_are_unambiguous() -> None:
    run("0", ["encoder.size=8", "task.model.embedding.size=4", "encoder=lstm", "a.b.rate=1", "b.rate=2"], 2)
    run("1", ["encoder.size=9", "task.model.embedding.size=5", "encoder=gru", "a.b.rate=3", "b.rate=4"], 1)
    _, rows = compare.compare([Path("runs")])
    assert rows[0].options == {
        "a.b.rate": "3",
        "b.rate": "4",
        "encoder": "gru",
        "encoder.size": "9",
        "embedding.size": "5",
    }


def test_an_option_of_one_run_alone_makes_a_row() -> None:
    run("0", ["experiment=negation"], 30)
    run("1", ["experiment=negation", "+trainer.patience=3"], 20)
    run("2", ["experiment=negation", "~task.dropout=0.5"], 10)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {"dropout=0.5": (10,), "patience=3": (20,), "all": (30,)}


def test_runs_that_differ_in_seed_and_fold_form_one_row() -> None:
    for fold in range(3):
        for seed in range(2):
            run(f"{fold}{seed}", [f"corpus.fold={fold}", f"seed={seed}", "encoder=lstm"], 10 * fold + seed)
    _, rows = compare.compare([Path("runs")])
    assert named(rows) == {"all": (0, 1, 10, 11, 20, 21)}
    assert rows[0].options == {}
    run("x", ["encoder=gru"], 5.0)  # a run without a seed option
    _, rows = compare.compare([Path("runs")])
    assert [row.name for row in rows] == ["encoder=gru", "encoder=lstm"]


def test_an_override_may_have_two_equals_signs_or_none() -> None:
    run("0", ["corpus.path=a=b.tsv", "'encoder={size: 3}'"], 2)
    run("1", ["corpus.path=c.tsv", "~pooling"], 1)
    _, rows = compare.compare([Path("runs")])
    assert [row.options.get("path") for row in rows] == ["c.tsv", "a=b.tsv"]


def test_the_default_metric_is_the_monitored_one_on_the_test_split() -> None:
    folder = run("0", ["seed=0"], 3, monitor="perplexity", **{"test/perplexity": 7.5})
    metric, rows = compare.compare([folder])
    assert (metric, rows[0].values) == ("test/perplexity", (7.5,))
    metric, rows = compare.compare([folder], "test/error")
    assert (metric, rows[0].values) == ("test/error", (3.0,))
    assert compare.compare([folder], "seconds")[1][0].values == (10.0,)


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        ("test/cider", ["last", "sum"]),
        ("test/return", ["last", "sum"]),
        ("test/error", ["sum", "last"]),
        ("test/perplexity", ["sum", "last"]),
        ("seconds", ["sum", "last"]),
    ],
)
def test_the_runs_record_whether_the_largest_value_is_first(metric: str, order: list[str]) -> None:
    for pooling, value in [("sum", 20.0), ("last", 30.0)]:
        higher = ["test/cider", "test/return"]
        run(pooling, [f"pooling={pooling}"], 1, higher_is_better=higher, **{metric: value})
    _, rows = compare.compare([Path("runs")], metric)
    assert [row.options["pooling"] for row in rows] == order


@pytest.mark.parametrize(
    ("task", "higher", "lower"),
    [
        (CaptionTask, ["cider", "bleu_4", "correct", "nearest_cider"], ["perplexity", "map_entropy"]),
        (ClassifyTextTask, [], ["error", "loss"]),
        (GlimpseTask, ["return", "return_sampled"], ["error", "error_mc", "glimpses"]),
        (LanguageModelTask, [], ["perplexity", "error"]),
        (TagTask, ["f1"], ["error"]),
        (TranslateTask, ["bleu", "chrf", "exact", "accuracy"], ["perplexity", "alignment_error"]),
    ],
)
def test_every_task_declares_which_metrics_are_better_when_higher(
    task: type[Task], higher: list[str], lower: list[str]
) -> None:
    declared = {metric: task.higher_is_better(object.__new__(task), metric) for metric in higher + lower}
    assert declared == dict.fromkeys(higher, True) | dict.fromkeys(lower, False)


def test_folders_may_be_runs_or_contain_runs_and_unfinished_runs_are_skipped() -> None:
    first, second = run("sweep/0", ["encoder=lstm"], 2), run("sweep/1", ["encoder=gru"], 1)
    third = run("alone", ["encoder=rnn"], 3)
    (run("sweep/2", ["encoder=words"], 4) / "metrics.json").unlink()
    second.joinpath("metrics.step12.json").write_text("{}")  # the record of a shorter budget
    for folders in ([Path("runs/sweep"), third], [first, second, third], [Path("runs")]):
        _, rows = compare.compare(folders)
        assert named(rows) == {"encoder=gru": (1,), "encoder=lstm": (2,), "encoder=rnn": (3,)}


def test_a_run_that_is_named_twice_counts_once() -> None:
    folder = run("0", ["encoder=lstm"], 2)
    _, rows = compare.compare([folder, Path("runs"), folder])
    assert named(rows) == {"all": (2,)}


def test_missing_and_incomplete_runs_are_refused_by_name() -> None:
    Path("empty").mkdir()
    with pytest.raises(InputError, match=r"There is no finished run in empty, runs: a run ends with a metrics\.json"):
        compare.compare([Path("empty"), Path("runs")])
    first = run("0", ["encoder=lstm"], 2)
    with pytest.raises(InputError, match=r"0/metrics\.json has no test/f1; it has test/error, test/loss, valid"):
        compare.compare([first], "test/f1")
    other = run("1", ["encoder=gru"], 2)
    record = {"monitor": "perplexity", "higher_is_better": [], "parameters": 1, "seconds": 1.0, "test/perplexity": 3.0}
    other.joinpath("metrics.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"1/metrics\.json has no test/error; it has parameters, seconds, test/perpl"):
        compare.compare([first, other])
    other.joinpath("metrics.json").write_text(json.dumps({"test/error": 3.0}))
    with pytest.raises(InputError, match=r"1/metrics\.json has no monitor: repeat the run, or leave it out"):
        compare.compare([first, other])
    (first / ".hydra" / "overrides.yaml").unlink()
    with pytest.raises(InputError, match=r"0 is not the folder of a run: it has no \.hydra/overrides\.yaml"):
        compare.compare([first])


def widths(picture: np.ndarray) -> list[int]:
    """Widths of the bars in pixels, from top to bottom."""
    rows = (picture == np.array(BAR, np.uint8)).all(-1)
    starts = [n for n in range(1, len(rows)) if rows[n].any() and not rows[n - 1].any()]
    middles = [n + next(k for k in range(len(rows)) if not rows[n + k].any()) // 4 for n in starts]  # above the dots
    return [int(rows[n].nonzero()[0].max() - rows[n].nonzero()[0].min() + 1) for n in middles]


def test_the_bars_are_the_means_from_top_to_bottom() -> None:
    values = {"gru": [10.0], "lstm": [15.0, 25.0], "rnn": [40.0]}
    picture = comparison_bars("test/error", values)
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[-1] == 3
    first, second, third = widths(picture)
    assert second == pytest.approx(2 * first, abs=3)
    assert third == pytest.approx(4 * first, abs=3)
    assert len(comparison_bars("test/error", {"gru": [10.0]})) < len(picture)


def test_the_command_prints_the_table_and_draws_it(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    run("a=b", ["encoder=lstm"], 2)
    run("c", ["encoder=gru"], 1)
    command(compare, "runs")
    printed = capsys.readouterr().out
    assert printed == compare.table(*compare.compare([Path("runs")])) + "\n  runs/compare.png\n"
    command(compare, "runs/a=b", "runs/c", "metric=test/loss", "picture=there.png")
    assert "| encoder=gru | 0.10 | 1 | 1,234 | 10 |" in capsys.readouterr().out
    for name in ("runs/compare.png", "there.png"):
        with Image.open(name) as picture:
            assert len(widths(np.asarray(picture))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name folders of runs: python -m ram.compare DIR"),
        (["metric=test/error"], "Name folders of runs"),
        (["runs", "metrics=test/error"], "Name folders of runs"),
        (["nosuch"], "nosuch is not a folder: name folders of runs, or of sweeps"),
        (["runs/0/metrics.json"], "metrics.json is not a folder"),
        (["runs", "metric=test/f1"], "has no test/f1; it has test/error, test/loss, validation/error"),
        (["empty"], "There is no finished run in empty"),
        (["runs", "picture=nosuch/there.png"], "picture=nosuch/there.png cannot be written"),
        (["damaged"], "metrics.json is damaged: repeat the run, or leave it out"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(
    refusal: Callable[..., str], arguments: list[str], message: str
) -> None:
    run("0", ["encoder=lstm"], 2)
    Path("empty").mkdir()
    (run("../damaged", ["encoder=lstm"], 2) / "metrics.json").write_text('{"test/err')
    assert message in refusal(compare, *arguments)
    assert not list(Path().rglob("compare.png"))


def test_help_explains_the_arguments(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command(compare, "--help")
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m ram.compare DIR ... [metric=NAME] [picture=FILE]")
    assert "higher_is_better" in printed


def test_a_sweep_over_scores_is_compared(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["experiment=negation", "encoder=identity", "pooling=fixed", "score@pooling.score=dot,additive"]
    options += [
        "seed=0,1",
        "corpus.size=16",
        "task.model.embedding.size=4",
        "trainer.max_steps=1",
        "trainer.picture_every=0",
    ]
    command(train, "--multirun", *options)
    capsys.readouterr()
    command(compare, "runs")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| | test/error |")
    assert {line.split(" | ")[0] for line in lines[2:4]} == {
        "| score=dot",
        "| score=additive",
    }
    assert [line.split(" | ")[2] for line in lines[2:4]] == ["2", "2"]
    sizes = {line.split(" | ")[0][len("| score=") :]: int(line.split(" | ")[3]) for line in lines[2:4]}
    assert sizes["additive"] - sizes["dot"] == 4 * 4 + 4 * 4 + 4
    assert math.isfinite(float(lines[2].split(" | ")[1].split()[0]))
