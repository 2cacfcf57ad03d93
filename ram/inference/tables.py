"""Tables of predictions for files of images and texts."""

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
from ram.atomic_files import replacing
from ram.corpora.files import read_lines
from ram.inference import ImageModel, Row

_BATCH = 256


def predict_images(model: ImageModel, path: Path, figures: Path | None) -> Iterator[Row]:
    """Yields the predictions for an image file or for all image files of a folder, and draws them into a folder.

    Raises:
        InputError: if there is no image file, or one cannot be read.
    """
    channels, *size = model.image_shape
    files = find_image_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"images={path} has no image files.")
    if figures is not None and path.is_dir() and figures.resolve().is_relative_to(path.resolve()):
        raise InputError(f"figures={figures} is in the folder of the images: name another folder.")
    read = partial(read_image, channels=channels, size=(size[0], size[1]))
    for start in range(0, len(files), _BATCH):
        batch = files[start : start + _BATCH]
        rows, draw = model.tabulate(torch.stack(list(map_image_files(read, batch))))
        for index, (file, row) in enumerate(zip(batch, rows, strict=True)):
            name = file.relative_to(path) if path.is_dir() else file
            if figures is not None:
                target = figures / (name if path.is_dir() else Path(file.name))
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    save_png(target.with_name(f"{target.name}.png"), draw(index))
                except OSError as error:
                    raise InputError(f"figures={figures} cannot be written: {error.strerror}.") from error
            yield {"file": name.as_posix()} | row


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


def write_table(path: Path, rows: Iterator[Row]) -> list[Row]:
    """Writes rows as CSV, with the columns of all, and returns them.

    Raises:
        InputError: if the file cannot be written.
    """
    if path.is_dir() or not path.name:
        raise InputError(f"output={path} is a folder: name a file.")
    found = list(tqdm(rows, "Predicting", leave=False, delay=1, disable=None))
    columns = dict.fromkeys(name for row in found for name in row)
    try:
        with replacing(path) as partial_path, open(partial_path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(columns), restval="")
            writer.writeheader()
            writer.writerows(found)
    except OSError as error:
        raise InputError(f"output={path} cannot be written: {error.strerror}.") from error
    return found
