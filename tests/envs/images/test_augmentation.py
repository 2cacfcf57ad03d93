"""RandomWarp: exact translations, rotations and symmetries, and independence of the rows of a batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from envs.images.augmentation import RandomWarp
from envs.random import RowRandom

ALL = RandomWarp(2, 30, 0.3, 20, elastic=1, horizontal_flip=True, brightness=0.3, contrast=0.3, saturation=0.3)


class FixedDraws(RowRandom):
    """Returns given numbers in [-1, 1] instead of random ones: translation x, y, scale x, y, rotation, shear."""

    def uniform(self, purpose, *shape):
        return (self.seed + 1) / 2


def fixed(*numbers):
    return FixedDraws(torch.tensor([numbers]), torch.zeros(1))


def rows(count, first=0):
    return RowRandom(torch.arange(first, first + count), torch.zeros(count, dtype=torch.int64))


def random_images(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


sizes = st.tuples(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(1, 17), st.integers(1, 17))


@settings(deadline=None, max_examples=50)
@given(sizes)
def test_ranges_of_zero_change_nothing(shape):
    images = random_images(*shape)
    torch.testing.assert_close(RandomWarp()(images, rows(shape[0])), images, atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=50)
@given(sizes, st.integers(0, 2**40), st.floats(0, 9), st.floats(0, 180), st.floats(0, 0.9), st.floats(0, 60))
def test_shape_dtype_and_value_range(shape, seed, shift, rotation, scale, shear):
    images = random_images(*shape)
    warped = RandomWarp(shift, rotation, scale, shear)(images, rows(shape[0], first=seed))
    assert warped.shape == images.shape and warped.dtype == images.dtype
    assert warped.min() >= 0 and warped.max() <= 1 + 1e-5


@pytest.mark.parametrize(("x", "y"), [(2, 0), (0, -3), (-1, 2)])
def test_a_translation_by_whole_pixels_is_exact(x, y):
    images = random_images(1, 3, 7, 10)
    warped = RandomWarp(translation=4)(images, fixed(-x / 4, -y / 4, 0, 0, 0, 0))
    expected = torch.zeros_like(images)
    height, width = 7 - abs(y), 10 - abs(x)
    expected[..., max(y, 0) :, max(x, 0) :][..., :height, :width] = images[..., max(-y, 0) :, max(-x, 0) :][
        ..., :height, :width
    ]
    torch.testing.assert_close(warped, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("direction", "turns"), [(1, 1), (-1, -1)])
def test_a_rotation_by_90_degrees_is_exact(direction, turns):
    images = random_images(1, 1, 8, 8)
    warped = RandomWarp(rotation=90)(images, fixed(0, 0, 0, 0, direction, 0))
    torch.testing.assert_close(warped, images.rot90(turns, (2, 3)), atol=1e-4, rtol=0)


def test_rotations_keep_the_aspect_ratio_of_images_that_are_not_square():
    """A rotation by 180 degrees keeps every pixel; one by 90 degrees keeps the central square."""
    images = random_images(1, 1, 4, 10)
    half = RandomWarp(rotation=180)(images, fixed(0, 0, 0, 0, 1, 0))
    torch.testing.assert_close(half, images.flip(2, 3), atol=1e-4, rtol=0)
    quarter = RandomWarp(rotation=90)(images, fixed(0, 0, 0, 0, 1, 0))
    torch.testing.assert_close(quarter[..., 3:7], images[..., 3:7].rot90(1, (2, 3)), atol=1e-4, rtol=0)


def test_a_row_does_not_depend_on_the_others_in_its_batch():
    images = random_images(5, 3, 9, 12)
    batch = ALL(images, rows(5))
    for row in range(5):
        single = ALL(images[row : row + 1], rows(1, first=row))
        torch.testing.assert_close(single[0], batch[row], atol=1e-6, rtol=0)
    assert torch.equal(ALL(images, rows(5)), batch)
    assert not torch.allclose(ALL(images, rows(5, first=5)), batch)


def test_the_eight_symmetries_of_the_square_all_occur():
    image = random_images(1, 3, 5, 5)
    warped = RandomWarp(square_symmetries=True)(image.expand(200, -1, -1, -1), rows(200))
    symmetries = [base.rot90(turns, (2, 3)) for base in (image, image.flip(3)) for turns in range(4)]
    found = [next(n for n, each in enumerate(symmetries) if torch.allclose(row, each[0], atol=1e-4)) for row in warped]
    assert min(map(found.count, range(8))) > 10
    with pytest.raises(InputError, match=r"augmentation\.square_symmetries"):
        RandomWarp(square_symmetries=True)(random_images(1, 1, 4, 6), rows(1))


def test_brightness_scales_every_channel_by_a_factor_of_its_own():
    images = random_images(50, 3, 6, 7) * 0.5 + 0.1
    ratio = RandomWarp(brightness=0.4)(images, rows(50)) / images
    assert (ratio.std((2, 3)) < 1e-4).all()
    factor = ratio.mean((2, 3))
    assert 0.6 <= factor.min() < 0.7 and 1.3 < factor.max() <= 1.4
    assert not torch.allclose(factor[:, 0], factor[:, 1], atol=0.05)


def test_half_of_the_images_are_mirrored():
    image = random_images(1, 3, 4, 6)
    warped = RandomWarp(horizontal_flip=True)(image.expand(200, -1, -1, -1), rows(200))
    mirrored = torch.tensor([torch.allclose(row, image[0].flip(-1), atol=1e-4) for row in warped])
    torch.testing.assert_close(warped[~mirrored], image.expand(200, -1, -1, -1)[~mirrored], atol=1e-4, rtol=0)
    assert 70 < mirrored.sum() < 130


def test_reflection_repeats_the_pixels_at_the_border_in_reverse():
    images = random_images(1, 3, 5, 7)
    warped = RandomWarp(translation=2, padding="reflection")(images, fixed(1, 0, 0, 0, 0, 0))
    expected = torch.cat([images[..., 2:], images[..., -2:].flip(-1)], dim=-1)
    torch.testing.assert_close(warped, expected, atol=1e-5, rtol=0)


def test_contrast_scales_the_differences_to_the_mean_color():
    images = random_images(50, 3, 6, 7) * 0.4 + 0.3
    changed = RandomWarp(contrast=0.4)(images, rows(50))
    torch.testing.assert_close(changed.mean((2, 3)), images.mean((2, 3)))
    mean = images.mean((2, 3), keepdim=True)
    factor = ((changed - mean) * (images - mean)).flatten(1).sum(1) / (images - mean).square().flatten(1).sum(1)
    torch.testing.assert_close(changed - mean, factor[:, None, None, None] * (images - mean), atol=1e-5, rtol=1e-4)
    assert 0.6 <= factor.min() < 0.7 and 1.3 < factor.max() <= 1.4


def test_saturation_scales_the_differences_to_the_gray_value():
    images = random_images(50, 3, 6, 7) * 0.4 + 0.3
    changed = RandomWarp(saturation=0.4)(images, rows(50))
    luma = torch.tensor([0.299, 0.587, 0.114])
    gray = torch.einsum("bchw,c->bhw", images, luma)[:, None]
    torch.testing.assert_close(torch.einsum("bchw,c->bhw", changed, luma)[:, None], gray)
    factor = ((changed - gray) * (images - gray)).flatten(1).sum(1) / (images - gray).square().flatten(1).sum(1)
    torch.testing.assert_close(changed - gray, factor[:, None, None, None] * (images - gray), atol=1e-5, rtol=1e-4)
    assert 0.6 <= factor.min() < 0.7 and 1.3 < factor.max() <= 1.4
    gray_images = random_images(3, 1, 4, 4)
    torch.testing.assert_close(RandomWarp(saturation=0.4)(gray_images, rows(3)), gray_images, atol=1e-5, rtol=0)


def test_images_are_transformed_in_float32_under_autocast():
    images = random_images(2, 3, 4, 5)
    expected = ALL(images, rows(2))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(ALL(images, rows(2)), expected)


def test_rows_are_warped_differently():
    images = random_images(1, 1, 8, 8).expand(4, -1, -1, -1)
    assert len({tuple(image.flatten().tolist()) for image in ALL(images, rows(4))}) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"translation": -1},
        {"rotation": -1},
        {"scale": -0.1},
        {"scale": 1},
        {"shear": 90},
        {"brightness": 1},
        {"brightness": -0.1},
        {"contrast": 1},
        {"saturation": 1},
        {"padding": "mirror"},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InputError, match=rf"augmentation\.{next(iter(options))}"):
        RandomWarp(**options)


def test_the_elastic_displacement_has_its_standard_deviation_and_is_smooth():
    size, count = 29, 400
    # On a linear ramp the change of a pixel is its displacement.
    ramp = (torch.arange(size) / size).expand(count, 1, size, size)
    warped = RandomWarp(elastic=0.8)(ramp, rows(count))
    displacement = ((warped - ramp) * size)[:, 0, 4:-4, 4:-4]
    nodes = displacement[:, [3, 10, 17]][:, :, [3, 10, 17]]  # pixels 7, 14 and 21 are nodes
    assert abs(nodes.mean()) < 0.05
    assert 0.75 < nodes.std() < 0.85
    steps = displacement.diff(dim=-1)
    assert steps.abs().max() < 0.8 * 3.5 / 3  # nodes are seven pixels apart
    assert not torch.equal(displacement[0], displacement[1])
