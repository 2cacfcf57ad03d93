"""Files of corpora: download, checksum and line-by-line reading."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from torch.hub import download_url_to_file

from envs.errors import InputError


def fetch_file(root: str, name: str, url: str, sha256: str) -> Path:
    """Returns the path of a published file in the folder ``root``, downloading it if it is missing.

    Raises:
        InputError: if the download fails, or the checksum differs from that of the published file.
    """
    path = Path(root).expanduser() / name
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            download_url_to_file(url, str(path), sha256)
        except Exception as error:  # http.client raises exceptions of any kind
            raise InputError(
                f"{path} is missing and could not be downloaded from {url} ({' '.join(str(error).split())}): check the "
                "network and that the folder is writable, or copy the file there."
            ) from error
    elif not _has_checksum(path, sha256):
        raise InputError(f"{path} is not the published file: its SHA-256 differs; delete it to download it again.")
    return path


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    r"""Returns the lines of a text file, gzipped if its name ends in .gz; lines end with "\n" or "\r\n" only.

    Raises:
        InputError: if the file cannot be read, or a line cannot be decoded.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if b"\r" in data and b"\n" not in data:
        raise InputError(f"{path} has lines that end with a carriage return only: save it with ordinary line ends.")
    lines = []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode(encoding))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: byte {line[error.start]:#04x} is not {encoding.upper()}; save the file as "
                f"{encoding.upper()}."
            ) from error
    lines[0] = lines[0].removeprefix("\ufeff")  # byte order mark
    return lines


def check_encoding(name: str) -> None:
    """Raises :class:`InputError` if Python has no such encoding of text, or its line ends are not those of ASCII."""
    try:
        if "\n".encode(name) != b"\n":
            raise InputError(f"corpus.encoding={name} is not supported: save the files as UTF-8.")
    except LookupError as error:
        raise InputError(
            f"corpus.encoding={name} is unknown: use a name such as utf-8, latin-1 or shift_jis."
        ) from error


def _has_checksum(path: Path, sha256: str) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
