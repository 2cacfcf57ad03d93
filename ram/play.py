"""Describes an image with the captioner of a run, and draws the attention weights of every word.

  run=DIR       folder of a run of task=caption
  image=FILE    the image, of any size

The figure is written to DIR/IMAGE_caption.png.
"""

from __future__ import annotations

from pathlib import Path

from envs.errors import InputError
from envs.images.image_io import map_image_files, read_image
from envs.rendering import save_png
from ram.inference.captions import ImageCaptioner
from ram.plots.captions import caption_strips
from ram.training.command_line import assignments, import_from_current_folder, positional_arguments, report_errors
from ram.training.run_folder import RunFolder, load_model

_USAGE = "python -m ram.play run=DIR image=FILE"


def main() -> None:
    """The command ``ram-play``."""
    import_from_current_folder()
    with report_errors():
        options = assignments(positional_arguments(_USAGE, str(__doc__)))
        if options.keys() != {"run", "image"}:
            raise InputError(f"Give a run and an image, and no other option: {_USAGE}.")
        run, path = RunFolder.open(Path(options["run"])), Path(options["image"])
        model = load_model(run.path)
        if not isinstance(model, ImageCaptioner):
            raise InputError(f"{run.path} is not a run of a captioner: name a run of task=caption.")
        channels, height, width = model.image_shape
        (image,) = map_image_files(lambda file: read_image(file, channels, (height, width)), [path])
        captions, weights = model.caption_with_weights(image[None])
        print(model.corpus.detokenize(captions[0]))
        if weights is not None:
            figure = caption_strips(
                image[None].float() / 255, captions, weights.cpu(), model.model.image_encoder.grid, model.model.sensor
            )
            save_png(run.path / f"{path.stem}_caption.png", figure)
            print(f"  {run.path / path.stem}_caption.png")


if __name__ == "__main__":
    main()
