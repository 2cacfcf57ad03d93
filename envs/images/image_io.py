"""Files of pictures, read several at a time, upright and as 8 bits a channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from envs.errors import InputError

Result = TypeVar("Result")


def each_picture(function: Callable[[Path], Result], paths: Sequence[Path]) -> Iterable[Result]:
    """Calls a function on every picture, several at a time, and names the one that it fails on."""

    def named(path: Path) -> Result:
        try:
            return function(path)
        except Exception as error:  # damaged bytes make Pillow raise anything at all
            raise InputError(f"{path} cannot be read as a picture ({error}): mend or remove it.") from error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # Nothing is drawn within the first second, nor where nobody watches.
        yield from tqdm(pool.map(named, paths), "Reading pictures", len(paths), leave=False, delay=1, disable=None)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    # Pillow maps a TIFF that is given by its path into memory, and garbles it if it is stored on its side.
    with path.open("rb") as stream, Image.open(stream) as image:
        yield image


def header(path: Path) -> tuple[int, int, bool]:
    """Height and width of a picture, upright, and whether it is grey."""
    with _opened(path) as image:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
        width, height = (ImageOps.exif_transpose(image) if turned else image).size
        return height, width, image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def read_picture(path: Path, channels: int, size: tuple[int, int] | None) -> Tensor:
    """A picture, upright, on black, and scaled to fit if there is a size: (C, h, w) uint8."""
    with _opened(path) as opened:
        image = _to_8_bit(ImageOps.exif_transpose(opened))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None:
        scale = min(size[0] / image.height, size[1] / image.width)
        fitting = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(fitting, Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).view(image.height, image.width, channels).permute(2, 0, 1)


def fitted(path: Path, channels: int, size: tuple[int, int]) -> Tensor:
    """A picture scaled to fit a size, keeping its aspect ratio, and centred on black: (C, *size) uint8."""
    image = torch.zeros(channels, *size, dtype=torch.uint8)
    centre(read_picture(path, channels, size), image)
    return image


def centre(pixels: Tensor, image: Tensor) -> None:
    """Writes a picture (C, h, w) into the middle of an image (C, H, W) that is no smaller."""
    top, left = ((whole - part) // 2 for whole, part in zip(image.shape[1:], pixels.shape[1:], strict=True))
    image[:, top : top + pixels.shape[1], left : left + pixels.shape[2]] = pixels


def _to_8_bit(image: Image.Image) -> Image.Image:
    """Scales grey of 16 bits, or floats in [0, 1], which Pillow would clip at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image, np.float64)
    highest = 1 if image.mode == "F" else 65535  # Pillow opens some 16-bit files as 32-bit integers
    if not (values.min() >= 0 and values.max() <= highest):
        raise ValueError(f"its values reach from {values.min():g} to {values.max():g}, outside 0 .. {highest}")
    return Image.fromarray((values * (255 / highest)).round().astype(np.uint8))
