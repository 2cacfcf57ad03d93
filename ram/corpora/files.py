"""Files of corpora: fetched where they are missing, checked, and read line by line."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.hub import download_url_to_file

from envs.errors import InputError


def fetch(root: str, name: str, url: str, sha256: str) -> Path:
    """A published file under ``root``, downloaded there if it is missing.

    Raises:
        InputError: it cannot be downloaded, or its bytes are not those that were published.
    """
    path = Path(root).expanduser() / name
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".download-", dir=path.parent) as folder:
                fetched = Path(folder, path.name)
                download_url_to_file(url, str(fetched))
                if not _published(fetched, sha256):
                    raise ValueError("what came is not the published file")
                os.replace(fetched, path)
                return path
        except Exception as error:  # of the network or the disk: http.client lets any kind through
            raise InputError(
                f"{path} is missing and could not be downloaded from {url} ({' '.join(str(error).split())}): check the "
                "network and that the folder can be written, or bring the file."
            ) from error
    if not _published(path, sha256):
        raise InputError(f"{path} is not the published file, for its SHA-256 differs: delete it to download it again.")
    return path


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    r"""The lines of a text file, gzipped if its name ends in .gz; split at "\n" alone, "\r" before it removed.

    Raises:
        InputError: naming the file, and the line that cannot be decoded.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if b"\r" in data and b"\n" not in data:
        raise InputError(f"{path} ends its lines with a carriage return alone: save it with ordinary line ends.")
    lines = []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode(encoding))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: byte {line[error.start]:#04x} is not {encoding.upper()}; save the file as "
                f"{encoding.upper()}."
            ) from error
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")  # a mark that some editors write
    return lines


def _published(path: Path, sha256: str) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
