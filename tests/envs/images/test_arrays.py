"""Images in arrays: parts, layouts, types and faults, in Python and from a file."""

import itertools

import numpy as np
import pytest
import torch

from envs.errors import InputError
from envs.images import load_split
from envs.images.arrays import Arrays
from envs.images.augmentation import RandomWarp

SPLITS = ("train", "validation", "test")
LABELS = np.arange(20) % 2
IMAGES = np.broadcast_to(np.arange(20, dtype=np.uint8)[:, None, None], (20, 4, 6))


def in_python(tmp_path, **arrays):
    return Arrays(**arrays)


def in_a_file(tmp_path, **arrays):
    path = tmp_path / "images.npz"
    np.savez_compressed(path, **{name: np.asarray(value) for name, value in arrays.items()})
    return Arrays(path=str(path))


both = pytest.mark.parametrize("given", [in_python, in_a_file])


@both
def test_parts_are_held_out_by_class(given, tmp_path):
    source = given(tmp_path, images=IMAGES, labels=LABELS)
    parts = {split: source.load(split) for split in SPLITS}
    values = {split: part.images[:, 0, 0, 0].tolist() for split, part in parts.items()}
    assert sorted(itertools.chain(*values.values())) == list(range(20))
    for split, count in [("train", 16), ("validation", 2), ("test", 2)]:
        part = parts[split]
        assert part.images.shape == (count, 1, 4, 6) and part.images.dtype == torch.uint8
        assert part.labels.dtype == torch.int64
        assert part.labels.tolist() == [value % 2 for value in values[split]]
        assert part.classes == ("0", "1")
        assert torch.equal(source.load(split).images, part.images)


@both
def test_parts_and_classes_that_are_given(given, tmp_path):
    source = given(
        tmp_path,
        images=IMAGES,
        labels=LABELS,
        images_validation=IMAGES[:3],
        labels_validation=LABELS[:3],
        images_test=IMAGES[:5] / 255.0,
        labels_test=LABELS[:5],
        classes=["even", "ödd"],
    )
    assert [len(source.load(split)) for split in SPLITS] == [20, 3, 5]
    assert source.load("test").images.dtype == torch.float32
    assert source.load("train").classes == ("even", "ödd")


@both
def test_a_test_part_alone_leaves_the_rest_to_training_and_validation(given, tmp_path):
    source = given(tmp_path, images=IMAGES, labels=LABELS, images_test=IMAGES[:4], labels_test=LABELS[:4])
    assert [len(source.load(split)) for split in SPLITS] == [18, 2, 4]


def test_classes_of_the_constructor_come_before_those_of_the_file(tmp_path):
    path = in_a_file(tmp_path, images=IMAGES, labels=LABELS, classes=np.array([b"a", b"b"])).path
    assert Arrays(path=path).load("train").classes == ("a", "b")
    assert Arrays(path=path, classes=["x", "y", "z"]).load("train").classes == ("x", "y", "z")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((9, 4, 6), (1, 4, 6)),
        ((9, 1, 4, 6), (1, 4, 6)),
        ((9, 4, 6, 1), (1, 4, 6)),
        ((9, 3, 4, 6), (3, 4, 6)),
        ((9, 4, 6, 3), (3, 4, 6)),
        ((9, 2, 2, 3), (3, 2, 2)),  # 3 rather than the smaller 2
        ((9, 3, 2, 2), (3, 2, 2)),
        ((9, 8, 6, 4), (4, 8, 6)),  # the smaller
        ((9, 4, 6, 8), (4, 6, 8)),
        ((9, 3, 5, 3), (3, 5, 3)),  # the second
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, ">f4"])
def test_layouts_and_types(shape, expected, dtype):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, shape, np.uint8) if dtype is np.uint8 else generator.random(shape).astype(dtype)
    labels = np.zeros(9, np.int16)
    test = Arrays(images=images, labels=labels, images_test=images, labels_test=labels).load("test").images
    assert test.shape == (9, *expected) and test.is_contiguous()
    assert test.dtype == (torch.uint8 if dtype is np.uint8 else torch.float32)
    first = images[2].reshape(4, 6)[None] if len(shape) == 3 else images[2]
    if len(shape) == 4 and shape[1] != expected[0]:
        first = np.moveaxis(first, -1, 0)
    assert np.array_equal(test[2].numpy(), first.astype(test.numpy().dtype))


def test_tensors_and_arrays_that_cannot_be_written():
    images = torch.arange(20).view(20, 1, 1).expand(20, 4, 6) / 20
    source = Arrays(images=images.requires_grad_(), labels=torch.zeros(20, dtype=torch.uint8))
    assert not source.load("train").images.requires_grad
    mirrored = np.ones((20, 4, 6), np.float32)[:, ::-1]
    mirrored.flags.writeable = False
    assert Arrays(images=mirrored, labels=LABELS.tolist()).load("train").images.min() == 1


@both
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": IMAGES.astype(np.int64)}, "uint8, or floating point.*int64"),
        ({"images": IMAGES > 3}, "uint8, or floating point.*bool"),
        ({"images": IMAGES.astype(np.float32)}, r"\[0, 1\] without NaN .* from 0 to 19"),
        ({"images": -(IMAGES / 255)}, r"\[0, 1\] without NaN"),
        ({"images": np.where(IMAGES == 3, np.nan, 0.5)}, r"\[0, 1\] without NaN .* nan"),
        ({"images": np.where(IMAGES == 3, 1e300, 0.5)}, r"\[0, 1\] without NaN .* 1e\+300"),
        ({"images": IMAGES[0]}, r"\(N, H, W\).*\(4, 6\)"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "not empty"),
        ({"images": IMAGES.astype(str)}, "images.* array of numbers"),
        ({"labels": LABELS[:7]}, r"labels.* \(20,\) integers, got \(7,\)"),
        ({"labels": LABELS[:, None]}, r"labels.* \(20,\) integers, got \(20, 1\)"),
        ({"labels": LABELS / 2}, "labels.* integers, got .*float64"),
        ({"labels": LABELS == 1}, "labels.* integers, got .*bool"),
        ({"labels": LABELS - 1}, "from -1 to 0"),
        ({"labels": LABELS * 2**40}, "number 20 classes from 0, .* from 0 to 1099511627776"),
        ({"classes": ["one"]}, "number 1 classes from 0, .* from 0 to 1"),
        ({"images_test": IMAGES}, "labels_test.* is missing; there are images, images_test, labels"),
        ({"labels_validation": LABELS}, "images_validation.* is missing"),
        ({"images_test": IMAGES[:, :3], "labels_test": LABELS}, r"same \(C, H, W\) .* \(1, 3, 6\) and \(1, 4, 6\)"),
        ({"images_test": IMAGES, "labels_test": LABELS + 40}, "from 0 to 41"),
    ],
)
def test_refused_arrays(given, tmp_path, arrays, words):
    source = given(tmp_path, **({"images": IMAGES, "labels": LABELS} | arrays))
    with pytest.raises(InputError, match=words) as refusal:
        source.load("train")
    assert source.path is None or f"images.path={source.path}" in str(refusal.value)


def test_missing_labels():
    with pytest.raises(InputError, match="labels is missing; there are images"):
        Arrays(images=IMAGES).load("train")


def test_unfit_files(tmp_path):
    path = tmp_path / "images.npz"

    def refused(words):
        with pytest.raises(InputError, match=words) as refusal:
            Arrays(path=str(path)).load("train")
        assert f"images.path={path}" in str(refusal.value)

    refused("No such file")
    path.write_bytes(b"")
    refused("is not a zip file")
    with path.open("wb") as stream:
        np.save(stream, IMAGES)
    refused("is not a zip file")
    in_a_file(tmp_path, pictures=IMAGES)
    refused("unknown arrays pictures: there may be images, labels")
    in_a_file(tmp_path, images=IMAGES)
    refused("labels .* is missing; there are images")
    in_a_file(tmp_path, images=IMAGES, labels=LABELS, classes=np.array(["a", "b"], object))
    refused("Object arrays")

    in_a_file(tmp_path, images=IMAGES, labels=LABELS)
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    refused("cannot be read")
    whole[80] ^= 1
    path.write_bytes(whole)
    refused("cannot be read")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (r"either images\.path", {}),
        (r"either images\.path", {"images": IMAGES, "labels": LABELS, "path": "images.npz"}),
        (r"images\.validation_share", {"path": "x", "validation_share": 1.0}),
        (r"images\.test_share", {"path": "x", "test_share": 0}),
    ],
)
def test_options_are_checked_on_construction(words, options):
    with pytest.raises(InputError, match=words):
        Arrays(**options)


def test_environments_tell_sources_apart():
    augmentation = RandomWarp(shift=1)
    one, other = (Arrays(images=images, labels=LABELS, augmentation=augmentation) for images in (IMAGES, IMAGES + 1))
    device = torch.device("cpu")
    held = load_split(one, "train", device)
    assert load_split(one, "train", device) is held
    assert load_split(other, "train", device) is not held
    assert held.augmentation is augmentation and one.load("test").augmentation is None
    assert len(repr(one)) < 100
