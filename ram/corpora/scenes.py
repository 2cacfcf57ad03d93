"""Scenes of digits, with captions from a grammar: "a large bright three left of a small seven"."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import Any, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.images.glyphs import Glyphs
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import CaptionCorpus, Captions, Tokens

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PIXELS = {"small": 16, "large": 32}  # height and width of a digit's image, of which it fills two thirds
_INTENSITY = {"dark": 0.4, "bright": 1.0}
_GAP = 4  # smallest horizontal and vertical distance of two centers in pixels
_TRIES = 200  # attempts to place the objects of a scene before it is restarted
_HELD_OUT = 1000  # scenes of validation and of test
_VARIANTS = 200  # images of every digit and size
_RELATIONS = {  # the centers (x, y) of the objects before and after the words
    ("left", "of"): lambda first, second: first[0] < second[0],
    ("right", "of"): lambda first, second: first[0] > second[0],
    ("above",): lambda first, second: first[1] < second[1],
    ("below",): lambda first, second: first[1] > second[1],
}

_PHRASE = re.compile(
    r"(?:an(?= eight$)|a(?! eight$)) (?:(?P<size>small|large) )?(?:(?P<shade>dark|bright) )?"
    rf"(?P<digit>{'|'.join(DIGITS)})"
)


@dataclass(frozen=True)
class SceneObject:
    """A digit of a scene.

    Attributes:
        digit: name of the digit.
        size: small or large.
        shade: dark or bright.
        x: horizontal position of its center relative to the canvas center, in pixels to the right.
        y: vertical position of its center relative to the canvas center, in pixels downwards.
    """

    digit: str
    size: str
    shade: str
    x: float
    y: float


Phrase = tuple[str | None, str | None, str]
"""A noun phrase: size, shade and digit; None for an attribute that is not mentioned."""

_CENTER: Phrase = (None, None, "middle")  # the canvas center, which the last object of a caption may be related to


@dataclass(frozen=True)
class DigitScenes(CaptionCorpus):
    """Scenes of one to four digits on a dark canvas, small or large, dark or bright, without overlap.

    A caption mentions every object once. It relates them in one direction, from left to right or back, down or up, or
    lists them; a single object may be related to the canvas center. Sizes and shades are mentioned at random. The
    splits use different font families.

    Attributes:
        size: height and width of the canvas in pixels.
        num_objects: largest number of objects of a scene, 1 to 4.
        captions_per_image: number of captions per scene.
        num_train: number of training scenes; validation and test have 1,000.
        seed: of the generated data; independent of the training seed.
    """

    size: int = 64
    num_objects: int = 4
    captions_per_image: int = 5
    num_train: int = 40_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_integers("corpus", captions_per_image=self.captions_per_image, num_train=self.num_train)
        if not 1 <= self.num_objects <= 4:
            raise InputError(f"corpus.num_objects must be in 1 .. 4, got {self.num_objects}.")
        if self.size < 2 * _PIXELS["large"]:
            raise InputError(f"corpus.size must be at least {2 * _PIXELS['large']} pixels, got {self.size}.")

    def load(self, split: Split) -> Captions:
        check_split(split)
        rng = random.Random(f"{self.seed} {split}")
        variants = {size: _digit_images(split, pixels, self.seed) for size, pixels in _PIXELS.items()}
        count = self.num_train if split == "train" else _HELD_OUT
        noise = torch.Generator().manual_seed(3 * self.seed + get_args(Split).index(split))
        images = torch.randn(count, 1, self.size, self.size, generator=noise) * 0.02
        boxes = torch.zeros(count, self.num_objects, 4)
        scenes = [_scene(rng, self.size, rng.randint(1, self.num_objects)) for _ in range(count)]
        captions = []
        for row, scene in enumerate(scenes):
            for index, each in enumerate(scene):
                digit = variants[each.size][DIGITS.index(each.digit)][rng.randrange(_VARIANTS)]
                boxes[row, index] = _draw(images[row, 0], digit * _INTENSITY[each.shade], each)
            captions.append(tuple(_caption(rng, scene) for _ in range(self.captions_per_image)))
        images = (images.clamp(0, 1) * 255).round().byte()
        return Captions(images, tuple(captions), boxes, tuple(scenes))

    def evaluate(self, captions: Sequence[Tokens], scenes: Sequence[Sequence[SceneObject]]) -> dict[str, float]:
        """Evaluates captions by the grammar and the scene.

        Args:
            captions: N captions.
            scenes: the N scenes that they describe.

        Returns:
            Shares in percent: "grammatical", parsed by the grammar; "true" of the scene; "complete", with as many
            objects as the scene; and "correct", true and complete.
        """
        rows = []
        for caption, scene in zip(captions, scenes, strict=True):
            parsed = parse(caption)
            true = parsed is not None and holds(*parsed, scene)
            complete = parsed is not None and sum(each != _CENTER for each in parsed[0]) == len(scene)
            rows.append((parsed is not None, true, complete, true and complete))
        names = "grammatical", "true", "complete", "correct"
        return {name: 100 * sum(each) / len(rows) for name, each in zip(names, zip(*rows, strict=True), strict=True)}

    def mentioned_objects(self, caption: Tokens, scene: Sequence[SceneObject]) -> list[tuple[int, ...]]:
        """Returns for every word the indices of the objects that it may refer to.

        Only digits refer to objects. If several objects match a digit, it refers to those for which the caption is
        true; if the caption is true for none of them, to all.
        """
        referents: list[tuple[int, ...]] = [()] * len(caption)
        parsed = parse(caption)
        if parsed is None:
            return referents
        groundings = list(_groundings(*parsed, scene))
        positions = [position for position, word in enumerate(caption) if word in DIGITS]
        for number, (phrase, position) in enumerate(zip(parsed[0], positions, strict=False)):  # the middle has no digit
            matching = (index for index, each in enumerate(scene) if _matches(phrase, each))
            referents[position] = tuple(sorted({indices[number] for indices in groundings} or matching))
        return referents


def parse(caption: Tokens) -> tuple[list[Phrase], Tokens | None] | None:
    """Parses a caption into its noun phrases and the relation between them; None if it is not grammatical."""
    text = " ".join(caption)
    for relation in _RELATIONS:
        *parts, last = text.split(f" {' '.join(relation)} ")
        phrases = [*map(_phrase, parts), _CENTER if last == "the middle" else _phrase(last)]
        if len(phrases) > 1 and None not in phrases:
            return [each for each in phrases if each], relation
    *first, last = text.removeprefix("there is ").split(" and ")
    phrases = [_phrase(each) for part in first for each in part.split(" , ")] + [_phrase(last)]
    if len(first) > 1 or None in phrases:
        return None
    return [each for each in phrases if each], None


def _phrase(text: str) -> Phrase | None:
    matched = _PHRASE.fullmatch(text)
    return None if matched is None else (matched["size"], matched["shade"], matched["digit"])


def holds(phrases: Sequence[Phrase], relation: Tokens | None, scene: Sequence[SceneObject]) -> bool:
    """Whether a caption is true of a scene, with a different object for every phrase."""
    return any(True for _ in _groundings(phrases, relation, scene))


def _groundings(
    phrases: Sequence[Phrase], relation: Tokens | None, scene: Sequence[SceneObject]
) -> Iterator[tuple[int, ...]]:
    """Yields the indices of one object per phrase, for every choice with which the caption is true."""
    related = _RELATIONS[relation] if relation else lambda first, second: True
    nouns = [phrase for phrase in phrases if phrase != _CENTER]
    for indices in permutations(range(len(scene)), len(nouns)):
        objects = [scene[index] for index in indices]
        centers = [(each.x, each.y) for each in objects] + [(0.0, 0.0)] * (len(phrases) - len(nouns))
        if all(_matches(phrase, each) for phrase, each in zip(nouns, objects, strict=True)) and all(
            related(first, second) for first, second in pairwise(centers)
        ):
            yield indices


def _matches(phrase: Phrase, each: SceneObject) -> bool:
    size, shade, digit = phrase
    return size in (None, each.size) and shade in (None, each.shade) and digit == each.digit


def _caption(rng: random.Random, scene: Sequence[SceneObject]) -> Tokens:
    objects, alone = list(scene), len(scene) == 1
    offset = int(objects[0].x / _GAP), int(objects[0].y / _GAP)  # 0 if too close to the center to have a side
    relations = [words for words, related in _RELATIONS.items() if not alone or related(offset, (0, 0))]
    start, end = [], []
    if not relations or rng.random() < (0.5 if alone else 0.2):
        rng.shuffle(objects)
        start = ["there", "is"] if rng.random() < 0.5 else []
        between = [[","]] * (len(scene) - 2) + [["and"]] * (len(scene) > 1)
    else:
        relation = rng.choice(relations)
        objects.sort(key=lambda each: each.x if relation[-1] == "of" else each.y)
        if relation[0] in ("right", "below"):
            objects.reverse()
        between, end = [list(relation)] * (len(scene) - 1), [*relation, "the", "middle"] if alone else []
    words = start
    for each, joint in zip(objects, [*between, []], strict=False):
        attributes = [attribute for attribute in (each.size, each.shade) if rng.random() < 0.5]
        words += ["an" if not attributes and each.digit == "eight" else "a", *attributes, each.digit, *joint]
    return (*words, *end)


def _scene(rng: random.Random, side: int, count: int) -> tuple[SceneObject, ...]:
    """Places objects without contact; sorted from left to right."""
    while True:
        objects: list[SceneObject] = []
        for _ in range(_TRIES):
            size = rng.choice(("small", "large"))
            pixels = _PIXELS[size]
            x, y = (rng.randrange(side - pixels + 1) + (pixels - side) / 2 for _ in range(2))
            candidate = SceneObject(rng.choice(DIGITS), size, rng.choice(("dark", "bright")), x, y)
            if all(_apart(candidate, other) for other in objects):
                objects.append(candidate)
            if len(objects) == count:
                return tuple(sorted(objects, key=lambda each: each.x))


def _apart(first: SceneObject, second: SceneObject) -> bool:
    dx, dy = abs(first.x - second.x), abs(first.y - second.y)
    return min(dx, dy) >= _GAP and max(dx, dy) >= (_PIXELS[first.size] + _PIXELS[second.size]) * 0.4


def _draw(image: Tensor, digit: Tensor, each: SceneObject) -> Tensor:
    """Adds a digit to a canvas (H, W) in place; returns its box as left, top, right and bottom pixel."""
    pixels = len(digit)
    left, top = (round(center + (len(image) - pixels) / 2) for center in (each.x, each.y))
    image[top : top + pixels, left : left + pixels] += digit
    first, last = _extent(digit)
    return torch.cat([first.flip(0), last.flip(0)]) + torch.tensor([left, top] * 2)


@cache
def _digit_images(split: Split, pixels: int, seed: int) -> list[Tensor]:
    """Returns images (n, pixels, pixels) of each of the ten digits, in [0, 1] on a background of 0."""
    counts: dict[str, Any] = dict.fromkeys(("num_train", "num_validation", "num_test"), 20 * _VARIANTS)
    source = Glyphs(
        size=pixels, height=(0.6, 0.7), noise=0.0, contrast=1.0, elastic=0.3, boldness=(-0.1, 0.4), seed=seed, **counts
    )
    glyphs = source.load(split)
    images = glyphs.images[:, 0].float() / 255
    background = images.amin((1, 2), keepdim=True)
    images = (images - background) / (1 - background)
    by_digit: list[list[Tensor]] = [[] for _ in range(10)]
    for image, digit in zip(images, glyphs.labels.tolist(), strict=True):
        first, last = _extent(image)
        # Digits of fonts with old-style figures are left out: a large one could be mistaken for a small one.
        if 0.55 <= (last[0] - first[0] + 1) / pixels <= 0.8 and len(by_digit[digit]) < _VARIANTS:
            shift = (pixels - 1 - first - last).div(2, rounding_mode="floor")
            by_digit[digit].append(image.roll(shift.tolist(), (0, 1)))
    return [torch.stack(each) for each in by_digit]


def _extent(image: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first and the last (row, column) of the visible pixels."""
    visible = (image > 0.3 * image.max()).nonzero()
    return visible.amin(0), visible.amax(0)
