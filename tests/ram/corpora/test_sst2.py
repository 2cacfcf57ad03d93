"""SST-2, on small files from a local server."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from envs.errors import InputError
from ram.corpora import Examples, sst2
from ram.corpora.sst2 import SST2

SMALL = {
    "train": "1 a fine , fine film .\n0 it does n't work\n1 crème brûlée\n".encode(),
    "validation": b"0 0 of 10\n",
    "test": b"1 1 of 1\n0 dull\n",
}
Publish = Callable[[ModuleType, dict[str, bytes]], Path]


def test_label_is_the_first_character(tmp_path: Path, publish: Publish) -> None:
    publish(sst2, SMALL)
    corpus = SST2(str(tmp_path))
    assert corpus.load("train") == Examples(
        (("a", "fine", ",", "fine", "film", "."), ("it", "does", "n't", "work"), ("crème", "brûlée")),
        ("positive", "negative", "positive"),
    )
    assert corpus.load("validation") == Examples((("0", "of", "10"),), ("negative",))
    assert corpus.load("test") == Examples((("1", "of", "1"), ("dull",)), ("positive", "negative"))


def test_only_the_loaded_split_is_downloaded_once(tmp_path: Path, publish: Publish) -> None:
    served, root = publish(sst2, SMALL), tmp_path / "new" / "data"
    first = SST2(str(root)).load("validation")
    shutil.rmtree(served)
    assert SST2(str(root)).load("validation") == first
    assert [path.name for path in root.iterdir()] == ["stsa.binary.dev"]


def test_file_with_another_checksum_is_refused(tmp_path: Path, publish: Publish) -> None:
    publish(sst2, SMALL)
    (tmp_path / "stsa.binary.test").write_bytes(b"1 fine\n")
    with pytest.raises(InputError, match=f"{tmp_path / 'stsa.binary.test'} is not the published file"):
        SST2(str(tmp_path)).load("test")


def test_tokenize_matches_the_published_tokens() -> None:
    typed = "It's heavy-handed, isn't it?"
    assert SST2().tokenize(typed) == ("it", "'s", "heavy-handed", ",", "is", "n't", "it", "?")
