"""The random affine change: what it moves where, and that nothing but the row's random numbers decides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from envs.images.augmentation import RandomWarp
from envs.random import RowRandom

EVERYTHING = RandomWarp(shift=2, rotation=30, scale=0.3, shear=20, bend=1, light=0.3)


class Drawn(RowRandom):
    """Gives the wanted numbers in [-1, 1] instead of random ones: shift x, y, scale x, y, rotation, shear."""

    def uniform(self, purpose, *shape):
        return (self.seed + 1) / 2


def drawn(*numbers):
    return Drawn(torch.tensor([numbers]), torch.zeros(1))


def rows(count, first=0):
    return RowRandom(torch.arange(first, first + count), torch.zeros(count, dtype=torch.int64))


def pictures(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


sizes = st.tuples(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(1, 17), st.integers(1, 17))


@settings(deadline=None, max_examples=50)
@given(sizes)
def test_zero_ranges_change_nothing(shape):
    images = pictures(*shape)
    torch.testing.assert_close(RandomWarp()(images, rows(shape[0])), images, atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=50)
@given(sizes, st.integers(0, 2**40), st.floats(0, 9), st.floats(0, 180), st.floats(0, 0.9), st.floats(0, 60))
def test_shape_and_range(shape, seed, shift, rotation, scale, shear):
    images = pictures(*shape)
    changed = RandomWarp(shift, rotation, scale, shear)(images, rows(shape[0], first=seed))
    assert changed.shape == images.shape and changed.dtype == images.dtype
    assert changed.min() >= 0 and changed.max() <= 1 + 1e-5


@pytest.mark.parametrize(("x", "y"), [(2, 0), (0, -3), (-1, 2)])
def test_a_shift_of_whole_pixels(x, y):
    images = pictures(1, 3, 7, 10)
    changed = RandomWarp(shift=4)(images, drawn(-x / 4, -y / 4, 0, 0, 0, 0))
    expected = torch.zeros_like(images)
    height, width = 7 - abs(y), 10 - abs(x)
    expected[..., max(y, 0) :, max(x, 0) :][..., :height, :width] = images[..., max(-y, 0) :, max(-x, 0) :][
        ..., :height, :width
    ]
    torch.testing.assert_close(changed, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("turn", "quarter"), [(1, 1), (-1, -1)])
def test_a_quarter_turn(turn, quarter):
    images = pictures(1, 1, 8, 8)
    changed = RandomWarp(rotation=90)(images, drawn(0, 0, 0, 0, turn, 0))
    torch.testing.assert_close(changed, images.rot90(quarter, (2, 3)), atol=1e-4, rtol=0)


def test_a_turn_bends_no_picture_that_is_not_square():
    """Half a turn of a wide picture keeps every pixel; a quarter leaves its middle square."""
    images = pictures(1, 1, 4, 10)
    half = RandomWarp(rotation=180)(images, drawn(0, 0, 0, 0, 1, 0))
    torch.testing.assert_close(half, images.flip(2, 3), atol=1e-4, rtol=0)
    quarter = RandomWarp(rotation=90)(images, drawn(0, 0, 0, 0, 1, 0))
    torch.testing.assert_close(quarter[..., 3:7], images[..., 3:7].rot90(1, (2, 3)), atol=1e-4, rtol=0)


def test_a_row_alone_is_the_row_among_others():
    images = pictures(5, 3, 9, 12)
    together = EVERYTHING(images, rows(5))
    for row in range(5):
        alone = EVERYTHING(images[row : row + 1], rows(1, first=row))
        torch.testing.assert_close(alone[0], together[row], atol=1e-6, rtol=0)
    assert torch.equal(EVERYTHING(images, rows(5)), together)
    assert not torch.allclose(EVERYTHING(images, rows(5, first=5)), together)


def test_symmetries_are_the_eight_ways_to_lay_a_square():
    image = pictures(1, 3, 5, 5)
    changed = RandomWarp(symmetries=True)(image.expand(200, -1, -1, -1), rows(200))
    ways = [turned.rot90(turns, (2, 3)) for turned in (image, image.flip(3)) for turns in range(4)]
    found = [next(n for n, way in enumerate(ways) if torch.allclose(one, way[0], atol=1e-4)) for one in changed]
    assert min(map(found.count, range(8))) > 10
    with pytest.raises(InputError, match=r"augmentation\.symmetries"):
        RandomWarp(symmetries=True)(pictures(1, 1, 4, 6), rows(1))


def test_light_changes_every_channel_by_one_factor():
    images = pictures(50, 3, 6, 7) * 0.5 + 0.1
    ratio = RandomWarp(light=0.4)(images, rows(50)) / images
    assert (ratio.std((2, 3)) < 1e-4).all()
    factor = ratio.mean((2, 3))
    assert 0.6 <= factor.min() < 0.7 and 1.3 < factor.max() <= 1.4
    assert not torch.allclose(factor[:, 0], factor[:, 1], atol=0.05)


def test_rows_differ():
    images = pictures(1, 1, 8, 8).expand(4, -1, -1, -1)
    assert len({tuple(image.flatten().tolist()) for image in EVERYTHING(images, rows(4))}) == 4


@pytest.mark.parametrize(
    "options",
    [{"shift": -1}, {"rotation": -1}, {"scale": -0.1}, {"scale": 1}, {"shear": 90}, {"light": 1}, {"light": -0.1}],
)
def test_ranges_are_checked(options):
    with pytest.raises(InputError, match=rf"augmentation\.{next(iter(options))}"):
        RandomWarp(**options)


def test_a_bend_displaces_by_its_deviation_and_smoothly():
    size, count = 29, 400
    # A ramp shows by how much each pixel was displaced along it.
    ramp = (torch.arange(size) / size).expand(count, 1, size, size)
    bent = RandomWarp(bend=0.8)(ramp, rows(count))
    moved = ((bent - ramp) * size)[:, 0, 4:-4, 4:-4]
    nodes = moved[:, [3, 10, 17]][:, :, [3, 10, 17]]  # pixels 7, 14 and 21, on which nodes fall
    assert abs(nodes.mean()) < 0.05
    assert 0.75 < nodes.std() < 0.85
    steps = moved.diff(dim=-1)
    assert steps.abs().max() < 0.8 * 3.5 / 3  # node to node takes seven pixels
    assert not torch.equal(moved[0], moved[1])
