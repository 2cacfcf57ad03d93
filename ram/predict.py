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

from pathlib import Path

from envs.errors import InputError
from ram.inference import ImageModel
from ram.inference.tables import predict_images, predict_texts, write_table
from ram.training.command_line import assignments, import_from_current_folder, positional_arguments, report_errors
from ram.training.run_folder import PublishedRun, RunFolder, load_model

_USAGE = "python -m ram.predict run=DIR images=PATH|texts=FILE [name=value ...]"
_OPTIONS = ("run", "images", "texts", "output", "figures", "device")
_PRINTED, _PRINTED_COLUMNS = 10, 3  # rows, and their columns


def main() -> None:
    """The command ``ram-predict``."""
    import_from_current_folder()
    with report_errors():
        options = assignments(positional_arguments(_USAGE, str(__doc__)))
        given = [name for name in ("images", "texts") if options.get(name)]
        if "run" not in options or len(given) != 1 or options.keys() - set(_OPTIONS):
            raise InputError(
                f"Give a run, and either images or texts, and no option but {', '.join(_OPTIONS)}: {_USAGE}."
            )
        run = RunFolder.open(Path(options["run"]))
        source = Path(options[given[0]])
        if isinstance(run, PublishedRun) and "output" not in options:
            raise InputError(f"run={run.path} is a published model, which has no folder: name output=FILE.csv.")
        stem = source.resolve().name if source.is_dir() else source.stem
        output = Path(options.get("output", run.path / f"predictions_{stem}.csv"))
        model = load_model(run.path, options.get("device", "cpu"))
        if isinstance(model, ImageModel) != (given == ["images"]):
            kind, name = ("images", "images=PATH") if isinstance(model, ImageModel) else ("texts", "texts=FILE")
            raise InputError(f"The model of {run.path} predicts for {kind}: give {name}.")
        figures = Path(options["figures"]) if "figures" in options else None
        rows = predict_images(model, source, figures) if given == ["images"] else predict_texts(model, source)
        written = write_table(output, rows)
        for row in written[:_PRINTED]:
            print("  ".join(map(str, list(row.values())[:_PRINTED_COLUMNS])))
        print(f"{len(written)} predictions: {output}" + (f", {figures}/" if figures else ""))


if __name__ == "__main__":
    main()
