"""LogPolarSensor against a plain implementation that computes every point on its own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import GlimpseVectorEnv, InputError, LogPolarSensor
from envs.images import ImageSet


def reference(images: Tensor, locations: Tensor, rings: int, angles: int, inner: float, outer: float) -> Tensor:
    """The patches, computed point by point."""
    batch, channels, height, width = images.shape
    patches = torch.zeros(len(locations), 1, channels, rings, angles)
    for n, (x, y) in enumerate(locations.tolist()):
        image = images[n // (len(locations) // batch)]
        for i in range(rings):
            radius = inner * (outer / inner) ** (i / (rings - 1))
            side = 2 ** max(0, math.floor(math.log2(2 * math.pi * radius / angles)))
            for j in range(angles):
                row = (y + 1) / 2 * (height - 1) + radius * math.sin(2 * math.pi * j / angles)
                column = (x + 1) / 2 * (width - 1) + radius * math.cos(2 * math.pi * j / angles)
                top, left = (math.floor(c - (side - 1) / 2 + 0.5 + 2**-10) for c in (row, column))
                rows = range(max(top, 0), min(top + side, height))
                columns = range(max(left, 0), min(left + side, width))
                total = sum((image[:, r, c] for r in rows for c in columns), torch.zeros(channels))
                patches[n, 0, :, i, j] = total / side**2
    return patches


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    glimpses=st.integers(1, 2),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 17),
    width=st.integers(1, 17),
    rings=st.integers(2, 5),
    angles=st.integers(3, 7),
    outer=st.floats(1.5, 12.0),
    seed=st.integers(0, 1000),
)
def test_patches_are_means_of_squares_on_rings(
    batch: int, glimpses: int, channels: int, height: int, width: int, rings: int, angles: int, outer: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batch, channels, height, width, generator=generator)
    # Random locations, so that no point is on the border between two pixels.
    locations = torch.rand(batch * glimpses, 2, generator=generator) * 2 - 1
    sensor = LogPolarSensor(rings, angles, 1.0, outer)
    patches = sensor(images, locations)
    assert patches.shape == (batch * glimpses, *sensor.patch_shape(channels))
    expected = reference(images, locations, rings, angles, 1.0, outer)
    # Rounding in float32 may still move few points by a pixel.
    assert ((patches - expected).abs() > 1e-5).float().mean() < 0.02


def test_rings_match_values_worked_out_by_hand() -> None:
    images = torch.arange(25.0).view(1, 1, 5, 5)
    sensor = LogPolarSensor(2, 4, 1.0, 2.0)
    patches = sensor(images, torch.zeros(1, 2))
    # Right of, below, left of and above the center 12; the second ring averages squares of 2 x 2 pixels.
    assert patches[0, 0, 0, 0].tolist() == [13, 17, 11, 7]
    right = (images[0, 0, 2:4, 4].sum()) / 4  # half of the square is outside the image
    assert patches[0, 0, 0, 1, 0] == right


def test_rotating_an_image_shifts_the_angles() -> None:
    image = torch.rand(1, 1, 21, 21, generator=torch.Generator().manual_seed(0))
    sensor = LogPolarSensor(4, 8, 1.0, 5.0)
    # With squares of one pixel a rotation by 90 degrees is exact, except for points between two pixels.
    sensor._resolution = [0] * 4
    rotated = image.rot90(-1, (2, 3))  # clockwise, from x to y
    original_patch = sensor(image, torch.zeros(1, 2))
    rotated_patch = sensor(rotated, torch.zeros(1, 2))
    same = rotated_patch == original_patch.roll(2, dims=-1)
    assert same.float().mean() > 0.85


def test_the_finest_disc_is_inside_the_whole_disc() -> None:
    sensor = LogPolarSensor(12, 24, 1.0, 20.0)
    fine, whole = sensor.windows(60, 60, torch.zeros(1, 2))[0]
    assert whole.tolist() == [10, 10, 51, 51]  # radius 20 around 29.5, rounded outwards
    assert (fine[:2] > whole[:2]).all()
    assert (fine[2:] < whole[2:]).all()


def test_an_environment_observes_and_renders_log_polar_patches() -> None:
    images = ImageSet(torch.rand(4, 3, 20, 20), torch.arange(4), tuple("abcd"))
    env = GlimpseVectorEnv(images, LogPolarSensor(3, 6, 1.0, 6.0), num_envs=4, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert observation["patches"].shape == (4, 1, 3, 3, 6)
    frames = env.render()
    assert frames is not None
    assert len(frames) == 4
    assert all(frame.shape == frames[0].shape and frame.dtype == np.uint8 for frame in frames)
    assert len(np.unique(frames[0])) > 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_rings": 1}, r"sensor\.num_rings must be a whole number of at least 2"),
        ({"num_angles": 2}, r"sensor\.num_angles must be a whole number of at least 3"),
        ({"inner_radius": 0.0}, r"sensor\.inner_radius \(0\.0\) must be positive"),
        ({"inner_radius": 5.0, "outer_radius": 5.0}, r"below sensor\.outer_radius \(5\.0\)"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LogPolarSensor(**options)  # type: ignore[arg-type]
