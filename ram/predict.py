"""Predicts with a trained model and writes a table of the predictions.

  run=DIR           folder of a run, or the name of a published model (required)
  images=PATH       an image file, or a folder of image files of any size, which are resized to fit
  texts=FILE        a text in each line
  output=FILE.csv   the table; DIR/predictions_NAME.csv by default
  figures=DIR       also draw the prediction for each image into this folder
  device=NAME       device, such as cuda

The first column is the file or the text. Classifiers add label, probability and p(NAME) of every class, and glimpse
agents the location of each look, x1, y1, x2, ... in [-1, 1]. Taggers add words and labels, captioners caption,
translators translation, and language models the continued text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from envs.errors import InputError
from envs.images.image_io import find_image_files, map_image_files, read_image
from envs.rendering import save_png
from ram.corpora.files import read_lines
from ram.inference import ImageModel, Row
from ram.training.checkpoint import replacing
from ram.training.command_line import assignments, import_from_current_folder, positional_arguments, report_errors
from ram.training.run_folder import PublishedRun, RunFolder, load_model

_USAGE = "python -m ram.predict run=DIR images=PATH|texts=FILE [name=value ...]"
_OPTIONS = ("run", "images", "texts", "output", "figures", "device")
_BATCH = 256
_PRINTED, _PRINTED_COLUMNS = 10, 3  # rows, and their columns


def predict_images(model: ImageModel, path: Path, figures: Path | None) -> Iterator[Row]:
    """Yields the predictions for an image file or for all image files of a folder, and draws them into a folder.

    Raises:
        InputError: if there is no image file, or one cannot be read.
    """
    channels, *size = model.image_shape
    files = find_image_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"images={path} has no image files.")
    read = partial(read_image, channels=channels, size=(size[0], size[1]))
    for start in range(0, len(files), _BATCH):
        batch = files[start : start + _BATCH]
        rows, draw = model.tabulate(torch.stack(list(map_image_files(read, batch))))
        for index, (file, row) in enumerate(zip(batch, rows, strict=True)):
            name = file.relative_to(path) if path.is_dir() else file
            if figures is not None:
                target = figures / (name if path.is_dir() else Path(file.name))
                target.parent.mkdir(parents=True, exist_ok=True)
                save_png(target.with_suffix(".png"), draw(index))
            yield {"file": str(name)} | row


def predict_texts(model: Any, path: Path) -> Iterator[Row]:
    """Yields the predictions for the lines of a file; lines without a word have no prediction.

    Raises:
        InputError: if the file cannot be read or has no line with a word.
    """
    lines = read_lines(path)
    has_words = [bool(model.corpus.tokenize(line)) for line in lines]
    if not any(has_words):
        raise InputError(f"texts={path} has no line with a word.")
    for start in range(0, len(lines), _BATCH):
        batch = range(start, min(start + _BATCH, len(lines)))
        full = [lines[index] for index in batch if has_words[index]]
        rows = iter(model.tabulate(full) if full else ())
        yield from ({"text": lines[index]} | (next(rows) if has_words[index] else {}) for index in batch)


def write_table(path: Path, rows: Iterator[Row], total: int | None = None) -> list[Row]:
    """Writes rows as CSV, with the columns of all, and returns them."""
    found = list(tqdm(rows, "Predicting", total, leave=False, delay=1, disable=None))
    columns = dict.fromkeys(name for row in found for name in row)
    try:
        with replacing(path) as partial_path, open(partial_path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(columns), restval="")
            writer.writeheader()
            writer.writerows(found)
    except OSError as error:
        raise InputError(f"output={path} cannot be written: {error.strerror}.") from error
    return found


def main() -> None:
    """The command ``ram-predict``."""
    import_from_current_folder()
    with report_errors():
        options = assignments(positional_arguments(_USAGE, str(__doc__)))
        if "run" not in options or ("images" in options) == ("texts" in options) or options.keys() - set(_OPTIONS):
            raise InputError(
                f"Give a run, and either images or texts, and no option but {', '.join(_OPTIONS)}: {_USAGE}."
            )
        run = RunFolder.open(Path(options["run"]))
        source = Path(options.get("images") or options["texts"])
        if isinstance(run, PublishedRun) and "output" not in options:
            raise InputError(f"run={run.path} is a published model, which has no folder: name output=FILE.csv.")
        output = Path(options.get("output", run.path / f"predictions_{source.stem}.csv"))
        model = load_model(run.path, options.get("device", "cpu"))
        if isinstance(model, ImageModel) != ("images" in options):
            kind, name = ("images", "images=PATH") if isinstance(model, ImageModel) else ("texts", "texts=FILE")
            raise InputError(f"The model of {run.path} predicts for {kind}: give {name}.")
        figures = Path(options["figures"]) if "figures" in options else None
        rows = predict_images(model, source, figures) if "images" in options else predict_texts(model, source)
        written = write_table(output, rows)
        for row in written[:_PRINTED]:
            print("  ".join(map(str, list(row.values())[:_PRINTED_COLUMNS])))
        print(f"{len(written)} predictions: {output}" + (f", {figures}/" if figures else ""))


if __name__ == "__main__":
    main()
