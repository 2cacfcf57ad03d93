"""GlimpseSensor: every patch equals a plain crop and average; rounding, padding, dtypes and options."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import GlimpseEnv
from envs.errors import InputError
from envs.images.glyphs import Glyphs
from envs.interface import resolve_sensor
from envs.sensor import GlimpseSensor, LogPolarSensor
from ram.config import config_folder


def random_images(*shape: int, seed: int = 0) -> Tensor:
    """Random integers up to 255 as float32, whose sums over a window are exact."""
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed)).float()


def random_locations(count: int, seed: int = 0, reach: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(count, 2, generator=generator) * 2 - 1) * reach


def plain_start(location: float, pixels: int, window: int) -> int:
    """The first pixel of a window along one axis, computed in float32."""
    half, one = np.float32(0.5), np.float32(1)
    center = (np.float32(min(max(location, -1), 1)) + one) * half * np.float32(pixels - 1)
    tolerance = np.float32(2.0**-10)
    if window % 2:  # around the center of a pixel
        return math.floor(center + (half + tolerance)) - (window - 1) // 2
    return math.floor(center + tolerance) + 1 - window // 2


def plain_patch(image: np.ndarray, x: float, y: float, patch: tuple[int, int], pool: int) -> np.ndarray:
    """One patch of one (C, H, W) image: pad with zeros, crop the window, average it."""
    channels, height, width = image.shape
    rows, columns = patch[0] * pool, patch[1] * pool
    margin = rows + columns
    padded = np.zeros((channels, height + 2 * margin, width + 2 * margin), np.float32)
    padded[:, margin : margin + height, margin : margin + width] = image
    top = plain_start(y, height, rows) + margin
    left = plain_start(x, width, columns) + margin
    result = np.zeros((channels, *patch), np.float32)
    for i in range(patch[0]):
        for j in range(patch[1]):
            block = padded[:, top + i * pool : top + (i + 1) * pool, left + j * pool : left + (j + 1) * pool]
            result[:, i, j] = block.sum((1, 2)) / np.float32(pool * pool)
    return result


def plain_sensor(sensor: GlimpseSensor, images: Tensor, locations: Tensor) -> Tensor:
    """The patches of all images at all locations, one by one."""
    per_image = len(locations) // len(images)
    patches = [
        [
            plain_patch(images[n // per_image].numpy(), float(x), float(y), sensor.patch_size, sensor.factor**k)
            for k in range(sensor.num_scales)
        ]
        for n, (x, y) in enumerate(locations)
    ]
    return torch.from_numpy(np.array(patches))


def patches_at(sensor: GlimpseSensor, images: Tensor, *points: tuple[float, float]) -> Tensor:
    return sensor(images, torch.tensor(points, dtype=torch.float32))


# Equality with a plain crop and average.


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 3),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 17),
    width=st.integers(1, 17),
    patch=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    num_scales=st.integers(1, 3),
    factor=st.sampled_from([2, 3]),
    glimpses=st.integers(1, 3),
    seed=st.integers(0, 2**30),
)
def test_patches_equal_a_plain_crop_and_average(
    batch: int,
    channels: int,
    height: int,
    width: int,
    patch: tuple[int, int],
    num_scales: int,
    factor: int,
    glimpses: int,
    seed: int,
) -> None:
    sensor = GlimpseSensor(patch, num_scales, factor)
    images = random_images(batch, channels, height, width, seed=seed)
    locations = random_locations(batch * glimpses, seed, reach=1.2)  # some beyond the border
    patches = sensor(images, locations)
    assert patches.shape == (batch * glimpses, *sensor.patch_shape(channels))
    # With integer pixels, one wrong pixel changes a mean by at least 1 / 81, much more than rounding errors.
    torch.testing.assert_close(patches, plain_sensor(sensor, images, locations), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [28, 60, 101])
@pytest.mark.parametrize("factor", [2, 3])
def test_three_scales_at_common_image_sizes(size: int, factor: int) -> None:
    sensor = GlimpseSensor(8, 3, factor)
    images, locations = random_images(2, 1, size, size), random_locations(6)
    patches = sensor(images, locations)
    torch.testing.assert_close(patches, plain_sensor(sensor, images, locations), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [(5, 7), (16, 16), (40, 3)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("patch", [(16, 16), (12, 9), (7, 6)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_many_glimpses_equal_a_plain_crop_and_average(
    size: tuple[int, int], channels: int, patch: tuple[int, int], dtype: torch.dtype
) -> None:
    # Many pixels are copied by rows of the windows, some of which begin before the first image or end after the last.
    sensor, images = GlimpseSensor(patch, 2), random_images(4, channels, *size).to(dtype)
    locations = torch.cat([random_locations(76, reach=1.2), torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 2)])
    locations = torch.cat([locations, locations.flip(0)])
    expected = plain_sensor(sensor, images.float(), locations) / (255 if dtype == torch.uint8 else 1)
    torch.testing.assert_close(sensor(images, locations).float(), expected, rtol=1e-6, atol=0)
    leaf = images.double().requires_grad_()  # is read pixel by pixel
    torch.testing.assert_close(sensor(leaf, locations).float() / (255 if dtype == torch.uint8 else 1), expected)


def test_the_index_names_the_image_of_each_location() -> None:
    sensor, images, locations = GlimpseSensor(4, 2), random_images(5, 3, 9, 9), random_locations(7)
    index = torch.tensor([4, 0, 0, 3, 4, 1, 2])
    assert torch.equal(sensor(images, locations, index), sensor(images[index], locations))


def test_uint8_images_are_scaled_to_zero_to_one() -> None:
    sensor, images, locations = GlimpseSensor(4, 3), random_images(5, 3, 20, 20), random_locations(5)
    patches = sensor(images.to(torch.uint8), locations)
    assert patches.dtype == torch.float32
    torch.testing.assert_close(patches, sensor(images / 255, locations), rtol=1e-6, atol=1e-7)


@settings(deadline=None, max_examples=100)
@given(
    pixels=st.integers(1, 300),
    side=st.integers(1, 40),
    location=st.floats(-1, 1, width=32),
)
def test_window_starts_round_half_up_in_float32(pixels: int, side: int, location: float) -> None:
    sensor = GlimpseSensor(side, 2, 3)
    starts = sensor.window_starts(pixels, pixels + 1, torch.tensor([[location, -location]]))
    expected = [
        [plain_start(-location, pixels, side * pool), plain_start(location, pixels + 1, side * pool)] for pool in (1, 3)
    ]
    assert starts.tolist() == [expected]


# Values worked out by hand.


def test_two_scales_match_values_worked_out_by_hand() -> None:
    # Pixels 0 .. 15, row by row. Location -0.25 is row and column 0.75 / 2 * 3 = 1.125, around which a 2 x 2 window
    # starts at floor(1.125 - 1/2 + 1/2) = 1 and a 4 x 4 window at floor(1.125 - 3/2 + 1/2) = 0.
    image = torch.arange(16.0).view(1, 1, 4, 4)
    patches = patches_at(GlimpseSensor(2, 2), image, (-0.25, -0.25))
    assert patches[0, 0, 0].tolist() == [[5, 6], [9, 10]]
    assert patches[0, 1, 0].tolist() == [[2.5, 4.5], [10.5, 12.5]]


def test_x_is_the_column_and_y_the_row() -> None:
    image = torch.arange(6.0).view(1, 1, 2, 3)
    assert patches_at(GlimpseSensor(1), image, (1, -1)).item() == 2
    assert patches_at(GlimpseSensor(1), image, (-1, 1)).item() == 3


@pytest.mark.parametrize(("height", "width"), [(5, 5), (4, 6), (1, 7), (28, 28)])
def test_minus_one_and_one_are_the_centers_of_the_border_pixels(height: int, width: int) -> None:
    image = random_images(1, 1, height, width)
    patches = patches_at(GlimpseSensor(1), image, (-1, -1), (1, -1), (-1, 1), (1, 1)).flatten()
    corners = image[0, 0, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert torch.equal(patches, corners)


def test_the_center_of_a_pixel_reads_that_pixel() -> None:
    image = torch.arange(7.0).view(1, 1, 1, 7)
    points = [(2 * column / 6 - 1, 0.0) for column in range(7)]
    assert patches_at(GlimpseSensor(1), image, *points).flatten().tolist() == list(range(7))


@pytest.mark.parametrize(("column", "expected"), [(0.49, 0), (0.5, 1), (0.51, 1), (1.5, 2), (2.5, 3), (3.5, 4)])
def test_halfway_between_two_pixels_reads_the_right_one(column: float, expected: int) -> None:
    image = torch.arange(5.0).view(1, 1, 1, 5)
    assert patches_at(GlimpseSensor(1), image, (column / 2 - 1, 0)).item() == expected


def test_an_even_patch_around_a_pixel_extends_one_pixel_further_right() -> None:
    image = torch.arange(1.0, 6.0).view(1, 1, 1, 5)
    assert patches_at(GlimpseSensor((1, 4)), image, (0, 0)).flatten().tolist() == [2, 3, 4, 5]


def test_an_odd_patch_around_a_pixel_is_centered_on_it() -> None:
    image = torch.arange(1.0, 6.0).view(1, 1, 1, 5)
    assert patches_at(GlimpseSensor((1, 3)), image, (0, 0)).flatten().tolist() == [2, 3, 4]


def test_pixels_outside_the_image_are_zero() -> None:
    patch = patches_at(GlimpseSensor(3), torch.ones(1, 1, 3, 3), (-1, -1))[0, 0, 0]
    assert patch.tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_a_patch_larger_than_the_image_contains_the_whole_image() -> None:
    image = random_images(1, 3, 2, 2) + 1
    patch = patches_at(GlimpseSensor(8), image, (0, 0))[0, 0]
    # The window's center is 0.5 on both axes: it starts at floor(0.5 - 7/2 + 1/2) = -3.
    assert torch.equal(patch[:, 3:5, 3:5], image[0])
    assert patch.count_nonzero() == 12


def test_the_mean_of_a_larger_window_includes_the_padding() -> None:
    # The 4 x 4 window starts at floor(0 - 3/2 + 1/2) = -1, so the only pixel is in the first 2 x 2 block.
    patches = patches_at(GlimpseSensor(2, 2), torch.ones(1, 1, 1, 1), (0, 0))
    assert patches[0, 1, 0].tolist() == [[0.25, 0], [0, 0]]


def test_locations_outside_the_range_are_clamped() -> None:
    image = random_images(1, 1, 6, 6)
    sensor = GlimpseSensor(3, 2)
    assert torch.equal(patches_at(sensor, image, (7, -1.5)), patches_at(sensor, image, (1, -1)))


def test_the_locations_of_one_image_are_adjacent() -> None:
    images = torch.stack([torch.full((1, 4, 4), 10.0), torch.full((1, 4, 4), 20.0)])
    assert GlimpseSensor(1)(images, torch.zeros(6, 2)).flatten().tolist() == [10, 10, 10, 20, 20, 20]


# Dtypes.


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_locations_of_other_dtypes_are_converted_to_float32(dtype: torch.dtype) -> None:
    sensor, images = GlimpseSensor(4, 2), random_images(16, 1, 501, 499)
    locations = random_locations(16).to(dtype)
    assert torch.equal(sensor(images, locations), sensor(images, locations.float()))


def test_autocast_does_not_round_locations() -> None:
    # The columns 400 .. 499 of 500, whose centers are closer together than the resolution of bfloat16.
    image = torch.arange(500.0).view(1, 1, 1, 500)
    points = [(2 * column / 499 - 1, 0.0) for column in range(400, 500)]
    with torch.autocast("cpu", torch.bfloat16):
        patches = patches_at(GlimpseSensor(1), image, *points)
    assert patches.flatten().tolist() == list(range(400, 500))


def test_patches_are_equal_under_autocast() -> None:
    sensor, images, locations = GlimpseSensor(4, 3), random_images(8, 3, 40, 40), random_locations(8)
    plain = sensor(images, locations)
    with torch.autocast("cpu", torch.bfloat16):
        cast = sensor(images, locations)
    assert cast.dtype == torch.float32
    assert torch.equal(cast, plain)


def test_float64_images_give_float64_patches() -> None:
    sensor, images, locations = GlimpseSensor(3, 3, 3), random_images(2, 1, 11, 12), random_locations(2)
    patches = sensor(images.double(), locations)
    assert patches.dtype == torch.float64
    torch.testing.assert_close(patches, plain_sensor(sensor, images, locations).double(), rtol=1e-6, atol=0)


def test_gradients_reach_exactly_the_pixels_of_the_window() -> None:
    images = random_images(1, 1, 4, 4).requires_grad_()
    patches_at(GlimpseSensor(2), images, (-1, -1)).sum().backward()
    assert images.grad is not None
    assert images.grad[0, 0].nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_images_and_locations_are_not_modified() -> None:
    sensor, images, locations = GlimpseSensor(2, 2), random_images(2, 1, 5, 5), random_locations(2, reach=2)
    copies = images.clone(), locations.clone()
    sensor(images, locations)
    assert torch.equal(images, copies[0])
    assert torch.equal(locations, copies[1])


# Options.


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"patch_size": 0}, "patch_size"),
        ({"patch_size": -8}, "patch_size"),
        ({"patch_size": (8, 0)}, "patch_size"),
        ({"patch_size": [-1, 8]}, "patch_size"),
        ({"num_scales": 0}, "num_scales"),
        ({"num_scales": -1}, "num_scales"),
        ({"factor": 1}, "factor"),
        ({"factor": -2}, "factor"),
    ],
)
def test_invalid_sizes_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"sensor\.{name} must be a whole number of at least \d(, or a pair of them)?, got .*\d[)\]]?\.$",
    ):
        GlimpseSensor(**options)


def test_patch_size_may_be_a_list_of_height_and_width() -> None:
    assert GlimpseSensor([3, 5]).patch_shape(1) == (1, 1, 3, 5)  # type: ignore[arg-type]


def test_a_sensor_is_named_by_its_patches_and_scales() -> None:
    for name, patch_shape in (("retina_8x2", (2, 3, 8, 8)), ("retina_12x1", (1, 3, 12, 12))):
        assert resolve_sensor(name).patch_shape(3) == patch_shape
    assert isinstance(resolve_sensor("log_polar"), LogPolarSensor)
    own = GlimpseSensor(5)
    assert resolve_sensor(own) is own


def test_the_default_environment_has_the_sensor_of_the_default_job() -> None:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        sensor = compose("config").sensor
    env = GlimpseEnv(images=Glyphs(num_train=10))
    assert env.observation_space["patches"].shape == (sensor.num_scales, 1, sensor.patch_size, sensor.patch_size)
    assert GlimpseEnv(images=Glyphs(num_train=10), sensor="retina_4x3").observation_space["patches"].shape[0] == 3
