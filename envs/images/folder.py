"""Image files in a folder with one subfolder for every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from envs.errors import InputError
from envs.images import Augmentation, ImageSet
from envs.images.cache import cached_images
from envs.images.image_io import find_image_files, map_image_files, read_header, read_image
from envs.splits import Split, check_shares, check_split, split_indices
from envs.validation import parse_pair


@dataclass(frozen=True)
class Folder:
    """Images of any size, grayscale or color, in a folder with one subfolder for every class.

    The class folders are in ``root`` itself, or in ``root/train``, ``root/test`` and optionally ``root/validation`` or
    ``root/val``. A split without a folder is held out, class by class and the same way at every call, from the images
    of ``root`` or ``root/train``. Hidden files and files without an image suffix are ignored.

    Attributes:
        root: the folder.
        size: height and width of the images in pixels, or one number for both. Every image is resized to fit, keeping
            its aspect ratio, and padded with black on all sides. None pads without resizing, to the largest height and
            the largest width in all splits.
        channels: 1 for grayscale, 3 for RGB, or None: grayscale if the images of all splits are stored as such.
        validation_share: the share of every class that is held out for validation, in (0, 1).
        test_share: the share of every class that is held out for the test, in (0, 1).
        augmentation: the augmentation of the training split; see :class:`ImageSet`.
    """

    root: str
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        if not self.root:
            raise InputError(f"images.root must name the folder of the images, got {self.root!r}.")
        if self.size is not None:  # a configuration gives a list, which has no hash
            object.__setattr__(self, "size", parse_pair("images.size", self.size, 1))
        if self.channels not in (None, 1, 3):
            raise InputError(f"images.channels must be 1, 3 or null, got {self.channels}.")
        check_shares(self.validation_share, self.test_share)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """Loads one split as (N, C, H, W) uint8 on a device; C, H and W are the same for all splits.

        Raises:
            InputError: the folder has another layout, or an image cannot be read.
        """
        check_split(split)
        root = Path(self.root).expanduser()
        classes, parts = _find_images(root)
        size = cast("tuple[int, int] | None", self.size)  # a tuple since __post_init__
        height, width, channels = self._image_shape(size, [path for part in parts.values() for path, _ in part])
        chosen = parts.get(split, [])
        if split not in parts or split == "train":
            shares: dict[Split, float] = {"test": self.test_share, "validation": self.validation_share}
            labels = torch.tensor([label for _, label in parts["train"]])
            indices = split_indices(split, labels, {name: share for name, share in shares.items() if name not in parts})
            chosen = [parts["train"][index] for index in indices.tolist()]
        files = [path for path, _ in chosen]
        read = partial(read_image, channels=channels, size=(height, width), resize=size is not None)

        def decode() -> Tensor:
            try:
                images = torch.zeros(len(files), channels, height, width, dtype=torch.uint8)
            except RuntimeError as error:
                raise InputError(
                    f"The {len(files)} images of images.root={self.root} with {height} x {width} pixels do not fit "
                    "into memory: set a smaller images.size."
                ) from error
            for image, pixels in zip(images, map_image_files(read, files), strict=True):
                image.copy_(pixels)
            return images

        images = cached_images(files, (channels, height, width, size is not None), decode)
        labels = torch.tensor([label for _, label in chosen])
        augmentation = self.augmentation if split == "train" else None
        names = tuple(path.relative_to(root).as_posix() for path, _ in chosen)
        return ImageSet(images.to(device), labels.to(device), classes, augmentation, names)

    def _image_shape(self, size: tuple[int, int] | None, paths: Sequence[Path]) -> tuple[int, int, int]:
        """Returns the height, width and channels of all images, from the options or else from the files."""
        if size and self.channels:
            return *size, self.channels
        heights, widths, grayscale = zip(*map_image_files(read_header, paths), strict=True)
        height, width = size or (max(heights), max(widths))
        return height, width, self.channels or (1 if all(grayscale) else 3)


def _find_images(root: Path) -> tuple[tuple[str, ...], dict[Split, list[tuple[Path, int]]]]:
    """Returns the classes, and the files with their labels of every split that has a folder.

    If the root has class folders only, all files are in the split "train".
    """
    if not root.is_dir():
        raise InputError(f"images.root={root} is not a folder: name a folder with a subfolder for every class.")
    names = set(_folders(root))
    folders: dict[Split, Path] = {"train": root}
    # A folder "train" among other names is a class of that name.
    if {"train", "test"} <= names or (names and names <= {"train", "test", "validation", "val"}):
        if not {"train", "test"} <= names or {"validation", "val"} <= names:
            raise InputError(
                f"images.root={root} has the folders {', '.join(sorted(names))}: it must have both train and test, "
                "and at most one of validation and val."
            )
        folders = {"train": root / "train", "test": root / "test"}
        for name in names & {"validation", "val"}:
            folders["validation"] = root / name
    classes = _folders(folders["train"])
    if not classes:
        raise InputError(f"images.root={root} has no class folder in {folders['train']}: create one for every class.")
    parts: dict[Split, list[tuple[Path, int]]] = {}
    for split, folder in folders.items():
        if unmatched := set(classes) ^ set(_folders(folder)):
            raise InputError(
                f"images.root={root} must have the same classes in {folders['train'].name} and {folder.name}, "
                f"but only one of them has {', '.join(sorted(unmatched))}."
            )
        parts[split] = [
            (path, label) for label, name in enumerate(classes) for path in _image_files(root, folder / name)
        ]
    return tuple(classes), parts


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))


def _image_files(root: Path, folder: Path) -> list[Path]:
    """Returns the image files of a class, including those in subfolders."""
    files = find_image_files(folder)
    if not files:
        raise InputError(f"images.root={root} has a class folder without images: fill or remove {folder}.")
    return files
