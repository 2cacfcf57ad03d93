"""Play: ``python -m ram.play run=DIR image=FILE`` has a captioner describe a picture, and shows where it looks."""

from __future__ import annotations

import sys
from pathlib import Path

from envs.errors import InputError
from envs.images.image_io import each_picture, fitted
from envs.rendering import save_png
from ram.config import assignments
from ram.evaluate import load_model
from ram.plots.captions import strips
from ram.run_folder import RunFolder, report_errors
from ram.tasks.caption import ImageCaptioner


def main() -> None:
    """The command ``ram-play``."""
    sys.path.insert(0, str(Path.cwd()))  # a user's own modules, named by _target_
    with report_errors():
        options = assignments(sys.argv[1:])
        if options.keys() != {"run", "image"}:
            raise InputError("Name a run and a picture, and nothing else: python -m ram.play run=DIR image=FILE.")
        run, path = RunFolder.open(Path(options["run"])), Path(options["image"])
        model = load_model(run.path)
        if not isinstance(model, ImageCaptioner):
            raise InputError(f"{run.path} has not learnt to describe images: name a run of task=caption.")
        channels, height, width = model.image_shape
        (image,) = each_picture(lambda file: fitted(file, channels, (height, width)), [path])
        captions, weights = model.look(image[None])
        print(model.corpus.detokenize(captions[0]))
        if weights is not None:
            drawn = strips(
                image[None].float() / 255, captions, weights.cpu(), model.model.encoder.grid, model.model.sensor
            )
            save_png(run.path / f"{path.stem}_caption.png", drawn)
            print(f"  {run.path / path.stem}_caption.png")


if __name__ == "__main__":
    main()
