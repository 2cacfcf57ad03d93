"""Prints a table of finished runs, best first, and draws their metric as bars.

  DIR ...        folders of runs, or of sweeps
  metric=NAME    a name in metrics.json, such as test/bleu (default: the monitored metric on the test split)
  picture=FILE   file of the figure (default: compare.png)

Runs that differ only in seed or corpus.fold form one row with the mean and the standard deviation. The largest value is
first for metrics that metrics.json lists under higher_is_better, the smallest for all others. Runs that record the
accuracy by length are also drawn against the length, in FILE_lengths.png.
"""

from __future__ import annotations

from pathlib import Path

from envs.errors import InputError
from envs.rendering import save_png
from ram.command_line import positional_arguments, report_errors
from ram.config import assignments
from ram.plots.curves import accuracy_by_length, comparison_bars
from ram.training.comparison import compare, table

_USAGE = "python -m ram.compare DIR ... [metric=NAME] [picture=FILE]"


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
        file = Path(options.get("picture", "compare.png"))
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
