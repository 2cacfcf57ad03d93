"""Download, checksum and line-by-line reading of corpus files."""

import gc
import gzip
import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.errors import InputError
from ram.corpora.files import fetch_file, read_lines

DATA = b"a film\nanother\n"

# invalid answers of a server
INVALID_RESPONSES = {
    "cut short": b"HTTP/1.0 200 OK\r\nContent-Length: 15\r\n\r\na film\n",
    "cut short in pieces": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\na film\n\r\n",
    "no HTTP": b"what?",
    "silent": b"",
}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_missing_file_is_downloaded_once(tmp_path: Path, mirror: SimpleNamespace) -> None:
    (mirror.folder / "words.txt").write_bytes(DATA)
    root = tmp_path / "new" / "data"
    for _ in range(2):
        path = fetch_file(str(root), "words.txt", mirror.url + "words.txt", _sha256(DATA))
        assert path == root / "words.txt" and path.read_bytes() == DATA
        assert list(root.iterdir()) == [path], "temporary files are left"
        shutil.rmtree(mirror.folder, ignore_errors=True)  # the second call has nowhere to download from


def test_root_may_start_with_a_tilde(tmp_path: Path, mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (mirror.folder / "words.txt").write_bytes(DATA)
    path = fetch_file("~/data", "words.txt", mirror.url + "words.txt", _sha256(DATA))
    assert path == tmp_path / "home/data/words.txt"


def test_file_with_another_checksum_is_refused_and_kept(tmp_path: Path, mirror: SimpleNamespace) -> None:
    (mirror.folder / "words.txt").write_bytes(DATA)
    path = tmp_path / "words.txt"
    path.write_bytes(b"my own\n")
    with pytest.raises(InputError, match=f"{path} is not the published file") as refusal:
        fetch_file(str(tmp_path), "words.txt", mirror.url + "words.txt", _sha256(DATA))
    assert "delete it to download it again" in str(refusal.value) and "\n" not in str(refusal.value)
    assert path.read_bytes() == b"my own\n"
    path.unlink()
    assert fetch_file(str(tmp_path), "words.txt", mirror.url + "words.txt", _sha256(DATA)).read_bytes() == DATA


def test_changed_byte_is_detected(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(DATA.replace(b"a", b"`", 1))
    with pytest.raises(InputError, match="SHA-256 differs"):
        fetch_file(str(tmp_path), "words.txt", "http://127.0.0.1:9/", _sha256(DATA))


def test_download_with_another_checksum_is_refused(tmp_path: Path, mirror: SimpleNamespace) -> None:
    (mirror.folder / "words.txt").write_bytes(b"<html>Please log in.</html>")
    with pytest.raises(InputError, match=str(tmp_path / "data/words.txt")):
        fetch_file(str(tmp_path / "data"), "words.txt", mirror.url + "words.txt", _sha256(DATA))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # torch keeps the failed response
@pytest.mark.parametrize("answer", [*INVALID_RESPONSES, "missing"])
def test_failed_download_leaves_no_files(
    answer: str, tmp_path: Path, mirror: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, url = tmp_path / "data", mirror.url + "words.txt"
    with monkeypatch.context() as patch:
        if answer != "missing":
            patch.setattr(mirror.handler, "do_GET", lambda handler: handler.wfile.write(INVALID_RESPONSES[answer]))
        with pytest.raises(InputError) as refusal:
            fetch_file(str(root), "words.txt", url, _sha256(DATA))
    assert str(root / "words.txt") in str(refusal.value) and "\n" not in str(refusal.value)
    assert not list(root.iterdir())
    (mirror.folder / "words.txt").write_bytes(DATA)
    assert fetch_file(str(root), "words.txt", url, _sha256(DATA)).read_bytes() == DATA
    del refusal
    gc.collect()


def test_unreachable_server_is_refused(tmp_path: Path, mirror: SimpleNamespace) -> None:
    url = "http://127.0.0.1:9/words.txt"
    with pytest.raises(InputError, match=f"could not be downloaded from {url}"):
        fetch_file(str(tmp_path / "data"), "words.txt", url, _sha256(DATA))
    assert not list((tmp_path / "data").iterdir())


def test_unwritable_root_is_refused(tmp_path: Path, mirror: SimpleNamespace) -> None:
    (mirror.folder / "words.txt").write_bytes(DATA)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/words\.txt is missing and could not be downloaded"):
        fetch_file(str(tmp_path / "file"), "words.txt", mirror.url + "words.txt", _sha256(DATA))


# Lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\none\n\n\ntwo\n\n", ["", "one", "", "", "two", ""]),
        (b"o\rne\r\r\ntwo", ["o\rne\r", "two"]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("zwölf\n数\n".encode(), ["zwölf", "数"]),
        (b"", [""]),
    ],
)
@pytest.mark.parametrize("suffix", ["txt", "gz"])
def test_only_line_feeds_end_lines(data: bytes, lines: list[str], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"words.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix == "gz" else data)
    assert read_lines(path) == lines


def test_encoding_is_an_argument(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"caf\xe9 \x85\nna\xefve\n")
    assert read_lines(tmp_path / "words", "latin-1") == ["café \u0085", "naïve"]


@pytest.mark.parametrize("suffix", ["txt", "gz"])
@pytest.mark.parametrize(
    ("data", "line", "byte"),
    [
        (b"fine\ncaf\xe9 noir\nfine\n", 2, "0xe9"),
        (b"\xff\xfeo\x00n\x00e\x00", 1, "0xff"),
        (b"fine\r\n\r\ncut \xc3", 3, "0xc3"),
        (b"fine\xc0\nfine\xc1\n", 1, "0xc0"),
    ],
)
def test_invalid_utf_8_is_refused_with_file_and_line(
    data: bytes, line: int, byte: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"words.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix == "gz" else data)
    with pytest.raises(InputError, match=f"{path}, line {line}: byte {byte} is not UTF-8"):
        read_lines(path)


@pytest.mark.parametrize("damage", ["not gzip", "truncated", "flipped", "broken"])
def test_damaged_gzip_file_is_refused(damage: str, tmp_path: Path) -> None:
    whole = gzip.compress(DATA * 50)
    damaged = bytearray(whole)
    if damage == "flipped":
        damaged[-8] ^= 1  # of the checksum
    else:
        damaged[10] = 0xFF  # an invalid block type
    path = tmp_path / "words.gz"
    path.write_bytes({"not gzip": DATA, "truncated": whole[:-9]}.get(damage, bytes(damaged)))
    with pytest.raises(InputError, match=f"{path} cannot be read"):
        read_lines(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path / 'words'} cannot be read"):
        read_lines(tmp_path / "words")
    with pytest.raises(InputError, match=f"{tmp_path} cannot be read"):
        read_lines(tmp_path)
