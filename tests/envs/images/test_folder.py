"""Image files in folders: layouts, sizes, color modes and damaged files."""

import itertools
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from envs.errors import InputError
from envs.images import load_split
from envs.images.augmentation import RandomWarp
from envs.images.folder import Folder, split_indices

SPLITS = ("train", "validation", "test")


def save(path, pixels, mode=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels, np.uint8))
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def fill(folder, classes=("cat", "dog"), count=10):
    """Writes grayscale images of 4 x 4 pixels with the value 100 * class + number."""
    for label, name in enumerate(classes):
        for number in range(count):
            save(folder / name / f"{number}.png", np.full((4, 4), 100 * label + number))
    return folder


def load_single(root, **options):
    """The images of the only class in the test folder."""
    return Folder(str(root), **options).load("test").images


def single(tmp_path, name):
    """The path of a file that ``load_single`` loads, after writing a black training image of 1 x 1."""
    save(tmp_path / "train/a/0.png", [[0]])
    path = tmp_path / "test/a" / name
    path.parent.mkdir(parents=True)
    return path


def values(part):
    return part.images[:, 0, 0, 0].tolist()


def test_class_folders_in_the_root_are_split_class_by_class(tmp_path):
    augmentation = RandomWarp(translation=1)
    source = Folder(str(fill(tmp_path)), validation_share=0.2, test_share=0.1, augmentation=augmentation)
    parts = {split: source.load(split) for split in SPLITS}
    assert sorted(itertools.chain(*map(values, parts.values()))) == [*range(10), *range(100, 110)]
    for split, count in [("train", 7), ("validation", 2), ("test", 1)]:
        part = parts[split]
        assert part.images.dtype == torch.uint8 and part.images.shape == (2 * count, 1, 4, 4)
        assert part.labels.tolist() == [value // 100 for value in values(part)] == [0] * count + [1] * count
        assert part.classes == ("cat", "dog")
        assert part.augmentation is (augmentation if split == "train" else None)
        assert torch.equal(source.load(split).images, part.images)


@pytest.mark.parametrize("validation", [None, "validation", "val"])
def test_split_folders_are_used(tmp_path, validation):
    fill(tmp_path / "train", count=10)
    fill(tmp_path / "test", count=3)
    if validation:
        fill(tmp_path / validation, count=4)
    source = Folder(str(tmp_path))
    counts = [len(source.load(split)) for split in SPLITS]
    assert counts == ([20, 8, 6] if validation else [18, 2, 6])
    loaded = source.load("test")
    assert len(set(loaded.names)) == 6
    for name, label in zip(loaded.names, loaded.labels.tolist(), strict=True):
        assert Path(name).parts[:2] == ("test", loaded.classes[label]) and (tmp_path / name).is_file()


def test_a_class_may_be_named_train(tmp_path):
    fill(tmp_path, classes=("bus", "train"))
    assert Folder(str(tmp_path)).load("train").classes == ("bus", "train")


def test_files_that_are_not_images_are_ignored(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat/notes.txt").write_text("not an image")
    (tmp_path / "cat/.hidden.png").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cat/.cache").mkdir()
    (tmp_path / "cat/.cache/1.png").write_text("not an image")
    (tmp_path / "cat/folder.png").mkdir()
    (tmp_path / "list.csv").write_text("not an image")
    save(tmp_path / "cat/more/BIG.PNG", np.full((4, 4), 77))
    source = Folder(str(tmp_path))
    assert sum(len(source.load(split)) for split in SPLITS) == 21
    assert any(77 in values(source.load(split)) for split in SPLITS)


def test_without_a_size_images_are_padded_to_the_largest(tmp_path):
    save(tmp_path / "train/a/0.png", np.full((1, 5), 10))
    save(tmp_path / "train/a/1.png", np.full((1, 1), 20))
    save(tmp_path / "test/a/0.png", np.full((4, 2), 30))
    source = Folder(str(tmp_path))
    train, validation, test = (source.load(split).images for split in SPLITS)
    expected = torch.zeros(1, 1, 4, 5, dtype=torch.uint8)
    expected[..., 1:3] = 30
    assert torch.equal(test, expected)
    wide, dot = (expected * 0 for _ in range(2))
    wide[:, :, 1], dot[:, :, 1, 2] = 10, 20
    assert {tuple(image.flatten().tolist()) for image in (train, validation)} == {
        tuple(image.flatten().tolist()) for image in (wide, dot)
    }


@pytest.mark.parametrize(
    ("shape", "size", "rows", "columns"),
    [
        ((10, 20), 10, slice(2, 8), slice(0, 10)),  # 5 x 10 after 2 rows of padding
        ((2, 1), (8, 8), slice(0, 8), slice(2, 6)),
        ((4, 4), [4, 6], slice(0, 4), slice(1, 5)),
        ((1, 500), (5, 10), slice(2, 3), slice(0, 10)),
    ],
)
def test_size_resizes_to_fit_and_pads(tmp_path, shape, size, rows, columns):
    save(single(tmp_path, "0.png"), np.full(shape, 200))
    images = load_single(tmp_path, size=size)
    height, width = (size, size) if isinstance(size, int) else size
    expected = torch.zeros(1, 1, height, width, dtype=torch.uint8)
    expected[..., rows, columns] = 200
    if shape == (10, 20):
        expected[..., 7, :] = 0
    assert torch.equal(images, expected)


def test_images_are_grayscale_only_if_all_files_of_all_splits_are(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    assert Folder(str(tmp_path)).load("train").images.shape[1] == 1
    save(tmp_path / "test/cat/red.png", np.full((4, 4, 3), (200, 0, 0)))
    assert all(Folder(str(tmp_path)).load(split).images.shape[1] == 3 for split in SPLITS)
    assert Folder(str(tmp_path), channels=1).load("test").images.shape[1:] == (1, 4, 4)
    assert Folder(str(tmp_path), channels=3, size=2).load("train").images.shape[1:] == (3, 2, 2)


def png16(path, value):
    """Writes a grayscale image of one pixel with 16 bits."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 0, 0, 0, 0)
    data = zlib.compress(b"\0" + struct.pack(">H", value))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


@pytest.mark.parametrize(("value", "byte"), [(0, 0), (257, 1), (0x8000, 128), (0xFFFF, 255)])
@pytest.mark.parametrize("suffix", ["png", "pgm", "tif"])
def test_16_bit_grayscale_is_scaled_to_8_bits(tmp_path, value, byte, suffix):
    path = single(tmp_path, f"0.{suffix}")
    if suffix == "png":
        png16(path, value)
    elif suffix == "pgm":
        path.write_bytes(b"P5 1 1 65535\n" + struct.pack(">H", value))
    else:
        Image.fromarray(np.full((1, 1), value, np.uint16)).save(path)
    assert load_single(tmp_path).tolist() == [[[[byte]]]]


def test_float_images_must_be_in_0_to_1(tmp_path):
    path = single(tmp_path, "0.tif")
    Image.fromarray(np.full((1, 1), 0.2, np.float32)).save(path)
    assert load_single(tmp_path).tolist() == [[[[51]]]]
    for value in (1.5, float("nan")):
        Image.fromarray(np.full((1, 1), value, np.float32)).save(path)
        with pytest.raises(InputError, match=f"{path} cannot be read .*outside 0 .. 1"):
            load_single(tmp_path)


@pytest.mark.parametrize(
    ("mode", "pixel", "expected"),
    [
        ("1", 255, [255]),
        ("L", 90, [90]),
        ("LA", (200, 51), [40]),
        ("RGB", (10, 20, 30), [10, 20, 30]),
        ("RGBA", (200, 100, 0, 51), [40, 20, 0]),
        ("RGBA", (200, 100, 0, 0), [0, 0, 0]),
        ("CMYK", (0, 255, 255, 0), [255, 0, 0]),
    ],
)
def test_color_modes_are_converted_and_transparency_blended_with_black(tmp_path, mode, pixel, expected):
    path = single(tmp_path, "0.tif")
    Image.new(mode, (1, 1), pixel).save(path)
    assert load_single(tmp_path).flatten().tolist() == expected


def test_a_transparent_palette_color_becomes_black(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([200, 100, 50, 9, 8, 7])
    image.putpixel((1, 0), 1)
    image.save(single(tmp_path, "0.png"), transparency=0)
    assert load_single(tmp_path).flatten(2).mT.tolist() == [[[0, 0, 0], [9, 8, 7]]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = np.repeat(np.repeat(np.array([[0, 60, 120], [180, 240, 30]], np.uint8), 8, 0), 8, 1)
    # The pixels as stored by a camera with that orientation.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    options = {"quality": 100} if suffix == "jpg" else {}
    save(single(tmp_path, f"0.{suffix}"), np.ascontiguousarray(stored), exif=exif, **options)
    images = load_single(tmp_path)
    assert images.shape == (1, 1, 16, 24)
    torch.testing.assert_close(images[0, 0].int(), torch.from_numpy(upright).int(), atol=2, rtol=0)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif"])
@pytest.mark.parametrize("kept", [0, 20, -100])
def test_a_damaged_file_is_reported(tmp_path, suffix, kept):
    fill(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64))
    path = save(tmp_path / f"dog/noise.{suffix}", noise)
    path.write_bytes(path.read_bytes()[:kept])
    source = Folder(str(tmp_path), channels=1, size=4)
    with pytest.raises(InputError, match=f"{path} cannot be read as an image"):
        [source.load(split) for split in SPLITS]


def test_invalid_layouts_are_refused(tmp_path):
    def assert_refused(message):
        with pytest.raises(InputError, match=message) as refusal:
            Folder(str(tmp_path / "root")).load("train")
        assert str(refusal.value).startswith(f"images.root={tmp_path / 'root'} ")

    root = tmp_path / "root"
    assert_refused("is not a folder")
    root.mkdir()
    assert_refused("has no class folder")
    save(root / "loose.png", [[0]])
    assert_refused("has no class folder")
    (root / "cat").mkdir()
    assert_refused("class folder without images.*cat")
    (root / "cat").rmdir()
    fill(root / "train")
    assert_refused("must have both train and test")
    (root / "test").mkdir()
    assert_refused("only one of them has cat, dog")
    fill(root / "test", classes=("cat", "cow"))
    assert_refused("same classes in train and test, but only one of them has cow, dog")
    fill(root / "test", classes=("dog",))
    fill(root / "train", classes=("cow",))
    fill(root / "validation", classes=("cow", "dog"))
    assert_refused("same classes in train and validation, but only one of them has cat")
    (root / "val").mkdir()
    assert_refused("at most one of validation and val")


def test_a_class_with_too_few_images_is_refused(tmp_path):
    fill(tmp_path, count=1)
    source = Folder(str(tmp_path))
    assert len(source.load("train")) == 2
    with pytest.raises(InputError, match=r"The validation split would be empty.*images\.validation_share"):
        source.load("validation")


def test_images_that_do_not_fit_into_memory_are_refused(tmp_path):
    fill(tmp_path)
    with pytest.raises(InputError, match=r"do not fit into memory.* smaller images\.size"):
        Folder(str(tmp_path), size=10**8).load("train")


def test_split_indices_parts_without_overlap():
    labels = torch.arange(3).repeat_interleave(100)
    shares = {"test": 0.2, "validation": 0.3}
    parts = {split: split_indices(split, labels, shares) for split in SPLITS}
    assert torch.equal(torch.cat(list(parts.values())).sort().values, torch.arange(300))
    assert [len(parts[split]) for split in SPLITS] == [150, 90, 60]
    assert all(len(set(labels[part].bincount().tolist())) == 1 for part in parts.values())


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("root", {"root": ""}),
        ("size", {"size": 0}),
        ("size", {"size": (4, -1)}),
        ("size", {"size": (4, 4, 4)}),
        ("size", {"size": 2.5}),
        ("channels", {"channels": 2}),
        ("validation_share", {"validation_share": 0}),
        ("test_share", {"test_share": float("nan")}),
        ("test_share", {"validation_share": 0.5, "test_share": 0.5}),
    ],
)
def test_options_are_checked_on_construction(option, options):
    with pytest.raises(InputError, match=rf"images\.{option}"):
        Folder(**{"root": "nowhere", **options})


def test_equal_sources_share_loaded_images(tmp_path):
    fill(tmp_path)
    first, second = (Folder(str(tmp_path), size=[4, 4]) for _ in range(2))
    device = torch.device("cpu")
    assert load_split(first, "train", device) is not load_split(second, "test", device)
    loaded = load_split(first, "train", device)
    assert load_split(second, "train", device) is loaded
