"""Scenes of digits, with captions from a grammar: "a large bright three left of a small seven"."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import Literal, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.images.glyphs import Glyphs as Glyphs
from envs.splits import Split, check_split
from envs.validation import check_positive_integers
from ram.corpora import Tokens, detokenize, tokenize
from ram.corpora.captions import Captions

Size = Literal["small", "large"]
Shade = Literal["dark", "bright"]

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PIXELS = {"small": 16, "large": 32}  # a side of a digit's image, two thirds of which it fills
_INK = {"dark": 0.4, "bright": 1.0}
_GAP = 4  # pixels between the middles of two objects, at least, across and down
_TRIES = 200  # to place the objects of a scene
_HELD_OUT = 1000  # scenes of validation and of test
_KINDS = 200  # images of every digit and size, that scenes choose from
_RELATIONS = {  # words, and what holds of the place (x, y) of the object before them and of that behind
    ("left", "of"): lambda one, other: one[0] < other[0],
    ("right", "of"): lambda one, other: one[0] > other[0],
    ("above",): lambda one, other: one[1] < other[1],
    ("below",): lambda one, other: one[1] > other[1],
}

_PHRASE = re.compile(
    r"(?:an(?= eight$)|a(?! eight$)) (?:(?P<size>small|large) )?(?:(?P<shade>dark|bright) )?"
    rf"(?P<digit>{'|'.join(DIGITS)})"
)


@dataclass(frozen=True)
class Thing:
    """An object of a scene.

    Attributes:
        digit: its name.
        size: small or large.
        shade: dark or bright.
        x: of its middle, in pixels to the right of that of the canvas.
        y: of its middle, in pixels below that of the canvas.
    """

    digit: str
    size: Size
    shade: Shade
    x: float
    y: float


Phrase = tuple[str | None, str | None, str]
"""What is said of an object: its size, its shade, and its digit."""

_MIDDLE: Phrase = (None, None, "middle")  # of the canvas, to which the last object of a caption may be related


@dataclass(frozen=True)
class DigitScenes:
    """One to four digits on a dark canvas, small or large, dark or bright, side by side anywhere.

    A caption names every object once, in one row from left to right or back, down or up, telling how each stands to the
    next, or as a list; of an object that is alone it may tell how it stands to the middle. Of each it may tell the size
    and the shade. The digits are drawn in fonts of which no two splits share a family.

    Attributes:
        size: pixels a side of the canvas.
        num_objects: in a scene at most; from 1 to 4.
        captions_per_image: how many are told of each.
        num_train: scenes of the training split; validation and test have 1,000.
        seed: of all.
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
        chance = random.Random(f"{self.seed} {split}")
        inks = {size: _inks(split, pixels, self.seed) for size, pixels in _PIXELS.items()}
        count = self.num_train if split == "train" else _HELD_OUT
        noise = torch.Generator().manual_seed(3 * self.seed + get_args(Split).index(split))
        images = torch.randn(count, 1, self.size, self.size, generator=noise) * 0.02
        boxes = torch.zeros(count, self.num_objects, 4)
        scenes = [_scene(chance, self.size, chance.randint(1, self.num_objects)) for _ in range(count)]
        captions = []
        for number, scene in enumerate(scenes):
            for place, thing in enumerate(scene):
                ink = inks[thing.size][DIGITS.index(thing.digit)][chance.randrange(_KINDS)]
                boxes[number, place] = _draw(images[number, 0], ink * _INK[thing.shade], thing)
            captions.append(tuple(_caption(chance, scene) for _ in range(self.captions_per_image)))
        images = (images.clamp(0, 1) * 255).round().byte()
        return Captions(images, tuple(captions), boxes, tuple(scenes))

    def judge(self, said: Sequence[Tokens], scenes: Sequence[Sequence[Thing]]) -> dict[str, float]:
        """How many captions, in percent, are of the grammar, are true, name every object, and do all three.

        Args:
            said: N captions.
            scenes: what each is of.
        """
        grammatical, true, complete = [], [], []
        for caption, scene in zip(said, scenes, strict=True):
            parsed = parse(caption)
            grammatical.append(parsed is not None)
            true.append(parsed is not None and holds(*parsed, scene))
            complete.append(parsed is not None and sum(each != _MIDDLE for each in parsed[0]) == len(scene))
        right = [each and whole for each, whole in zip(true, complete, strict=True)]
        shares = {"grammatical": grammatical, "true": true, "complete": complete, "right": right}
        return {name: 100 * sum(each) / len(each) for name, each in shares.items()}

    def named(self, caption: Tokens, scene: Sequence[Thing]) -> list[tuple[int, ...]]:
        """For every word of a caption, the objects it may name, by their number; none where it names nothing there is.

        The digits name objects. The words of size and shade before them stand where it may be open which object comes.
        Of objects alike, those are meant of which the whole caption is true, or any where it is true of none.
        """
        found: list[tuple[int, ...]] = [()] * len(caption)
        parsed = parse(caption)
        if parsed is None:
            return found
        phrases, relation = parsed
        readings = list(_readings(phrases, relation, scene))
        phrase = 0
        for place, word in enumerate(caption):
            if word in DIGITS:
                alone = (number for number, thing in enumerate(scene) if _fits(phrases[phrase], thing))
                found[place] = tuple(sorted({numbers[phrase] for numbers in readings} or alone))
                phrase += 1
        return found

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text)

    def detokenize(self, words: Sequence[str]) -> str:
        return detokenize(words)


def parse(caption: Tokens) -> tuple[list[Phrase], Tokens | None] | None:
    """The objects of a caption, and how each stands to the next; None where it is none of the grammar."""
    text = " ".join(caption)
    for relation in _RELATIONS:
        *parts, last = text.split(f" {' '.join(relation)} ")
        phrases = [*map(_phrase, parts), _MIDDLE if last == "the middle" else _phrase(last)]
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


def holds(phrases: Sequence[Phrase], relation: Tokens | None, scene: Sequence[Thing]) -> bool:
    """Whether there are objects in a scene, each another one, of which all that is said is true."""
    return any(True for _ in _readings(phrases, relation, scene))


def _readings(phrases: Sequence[Phrase], relation: Tokens | None, scene: Sequence[Thing]) -> Iterator[tuple[int, ...]]:
    """All choices of an object for each phrase, by their numbers, of which all that is said is true."""
    related = _RELATIONS[relation] if relation else lambda one, other: True
    named = [phrase for phrase in phrases if phrase != _MIDDLE]
    for numbers in permutations(range(len(scene)), len(named)):
        things = [scene[number] for number in numbers]
        spots = [(thing.x, thing.y) for thing in things] + [(0.0, 0.0)] * (len(phrases) - len(named))
        if all(_fits(phrase, thing) for phrase, thing in zip(named, things, strict=True)) and all(
            related(one, other) for one, other in pairwise(spots)
        ):
            yield numbers


def _fits(phrase: Phrase, thing: Thing) -> bool:
    size, shade, digit = phrase
    return size in (None, thing.size) and shade in (None, thing.shade) and digit == thing.digit


def _caption(chance: random.Random, scene: Sequence[Thing]) -> Tokens:
    things, alone = list(scene), len(scene) == 1
    spot = int(things[0].x / _GAP), int(things[0].y / _GAP)  # 0 where it is not clear on which side of the middle
    relations = [words for words, related in _RELATIONS.items() if not alone or related(spot, (0, 0))]
    said, end = [], []
    if not relations or chance.random() < (0.5 if alone else 0.2):
        chance.shuffle(things)
        said = ["there", "is"] if chance.random() < 0.5 else []
        between = [[","]] * (len(scene) - 2) + [["and"]] * (len(scene) > 1)
    else:
        relation = chance.choice(relations)
        things.sort(key=lambda thing: thing.x if relation[-1] == "of" else thing.y)
        if relation[0] in ("right", "below"):
            things.reverse()
        between, end = [list(relation)] * (len(scene) - 1), [*relation, "the", "middle"] if alone else []
    for thing, joint in zip(things, [*between, []], strict=False):
        told = [quality for quality in (thing.size, thing.shade) if chance.random() < 0.5]
        said += ["an" if not told and thing.digit == "eight" else "a", *told, thing.digit, *joint]
    return (*said, *end)


def _scene(chance: random.Random, side: int, count: int) -> tuple[Thing, ...]:
    """Some objects that do not touch, from left to right."""
    while True:
        things: list[Thing] = []
        for _ in range(_TRIES):
            size: Size = chance.choice(("small", "large"))
            pixels = _PIXELS[size]
            x, y = (chance.randrange(side - pixels + 1) + (pixels - side) / 2 for _ in range(2))
            thing = Thing(chance.choice(DIGITS), size, chance.choice(("dark", "bright")), x, y)
            if all(_apart(thing, other) for other in things):
                things.append(thing)
            if len(things) == count:
                return tuple(sorted(things, key=lambda thing: thing.x))


def _apart(one: Thing, other: Thing) -> bool:
    across, down = abs(one.x - other.x), abs(one.y - other.y)
    return min(across, down) >= _GAP and max(across, down) >= (_PIXELS[one.size] + _PIXELS[other.size]) * 0.4


def _draw(image: Tensor, ink: Tensor, thing: Thing) -> Tensor:
    """Puts an object on a canvas (H, W); left, top, right and bottom pixel of what is seen of it."""
    pixels = len(ink)
    left, top = (round(each + (len(image) - pixels) / 2) for each in (thing.x, thing.y))
    image[top : top + pixels, left : left + pixels] += ink
    first, last = _extent(ink)
    return torch.cat([first.flip(0), last.flip(0)]) + torch.tensor([left, top] * 2)


@cache
def _inks(split: Split, pixels: int, seed: int) -> list[Tensor]:
    """Images of every digit: ten times (n, pixels, pixels), in [0, 1] on 0."""
    drawn = Glyphs(
        size=pixels,
        num_train=20 * _KINDS,
        num_validation=20 * _KINDS,
        num_test=20 * _KINDS,
        height=(0.6, 0.7),
        noise=0.0,
        contrast=1.0,
        bend=0.3,
        weight=(-0.1, 0.4),
        seed=seed,
    ).load(split)
    images = drawn.images[:, 0].float() / 255
    ground = images.amin((1, 2), keepdim=True)
    inks = (images - ground) / (1 - ground)
    by_digit: list[list[Tensor]] = [[] for _ in range(10)]
    for ink, digit in zip(inks, drawn.labels.tolist(), strict=True):
        first, last = _extent(ink)
        # Some fonts have digits no taller than their small letters; a large one must not pass for a small one.
        if 0.55 <= (last[0] - first[0] + 1) / pixels <= 0.8 and len(by_digit[digit]) < _KINDS:
            middle = (pixels - 1 - first - last).div(2, rounding_mode="floor")
            by_digit[digit].append(ink.roll(middle.tolist(), (0, 1)))
    return [torch.stack(some) for some in by_digit]


def _extent(ink: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last (row, column) of what is seen."""
    seen = (ink > 0.3 * ink.max()).nonzero()
    return seen.amin(0), seen.amax(0)
