"""Captioned images in Karpathy's format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from envs import InputError
from ram.corpora.karpathy import KarpathyCaptions


def entry(name: str, split: str, *captions: str, **more: Any) -> dict[str, Any]:
    return {"filename": name, "split": split, "sentences": [{"tokens": each.split()} for each in captions], **more}


def write(folder: Path, *entries: dict[str, Any]) -> KarpathyCaptions:
    """Writes a 8 x 4 image for every entry i, with the gray value 10 i + 10."""
    for number, each in enumerate(entries):
        path = folder / "images" / each.get("filepath", "") / each["filename"]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 8), 10 * number + 10, np.uint8)).save(path)
    (folder / "dataset.json").write_text(json.dumps({"images": entries}))
    return KarpathyCaptions(str(folder), size=4, channels=1)


def test_images_and_captions_of_every_split(tmp_path: Path) -> None:
    corpus = write(
        tmp_path,
        entry("a.png", "train", "A Tree", "one tree"),
        entry("b.png", "val", "a pond"),
        entry("c.png", "restval", "two trees", filepath="more"),
        entry("d.png", "test", "a road"),
    )
    train = corpus.load("train")
    assert train.captions == ((("a", "tree"), ("one", "tree")), (("two", "trees"),))
    assert train.images.shape == (2, 1, 4, 4)
    assert train.images[:, 0, :, 0].tolist() == [[0, 10, 10, 0], [0, 30, 30, 0]]  # scaled to fit and padded with black
    assert corpus.load("validation").captions == ((("a", "pond"),),)
    assert corpus.load("test").captions == ((("a", "road"),),)
    assert KarpathyCaptions(str(tmp_path), size=4).load("test").images.shape == (1, 3, 4, 4)


def test_raw_captions_are_tokenized_without_punctuation(tmp_path: Path) -> None:
    raw = {"filename": "a.png", "split": "train", "sentences": [{"raw": "There's a tree , and a Pond ."}]}
    assert write(tmp_path, raw).load("train").captions == ((("there's", "a", "tree", "and", "a", "pond"),),)


def test_image_with_another_suffix_is_found(tmp_path: Path) -> None:
    corpus = write(tmp_path, entry("a.png", "train", "a tree"))
    (tmp_path / "images/a.png").rename(tmp_path / "images/a.bmp")
    assert len(corpus.load("train")) == 1
    (tmp_path / "images/a.bmp").rename(tmp_path / "images/b.png")
    with pytest.raises(InputError, match=r"a\.png is missing, but .*dataset\.json has captions of it"):
        corpus.load("train")


def test_empty_captions_are_skipped_with_a_warning(tmp_path: Path) -> None:
    corpus = write(
        tmp_path, entry("a.png", "train", "", "a tree"), entry("b.png", "train", " "), entry("c.png", "val", "")
    )
    with pytest.warns(
        UserWarning, match=r"skipped 2 empty captions and 1 images without captions in the train split\.$"
    ):
        train = corpus.load("train")
    assert train.captions == ((("a", "tree"),),) and int(train.images.max()) == 10
    with (
        pytest.warns(UserWarning, match="skipped 1 empty captions and 1 images .* in the validation split"),
        pytest.raises(InputError, match="has only empty captions in the validation split"),
    ):
        corpus.load("validation")
    with pytest.raises(InputError, match=r"dataset\.json has no image of the test split"):
        corpus.load("test")


def test_images_without_captions_are_skipped_with_a_warning(tmp_path: Path) -> None:
    corpus = write(tmp_path, entry("a.png", "train", "a tree"), entry("b.png", "train"))
    with pytest.warns(UserWarning, match=r"skipped 0 empty captions and 1 images without captions"):
        assert len(corpus.load("train")) == 1


def test_images_of_other_splits_are_skipped_with_a_warning(tmp_path: Path) -> None:
    without = {"filename": "c.png", "sentences": [{"tokens": ["a", "tree"], "raw": None}]}
    corpus = write(tmp_path, entry("a.png", "train", "a tree"), entry("b.png", "dev", "a tree"), without)
    with pytest.warns(UserWarning, match=r"skipped 2 images of splits other than train, restval, val, test\.$"):
        assert len(corpus.load("train")) == 1


def test_unreadable_image_is_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path, entry("a.png", "train", "a tree"))
    (tmp_path / "images/a.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"a\.png cannot be read as an image"):
        corpus.load("train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON with images, filenames and sentences"),
        ("[]", "is not JSON with images"),
        ('{"images": [{"filename": "a.png"}]}', "is not JSON with images"),
        ('{"images": [{"filename": 3, "sentences": []}]}', "the filename 3 is not a string"),
        ('{"images": [{"filename": "a", "filepath": null, "sentences": []}]}', "the filepath of a is not a string"),
        ('{"images": [{"filename": "a", "split": ["val"], "sentences": []}]}', "must be a string, such as train, got "),
        ('{"images": [{"filename": "a", "split": "val", "sentences": "a"}]}', "the sentences of a are not a list"),
        *(
            (
                f'{{"images": [{{"filename": "a", "split": "val", "sentences": [{each}]}}]}}',
                "a sentence of a has neither",
            )
            for each in (
                '"a tree"',
                '{"tokens": null}',
                '{"tokens": ["a", 3]}',
                '{"tokens": "a tree"}',
                '{"raw": null}',
            )
        ),
        ('{"images": []}', "has no image of the train split"),
    ],
)
def test_invalid_format_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        KarpathyCaptions(str(tmp_path)).load("train")
    assert str(tmp_path / "dataset.json") in str(refused.value)


def test_missing_file_and_invalid_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset\.json cannot be read .*: set corpus\.root to its folder\.$"):
        KarpathyCaptions(str(tmp_path)).load("train")
    with pytest.raises(InputError, match=r"^corpus\.channels must be 1 or 3, got 2\.$"):
        KarpathyCaptions("x", channels=2)
