"""Records of a run: TensorBoard events, pictures, and the metrics in one small file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from envs.rendering import encode_gif, save_png
from ram.atomic_files import replacing
from ram.tasks import Animation, Artifact, Embedding


class Tracker:
    """Writes the records of a run. If the event file cannot be written, it warns once and training continues.

    Args:
        folder: the run folder.
        step: the first step; later events of an interrupted process are discarded.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.folder = folder
        self._failed = False
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
        self._projector = folder / "projector_config.pbtxt"
        self._earlier = self._projector.read_text() if step and self._projector.is_file() else ""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Logs metrics by name."""
        for name, value in values.items():
            self._write(partial(self._writer.add_scalar, name, value, step))

    def text(self, name: str, text: str) -> None:
        """Logs a text verbatim."""
        self._write(lambda: self._writer.add_text(name, _verbatim(text)))

    def pictures(self, pictures: Mapping[str, Artifact], step: int, prefix: str) -> None:
        """Logs artifacts by file name."""
        for name, picture in pictures.items():
            self._write(partial(self._add_picture, f"{prefix}/{name}", picture, step))

    def save_pictures(self, pictures: Mapping[str, Artifact]) -> None:
        """Writes artifacts except embeddings into the run folder by file name."""
        for name, picture in pictures.items():
            if isinstance(picture, str):
                (self.folder / name).write_text(picture, encoding="utf-8")
            elif isinstance(picture, Embedding):
                continue  # TensorBoard's projector shows it
            elif isinstance(picture, Animation):
                (self.folder / name).write_bytes(encode_gif(picture.frames, picture.frames_per_second))
            else:
                save_png(self.folder / name, picture)

    def finish(self, options: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Writes ``metrics.json``, and the HParams with which TensorBoard compares runs."""
        with replacing(self.folder / "metrics.json") as file:
            file.write_text(json.dumps(dict(metrics), indent=2) + "\n")
        scalars = {name: float(value) for name, value in metrics.items() if "/" in name}
        plain = {name: each if isinstance(each, int | float | str) else str(each) for name, each in options.items()}

        def write() -> None:
            for summary in hparams(plain, scalars):
                self._add_summary(summary)
            for name, value in scalars.items():
                step = metrics["best_step"] if name.startswith("validation/") else metrics["steps"]
                self._writer.add_scalar(name, value, step)

        self._write(write)
        self.close()

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._write(self._writer.close)

    def _add_picture(self, name: str, picture: Artifact, step: int) -> None:
        if isinstance(picture, str):
            self._writer.add_text(name, _verbatim(picture), step)
            return
        if isinstance(picture, Embedding):
            rows = list(zip(*picture.metadata.values(), strict=True))
            self._writer.add_embedding(picture.vectors, rows, None, step, name, list(picture.metadata))
            if self._earlier:  # the writer lists only its own embeddings
                self._projector.write_text(self._earlier + self._projector.read_text())
            return
        if not isinstance(picture, Animation):
            self._writer.add_image(name, picture, step, dataformats="HWC")
            return
        height, width, channels = picture.frames[0].shape
        image = Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=encode_gif(picture.frames, picture.frames_per_second),
        )
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self._add_summary(summary, step)

    def _add_summary(self, summary: Summary, step: int | None = None) -> None:
        """Writes a summary that SummaryWriter has no method for: HParams in the same file, and encoded images."""
        assert self._writer.file_writer is not None
        self._writer.file_writer.add_summary(summary, step)

    def _write(self, write: Callable[[], Any]) -> None:
        if self._failed:
            return
        try:
            write()
        except Exception as error:  # training continues, whatever fails in writing events
            self._failed = True
            warnings.warn(f"TensorBoard events can no longer be written to {self.folder}: {error}", stacklevel=3)


def _verbatim(text: str) -> str:
    """Returns Markdown that shows a text verbatim."""
    return "\n".join(f"    {line}" for line in text.splitlines())
