"""Prints a table of finished runs, best first, and draws their metric as bars.

  DIR ...        folders of runs, or of sweeps
  metric=NAME    a name in metrics.json, such as test/bleu (default: the monitored metric on the test split)
  picture=FILE   file of the figure (default: compare.png in the first folder)

Runs that differ only in seed or corpus.fold form one row with the mean and the standard deviation. The largest value is
first for metrics that metrics.json lists under higher_is_better, the smallest for all others. Runs that record the
accuracy by length are also drawn against the length, in FILE_lengths.png.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from envs.errors import InputError
from envs.rendering import save_png
from ram.plots.curves import accuracy_by_length, comparison_bars
from ram.training.command_line import assignments, positional_arguments, report_errors
from ram.training.run_folder import RunFolder

_USAGE = "python -m ram.compare DIR ... [metric=NAME] [picture=FILE]"
_REPEATED = ("seed", "corpus.fold", "name")
"""Options in which repetitions of a run differ."""


@dataclass(frozen=True)
class Row:
    """Runs that differ only in seed and fold.

    Attributes:
        options: the options given on the command line in which the rows differ, by the shortest unambiguous name.
        values: the metric of every run.
        parameters: number of trained parameters.
        seconds: mean training time.
        lengths: (correct, total) by the length of the source, over all runs that record it.
    """

    options: dict[str, str]
    values: tuple[float, ...]
    parameters: int
    seconds: float
    lengths: dict[int, tuple[int, int]]

    @property
    def name(self) -> str:
        """The options in one line."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items()) or "all"

    @property
    def spread(self) -> float:
        """Standard deviation of the values; 0 for a single run."""
        return stdev(self.values) if len(self.values) > 1 else 0.0


def compare(folders: Sequence[Path], metric: str | None = None) -> tuple[str, list[Row]]:
    """Reads finished runs.

    Args:
        folders: run folders, or folders that contain them at any depth.
        metric: a name in ``metrics.json``; None for the monitored metric on the test split.

    Returns:
        The metric and the rows, best first: the largest value where the runs list the metric under
        ``higher_is_better``, else the smallest.

    Raises:
        InputError: if there are no finished runs, or one has no such metric.
    """
    files = sorted({file.resolve() for folder in folders for file in folder.rglob("metrics.json")})
    if not files:
        raise InputError(f"There is no finished run in {', '.join(map(str, folders))}: a run ends with a metrics.json.")
    records = [_read_record(file) for file in files]
    metric = metric or f"test/{records[0]['monitor']}"
    for file, record in zip(files, records, strict=True):
        if not isinstance(record.get(metric), int | float):
            numbers = [name for name, value in record.items() if isinstance(value, int | float)]
            raise InputError(f"{file} has no {metric}; it has {', '.join(numbers)}.")
    overrides = [RunFolder(file.parent).typed_options() for file in files]
    names = sorted({name for options in overrides for name in options} - set(_REPEATED))
    differing = [name for name in names if len({options.get(name) for options in overrides}) > 1]
    groups: dict[tuple[str, ...], list[tuple[Path, dict[str, Any]]]] = defaultdict(list)
    for file, record, options in zip(files, records, overrides, strict=True):
        groups[tuple(options.get(name, "") for name in differing)].append((file.parent, record))
    shown = _shortest_names(differing)
    rows = [
        Row(
            options={name: value for name, value in zip(shown, key, strict=True) if value},
            values=tuple(float(record[metric]) for _, record in group),
            parameters=int(group[0][1]["parameters"]),
            seconds=mean(float(record["seconds"]) for _, record in group),
            lengths=_sum_lengths([folder for folder, _ in group]),
        )
        for key, group in groups.items()
    ]
    return metric, sorted(rows, key=lambda row: mean(row.values), reverse=metric in records[0]["higher_is_better"])


def table(metric: str, rows: Sequence[Row]) -> str:
    """Formats the rows as a Markdown table."""
    lines = [f"| | {metric} | runs | parameters | seconds |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        spread = f" ± {row.spread:.2f}" if len(row.values) > 1 else ""
        cells = [f"{mean(row.values):.2f}{spread}", str(len(row.values)), f"{row.parameters:,}", f"{row.seconds:.0f}"]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _read_record(file: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} is damaged: repeat the run, or leave it out.") from error
    for name in ("monitor", "higher_is_better", "parameters", "seconds"):
        if name not in record:
            raise InputError(f"{file} has no {name}: repeat the run, or leave it out.")
    return record


def _sum_lengths(runs: Sequence[Path]) -> dict[int, tuple[int, int]]:
    """Sums (correct, total) over the ``lengths.csv`` of runs, by length."""
    sums: dict[int, tuple[int, int]] = {}
    for file in [run / "lengths.csv" for run in runs if (run / "lengths.csv").is_file()]:
        try:
            for line in file.read_text().splitlines()[1:]:
                length, correct, total = map(int, line.split(","))
                sums[length] = sums.get(length, (0, 0))[0] + correct, sums.get(length, (0, 0))[1] + total
        except ValueError as error:
            raise InputError(f"{file} is damaged: repeat the run, or leave it out.") from error
    return dict(sorted(sums.items()))


def _shortest_names(names: Sequence[str]) -> list[str]:
    """Returns the shortest endings of dotted names that are unambiguous."""
    parts = [name.split(".") for name in names]
    endings = [[".".join(each[start:]) for start in range(len(each) - 1, -1, -1)] for each in parts]
    counts = Counter(chain(*endings))
    return [next((ending for ending in each if counts[ending] == 1), each[-1]) for each in endings]


def main() -> None:
    """The command ``ram-compare``."""
    with report_errors():
        arguments = positional_arguments(_USAGE, str(__doc__))
        folders = [Path(argument) for argument in arguments if "=" not in argument or Path(argument).exists()]
        options = assignments([argument for argument in arguments if Path(argument) not in folders])
        if not folders or options.keys() - {"metric", "picture"}:
            raise InputError(f"Name folders of runs: {_USAGE}.")
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"{folder} is not a folder: name folders of runs, or of sweeps.")
        metric, rows = compare(folders, options.get("metric"))
        print(table(metric, rows))
        file = Path(options.get("picture", folders[0] / "compare.png"))
        pictures = {file: comparison_bars(metric, {row.name: row.values for row in rows})}
        lengths = {row.name: row.lengths for row in rows if row.lengths}
        if lengths:
            pictures[file.with_stem(f"{file.stem}_lengths")] = accuracy_by_length(lengths)
        for path, picture in pictures.items():
            try:
                save_png(path, picture)
            except OSError as error:
                raise InputError(f"picture={file} cannot be written: {error.strerror or error}.") from error
            print(f"  {path}")


if __name__ == "__main__":
    main()
