"""Pictures in a folder, one subfolder a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from PIL import Image
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet
from envs.images.image_io import centre, each_picture, header, read_picture
from envs.random import RowRandom
from envs.splits import Split, check_shares, check_split, choose


@dataclass(frozen=True)
class Folder:
    """Pictures of any size, grey or in colour, in a folder that has one subfolder for every class.

    The class folders stand in ``root`` itself, or in ``root/train`` and ``root/test``, and if there is one in
    ``root/validation`` or ``root/val``. What has no folder is held out, class by class and the same way at every
    call, from the pictures of ``root`` or ``root/train``. Hidden files and files with no picture's suffix are ignored.

    Attributes:
        root: the folder.
        size: the height and width to bring every picture to, or one number for both: it is scaled to fit, keeping
            its aspect ratio, and centred on black. None keeps every pixel and centres the picture on black, as high
            and as wide as the highest and the widest picture of all splits.
        channels: 1 for grey, 3 for colour, or None: grey if the pictures of all splits are stored as grey.
        validation_share: of every class, held out for validation; in (0, 1).
        test_share: of every class, held out for the test; in (0, 1).
        augmentation: changes the batches of the training split; see :class:`ImageSet`.
    """

    root: str
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    validation_share: float = 0.1
    test_share: float = 0.1
    augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None

    def __post_init__(self) -> None:
        if not self.root:
            raise InputError(f"images.root must name the folder of the pictures, got {self.root!r}.")
        if self.size is not None:
            size = tuple(self.size) if isinstance(self.size, Sequence) else (self.size, self.size)
            if len(size) != 2 or not all(isinstance(side, int) and side >= 1 for side in size):
                raise InputError(f"images.size must be a height and a width of at least 1, got {self.size}.")
            object.__setattr__(self, "size", size)  # a list from a configuration would not hash
        if self.channels not in (None, 1, 3):
            raise InputError(f"images.channels must be 1, 3 or null, got {self.channels}.")
        check_shares(self.validation_share, self.test_share)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        """One split as (N, C, H, W) uint8 on the device, every split of the same C, H and W.

        Raises:
            InputError: the folder is not laid out as above, or a picture cannot be read.
        """
        check_split(split)
        classes, parts = _find(Path(self.root).expanduser())
        size = cast("tuple[int, int] | None", self.size)  # made one on construction
        height, width, channels = self._shape(size, [path for part in parts.values() for path, _ in part])
        chosen = parts.get(split, [])
        if split not in parts or split == "train":
            shares: dict[Split, float] = {"test": self.test_share, "validation": self.validation_share}
            labels = torch.tensor([label for _, label in parts["train"]])
            numbers = choose(split, labels, {name: share for name, share in shares.items() if name not in parts})
            chosen = [parts["train"][number] for number in numbers.tolist()]
        try:
            images = torch.zeros(len(chosen), channels, height, width, dtype=torch.uint8)
        except RuntimeError as error:
            raise InputError(
                f"The {len(chosen)} pictures of images.root={self.root} do not fit into memory, each on {height} x "
                f"{width} pixels: give a smaller images.size."
            ) from error
        read = partial(read_picture, channels=channels, size=size)
        for image, pixels in zip(images, each_picture(read, [path for path, _ in chosen]), strict=True):
            centre(pixels, image)
        labels = torch.tensor([label for _, label in chosen])
        augmentation = self.augmentation if split == "train" else None
        return ImageSet(images.to(device), labels.to(device), classes, augmentation)

    def _shape(self, size: tuple[int, int] | None, paths: Sequence[Path]) -> tuple[int, int, int]:
        """Height, width and channels of every image, from the options or else from all pictures."""
        if size and self.channels:
            return *size, self.channels
        heights, widths, grey = zip(*each_picture(header, paths), strict=True)
        height, width = size or (max(heights), max(widths))
        return height, width, self.channels or (1 if all(grey) else 3)


def _find(root: Path) -> tuple[tuple[str, ...], dict[Split, list[tuple[Path, int]]]]:
    """The classes, and for every split that has a folder of its own its pictures with their labels.

    All pictures are in the split "train" where nothing but class folders is found.
    """
    if not root.is_dir():
        raise InputError(f"images.root={root} is not a folder: name one that has a subfolder for every class.")
    names = set(_folders(root))
    folders: dict[Split, Path] = {"train": root}
    # A lone "train" among other names is a class of pictures of trains.
    if {"train", "test"} <= names or (names and names <= {"train", "test", "validation", "val"}):
        if not {"train", "test"} <= names or {"validation", "val"} <= names:
            raise InputError(
                f"images.root={root} has the folders {', '.join(sorted(names))}: there must be both train and test, "
                "and at most one of validation and val."
            )
        folders = {"train": root / "train", "test": root / "test"}
        for name in names & {"validation", "val"}:
            folders["validation"] = root / name
    classes = _folders(folders["train"])
    if not classes:
        raise InputError(f"images.root={root} has no class folder in {folders['train']}: make one for every class.")
    parts: dict[Split, list[tuple[Path, int]]] = {}
    for split, folder in folders.items():
        if odd := set(classes) ^ set(_folders(folder)):
            raise InputError(
                f"images.root={root} must have the same classes in {folders['train'].name} and {folder.name}, "
                f"but only one of them has {', '.join(sorted(odd))}."
            )
        parts[split] = [(path, label) for label, name in enumerate(classes) for path in _pictures(root, folder / name)]
    return tuple(classes), parts


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))


def _pictures(root: Path, folder: Path) -> list[Path]:
    """The pictures of a class, also in folders below it."""
    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    pictures = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )
    if not pictures:
        raise InputError(f"images.root={root} has a class folder without pictures: fill or remove {folder}.")
    return pictures
