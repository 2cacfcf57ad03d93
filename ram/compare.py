"""Compare: ``python -m ram.compare DIR ...`` puts finished runs side by side, in a table and a picture."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from envs.errors import InputError
from envs.rendering import figure_pixels, save_png
from ram.config import assignments
from ram.plots.text import accuracy_by_length
from ram.run_folder import RunFolder, report_errors

_REPEATED = ("seed", "corpus.fold")
"""Options by which runs repeat one another."""

_MORE_IS_BETTER = ("accuracy", "bleu", "chrf", "exact", "f1", "return", "return_sampled")


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but seed and fold.

    Attributes:
        options: what was typed to get them, where it differs from other rows, by the shortest name that tells it.
        values: of the metric, one a run.
        parameters: how many were trained.
        seconds: of training, the mean.
        lengths: how many texts of each length were right, and of how many, where the runs tell it.
    """

    options: dict[str, str]
    values: tuple[float, ...]
    parameters: int
    seconds: float
    lengths: dict[int, tuple[int, int]]

    @property
    def name(self) -> str:
        """What was typed, in one line."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items()) or "all"

    @property
    def spread(self) -> float:
        """Standard deviation of the values; 0 of a single one."""
        return stdev(self.values) if len(self.values) > 1 else 0.0


def compare(folders: Sequence[Path], metric: str | None = None) -> tuple[str, list[Row]]:
    """Reads finished runs.

    Args:
        folders: of runs, or such as hold runs below them.
        metric: a name in ``metrics.json``; None for the test figure of what chose the checkpoint.

    Returns:
        The metric and the rows, the best first.

    Raises:
        InputError: there are no finished runs, or one has no such metric.
    """
    records = sorted({file.resolve() for folder in folders for file in folder.rglob("metrics.json")})
    if not records:
        raise InputError(f"There is no finished run in {', '.join(map(str, folders))}: a run ends with a metrics.json.")
    typed = [_typed(file.parent) for file in records]
    names = sorted({name for options in typed for name in options} - set(_REPEATED))
    differing = [name for name in names if len({options.get(name) for options in typed}) > 1]
    shown = _shortest(differing)
    runs = defaultdict(list)
    lengths: dict[tuple[str, ...], dict[int, tuple[int, int]]] = defaultdict(dict)
    for file, options in zip(records, typed, strict=True):
        try:
            measured = json.loads(file.read_text())
        except ValueError as error:
            raise InputError(f"{file} is damaged: repeat the run, or leave it out.") from error
        if metric is None:  # the first of the figures of validation, which the run was chosen by
            chosen_by = next((name for name in measured if name.startswith("validation/")), "validation/error")
            metric = chosen_by.replace("validation", "test")
        if metric not in measured or "seconds" not in measured:
            raise InputError(
                f"{file} has no {metric if metric not in measured else 'seconds'}; it has {', '.join(measured)}."
            )
        key = tuple(options.get(name, "") for name in differing)
        runs[key].append(measured)
        for length, right, texts in _lengths(file.parent):
            correct, total = lengths[key].get(length, (0, 0))
            lengths[key][length] = correct + right, total + texts
    rows = [
        Row(
            options={name: value for name, value in zip(shown, key, strict=True) if value},
            values=tuple(float(each[metric]) for each in group),
            parameters=int(group[0].get("parameters", 0)),
            seconds=mean(float(each["seconds"]) for each in group),
            lengths=dict(sorted(lengths[key].items())),
        )
        for key, group in runs.items()
    ]
    assert metric is not None
    more_is_better = metric.rpartition("/")[2] in _MORE_IS_BETTER
    return metric, sorted(rows, key=lambda row: mean(row.values), reverse=more_is_better)


def table(metric: str, rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [f"| | {metric} | runs | parameters | seconds |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        spread = f" ± {row.spread:.2f}" if len(row.values) > 1 else ""
        figures = [f"{mean(row.values):.2f}{spread}", str(len(row.values)), f"{row.parameters:,}", f"{row.seconds:.0f}"]
        lines.append(f"| {row.name} | {' | '.join(figures)} |")
    return "\n".join(lines)


def picture(metric: str, rows: Sequence[Row]) -> np.ndarray:
    """The rows as bars with every run as a dot: (H, W, 3) uint8."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.8 + 0.32 * len(rows)), dpi=110, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    places = range(len(rows))
    axes.barh(places, [mean(row.values) for row in rows], color="#9cc4e6", height=0.7)
    for place, row in zip(places, rows, strict=True):
        axes.plot(row.values, [place] * len(row.values), "o", color="#1f4e79", markersize=3.5)
        axes.annotate(
            f"{mean(row.values):.2f}", (max(row.values), place), (6, 0), textcoords="offset points", va="center", size=8
        )
    axes.set_yticks(places, [row.name for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(metric, fontsize=9)
    axes.tick_params(labelsize=9, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return figure_pixels(figure)


def _lengths(run: Path) -> list[list[int]]:
    """Of a run on sequences: length, how many of that were right, how many there were."""
    file = run / "lengths.csv"
    if not file.is_file():
        return []
    try:
        return [list(map(int, line.split(","))) for line in file.read_text().splitlines()[1:]]
    except ValueError as error:
        raise InputError(f"{file} is damaged: repeat the run, or leave it out.") from error


def _shortest(names: Sequence[str]) -> list[str]:
    """The ends of dotted names, as long as they must be to tell one from another."""
    ends = []
    for name in names:
        parts = name.split(".")
        others = [f".{each}" for each in names if each != name]
        tails = (".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
        ends.append(next((tail for tail in tails if not any(each.endswith(f".{tail}") for each in others)), name))
    return ends


def _typed(run: Path) -> dict[str, str]:
    """The options that a run was started with."""
    return assignments([word.lstrip("+~") for word in RunFolder(run).read_overrides() if "=" in word])


def main() -> None:
    """The command ``ram-compare``."""
    with report_errors():
        folders = [Path(word) for word in sys.argv[1:] if "=" not in word or Path(word).exists()]
        options = assignments([word for word in sys.argv[1:] if Path(word) not in folders])
        unknown = options.keys() - {"metric", "picture"}
        if not folders or unknown:
            raise InputError("Name folders of runs: python -m ram.compare DIR ... [metric=test/error] [picture=FILE].")
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"{folder} is not a folder: name those of runs, or of sweeps.")
        metric, rows = compare(folders, options.get("metric"))
        print(table(metric, rows))
        file = Path(options.get("picture", "compare.png"))
        pictures = {file: picture(metric, rows)}
        curves = {row.name: row.lengths for row in rows if row.lengths}
        if curves:
            pictures[file.with_stem(f"{file.stem}_lengths")] = accuracy_by_length(curves)
        for path, drawn in pictures.items():
            try:
                save_png(path, drawn)
            except OSError as error:
                raise InputError(f"picture={file} cannot be written: {error.strerror or error}.") from error
            print(f"  {path}")


if __name__ == "__main__":
    main()
