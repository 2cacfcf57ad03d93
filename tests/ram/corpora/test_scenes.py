"""Scenes of digits: generated captions are correct, and incorrect captions are detected."""

from itertools import pairwise

import pytest
import torch

from envs import InputError
from ram.corpora.scenes import DIGITS, DigitScenes, SceneObject, holds, parse

SMALL = DigitScenes(num_train=60)
SCENE = (
    SceneObject("three", "large", "bright", 10, 50),
    SceneObject("seven", "small", "dark", 30, 20),
    SceneObject("three", "small", "bright", 50, 35),
)


def evaluated(*captions: str) -> dict[str, float]:
    return SMALL.evaluate([tuple(each.split()) for each in captions], [SCENE] * len(captions))


@pytest.fixture(scope="module")
def train() -> object:
    return SMALL.load("train")


def test_generated_captions_are_correct_and_mention_objects(train) -> None:  # type: ignore[no-untyped-def]
    assert len(train) == 60 and train.images.shape == (60, 1, 64, 64)
    for index in range(5):
        captions = [each[index] for each in train.captions]
        assert SMALL.evaluate(captions, train.annotations) == dict.fromkeys(
            ("grammatical", "true", "complete", "correct"), 100
        )
    for captions, scene in zip(train.captions, train.annotations, strict=True):
        for words in captions:
            for word, indices in zip(words, SMALL.mentioned_objects(words, scene), strict=True):
                assert bool(indices) == (word in DIGITS)
                assert all(word == scene[index].digit for index in indices)
    assert {len(scene) for scene in train.annotations} == {1, 2, 3, 4}
    assert len({words for captions in train.captions for words in captions}) > 200
    middle = [words for captions in train.captions for words in captions if words[-1] == "middle"]
    assert len({words[-4:] for words in middle}) >= 4


def test_captions_of_other_scenes_are_rarely_correct(train) -> None:  # type: ignore[no-untyped-def]
    captions = [each[0] for each in train.captions]
    assert SMALL.evaluate(captions, train.annotations[7:] + train.annotations[:7])["correct"] < 10


def test_boxes_contain_the_digits_and_objects_do_not_touch(train) -> None:  # type: ignore[no-untyped-def]
    for image, boxes, scene in zip(train.images[:, 0], train.boxes, train.annotations, strict=True):
        outside = image.clone()
        for (left, top, right, bottom), each in zip(boxes.int().tolist(), scene, strict=False):
            digit = image[top : bottom + 1, left : right + 1]
            assert digit.max() > (150 if each.shade == "bright" else 50)
            assert (digit.max() < 140) == (each.shade == "dark")
            assert (left + right) / 2 - 31.5 == pytest.approx(each.x, abs=0.5)
            assert (top + bottom) / 2 - 31.5 == pytest.approx(each.y, abs=0.5)
            assert (bottom - top + 1 > 15) == (each.size == "large")
            outside[max(0, top - 2) : bottom + 3, max(0, left - 2) : right + 3] = 0
        assert outside.max() < 60
        assert not boxes[len(scene) :].any()
        assert all(one.x < other.x for one, other in pairwise(scene))


def test_scenes_are_a_function_of_split_and_seed() -> None:
    first, again, other = SMALL.load("validation"), SMALL.load("validation"), SMALL.load("test")
    assert torch.equal(first.images, again.images) and first.captions == again.captions
    assert len(first) == len(other) == 1000
    assert not torch.equal(first.images, other.images) and first.captions != other.captions
    assert DigitScenes(num_train=60, seed=1).load("train").captions != SMALL.load("train").captions


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a large three left of a small dark seven left of a small bright three", (1, 1, 1)),
        ("a seven above a small three above a three", (1, 1, 1)),
        ("there is a seven , a three and a three", (1, 1, 1)),
        ("a three and a seven", (1, 1, 0)),
        ("a small seven", (1, 1, 0)),
        ("a seven above a three", (1, 1, 0)),
        ("a three above a seven", (1, 0, 0)),
        ("a dark three", (1, 0, 0)),
        ("a three , a three and a three", (1, 0, 1)),  # there are only two
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
def test_captions_are_evaluated(caption: str, expected: tuple[int, int, int]) -> None:
    grammatical, true, complete = expected
    shares = {"grammatical": grammatical, "true": true, "complete": complete, "correct": true and complete}
    assert evaluated(caption) == {name: 100 * value for name, value in shares.items()}


@pytest.mark.parametrize(
    ("caption", "indices"),
    [
        ("a large three left of a seven", [(), (), (0,), (), (), (), (1,)]),
        ("a three and a seven", [(), (0, 2), (), (), (1,)]),
        ("a three , a seven and a small three", [(), (0,), (), (), (1,), (), (), (), (2,)]),
        ("a seven left of a three", [(), (1,), (), (), (), (2,)]),
        ("a seven below a three", [(), (1,), (), (), (0, 2)]),  # true with none
        ("a dark three", [(), (), ()]),
        ("a large three below the middle", [(), (), (0,), (), (), ()]),
        ("a dark three and a seven", [(), (), (), (), (), (1,)]),
        ("seven three", [(), ()]),
    ],
)
def test_digits_mention_objects(caption: str, indices: list[tuple[int, ...]]) -> None:
    assert SMALL.mentioned_objects(tuple(caption.split()), SCENE) == indices


def test_article_before_eight() -> None:
    assert parse(("an", "eight")) == ([(None, None, "eight")], None)
    assert parse(("a", "small", "eight", "above", "an", "eight")) is not None
    assert parse(("an", "small", "eight")) is None


def test_phrases_refer_to_different_objects() -> None:
    phrases = [(None, "bright", "three"), ("small", None, "three")]
    assert holds(phrases, None, SCENE)
    assert not holds([(None, "bright", "three"), (None, "bright", "three"), (None, None, "three")], None, SCENE)
    assert holds(phrases, ("left", "of"), SCENE) and not holds(phrases, ("right", "of"), SCENE)


def test_tokenize_and_detokenize() -> None:
    assert SMALL.tokenize("A small three, and a seven") == ("a", "small", "three", ",", "and", "a", "seven")
    assert SMALL.detokenize(("a", "two", ",", "a", "six", "and", "a", "one")) == "a two, a six and a one"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_objects": 5}, r"^corpus\.num_objects must be in 1 \.\. 4, got 5\.$"),
        ({"size": 40}, r"^corpus\.size must be at least 64 pixels, got 40\.$"),
        ({"num_train": 0}, r"^corpus\.num_train must be at least 1, got 0\.$"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DigitScenes(**options)
