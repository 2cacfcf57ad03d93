"""Decoded images in the user's cache folder, by the content of their files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_SMALLEST = 5000  # files; fewer are decoded in a few seconds
_VERSION = 1  # of the decoding; images of other versions are not used


def cache_folder() -> Path:
    """Returns the folder of the cache, which may be deleted at any time."""
    return user_cache_path("recurrent-attention") / "images"


def cached_images(files: Sequence[Path], options: object, decode: Callable[[], Tensor]) -> Tensor:
    """Returns ``decode()``, the images of some files; if there are many, from the cache, or writes it.

    Several processes may use the cache at the same time. A cache that cannot be read or written is not used.

    Args:
        files: the files, whose bytes identify the images.
        options: all that the images depend on besides the files; its repr identifies it.
        decode: decodes the files.
    """
    if len(files) < _SMALLEST:
        return decode()
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            digests = b"".join(pool.map(lambda path: _digest(path.read_bytes()), files))
    except OSError:
        return decode()  # which names the file
    key = _digest(repr((_VERSION, options)).encode() + digests).hex()
    path = cache_folder() / f"{key}.safetensors"
    with suppress(OSError, SafetensorError, KeyError):
        return load_file(path)["images"]
    images = decode()
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            save_file({"images": images}, Path(folder) / path.name)
            os.replace(Path(folder) / path.name, path)
    return images


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
