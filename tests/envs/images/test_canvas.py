"""Scenes on a canvas: the distributions of locations, clutter and classes, and the annotations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, arrays, mnist
from envs.images.canvas import Canvas, CanvasScenes
from envs.images.glyphs import Glyphs
from envs.random import RowRandom
from envs.scene import END_CLASS, Scene
from envs.sensor import GlimpseSensor
from envs.single_env import GlimpseEnv
from envs.splits import IGNORE_INDEX, Split
from envs.vector_env import GlimpseVectorEnv

DIGITS = tuple("0123456789")
GLYPHS = Glyphs(size=12, num_train=40, num_validation=20, num_test=20)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def constant_images(
    values: list[float], rows: int = 2, columns: int = 2, classes: tuple[str, ...] = DIGITS
) -> ImageSet:
    """Image i is of class i, and all its pixels have the value i."""
    images = torch.tensor(values)[:, None, None, None].expand(-1, 1, rows, columns)
    return ImageSet(images.contiguous(), torch.arange(len(values)), classes)


def draw(source: Canvas, index: Tensor, split: Split = "train") -> Scene:
    """Draws the scenes of the given indices, each with random numbers of its own."""
    rows = torch.arange(len(index))
    return source.load(split).draw(index, RowRandom(rows, torch.zeros_like(rows)))


def draw_many(source: Canvas, count: int, split: Split = "train") -> Scene:
    return draw(source, torch.arange(count), split)


def pixels(source: Canvas, boxes: Tensor) -> Tensor:
    """Boxes in pixels: left, top, right, bottom, int64; exact except for absent objects."""
    size = source.size if isinstance(source.size, tuple) else (source.size, source.size)
    exact = (boxes + 1) / 2 * torch.tensor([size[1] - 1, size[0] - 1] * 2)
    present = (boxes != 0).any(-1)
    torch.testing.assert_close(exact[present], exact[present].round(), atol=1e-4, rtol=0)
    return exact.round().long()


def assert_equally_often(found: list[Any], expected: set[Any]) -> None:
    """Every expected value occurs equally often, within five standard deviations, and no other value."""
    counts, mean = Counter(found), len(found) / len(expected)
    assert set(counts) == expected
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


# One object.


def test_the_location_of_an_object_is_uniform_and_matches_its_box() -> None:
    source = Canvas(constant_images([1.0]), size=(5, 6))
    scene = draw_many(source, 8000)
    boxes = pixels(source, scene.annotations["boxes"])[:, 0].tolist()
    assert_equally_often([(left, top) for left, top, _, _ in boxes], set(product(range(5), range(4))))
    for image, (left, top, right, bottom) in list(zip(scene.images, boxes, strict=True))[:100]:
        assert (right, bottom) == (left + 1, top + 1)
        expected = torch.zeros(1, 5, 6)
        expected[:, top : top + 2, left : left + 2] = 1
        assert image.equal(expected)


def test_an_object_as_large_as_the_canvas_fills_it() -> None:
    scene = draw_many(Canvas(constant_images([0.5], 3, 4), size=(3, 4)), 2)
    assert scene.images.equal(torch.full((2, 1, 3, 4), 0.5))
    assert scene.annotations["target"].equal(torch.tensor([[-1.0, -1, 1, 1]] * 2))


def test_a_scene_shows_the_image_of_its_index_modulo_the_number_of_images() -> None:
    images = constant_images([0.1, 0.2, 0.3])
    source = Canvas(images, size=4, num_train=7)
    assert len(source.load("train")) == 7 and len(source.load("validation")) == 3
    scene = draw_many(source, 7)
    assert scene.annotations["label"].tolist() == scene.annotations["labels"][:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    torch.testing.assert_close(scene.images.sum((1, 2, 3)) / 4, images.images[:, 0, 0, 0][scene.annotations["label"]])
    assert scene.annotations["target"].equal(scene.annotations["boxes"][:, 0]) and scene.annotations["present"].all()


# Clutter.


def test_clutter_is_uniform_over_pieces_of_other_images_and_locations() -> None:
    other = torch.arange(1.0, 10).view(1, 3, 3) / 16
    base = ImageSet(torch.stack([torch.zeros(1, 3, 3), other]), torch.tensor([0, 1]), DIGITS)
    source = Canvas(base, size=(4, 5), num_clutter=1, clutter_size=2)
    expected = set()
    for row, column, top, left in product(range(2), range(2), range(3), range(4)):
        canvas = torch.zeros(4, 5)
        canvas[top : top + 2, left : left + 2] = other[0, row : row + 2, column : column + 2]
        expected.add(tuple(canvas.flatten().tolist()))
    assert len(expected) == 48
    scene = draw(source, torch.zeros(9600, dtype=torch.int64))
    assert_equally_often([tuple(image) for image in scene.images.flatten(1).tolist()], expected)


def powers_of_three(source: Canvas, scene: Scene, image: int) -> tuple[int, ...]:
    """The number of clutter pixels on a canvas from each object of value 3^i / 256."""
    total = round(float(scene.images[image].sum()) * 256)
    shown = scene.annotations["labels"][image][scene.annotations["present"][image]].tolist()
    total -= sum(4 * 3**number for number in shown)
    return tuple(total // 3**number % 3 for number in range(4))


POWERS = constant_images([3**number / 256 for number in range(4)])


def test_clutter_has_num_clutter_pieces_and_none_of_the_image_shown() -> None:
    source = Canvas(POWERS, size=8, num_clutter=2, clutter_size=1)
    scene = draw(source, torch.full((900,), 2))
    found = [powers_of_three(source, scene, image) for image in range(900)]
    one_each = [(1, 1, 0, 0), (1, 0, 0, 1), (0, 1, 0, 1)]
    twice = [(2, 0, 0, 0), (0, 2, 0, 0), (0, 0, 0, 2)]
    counts = Counter(found)
    assert set(counts) == {*one_each, *twice}
    assert all(abs(counts[pieces] - 200) < 5 * 200**0.5 for pieces in one_each)
    assert all(abs(counts[pieces] - 100) < 5 * 100**0.5 for pieces in twice)


def test_clutter_excludes_all_images_shown() -> None:
    source = Canvas(POWERS, size=8, num_objects=2, num_clutter=2, clutter_size=1, target_type="sequence")
    scene = draw_many(source, 400)
    seen = set()
    for image, labels in enumerate(scene.annotations["labels"].tolist()):
        pieces = powers_of_three(source, scene, image)
        assert sum(pieces) == 2 and all(pieces[number] == 0 for number in labels)
        seen |= {(tuple(sorted(labels)), pieces)}
    assert ((0, 1), (0, 0, 1, 1)) in seen and ((1, 3), (2, 0, 0, 0)) in seen


@dataclass(frozen=True)
class DistinctSplits:
    """A source whose splits differ in their pixel values; records every load."""

    loaded: list[str] = field(default_factory=list, hash=False)

    def load(self, split: Split, device: torch.device | str = "cpu") -> ImageSet:
        self.loaded.append(split)
        return constant_images([0.25, 0.25] if split == "train" else [0.5])


@pytest.mark.parametrize("split", ["validation", "test"])
def test_clutter_on_every_split_comes_from_the_training_images(split: Split) -> None:
    objects = DistinctSplits()
    source = Canvas(objects, size=20, num_clutter=1, clutter_size=2)
    assert draw_many(source, 5, split).images.max() <= 0.75
    assert {round(4 * total, 4) for total in draw_many(source, 20, split).images.sum((1, 2, 3)).tolist()} == {12.0}
    scenes = source.load(split)  # keeps the images in memory, so that they are not loaded again
    objects.loaded.clear()
    assert isinstance(source.load(split), CanvasScenes) and objects.loaded == []
    assert len(scenes) == 1


def test_clutter_and_objects_are_added_and_clipped_to_one() -> None:
    source = Canvas(constant_images([0.7, 0.2]), size=2, num_clutter=2, clutter_size=1)
    scene = draw(source, torch.zeros(200, dtype=torch.int64))
    sums = {tuple(round(value, 4) for value in sorted(image)) for image in scene.images.flatten(1).tolist()}
    assert sums == {(0.7, 0.7, 0.9, 0.9), (0.7, 0.7, 0.7, 1.0)}


def test_uint8_images_are_scaled_to_floats() -> None:
    base = ImageSet(torch.full((2, 1, 2, 2), 51, dtype=torch.uint8), torch.tensor([0, 1]), DIGITS)
    scene = draw_many(Canvas(base, size=2, num_clutter=1, clutter_size=2), 2)
    assert scene.images.dtype == torch.uint8
    torch.testing.assert_close(scene.pixels(), torch.full((2, 1, 2, 2), 0.4))


def test_clutter_keeps_its_color_channels() -> None:
    images = torch.zeros(2, 3, 2, 2)
    images[0, 0], images[1, 2] = 0.5, 0.25
    base = ImageSet(images, torch.tensor([0, 1]), ("red", "blue"))
    scene = draw(Canvas(base, size=(4, 5), num_clutter=1, clutter_size=1), torch.zeros(50, dtype=torch.int64))
    assert scene.images.shape == (50, 3, 4, 5)
    torch.testing.assert_close(scene.images.sum((2, 3)), torch.tensor([[2.0, 0, 0.25]]).expand(50, 3))


# Several objects.


def test_the_columns_of_several_objects_are_uniform_without_overlap() -> None:
    source = Canvas(constant_images([1.0, 1.0]), size=(3, 7), num_objects=3, target_type="sequence")
    boxes = pixels(source, draw_many(source, 4000).annotations["boxes"])
    assert_equally_often(list(map(tuple, boxes[..., 0].tolist())), {(0, 2, 4), (0, 2, 5), (0, 3, 5), (1, 3, 5)})
    assert_equally_often(list(map(tuple, boxes[..., 1].tolist())), set(product(range(2), repeat=3)))


def test_the_number_of_objects_is_uniform_and_so_are_their_columns() -> None:
    source = Canvas(constant_images([1.0, 1.0]), size=(2, 5), num_objects=(1, 2), target_type="count")
    scene = draw_many(source, 8000)
    left = pixels(source, scene.annotations["boxes"])[..., 0]
    assert scene.annotations["label"].equal(scene.annotations["present"].sum(1) - 1)
    alone = scene.annotations["label"] == 0
    assert abs(int(alone.sum()) - 4000) < 5 * 2000**0.5
    assert_equally_often(left[alone, 0].tolist(), {0, 1, 2, 3})
    assert_equally_often(list(map(tuple, left[~alone].tolist())), {(0, 2), (0, 3), (1, 3)})


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    room=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    numbers=st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda pair: tuple(sorted(pair))),
    target_type=st.sampled_from(["sequence", "sum", "search"]),
    seed=st.integers(0, 2**31),
)
def test_annotations_match_the_image(
    rows: int, columns: int, room: tuple[int, int], numbers: tuple[int, int], target_type: Any, seed: int
) -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    size = max(rows + room[0], 2), max(numbers[1] * columns + room[1], 2)
    source = Canvas(
        constant_images(values, rows, columns, DIGITS[:5]), size=size, num_objects=numbers, target_type=target_type
    )
    index = torch.arange(8) % 5
    scene = source.load("test").draw(index, RowRandom(index + seed, index))
    annotations = {name: value.tolist() for name, value in scene.annotations.items()}
    boxes = pixels(source, scene.annotations["boxes"]).tolist()
    for image in range(8):
        count = sum(annotations["present"][image])
        assert numbers[0] <= count <= numbers[1]
        assert annotations["present"][image] == [True] * count + [False] * (numbers[1] - count)
        labels, here = annotations["labels"][image][:count], boxes[image][:count]
        expected = torch.zeros(1, *size)
        for label, (left, top, right, bottom) in zip(labels, here, strict=True):
            assert (right - left, bottom - top) == (columns - 1, rows - 1)
            expected[:, top : bottom + 1, left : right + 1] = values[label]
        assert scene.images[image].equal(expected)
        assert all(first[2] < second[0] for first, second in pairwise(here))
        assert index[image] in labels
        assert annotations["labels"][image][count:] == [IGNORE_INDEX] * (numbers[1] - count)
        assert annotations["boxes"][image][count:] == [[0.0] * 4] * (numbers[1] - count)
        if target_type == "sum":
            assert annotations["label"][image] == sum(labels)
        elif target_type == "search":
            assert len(set(labels)) == count and "label" not in annotations
            assert annotations["target"][image] == annotations["boxes"][image][labels.index(annotations["goal"][image])]
        elif numbers[0] == numbers[1]:
            assert annotations["label"][image] == labels
        else:
            assert annotations["label"][image] == [*labels, 5] + [IGNORE_INDEX] * (numbers[1] - count)


def test_the_first_image_has_a_uniform_position_among_the_objects() -> None:
    source = Canvas(constant_images([0.1, 0.2, 0.3, 0.4]), size=(2, 8), num_objects=3, target_type="search")
    scene = draw(source, torch.full((6000,), 3))
    assert_equally_often((scene.annotations["labels"] == 3).long().argmax(1).tolist(), {0, 1, 2})
    others = [tuple(sorted(set(labels) - {3})) for labels in scene.annotations["labels"].tolist()]
    assert_equally_often(others, {(0, 1), (0, 2), (1, 2)})
    goal = scene.annotations["labels"] == scene.annotations["goal"][:, None]
    assert_equally_often(goal.long().argmax(1).tolist(), {0, 1, 2})


def test_other_objects_of_a_search_scene_are_uniform_over_the_images_of_nonempty_classes() -> None:
    images = torch.tensor([0.1, 0.2, 0.3, 0.4])[:, None, None, None].expand(-1, 1, 2, 2)
    base = ImageSet(images, torch.tensor([3, 1, 3, 1]), DIGITS)
    source = Canvas(base, size=(2, 4), num_objects=2, target_type="search")
    scene = draw(source, torch.zeros(1000, dtype=torch.int64))
    shown = [frozenset((10 * image[0, 0, ::2]).round().int().tolist()) for image in scene.images]
    assert_equally_often(shown, {frozenset({1, 2}), frozenset({1, 4})})
    with pytest.raises(InputError, match=r"2 classes: set scenes\.num_objects to at most 2, not 3"):
        Canvas(base, size=6, num_objects=3, target_type="search").load("train")


def test_every_object_is_augmented_independently() -> None:
    def darker(images: Tensor, random: RowRandom) -> Tensor:
        return images * random.uniform("darker", 1, 1, 1)

    base = ImageSet(torch.ones(2, 1, 1, 1), torch.tensor([0, 1]), DIGITS, darker)
    scene = draw_many(Canvas(base, size=(2, 3), num_objects=2, target_type="sequence"), 50)
    shades = [shade for image in scene.images for shade in image[image > 0].tolist()]
    assert len(shades) == len(set(shades)) == 100


# Target types.


@pytest.mark.parametrize(
    ("options", "classes", "given"),
    [
        ({"target_type": "class"}, ("0", "1", "2"), {"label", "target"}),
        ({"target_type": "sequence", "num_objects": 2}, ("0", "1", "2"), {"label"}),
        ({"target_type": "sequence", "num_objects": [1, 2]}, ("0", "1", "2", END_CLASS), {"label"}),
        ({"target_type": "sum", "num_objects": 2}, ("0", "1", "2", "3", "4"), {"label"}),
        ({"target_type": "count", "num_objects": [1, 3]}, ("1", "2", "3"), {"label"}),
        ({"target_type": "search", "num_objects": 3}, ("0", "1", "2"), {"goal", "target"}),
        ({"target_type": "box"}, ("0", "1", "2"), {"target"}),
    ],
)
def test_every_target_type_has_its_classes_and_annotations(
    options: dict[str, Any], classes: tuple[str, ...], given: set[str]
) -> None:
    source = Canvas(constant_images([0.1, 0.2, 0.3], classes=DIGITS[:3]), size=10, **options)
    assert source.load("train").classes == classes
    scene = draw_many(source, 30)
    assert set(scene.annotations) == {"boxes", "labels", "present"} | given
    assert all(value.shape[0] == 30 for value in scene.annotations.values())
    if "label" in given:
        labels = scene.annotations["label"][scene.annotations["label"] != IGNORE_INDEX]
        assert labels.min() >= 0 and labels.max() < len(classes)
    dtypes = {"boxes": torch.float32, "target": torch.float32, "present": torch.bool}
    assert {name: value.dtype for name, value in scene.annotations.items()} == {
        name: dtypes.get(name, torch.int64) for name in scene.annotations
    }


def test_sums_use_the_numbers_in_the_class_names() -> None:
    source = Canvas(constant_images([0.1, 0.2], classes=("5", "7")), size=10, num_objects=2, target_type="sum")
    assert source.load("train").classes == tuple(map(str, range(15)))
    scene = draw_many(source, 100)
    assert set(scene.annotations["label"].tolist()) == {10, 12, 14}


# In the environments.


def vector_env(source: Canvas, **options: Any) -> GlimpseVectorEnv:
    """Three actions in an episode, an answer due with each, and patches that cover the whole scene."""
    defaults = {"num_envs": 3, "num_glimpses": 3, "glimpses_per_answer": 1, "autoreset_mode": "Disabled"}
    view = {"sensor": GlimpseSensor((30, 40)), "first_location": "center", "output": "torch"}
    return GlimpseVectorEnv(source, **defaults | view | options)


SCENES = Canvas(GLYPHS, size=(30, 40), num_objects=(1, 2), num_clutter=3, target_type="sequence")


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_scenes_depend_on_seed_and_index_only(split: Split) -> None:
    env = vector_env(SCENES, split=split)
    patches, info = env.reset(seed=5, options={"index": torch.tensor([4, 9, 2])})
    again, more = env.reset(seed=5, options={"index": torch.tensor([2, 4, 4]), "episode": 8})
    assert again["patches"].equal(patches["patches"][[2, 0, 0]])
    assert more["label"].equal(info["label"][[2, 0, 0]])
    other, _ = env.reset(seed=6, options={"index": torch.tensor([4, 9, 2])})
    assert not any(map(torch.equal, other["patches"], patches["patches"]))
    single = GlimpseEnv(
        images=SCENES,
        sensor=GlimpseSensor((30, 40)),
        num_glimpses=3,
        glimpses_per_answer=1,
        split=split,
        first_location="center",
    )
    observation, _ = single.reset(seed=5, options={"index": 9})
    np.testing.assert_array_equal(observation["patches"], patches["patches"][1].numpy())


def test_training_scenes_differ_between_episodes_and_rows() -> None:
    env = vector_env(SCENES)
    index = torch.tensor([4, 4, 4])
    first = env.reset(seed=5, options={"index": index, "episode": 0})[0]["patches"]
    second = env.reset(options={"index": index, "episode": 1})[0]["patches"]
    scenes = torch.cat([first, second])
    assert all(not scenes[i].equal(scenes[j]) for i in range(6) for j in range(i))
    assert env.reset(options={"index": index, "episode": 0})[0]["patches"].equal(first)


def test_rollouts_of_an_image_share_their_scene() -> None:
    env = vector_env(SCENES, num_envs=4, rollouts_per_image=2)
    patches = env.reset(seed=0)[0]["patches"]
    assert patches[0].equal(patches[1]) and patches[2].equal(patches[3]) and not patches[0].equal(patches[2])


def test_a_sequence_is_answered_object_by_object_up_to_its_end() -> None:
    env = vector_env(SCENES)
    _, info = env.reset(seed=0, options={"index": torch.arange(3)})
    label = info["label"]
    rewards, ends = [], []
    for step in range(3):
        action = {"location": torch.zeros(3, 2), "answer": label[:, step].clamp(min=0)}
        _, reward, terminated, _, _ = env.step(action)
        rewards.append(reward)
        ends.append(terminated)
        if terminated.all():
            break
    due = (label != IGNORE_INDEX).sum(1)
    assert torch.stack(rewards).sum(0).equal(due.float())
    assert (torch.stack(ends).logical_not().sum(0) + 1).equal(due)


def hit(transition: Any) -> Tensor:
    """1 if the location is in the box of the goal class."""
    box = (transition.boxes * (transition.labels == transition.goal[:, None])[..., None]).sum(1)
    x, y = transition.location.unbind(1)
    return ((box[:, 0] <= x) & (x <= box[:, 2]) & (box[:, 1] <= y) & (y <= box[:, 3])).float()


def test_search_scenes_observe_the_goal_and_reward_its_location() -> None:
    source = Canvas(GLYPHS, size=(30, 40), num_objects=2, target_type="search")
    env = vector_env(source, answer=None, reward=hit, split="test", num_glimpses=2)
    index = torch.arange(3)
    observation, info = env.reset(seed=0, options={"index": index})
    annotations = source.load("test").draw(index, env._seeds.by_scene(None, index)).annotations
    assert observation["goal"].equal(annotations["goal"]) and "label" not in info
    target = annotations["target"]
    _, reward, *_ = env.step({"location": (target[:, :2] + target[:, 2:]) / 2})
    assert reward.tolist() == [1, 1, 1]
    env.reset(seed=0, options={"index": index})
    _, reward, *_ = env.step({"location": target[:, :2] - 0.04})
    assert reward.tolist() == [0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("target_type", ["sequence", "sum", "count", "search"])
def test_scenes_are_equal_on_every_device(device: str, target_type: Any) -> None:
    source = Canvas(GLYPHS, size=(30, 40), num_objects=(1, 2), num_clutter=3, target_type=target_type)
    index = torch.arange(5)
    here = source.load("train").draw(index, RowRandom(index, index))
    there = source.load("train", device).draw(index.to(device), RowRandom(index.to(device), index.to(device)))
    for name, value in {"images": there.images, **there.annotations}.items():
        assert value.device.type == device
        torch.testing.assert_close(value.cpu(), {"images": here.images, **here.annotations}[name], msg=name)


# Invalid options and files.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, r"scenes\.size must be a whole number of at least 2, or a pair of them, got 1"),
        ({"size": [60, 0]}, r"scenes\.size must be a whole number of at least 2, or a pair of them, got \[60, 0\]"),
        *(
            ({"size": size}, r"scenes\.size must be a whole number")
            for size in (60.0, "60", None, [60], [60, 60.0], [60, 60, 60])
        ),
        (
            {"num_objects": (1, 2, 3), "target_type": "sequence"},
            r"scenes\.num_objects must be a whole number of at least 1, or a pair of them, got \(1, 2, 3\)",
        ),
        (
            {"num_objects": 2.0, "target_type": "sequence"},
            r"scenes\.num_objects must be a whole number of at least 1, or a pair of them, got 2\.0",
        ),
        ({"num_objects": 0}, r"scenes\.num_objects must be a whole number of at least 1, or a pair of them, got 0"),
        (
            {"num_objects": [0, 2], "target_type": "sequence"},
            r"scenes\.num_objects must be a whole number of at least 1",
        ),
        (
            {"num_objects": [3, 2], "target_type": "sequence"},
            r"scenes\.num_objects must be \[smallest, largest\], got \[3, 2\]",
        ),
        ({"num_clutter": "2"}, r"scenes\.num_clutter must be a whole number"),
        ({"num_train": 2.5}, r"scenes\.num_train must be a whole number"),
        ({"num_clutter": -1}, r"scenes\.num_clutter must be a whole number of at least 0, got -1"),
        ({"clutter_size": 0}, r"scenes\.clutter_size must be a whole number of at least 1, got 0"),
        ({"num_test": 0}, r"scenes\.num_test must be a whole number of at least 1, got 0"),
        ({"target_type": "color"}, r"scenes\.target_type must be one of class, sequence, .*got 'color'"),
        ({"num_objects": 2}, r"scenes\.target_type=class needs scenes\.num_objects=1"),
        ({"num_objects": [1, 2], "target_type": "box"}, r"scenes\.target_type=box needs scenes\.num_objects=1"),
        (
            {"num_objects": 2, "target_type": "count"},
            r"scenes\.target_type=count needs scenes\.num_objects=\[smallest, largest\]",
        ),
    ],
)
def test_options_are_checked_on_construction(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Canvas(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (11, 30)}, r"scenes\.size of 11 x 30 pixels is too small for objects of 12 x 12"),
        ({"size": (30, 11)}, r"scenes\.size of 30 x 11 pixels is too small"),
        (
            {"size": 35, "num_objects": 3, "target_type": "sequence"},
            r"3 objects of 12 pixels do not fit side by side on a canvas of 35: set scenes\.num_objects to at most 2, "
            r"or the width in scenes\.size to at least 36",
        ),
        ({"num_clutter": 1, "clutter_size": 13}, r"scenes\.clutter_size=13 .* at most 12"),
        ({"objects": constant_images([0.5], 8, 8), "num_clutter": 1}, r"scenes\.num_clutter=1 needs training images"),
        (
            {"objects": constant_images([0.5], classes=("cat",)), "num_objects": 2, "target_type": "sum"},
            r"scenes\.target_type=sum needs objects whose classes are numbers, not cat",
        ),
        (
            {"objects": constant_images([0.5], classes=("end",)), "target_type": "sequence"},
            r'scenes\.target_type=sequence reserves the class name "end"',
        ),
        ({"objects": Canvas(GLYPHS)}, r"scenes\.objects must be images of one object each, not scenes"),
        ({"objects": "nosuch"}, r"^images='nosuch' names no image source: envs\.images\.nosuch defines none\.$"),
        ({"objects": "folder"}, r"^images='folder' needs options: pass an instance of envs\.images\.folder\.Folder"),
        ({"objects": None}, r"^images=None is neither an image source"),
        ({"objects": Glyphs}, r"^images=<class .* is neither an image source"),
        (
            {"objects": Canvas(arrays.Arrays(path="nosuch.npz"))},
            r"^images\.path=nosuch\.npz cannot be read",
        ),
    ],
)
def test_objects_that_do_not_fit_are_refused_on_loading(options: dict[str, Any], message: str) -> None:
    source = Canvas(**{"objects": GLYPHS} | options)
    with pytest.raises(InputError, match=message):
        GlimpseVectorEnv(source)


def test_objects_that_cannot_be_downloaded_are_reported_with_their_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / "images"  # no folder can be created below a file
    with pytest.raises(InputError, match=f"MNIST is incomplete in images.root={root} and could not be downloaded"):
        Canvas(mnist.MNIST(root=str(root))).load("train")


def test_sources_are_equal_if_their_options_are() -> None:
    one, same, other = (Canvas(GLYPHS, size=size) for size in ([20, 30], (20, 30), 30))
    assert one == same and hash(one) == hash(same) and one != other


def test_splits_have_different_scenes() -> None:
    source = Canvas(GLYPHS, size=40, num_clutter=3)
    boxes = []
    for split in ("train", "validation", "test"):
        env = GlimpseVectorEnv(source, num_envs=20, split=split, output="torch")  # type: ignore[arg-type]
        env.reset(seed=0, options={"index": torch.arange(20), "episode": torch.arange(20)})
        boxes.append(
            env.scenes.draw(torch.arange(20), env._seeds.by_scene(None, torch.arange(20))).annotations["boxes"]
        )
    for first, second in pairwise([*boxes, boxes[0]]):
        assert (first != second).flatten(1).any(1).sum() > 15


def test_options_may_be_numpy_integers() -> None:
    source = Canvas("glyphs", size=(np.int64(60), np.int64(56)), num_objects=np.int64(1), num_clutter=np.int64(2))
    zero = torch.zeros(1, dtype=torch.int64)
    assert source.load("test").draw(zero, RowRandom(zero, zero)).images.shape == (1, 1, 60, 56)
