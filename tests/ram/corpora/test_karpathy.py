"""Pictures with captions in one file, in Karpathy's format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from envs import InputError
from ram.corpora.karpathy import KarpathyCaptions

DATA = Path(__file__).parents[3] / "../shared/data/ucm_captions"


def entry(name: str, split: str, *captions: str, **more: Any) -> dict[str, Any]:
    return {"filename": name, "split": split, "sentences": [{"tokens": each.split()} for each in captions], **more}


def write(folder: Path, *entries: dict[str, Any]) -> KarpathyCaptions:
    """With a picture of 8 x 4 for every entry, whose grey is 10 times its number."""
    for number, each in enumerate(entries):
        path = folder / "images" / each.get("filepath", "") / each["filename"]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 8), 10 * number + 10, np.uint8)).save(path)
    (folder / "dataset.json").write_text(json.dumps({"images": entries}))
    return KarpathyCaptions(str(folder), size=4, channels=1)


def test_pictures_and_captions_go_together(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        entry("a.png", "train", "A Tree", "one tree"),
        entry("b.png", "val", "a pond"),
        entry("c.png", "restval", "two trees", filepath="more"),
        entry("d.png", "test", "a road"),
    )
    train = source.load("train")
    assert train.captions == ((("a", "tree"), ("one", "tree")), (("two", "trees"),))
    assert train.images.shape == (2, 1, 4, 4)
    assert train.images[:, 0, :, 0].tolist() == [[0, 10, 10, 0], [0, 30, 30, 0]]  # scaled to fit, on black
    assert source.load("validation").captions == ((("a", "pond"),),)
    assert source.load("test").captions == ((("a", "road"),),)
    assert KarpathyCaptions(str(tmp_path), size=4).load("test").images.shape == (1, 3, 4, 4)


def test_raw_captions_serve_where_there_are_no_tokens(tmp_path: Path) -> None:
    raw = {"filename": "a.png", "split": "train", "sentences": [{"raw": "There's a tree , and a Pond ."}]}
    assert write(tmp_path, raw).load("train").captions == ((("there's", "a", "tree", "and", "a", "pond"),),)


def test_a_picture_is_found_under_another_suffix(tmp_path: Path) -> None:
    source = write(tmp_path, entry("a.png", "train", "a tree"))
    (tmp_path / "images/a.png").rename(tmp_path / "images/a.bmp")
    assert len(source.load("train")) == 1
    (tmp_path / "images/a.bmp").rename(tmp_path / "images/b.png")
    with pytest.raises(InputError, match=r"a\.png is missing, though .*dataset\.json has captions of it"):
        source.load("train")


def test_captions_without_a_word_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write(
        tmp_path, entry("a.png", "train", "", "a tree"), entry("b.png", "train", " "), entry("c.png", "val", "")
    )
    told = r"train split 2 captions without a word are left out, and 1 images without a caption\.$"
    with pytest.warns(UserWarning, match=told):
        train = source.load("train")
    assert train.captions == ((("a", "tree"),),) and int(train.images.max()) == 10
    with (
        pytest.warns(UserWarning, match="in the validation split 1 captions without a word"),
        pytest.raises(InputError, match="no caption of the validation split with a word"),
    ):
        source.load("validation")
    with pytest.raises(InputError, match=r"dataset\.json has no image of the test split"):
        source.load("test")


def test_a_picture_without_any_caption_is_counted_too(tmp_path: Path) -> None:
    source = write(tmp_path, entry("a.png", "train", "a tree"), entry("b.png", "train"))
    with pytest.warns(UserWarning, match=r"0 captions without a word are left out, and 1 images without a caption\.$"):
        assert len(source.load("train")) == 1


def test_pictures_of_another_split_are_left_out_and_counted(tmp_path: Path) -> None:
    without = {"filename": "c.png", "sentences": [{"tokens": ["a", "tree"], "raw": None}]}
    source = write(tmp_path, entry("a.png", "train", "a tree"), entry("b.png", "dev", "a tree"), without)
    with pytest.warns(UserWarning, match=r"2 images of no split but train, restval, val, test are left out\.$"):
        assert len(source.load("train")) == 1


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    source = write(tmp_path, entry("a.png", "train", "a tree"))
    (tmp_path / "images/a.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"a\.png cannot be read as a picture"):
        source.load("train")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON with images, filenames and sentences"),
        ("[]", "is no JSON with images"),
        ('{"images": [{"filename": "a.png"}]}', "is no JSON with images"),
        ('{"images": [{"filename": 3, "sentences": []}]}', "the filename 3 is no text"),
        ('{"images": [{"filename": "a", "filepath": null, "sentences": []}]}', "the filepath of a is no text"),
        ('{"images": [{"filename": "a", "split": ["val"], "sentences": []}]}', "must be a text, such as train, got "),
        ('{"images": [{"filename": "a", "split": "val", "sentences": "a"}]}', "the sentences of a are no list"),
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
def test_a_file_of_another_format_is_refused(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(InputError, match=told) as refused:
        KarpathyCaptions(str(tmp_path)).load("train")
    assert str(tmp_path / "dataset.json") in str(refused.value)


def test_a_missing_file_and_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset\.json cannot be read .*: corpus\.root must be its folder\.$"):
        KarpathyCaptions(str(tmp_path)).load("train")
    with pytest.raises(InputError, match=r"^corpus\.channels must be 1 or 3, got 2\.$"):
        KarpathyCaptions("x", channels=2)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is missing")
def test_ucm_captions() -> None:
    validation = KarpathyCaptions(str(DATA), size=32).load("validation")
    assert validation.images.shape == (210, 3, 32, 32)
    assert all(len(some) == 5 for some in validation.captions)
    assert 20 < float(validation.images.float().std()) < 100
