"""Decoding of image files into uint8 tensors, several files at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from envs.errors import InputError

Result = TypeVar("Result")


def map_image_files(function: Callable[[Path], Result], paths: Sequence[Path]) -> Iterable[Result]:
    """Calls a function on every path in parallel threads and yields the results in order.

    Raises:
        InputError: the function failed on a file; the message names it.
    """

    def call(path: Path) -> Result:
        try:
            return function(path)
        except Exception as error:  # Pillow raises exceptions of many types on damaged files
            raise InputError(f"{path} cannot be read as an image ({error}): repair or remove it.") from error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # The progress bar appears after one second, and only on a terminal.
        yield from tqdm(pool.map(call, paths), "Reading images", len(paths), leave=False, delay=1, disable=None)


def find_image_files(folder: Path) -> list[Path]:
    """Returns the image files in a folder and its subfolders, sorted; hidden files and folders are ignored."""
    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def read_header(path: Path) -> tuple[int, int, bool]:
    """Returns the height and width of an image after its EXIF rotation, and whether it is grayscale."""
    with path.open("rb") as stream, Image.open(stream) as image:
        rotated = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
        width, height = (ImageOps.exif_transpose(image) if rotated else image).size
        return height, width, image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def read_image(path: Path, channels: int, size: tuple[int, int], resize: bool = True) -> Tensor:
    """Decodes an image, applies its EXIF rotation, blends transparent pixels with black, and pads it with black.

    Args:
        path: the file.
        channels: 1 for grayscale, 3 for RGB.
        size: (height, width) of the result.
        resize: whether to resize the image to fit, keeping its aspect ratio; otherwise it must not be larger.

    Returns:
        (C, height, width) uint8, with the image in the center.
    """
    # Pillow memory-maps a TIFF opened by path, and decodes it wrongly if EXIF rotates it.
    with path.open("rb") as stream, Image.open(stream) as opened:
        image = _to_8_bit(ImageOps.exif_transpose(opened))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    if resize:
        scale = min(size[0] / image.height, size[1] / image.width)
        resized = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(resized, Image.Resampling.BILINEAR)
    padded = Image.new(image.mode, size[::-1])
    padded.paste(image, ((size[1] - image.width) // 2, (size[0] - image.height) // 2))
    return torch.from_numpy(np.array(padded)).view(*size, channels).permute(2, 0, 1).contiguous()


def _to_8_bit(image: Image.Image) -> Image.Image:
    """Rescales 16-bit and float grayscale (floats in [0, 1]) to 8 bits; Pillow would clip the values at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image, np.float64)
    highest = 1 if image.mode == "F" else 65535  # Pillow opens some 16-bit files as 32-bit integers
    if not (values.min() >= 0 and values.max() <= highest):
        raise ValueError(f"its values range from {values.min():g} to {values.max():g}, outside 0 .. {highest}")
    return Image.fromarray((values * (255 / highest)).round().astype(np.uint8))
