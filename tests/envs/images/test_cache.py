"""The cache of decoded images: found by content, and never in the way."""

from pathlib import Path

import pytest
import torch

from envs.images import cache
from envs.images.cache import cache_folder, cached_images


@pytest.fixture(autouse=True)
def _small_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SMALLEST", 3)
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / "cache" / name)


def _files(folder: Path, *contents: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / f"{index}.png" for index in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    return files


def test_images_are_decoded_once_for_the_same_content_and_options(tmp_path: Path) -> None:
    calls = []

    def load(files: list[Path], options: object = "gray") -> torch.Tensor:
        def decode() -> torch.Tensor:
            calls.append(options)
            return torch.full((len(files), 1, 2, 2), len(calls), dtype=torch.uint8)

        return cached_images(files, options, decode)

    files = _files(tmp_path / "a", "x", "y", "z")
    assert load(files).unique().tolist() == [1]
    assert load(files).unique().tolist() == [1]
    assert load(_files(tmp_path / "b", "x", "y", "z")).unique().tolist() == [1]  # elsewhere
    assert load(files, "color").unique().tolist() == [2]
    assert load(_files(tmp_path / "a", "x", "y", "w")).unique().tolist() == [3]
    assert load(files[:2]).unique().tolist() == [4] and load(files[:2]).unique().tolist() == [5]  # too few
    assert len(list(cache_folder().iterdir())) == 3


def test_a_damaged_or_read_only_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, images = _files(tmp_path / "a", "x", "y", "z"), torch.ones(3, 1, 2, 2, dtype=torch.uint8)
    cached_images(files, None, lambda: images)
    (path,) = cache_folder().iterdir()
    path.write_bytes(b"damaged")
    assert torch.equal(cached_images(files, None, lambda: images), images)
    assert torch.equal(cached_images(files, None, lambda: images * 2), images), "the damaged file is not replaced"
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / "file" / name)
    assert torch.equal(cached_images(files, None, lambda: images), images)
