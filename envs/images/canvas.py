"""Scenes composed of images on a canvas: translated, cluttered, and of several objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, ImageSource, load_split, resolve_source
from envs.random import RowRandom
from envs.scene import END_CLASS, Scene
from envs.splits import IGNORE_INDEX, Split, check_split
from envs.validation import check_choice, check_integer, parse_pair

TargetType = Literal["class", "sequence", "sum", "count", "search", "box"]
"""What is to be predicted from a scene; see :class:`Canvas`."""


@dataclass(frozen=True)
class Canvas:
    """Images of another source at random locations of a black canvas, redrawn for every training episode.

    An object is a whole image of the source, background included. The number of objects is uniform between
    ``num_objects[0]`` and ``num_objects[1]``. No two objects share a column of pixels; all such choices of columns are
    equally likely, and the row of every object is uniform. So a single object is uniform over the canvas. Scene i shows
    image i of the split, modulo its size, and the other objects are images of the split drawn at random.

    Clutter consists of pieces cut at uniform locations from other images of the training split (on every split), added
    at uniform locations; then the objects are added, and the sum is clipped to [0, 1]. One MNIST digit on 60 x 60 with
    4 pieces of 8 x 8, or on 100 x 100 with 8, is the cluttered translated MNIST of Mnih et al. (2014), section 4.1. Two
    digits on 100 x 100 are the pairs of Ba, Mnih and Kavukcuoglu (2015), section 4.1.

    Every scene has ``boxes``, ``labels`` and ``present`` of its objects from left to right, padded with boxes of 0 and
    labels of ``IGNORE_INDEX``. Its other annotations depend on ``target_type``:

    - "class": ``label`` (B,) is the class of the only object, ``target`` its box.
    - "sequence": ``label`` (B, A) has the classes of all objects from left to right. With a variable number of objects
      the additional class ``END_CLASS`` follows the last one.
    - "sum": ``label`` (B,) is the sum of the objects' classes, whose names must be numbers.
    - "count": ``label`` (B,) is the number of objects.
    - "search": ``goal`` (B,) is the class of an object drawn at random and ``target`` its box; there is no label. The
      objects of a scene are of different classes.
    - "box": ``target`` (B, 4) is the box of the only object; there is no label.

    Attributes:
        objects: a source of images of one object each, or the name of a module in ``envs.images``.
        size: height and width of the canvas in pixels, one number or (height, width); at least 2.
        num_objects: objects in a scene, one number or (smallest, largest); at least 1.
        num_clutter: pieces of clutter in a scene.
        clutter_size: height and width of a piece in pixels.
        target_type: what is to be predicted, see above.
        num_train: scenes in the training split; None for the number of images in the split.
        num_validation: scenes in the validation split, likewise.
        num_test: scenes in the test split, likewise.
    """

    objects: str | ImageSource = "mnist"
    size: int | tuple[int, int] = 60
    num_objects: int | tuple[int, int] = 1
    num_clutter: int = 0
    clutter_size: int = 8
    target_type: TargetType = "class"
    num_train: int | None = None
    num_validation: int | None = None
    num_test: int | None = None

    def __post_init__(self) -> None:
        for name, smallest in [("size", 2), ("num_objects", 1)]:  # a configuration gives lists, which have no hash
            object.__setattr__(self, name, parse_pair(f"scenes.{name}", getattr(self, name), smallest))
        for name, smallest in [("num_clutter", 0), ("clutter_size", 1)]:
            check_integer(f"scenes.{name}", getattr(self, name), smallest)
        for name in ("num_train", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                check_integer(f"scenes.{name}", getattr(self, name), 1)
        _, (least, most) = self._pairs()
        if least > most:
            raise InputError(f"scenes.num_objects must be [smallest, largest], got {[least, most]}.")
        check_choice("scenes.target_type", self.target_type, get_args(TargetType))
        if self.target_type in ("class", "box") and most > 1:
            raise InputError(
                f"scenes.target_type={self.target_type} needs scenes.num_objects=1; for several objects, set "
                "scenes.target_type to sequence, sum or search."
            )
        if self.target_type == "count" and least == most:
            raise InputError("scenes.target_type=count needs scenes.num_objects=[smallest, largest], not one number.")

    def load(self, split: Split, device: torch.device | str = "cpu") -> CanvasScenes:
        """Loads the objects of a split, and for the clutter those of the training split.

        Raises:
            InputError: the canvas is too small for its objects, or the objects do not suit ``target_type``.
        """
        check_split(split)
        source = resolve_source(self.objects)
        objects = load_split(source, split, device)
        clutter = load_split(source, "train", device) if self.num_clutter else None
        if not isinstance(objects, ImageSet):
            raise InputError("scenes.objects must be images of one object each, not scenes.")
        assert clutter is None or isinstance(clutter, ImageSet)
        self._check_fit(objects, clutter)
        return CanvasScenes(self, objects, clutter, split == "train", getattr(self, f"num_{split}") or len(objects))

    def _pairs(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns ``size`` and ``num_objects``, which are pairs since ``__post_init__``."""
        return cast("tuple[tuple[int, int], tuple[int, int]]", (self.size, self.num_objects))

    def _check_fit(self, objects: ImageSet, clutter: ImageSet | None) -> None:
        """Raises :class:`InputError` if the objects or the clutter do not fit on the canvas."""
        (height, width), (_, most) = self._pairs()
        rows, columns = objects.images.shape[-2:]
        if rows > height or columns > width:
            raise InputError(
                f"scenes.size of {height} x {width} pixels is too small for objects of {rows} x {columns}: "
                "make the canvas larger, or the objects smaller."
            )
        if most * columns > width:
            raise InputError(
                f"scenes.num_objects={most} objects of {columns} pixels do not fit side by side on a canvas of "
                f"{width}: set scenes.num_objects to at most {width // columns}, or the width in scenes.size to at "
                f"least {most * columns}."
            )
        if clutter is None:
            return
        largest = min(height, width, *clutter.images.shape[-2:])
        if self.clutter_size > largest:
            raise InputError(
                f"scenes.clutter_size={self.clutter_size} is larger than the objects or the canvas: set it to at most "
                f"{largest}."
            )
        if len(clutter) <= most:
            raise InputError(
                f"scenes.num_clutter={self.num_clutter} needs training images other than those shown to cut pieces "
                f"from, but scenes.objects has {len(clutter)} in all."
            )


class CanvasScenes:
    """One split of the scenes of a :class:`Canvas`.

    Args:
        canvas: describes the scenes.
        objects: the images that scenes show.
        clutter: the training images that pieces are cut from, or None.
        training: whether ``objects`` are those training images.
        count: the number of scenes.
    """

    def __init__(self, canvas: Canvas, objects: ImageSet, clutter: ImageSet | None, training: bool, count: int) -> None:
        self.canvas = canvas
        self.objects = objects
        (self.height, self.width), (self.least, self.most) = canvas._pairs()
        self._count = count
        self._clutter = clutter
        self._excludes_shown = training
        # The images of class c are _by_class[_first[c] : _first[c] + _members[c]].
        self._by_class = objects.labels.argsort()
        self._members = objects.labels.bincount(minlength=len(objects.classes))
        self._first = self._members.cumsum(0) - self._members
        self.classes = self._answer_classes()
        self._draws = self._shapes_of_draws()

    def __len__(self) -> int:
        return self._count

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """Draws the scenes of the given indices (B,), with the annotations that :class:`Canvas` lists."""
        random.prepare(self._draws)
        count = self.least + random.integers("number of objects", self.most - self.least + 1)  # (B,)
        numbers = torch.arange(self.most, device=index.device)
        present = numbers < count[:, None]  # (B, N)
        shown = self._choose_objects(index % len(self.objects), present, random)
        left, top = self._place_objects(count, present, random)

        # Every object has random numbers of its own.
        object_random = RowRandom(
            random.seed.repeat_interleave(self.most), (random.counter[:, None] * self.most + numbers).flatten()
        )
        drawn = self.objects.draw(shown.flatten(), object_random)
        source = None if self._clutter is None else self._clutter.images
        # Sums of uint8 are exact, and a scene of uint8 has a quarter of the size.
        is_integer = all(each is None or each.dtype == torch.uint8 for each in (drawn.images, source))
        tiles = drawn.images[drawn.index] if is_integer and drawn.index is not None else drawn.pixels()
        tiles = (tiles.short() if is_integer else tiles).unflatten(0, shown.shape)  # (B, N, C, h, w)
        size = len(index), tiles.shape[2], self.height, self.width
        images = torch.zeros(size, dtype=tiles.dtype, device=index.device)
        if source is not None:
            self._add_clutter(images, source, shown, random)
        if self.least < self.most:
            tiles = tiles * present[:, :, None, None, None]
        _add(images, tiles, left, top)

        rows, columns = tiles.shape[-2:]
        corners = torch.stack([left, top, left + columns - 1, top + rows - 1], dim=-1)
        scale = torch.tensor([self.width - 1, self.height - 1] * 2, device=index.device)
        boxes = (corners * 2 / scale - 1) * present[:, :, None]  # (B, N, 4)
        labels = drawn.annotations["label"].view_as(shown).masked_fill(~present, IGNORE_INDEX)
        annotations = {"boxes": boxes, "labels": labels, "present": present}
        images = images.clamp_(max=255).to(torch.uint8) if is_integer else images.clamp_(0, 1)
        return Scene(images, annotations | self._targets(boxes, labels, present, count, random))

    def _shapes_of_draws(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of every draw of a scene by its purpose."""
        shapes: dict[str, tuple[int, ...]] = {"number of objects": (), "order": (self.most,), "top": (self.most,)}
        shapes["left"] = (self.width - self.objects.images.shape[-1] + 1,)
        if self._clutter is not None:
            shapes["clutter"] = (5, self.canvas.num_clutter)
        if self.canvas.target_type != "search":
            return shapes | {"object": (self.most - 1,)}
        return shapes | {"class": (len(self._members),), "object": (self.most,), "goal": ()}

    def _answer_classes(self) -> tuple[str, ...]:
        """Returns the class names; raises :class:`InputError` if the objects do not suit the target type."""
        target_type, classes = self.canvas.target_type, self.objects.classes
        if target_type == "sequence":
            if END_CLASS in classes:
                raise InputError(
                    f'scenes.target_type=sequence reserves the class name "{END_CLASS}": rename that class of '
                    "scenes.objects."
                )
            return (*classes, END_CLASS) if self.least < self.most else classes
        if target_type == "count":
            return tuple(map(str, range(self.least, self.most + 1)))
        if target_type == "sum":
            if not all(name.isdecimal() for name in classes):
                raise InputError(
                    f"scenes.target_type=sum needs objects whose classes are numbers, not {', '.join(classes)}."
                )
            self._values = torch.tensor([int(name) for name in classes], device=self.objects.labels.device)
            return tuple(map(str, range(self.most * int(self._values.max()) + 1)))
        nonempty = int((self._members > 0).sum())
        if target_type == "search" and self.most > nonempty:
            raise InputError(
                f"scenes.target_type=search needs objects of different classes, but scenes.objects has {nonempty} "
                f"classes: set scenes.num_objects to at most {nonempty}, not {self.most}."
            )
        return classes

    def _choose_objects(self, first: Tensor, present: Tensor, random: RowRandom) -> Tensor:
        """Returns the indices of the images shown, left to right: (B, N) int64, the present ones before the absent."""
        if self.canvas.target_type == "search":
            key = random.uniform("class", len(self._members)).masked_fill(self._members == 0, 2)
            key.scatter_(1, self.objects.labels[first][:, None], -1)
            classes = key.topk(self.most, dim=1, largest=False).indices  # the class of the first image comes first
            member = random.bits("object", self.most) % self._members[classes]
            shown = self._by_class[self._first[classes] + member]
            shown[:, 0] = first
        else:
            others = random.bits("object", self.most - 1) % len(self.objects)
            shown = torch.cat([first[:, None], others], dim=1)
        order = random.uniform("order", self.most).masked_fill(~present, 2).argsort(1)
        return shown.gather(1, order)

    def _place_objects(self, count: Tensor, present: Tensor, random: RowRandom) -> tuple[Tensor, Tensor]:
        """Returns the left column and the top row of every object, left to right: (B, N) int64 each, 0 where absent.

        Shrinking each of n objects of width w to one column maps the ways to place them side by side one to one onto
        the choices of n different columns out of W - n (w - 1).
        """
        rows, columns = self.objects.images.shape[-2:]
        positions = torch.arange(self.width - columns + 1, device=count.device)
        free = positions < self.width - count[:, None] * (columns - 1)
        key = random.uniform("left", len(positions)).masked_fill(~free, 2)
        chosen = key.topk(self.most, dim=1, largest=False).indices.masked_fill(~present, self.width).sort(1).values
        left = chosen + torch.arange(self.most, device=count.device) * (columns - 1)
        top = random.bits("top", self.most) % (self.height - rows + 1)
        return left * present, top * present

    def _add_clutter(self, images: Tensor, source: Tensor, shown: Tensor, random: RowRandom) -> None:
        """Adds pieces of the training images ``source`` to images (B, C, H, W) in place."""
        total, channels, rows, columns = source.shape
        size, pieces = self.canvas.clutter_size, self.canvas.num_clutter
        origin, row, column, top, left = random.bits("clutter", 5, pieces).unbind(1)  # (B, pieces) each
        if self._excludes_shown:
            origin = origin % (total - self.most)
            for number in shown.sort(1).values.split(1, dim=1):  # skips the images shown
                origin = origin + (origin >= number)
        else:
            origin = origin % total
        corner = (row % (rows - size + 1)) * columns + column % (columns - size + 1)
        pixel = (origin * (channels * rows * columns) + corner)[..., None]
        offsets = _tile_offsets(channels, rows, columns, size, size, source.device)
        cut = source.take(pixel + offsets)  # (B, pieces, C * size * size)
        if cut.dtype == torch.uint8:
            cut = cut.to(images.dtype) if images.dtype == torch.int16 else cut.float() / 255
        cut = cut.view(*origin.shape, channels, size, size)
        _add(images, cut, left % (self.width - size + 1), top % (self.height - size + 1))

    def _targets(
        self, boxes: Tensor, labels: Tensor, present: Tensor, count: Tensor, random: RowRandom
    ) -> dict[str, Tensor]:
        """Returns the annotations of the target type, from those of the objects and their number (B,)."""
        target_type = self.canvas.target_type
        if target_type == "class":
            return {"label": labels[:, 0], "target": boxes[:, 0]}
        if target_type == "sequence":
            if self.least == self.most:
                return {"label": labels}
            label = torch.cat([labels, torch.full_like(labels[:, :1], IGNORE_INDEX)], dim=1)
            return {"label": label.scatter(1, count[:, None], len(self.classes) - 1)}
        if target_type == "sum":
            return {"label": (self._values[labels.clamp(min=0)] * present).sum(1)}
        if target_type == "count":
            return {"label": count - self.least}
        if target_type == "search":
            chosen = (random.bits("goal") % count)[:, None]
            target = boxes.take_along_dim(chosen[:, :, None], dim=1)[:, 0]
            return {"goal": labels.gather(1, chosen)[:, 0], "target": target}
        return {"target": boxes[:, 0]}


def _add(images: Tensor, tiles: Tensor, left: Tensor, top: Tensor) -> None:
    """Adds tiles (B, N, C, h, w) to images (B, C, H, W) in place, with their corners at column and row (B, N)."""
    first = top * images.shape[-1] + left
    offsets = _tile_offsets(*images.shape[1:], *tiles.shape[-2:], images.device)
    for number in range(tiles.shape[1]):  # in a fixed order, so that sums round the same on every device
        pixels = first[:, number, None] + offsets
        images.view(len(images), -1).scatter_add_(1, pixels, tiles[:, number].flatten(1))


@lru_cache(maxsize=256)
def _tile_offsets(channels: int, rows: int, columns: int, height: int, width: int, device: torch.device) -> Tensor:
    """Returns the offsets of a tile's pixels in a flattened image, from its first pixel: (C * height * width,) int64.

    Args:
        channels: of the image, C.
        rows: of the image.
        columns: of the image.
        height: rows of the tile.
        width: columns of the tile.
        device: of the offsets.
    """
    channel = torch.arange(channels, device=device)[:, None, None] * (rows * columns)
    row = torch.arange(height, device=device)[:, None] * columns
    return (channel + row + torch.arange(width, device=device)).flatten()
