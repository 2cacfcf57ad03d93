"""The log-polar sensor against points and squares worked out one by one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import GlimpseVectorEnv, InputError, LogPolarSensor
from envs.images import ImageSet


def reference(images: Tensor, locations: Tensor, rings: int, angles: int, inner: float, outer: float) -> Tensor:
    """A loop over everything."""
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
    looks=st.integers(1, 2),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 17),
    width=st.integers(1, 17),
    rings=st.integers(2, 5),
    angles=st.integers(3, 7),
    outer=st.floats(1.5, 12.0),
    seed=st.integers(0, 1000),
)
def test_a_look_is_the_mean_of_squares_on_rings(
    batch: int, looks: int, channels: int, height: int, width: int, rings: int, angles: int, outer: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batch, channels, height, width, generator=generator)
    # Irregular places, so that no point falls on the edge between two pixels.
    locations = torch.rand(batch * looks, 2, generator=generator) * 2 - 1
    sensor = LogPolarSensor(rings, angles, 1.0, outer)
    read = sensor(sensor.prepare(images), locations)
    assert read.shape == (batch * looks, *sensor.patch_shape(channels))
    expected = reference(images, locations, rings, angles, 1.0, outer)
    # Rounding in float32 may still move a few points by a pixel.
    assert ((read - expected).abs() > 1e-5).float().mean() < 0.02


def test_a_ring_by_hand() -> None:
    images = torch.arange(25.0).view(1, 1, 5, 5)
    sensor = LogPolarSensor(2, 4, 1.0, 2.0)
    read = sensor(sensor.prepare(images), torch.zeros(1, 2))
    # Right, below, left, above of the centre 12; the second ring has room for squares of 2 pixels.
    assert read[0, 0, 0, 0].tolist() == [13, 17, 11, 7]
    right = (images[0, 0, 2:4, 4].sum()) / 4  # half of the square lies outside
    assert read[0, 0, 0, 1, 0] == right


def test_turning_an_image_shifts_the_angles() -> None:
    image = torch.rand(1, 1, 21, 21, generator=torch.Generator().manual_seed(0))
    sensor = LogPolarSensor(4, 8, 1.0, 5.0)
    # Every square is one pixel, so that a quarter turn is exact but for points between two pixels.
    sensor._resolution = [0] * 4
    turned = image.rot90(-1, (2, 3))  # clockwise: x goes to y
    straight = sensor(sensor.prepare(image), torch.zeros(1, 2))
    around = sensor(sensor.prepare(turned), torch.zeros(1, 2))
    same = around == straight.roll(2, dims=-1)
    assert same.float().mean() > 0.85


def test_the_middle_is_read_more_finely_than_the_rim() -> None:
    sensor = LogPolarSensor(12, 24, 1.0, 20.0)
    fine, whole = sensor.windows(60, 60, torch.zeros(1, 2))[0]
    assert whole.tolist() == [10, 10, 51, 51]  # 20 pixels about 29.5, and the pixel it ends in
    assert (fine[:2] > whole[:2]).all()
    assert (fine[2:] < whole[2:]).all()


def test_environments_see_through_it() -> None:
    images = ImageSet(torch.rand(4, 3, 20, 20), torch.arange(4), tuple("abcd"))
    env = GlimpseVectorEnv(images, LogPolarSensor(3, 6, 1.0, 6.0), num_envs=4, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert observation["patches"].shape == (4, 1, 3, 3, 6)
    pictures = env.render()
    assert pictures is not None
    assert pictures[0].ndim == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_rings": 1}, r"sensor\.num_rings must be at least 2"),
        ({"num_angles": 2}, r"sensor\.num_angles must be at least 3"),
        ({"inner_radius": 0.0}, r"sensor\.inner_radius \(0\.0\) must be positive"),
        ({"inner_radius": 5.0, "outer_radius": 5.0}, r"below sensor\.outer_radius \(5\.0\)"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LogPolarSensor(**options)  # type: ignore[arg-type]
