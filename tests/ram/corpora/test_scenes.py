"""Scenes of digits and their captions: what is said is true, and what is not true is not said."""

from itertools import pairwise

import pytest
import torch

from envs import InputError
from ram.corpora.scenes import DIGITS, DigitScenes, Thing, holds, parse

SMALL = DigitScenes(num_train=60)
SCENE = (
    Thing("three", "large", "bright", 10, 50),
    Thing("seven", "small", "dark", 30, 20),
    Thing("three", "small", "bright", 50, 35),
)


def judged(*said: str) -> dict[str, float]:
    return SMALL.judge([tuple(each.split()) for each in said], [SCENE] * len(said))


@pytest.fixture(scope="module")
def train() -> object:
    return SMALL.load("train")


def test_all_captions_are_right_and_name_what_they_name(train) -> None:  # type: ignore[no-untyped-def]
    assert len(train) == 60 and train.images.shape == (60, 1, 64, 64)
    for place in range(5):
        said = [some[place] for some in train.captions]
        assert SMALL.judge(said, train.annotations) == dict.fromkeys(("grammatical", "true", "complete", "right"), 100)
    for captions, scene in zip(train.captions, train.annotations, strict=True):
        for words in captions:
            for word, numbers in zip(words, SMALL.named(words, scene), strict=True):
                assert bool(numbers) == (word in DIGITS)
                assert all(word == scene[n].digit for n in numbers)
    assert {len(scene) for scene in train.annotations} == {1, 2, 3, 4}
    assert len({words for some in train.captions for words in some}) > 200
    middle = [words for some in train.captions for words in some if words[-1] == "middle"]
    assert len({words[-4:] for words in middle}) >= 4


def test_captions_of_other_scenes_are_not_right(train) -> None:  # type: ignore[no-untyped-def]
    said = [some[0] for some in train.captions]
    assert SMALL.judge(said, train.annotations[7:] + train.annotations[:7])["right"] < 10


def test_boxes_hold_the_ink_and_objects_do_not_touch(train) -> None:  # type: ignore[no-untyped-def]
    for image, boxes, scene in zip(train.images[:, 0], train.boxes, train.annotations, strict=True):
        outside = image.clone()
        for (left, top, right, bottom), thing in zip(boxes.int().tolist(), scene, strict=False):
            ink = image[top : bottom + 1, left : right + 1]
            assert ink.max() > (150 if thing.shade == "bright" else 50)
            assert (ink.max() < 140) == (thing.shade == "dark")
            assert (left + right) / 2 - 31.5 == pytest.approx(thing.x, abs=0.5)
            assert (top + bottom) / 2 - 31.5 == pytest.approx(thing.y, abs=0.5)
            assert (bottom - top + 1 > 15) == (thing.size == "large")
            outside[max(0, top - 2) : bottom + 3, max(0, left - 2) : right + 3] = 0
        assert outside.max() < 60
        assert not boxes[len(scene) :].any()
        assert all(one.x < other.x for one, other in pairwise(scene))


def test_splits_are_their_own_and_the_same_at_every_call() -> None:
    first, again, other = SMALL.load("validation"), SMALL.load("validation"), SMALL.load("test")
    assert torch.equal(first.images, again.images) and first.captions == again.captions
    assert len(first) == len(other) == 1000
    assert not torch.equal(first.images, other.images) and first.captions != other.captions
    assert DigitScenes(num_train=60, seed=1).load("train").captions != SMALL.load("train").captions


@pytest.mark.parametrize(
    ("said", "figures"),
    [
        ("a large three left of a small dark seven left of a small bright three", (1, 1, 1)),
        ("a seven above a small three above a three", (1, 1, 1)),
        ("there is a seven , a three and a three", (1, 1, 1)),
        ("a three and a seven", (1, 1, 0)),
        ("a small seven", (1, 1, 0)),
        ("a seven above a three", (1, 1, 0)),
        ("a three above a seven", (1, 0, 0)),
        ("a dark three", (1, 0, 0)),
        ("a three , a three and a three", (1, 0, 1)),  # there are but two
        ("a large seven , a three and a three", (1, 0, 1)),
        ("a three and a three and a seven", (0, 0, 0)),
        ("a three , a seven", (0, 0, 0)),
        ("a seven left", (0, 0, 0)),
        ("a seven above a three left of a three", (0, 0, 0)),
        ("an three", (0, 0, 0)),
        ("a eight", (0, 0, 0)),
        ("dark a seven", (0, 0, 0)),
        ("a seven above the middle", (1, 0, 0)),
        ("a small three right of the middle", (1, 1, 0)),
        ("a seven above a three above the middle", (1, 0, 0)),
        ("a three left of a seven left of a three left of the middle", (1, 0, 1)),
        ("a three right of a seven right of a large three right of the middle", (1, 1, 1)),
        ("the middle left of a three", (0, 0, 0)),
        ("there is the middle", (0, 0, 0)),
        ("the middle", (0, 0, 0)),
        ("a three and the middle", (0, 0, 0)),
        ("there is a seven above a three", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_a_caption_is_judged(said: str, figures: tuple[int, int, int]) -> None:
    grammatical, true, complete = figures
    expected = {"grammatical": grammatical, "true": true, "complete": complete, "right": true and complete}
    assert judged(said) == {name: 100 * value for name, value in expected.items()}


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("a large three left of a seven", [(), (), (0,), (), (), (), (1,)]),
        ("a three and a seven", [(), (0, 2), (), (), (1,)]),
        ("a three , a seven and a small three", [(), (0,), (), (), (1,), (), (), (), (2,)]),
        ("a seven left of a three", [(), (1,), (), (), (), (2,)]),
        ("a seven below a three", [(), (1,), (), (), (0, 2)]),  # true of none
        ("a dark three", [(), (), ()]),
        ("a large three below the middle", [(), (), (0,), (), (), ()]),
        ("a dark three and a seven", [(), (), (), (), (), (1,)]),
        ("seven three", [(), ()]),
    ],
)
def test_words_name_objects(said: str, numbers: list[tuple[int, ...]]) -> None:
    assert SMALL.named(tuple(said.split()), SCENE) == numbers


def test_an_eight_has_its_article() -> None:
    assert parse(("an", "eight")) == ([(None, None, "eight")], None)
    assert parse(("a", "small", "eight", "above", "an", "eight")) is not None
    assert parse(("an", "small", "eight")) is None


def test_every_phrase_is_of_another_object() -> None:
    phrases = [(None, "bright", "three"), ("small", None, "three")]
    assert holds(phrases, None, SCENE)
    assert not holds([(None, "bright", "three"), (None, "bright", "three"), (None, None, "three")], None, SCENE)
    assert holds(phrases, ("left", "of"), SCENE) and not holds(phrases, ("right", "of"), SCENE)


def test_what_a_model_says_is_read_as_a_user_would_write_it() -> None:
    assert SMALL.tokenize("A small three, and a seven") == ("a", "small", "three", ",", "and", "a", "seven")
    assert SMALL.detokenize(("a", "two", ",", "a", "six", "and", "a", "one")) == "a two, a six and a one"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_objects": 5}, r"^corpus\.num_objects must be in 1 \.\. 4, got 5\.$"),
        ({"size": 40}, r"^corpus\.size must be at least 64 pixels, got 40\.$"),
        ({"num_train": 0}, r"^corpus\.num_train must be at least 1, got 0\.$"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        DigitScenes(**options)
