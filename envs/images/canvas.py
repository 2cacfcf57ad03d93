"""Scenes made of objects on a canvas: translated, cluttered, and of several objects, over any source of images."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, ImageSource, load_split, resolve_source
from envs.random import RowRandom
from envs.scene import END, Scene
from envs.splits import IGNORE_INDEX, Split, check_split
from envs.validation import check_integer

Ask = Literal["label", "read", "sum", "count", "find", "box"]
"""What a scene asks for; see :class:`Canvas`."""


@dataclass(frozen=True)
class Canvas:
    """Images of another source at random places of a dark canvas, drawn anew for every training episode.

    An object is a whole image of the source, ground included. A scene has between ``num_objects[0]`` and
    ``num_objects[1]`` of them, every number as likely. They stand side by side, no two in one column of pixels, all
    such choices of columns as likely; the rows of each are uniform. So one object lies anywhere with equal chance.
    Scene i shows image i of the split, beginning again after the last one, and beside it images of the split drawn at
    random.

    Clutter is pieces cut at uniform places from other images of the training split (on every split), added at uniform
    places; then the objects are added and the sum is clipped to [0, 1]. One MNIST digit on 60 x 60 with 4 pieces of
    8 x 8, or on 100 x 100 with 8, is the cluttered translated MNIST of Mnih et al. (2014), section 4.1. Two digits on
    100 x 100 are the pairs of Ba, Mnih and Kavukcuoglu (2015), section 4.1.

    Every scene gives ``boxes``, ``labels`` and ``present`` of its objects from left to right; where there are fewer
    than the most, boxes of 0 and labels of ``IGNORE_INDEX`` follow. What else it gives depends on ``ask``:

    - "label": the class of the one object, and its box as ``target``.
    - "read": the classes of all objects from left to right, (B, A). Where their number varies, ``END`` is a class more
      and follows the last object.
    - "sum": the sum of the objects' classes, which must be numbers.
    - "count": how many objects there are.
    - "find": no label, but as ``goal`` the class of an object drawn at random, and its box as ``target``; the objects
      are of different classes.
    - "box": no label; the box of the one object as ``target``.

    Attributes:
        objects: a source of images of one object each, or the name of a module in ``envs.images``.
        size: pixels a side of the canvas, or (height, width); at least 2.
        num_objects: objects a scene, at least 1, or (least, most).
        num_clutter: pieces of clutter a scene.
        clutter_size: pixels a side of a piece.
        ask: see above.
        num_train: scenes in the training split; None for as many as the source has images.
        num_validation: scenes in the validation split; None alike.
        num_test: scenes in the test split; None alike.
    """

    objects: str | ImageSource = "mnist"
    size: int | tuple[int, int] = 60
    num_objects: int | tuple[int, int] = 1
    num_clutter: int = 0
    clutter_size: int = 8
    ask: Ask = "label"
    num_train: int | None = None
    num_validation: int | None = None
    num_test: int | None = None

    def __post_init__(self) -> None:
        for name, smallest in [("size", 2), ("num_objects", 1)]:
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                if len(value) != 2:
                    raise InputError(f"images.{name} must be a whole number, or a pair of them, got {value!r}.")
                object.__setattr__(self, name, tuple(value))  # a list from a configuration, but a source is hashed
            for number in _pair(value):
                check_integer(f"images.{name}", number, smallest)
        for name, smallest in [("num_clutter", 0), ("clutter_size", 1)]:
            check_integer(f"images.{name}", getattr(self, name), smallest)
        for name in ("num_train", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                check_integer(f"images.{name}", getattr(self, name), 1)
        least, most = _pair(self.num_objects)
        if least > most:
            raise InputError(f"images.num_objects must be [least, most], got {[least, most]}.")
        if self.ask not in get_args(Ask):
            raise InputError(f"images.ask must be one of {', '.join(get_args(Ask))}, got {self.ask!r}.")
        if self.ask in ("label", "box") and most > 1:
            raise InputError(f"images.ask={self.ask} needs images.num_objects=1; of several, ask read, sum or find.")
        if self.ask == "count" and least == most:
            raise InputError("images.ask=count needs images.num_objects=[least, most], the least below the most.")

    def load(self, split: Split, device: torch.device | str = "cpu") -> SceneCanvas:
        """Loads the objects of a split, and for the clutter those of the training split.

        Raises:
            InputError: the canvas is too small for its objects, or the objects do not allow what is asked.
        """
        check_split(split)
        try:
            source = resolve_source(self.objects)
            objects = load_split(source, split, device)
            clutter = load_split(source, "train", device) if self.num_clutter else None
        except InputError as error:  # which says "images", as if the objects were all
            raise InputError(re.sub(r"(?<![\w./])images(?=\.\w|=)", "images.objects", str(error))) from error
        if not isinstance(objects, ImageSet):
            raise InputError("images.objects must give images of one object each, not scenes.")
        assert clutter is None or isinstance(clutter, ImageSet)
        count = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]
        self._check_room(objects, clutter)
        return SceneCanvas(self, objects, clutter, split == "train", count or len(objects))

    def _check_room(self, objects: ImageSet, clutter: ImageSet | None) -> None:
        (height, width), (_, most) = _pair(self.size), _pair(self.num_objects)
        rows, columns = objects.images.shape[-2:]
        if rows > height or columns > width:
            raise InputError(
                f"images.size of {height} x {width} pixels is too small for objects of {rows} x {columns}: "
                "make the canvas larger, or the objects smaller."
            )
        if most * columns > width:
            raise InputError(
                f"images.num_objects={most} objects of {columns} pixels do not fit side by side on a canvas of "
                f"{width}: set images.num_objects to at most {width // columns}, or the width in images.size to at "
                f"least {most * columns}."
            )
        if clutter is None:
            return
        largest = min(height, width, *clutter.images.shape[-2:])
        if self.clutter_size > largest:
            raise InputError(
                f"images.clutter_size={self.clutter_size} is larger than the objects or the canvas: set it to at most "
                f"{largest}."
            )
        if len(clutter) <= most:
            raise InputError(
                f"images.num_clutter={self.num_clutter} needs other training images than those shown to cut pieces "
                f"from, but images.objects has {len(clutter)} in all."
            )


class SceneCanvas:
    """One split of the scenes that a source describes; see :class:`Canvas`.

    Args:
        source: what to draw.
        objects: the images that scenes show.
        clutter: the training images that pieces are cut from, or None.
        training: whether ``objects`` are those training images too.
        count: how many scenes there are.
    """

    def __init__(self, source: Canvas, objects: ImageSet, clutter: ImageSet | None, training: bool, count: int) -> None:
        self.source = source
        self.objects = objects
        self.least, self.most = _pair(source.num_objects)
        self.height, self.width = _pair(source.size)
        self._count = count
        self._clutter = clutter
        self._excludes_shown = training
        # The images of class c are _by_class[_first[c] : _first[c] + _members[c]].
        self._by_class = objects.labels.argsort()
        self._members = objects.labels.bincount(minlength=len(objects.classes))
        self._first = self._members.cumsum(0) - self._members
        self.classes = self._name_classes()

    def __len__(self) -> int:
        return self._count

    def draw(self, index: Tensor, random: RowRandom) -> Scene:
        """The scenes of the given numbers (B,), with the facts that :class:`Canvas` lists."""
        count = self.least + random.integers("number of objects", self.most - self.least + 1)  # (B,)
        present = torch.arange(self.most, device=index.device) < count[:, None]  # (B, N)
        shown = self._choose(index % len(self.objects), present, random)
        left, top = self._place(count, present, random)

        # Every object draws as a row of its own.
        numbers = torch.arange(self.most, device=index.device)
        own = RowRandom(
            random.seed.repeat_interleave(self.most), (random.counter[:, None] * self.most + numbers).flatten()
        )
        drawn = self.objects.draw(shown.flatten(), own)
        tiles = drawn.images.unflatten(0, shown.shape)  # (B, N, C, h, w)
        images = torch.zeros(len(index), tiles.shape[2], self.height, self.width, device=index.device)
        if self._clutter is not None:
            self._add_clutter(images, shown, random)
        if self.least < self.most:
            tiles = tiles * present[:, :, None, None, None]
        for number in range(self.most):
            _add(images, tiles[:, number], left[:, number], top[:, number])

        rows, columns = tiles.shape[-2:]
        corners = torch.stack([left, top, left + columns - 1, top + rows - 1], dim=-1)
        scale = torch.tensor([self.width - 1, self.height - 1] * 2, device=index.device)
        boxes = (corners * 2 / scale - 1) * present[:, :, None]  # (B, N, 4)
        labels = drawn.annotations["label"].view_as(shown).masked_fill(~present, IGNORE_INDEX)
        annotations = {"boxes": boxes, "labels": labels, "present": present}
        return Scene(images.clamp_(0, 1), annotations | self._ask(boxes, labels, present, count, random))

    def _name_classes(self) -> tuple[str, ...]:
        """The names of the answers. Raises :class:`InputError` where the objects do not allow what is asked."""
        ask, classes = self.source.ask, self.objects.classes
        if ask == "read" and END in classes:
            raise InputError(f'images.ask=read ends with a class named "{END}": rename that of images.objects.')
        if ask == "read" and self.least < self.most:
            return (*classes, END)
        if ask == "count":
            return tuple(map(str, range(self.least, self.most + 1)))
        if ask == "sum":
            if not all(name.isdecimal() for name in classes):
                raise InputError(f"images.ask=sum needs objects whose classes are numbers, not {', '.join(classes)}.")
            self._values = torch.tensor([int(name) for name in classes], device=self.objects.labels.device)
            return tuple(map(str, range(self.most * int(self._values.max()) + 1)))
        kinds = int((self._members > 0).sum())
        if ask == "find" and self.most > kinds:
            raise InputError(
                f"images.ask=find needs objects of different classes, but images.objects has {kinds} classes: "
                f"set images.num_objects to at most {kinds}, not {self.most}."
            )
        return classes

    def _choose(self, first: Tensor, present: Tensor, random: RowRandom) -> Tensor:
        """Which images every scene shows, from left to right: (B, N) int64, the present ones before the absent."""
        if self.source.ask == "find":
            key = random.uniform("class", len(self._members)).masked_fill(self._members == 0, 2)
            key.scatter_(1, self.objects.labels[first][:, None], -1)
            classes = key.topk(self.most, dim=1, largest=False).indices  # that of the first image before the others
            member = random.bits("object", self.most) % self._members[classes]
            shown = self._by_class[self._first[classes] + member]
            shown[:, 0] = first
        else:
            others = random.bits("object", self.most - 1) % len(self.objects)
            shown = torch.cat([first[:, None], others], dim=1)
        order = random.uniform("order", self.most).masked_fill(~present, 2).argsort(1)
        return shown.gather(1, order)

    def _place(self, count: Tensor, present: Tensor, random: RowRandom) -> tuple[Tensor, Tensor]:
        """The left column and the top row of every object, left to right: (B, N) int64 each, 0 where it is absent.

        Were each of n objects w pixels wide shrunk to one column, they would stand in n different columns of
        W - n (w - 1), and every choice of n columns is one way to place them side by side.
        """
        rows, columns = self.objects.images.shape[-2:]
        positions = torch.arange(self.width - columns + 1, device=count.device)
        free = positions < self.width - count[:, None] * (columns - 1)
        key = random.uniform("left", len(positions)).masked_fill(~free, 2)
        chosen = key.topk(self.most, dim=1, largest=False).indices.masked_fill(~present, self.width).sort(1).values
        left = chosen + torch.arange(self.most, device=count.device) * (columns - 1)
        top = random.bits("top", self.most) % (self.height - rows + 1)
        return left * present, top * present

    def _add_clutter(self, images: Tensor, shown: Tensor, random: RowRandom) -> None:
        """Adds the pieces to images (B, C, H, W)."""
        assert self._clutter is not None
        uncut = self._clutter.images
        total, channels, rows, columns = uncut.shape
        size, pieces = self.source.clutter_size, self.source.num_clutter
        origin, row, column, top, left = random.bits("clutter", 5, pieces).unbind(1)  # (B, pieces) each
        if self._excludes_shown:
            origin = origin % (total - self.most)
            for number in shown.sort(1).values.split(1, dim=1):  # counts past each of the images shown
                origin = origin + (origin >= number)
        else:
            origin = origin % total
        corner = (row % (rows - size + 1)) * columns + column % (columns - size + 1)
        pixel = (origin * (channels * rows * columns) + corner)[..., None]
        cut = uncut.take(pixel + _window(uncut, size, size))  # (B, pieces, C * size * size)
        if cut.dtype == torch.uint8:
            cut = cut.float() / 255
        cut = cut.view(*origin.shape, channels, size, size)
        left, top = left % (self.width - size + 1), top % (self.height - size + 1)
        for piece in range(pieces):  # one after another, so that sums round alike on every device
            _add(images, cut[:, piece], left[:, piece], top[:, piece])

    def _ask(
        self, boxes: Tensor, labels: Tensor, present: Tensor, count: Tensor, random: RowRandom
    ) -> dict[str, Tensor]:
        """What the scene asks for, from the facts of its objects and their number (B,)."""
        ask = self.source.ask
        if ask == "label":
            return {"label": labels[:, 0], "target": boxes[:, 0]}
        if ask == "read":
            if self.least == self.most:
                return {"label": labels}
            label = torch.cat([labels, torch.full_like(labels[:, :1], IGNORE_INDEX)], dim=1)
            return {"label": label.scatter(1, count[:, None], len(self.classes) - 1)}
        if ask == "sum":
            return {"label": (self._values[labels.clamp(min=0)] * present).sum(1)}
        if ask == "count":
            return {"label": count - self.least}
        if ask == "find":
            wanted = (random.bits("goal") % count)[:, None]
            target = boxes.take_along_dim(wanted[:, :, None], dim=1)[:, 0]
            return {"goal": labels.gather(1, wanted)[:, 0], "target": target}
        return {"target": boxes[:, 0]}


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, list | tuple) else (value, value)


def _window(images: Tensor, rows: int, columns: int) -> Tensor:
    """Where the pixels of a window lie in a flattened image, from its first on: (C * rows * columns,) int64."""
    channels, height, width = images.shape[1:]
    channel = torch.arange(channels, device=images.device)[:, None, None] * (height * width)
    row = torch.arange(rows, device=images.device)[:, None] * width
    return (channel + row + torch.arange(columns, device=images.device)).flatten()


def _add(images: Tensor, tiles: Tensor, left: Tensor, top: Tensor) -> None:
    """Adds a tile (B, C, h, w) to every image (B, C, H, W), its corner at the given column and row (B,)."""
    first = (top * images.shape[-1] + left)[:, None]
    images.view(len(images), -1).scatter_add_(1, first + _window(images, *tiles.shape[-2:]), tiles.flatten(1))
