"""Images from arrays, in Python and in a file: splits, layouts, dtypes and invalid arrays."""

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


def from_python(tmp_path, **arrays):
    return Arrays(**arrays)


def from_file(tmp_path, **arrays):
    path = tmp_path / "images.npz"
    np.savez_compressed(path, **{name: np.asarray(value) for name, value in arrays.items()})
    return Arrays(path=str(path))


both = pytest.mark.parametrize("make", [from_python, from_file])


@both
def test_missing_splits_are_held_out_class_by_class(make, tmp_path):
    source = make(tmp_path, images=IMAGES, labels=LABELS)
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
def test_given_splits_and_classes_are_used(make, tmp_path):
    source = make(
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
def test_with_a_test_split_only_validation_is_held_out(make, tmp_path):
    source = make(tmp_path, images=IMAGES, labels=LABELS, images_test=IMAGES[:4], labels_test=LABELS[:4])
    assert [len(source.load(split)) for split in SPLITS] == [18, 2, 4]


def test_classes_of_the_constructor_override_those_of_the_file(tmp_path):
    path = from_file(tmp_path, images=IMAGES, labels=LABELS, classes=np.array([b"a", b"b"])).path
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
        ((9, 2, 2, 3), (3, 2, 2)),  # size 3 before the smaller size 2
        ((9, 3, 2, 2), (3, 2, 2)),
        ((9, 8, 6, 4), (4, 8, 6)),  # the smaller size
        ((9, 4, 6, 8), (4, 6, 8)),
        ((9, 3, 5, 3), (3, 5, 3)),  # axis 1 in case of a tie
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, ">f4"])
def test_the_channel_axis_is_found_and_the_dtype_converted(shape, expected, dtype):
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


def test_tensors_with_gradients_and_read_only_arrays_are_accepted():
    images = torch.arange(20).view(20, 1, 1).expand(20, 4, 6) / 20
    source = Arrays(images=images.requires_grad_(), labels=torch.zeros(20, dtype=torch.uint8))
    assert not source.load("train").images.requires_grad
    mirrored = np.ones((20, 4, 6), np.float32)[:, ::-1]
    mirrored.flags.writeable = False
    assert Arrays(images=mirrored, labels=LABELS.tolist()).load("train").images.min() == 1


@both
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES.astype(np.int64)}, "uint8, or floating point.*int64"),
        ({"images": IMAGES > 3}, "uint8, or floating point.*bool"),
        ({"images": IMAGES.astype(np.float32)}, r"\[0, 1\] .* ranges from 0 to 19"),
        ({"images": -(IMAGES / 255)}, r"\[0, 1\] if it is floating point"),
        ({"images": np.where(IMAGES == 3, np.nan, 0.5)}, "contains NaN: remove the image"),
        ({"images": np.where(IMAGES == 3, 1e300, 0.5)}, r"\[0, 1\] .* 1e\+300"),
        ({"images": IMAGES[0]}, r"\(N, H, W\).*\(4, 6\)"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "not empty"),
        ({"images": IMAGES.astype(str)}, "images.* array of numbers"),
        ({"labels": LABELS[:7]}, r"labels.* \(20,\) integers, got \(7,\)"),
        ({"labels": LABELS[:, None]}, r"labels.* \(20,\) integers, got \(20, 1\)"),
        ({"labels": LABELS / 2}, "labels.* integers, got .*float64"),
        ({"labels": LABELS == 1}, "labels.* integers, got .*bool"),
        ({"labels": LABELS - 1}, "must be in 0 .. 0 for 1 classes, but range from -1 to 0"),
        ({"labels": LABELS * 2**40}, "for 20 classes, but range from 0 to 1099511627776"),
        ({"classes": ["one"]}, "must be in 0 .. 0 for 1 classes, but range from 0 to 1"),
        ({"images_test": IMAGES}, "labels_test.* is missing; there are images, images_test, labels"),
        ({"labels_validation": LABELS}, "images_validation.* is missing"),
        ({"images_test": IMAGES[:, :3], "labels_test": LABELS}, r"same \(C, H, W\) .* \(1, 3, 6\) and \(1, 4, 6\)"),
        ({"images_test": IMAGES, "labels_test": LABELS + 40}, "but range from 0 to 41 over all splits"),
    ],
)
def test_invalid_arrays_are_refused(make, tmp_path, arrays, message):
    source = make(tmp_path, **({"images": IMAGES, "labels": LABELS} | arrays))
    with pytest.raises(InputError, match=message) as refusal:
        source.load("train")
    assert source.path is None or f"images.path={source.path}" in str(refusal.value)


def test_missing_labels_are_refused():
    with pytest.raises(InputError, match="labels is missing; there are images"):
        Arrays(images=IMAGES).load("train")


def test_invalid_files_are_refused(tmp_path):
    path = tmp_path / "images.npz"

    def assert_refused(message):
        with pytest.raises(InputError, match=message) as refusal:
            Arrays(path=str(path)).load("train")
        assert f"images.path={path}" in str(refusal.value)

    assert_refused("No such file")
    path.write_bytes(b"")
    assert_refused("is not a zip file")
    with path.open("wb") as stream:
        np.save(stream, IMAGES)
    assert_refused("is not a zip file")
    from_file(tmp_path, pictures=IMAGES)
    assert_refused("unknown arrays pictures: it may have images, labels")
    from_file(tmp_path, images=IMAGES)
    assert_refused("labels .* is missing; there are images")
    from_file(tmp_path, images=IMAGES, labels=LABELS, classes=np.array(["a", "b"], object))
    assert_refused("Object arrays")

    from_file(tmp_path, images=IMAGES, labels=LABELS)
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    assert_refused("cannot be read")
    whole[80] ^= 1
    path.write_bytes(whole)
    assert_refused("cannot be read")


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (r"either images\.path", {}),
        (r"either images\.path", {"images": IMAGES, "labels": LABELS, "path": "images.npz"}),
        (r"images\.validation_share", {"path": "x", "validation_share": 1.0}),
        (r"images\.test_share", {"path": "x", "test_share": 0}),
    ],
)
def test_options_are_checked_on_construction(message, options):
    with pytest.raises(InputError, match=message):
        Arrays(**options)


def test_only_the_same_source_shares_loaded_images():
    augmentation = RandomWarp(translation=1)
    first, second = (Arrays(images=images, labels=LABELS, augmentation=augmentation) for images in (IMAGES, IMAGES + 1))
    device = torch.device("cpu")
    loaded = load_split(first, "train", device)
    assert load_split(first, "train", device) is loaded
    assert load_split(second, "train", device) is not loaded
    assert loaded.augmentation is augmentation and first.load("test").augmentation is None
    assert len(repr(first)) < 100
