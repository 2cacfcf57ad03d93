"""Rendered glimpses show the sensor's windows; sizes, captions, heatmaps, grids, PNG and GIF."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from envs import rendering
from envs.errors import InputError
from envs.rendering import encode_gif, grid, location_heatmap, render_glimpses, save_png
from envs.sensor import GlimpseSensor


def locations(*points):
    return torch.tensor(points, dtype=torch.float32).reshape(-1, 2)


def sample(frame, side):
    """One color for every pixel of a square image of ``side``, sampled beside the lines and dots of these tests."""
    corner = 10  # the margin of a frame with a width of 224
    zoom = 224 // side
    # Away from the edges of pixels, where outlines are, and from the center of the image, where dots and lines are.
    at = [corner + i * zoom + (zoom // 4 if i < side / 2 else zoom - zoom // 4) for i in range(side)]
    return frame[np.ix_(at, at)]


def test_exactly_the_pixels_of_the_window_have_full_brightness():
    # A 2 x 2 window around pixel (0, 0) starts at floor(0 - 1/2 + 1/2) = 0.
    frame = render_glimpses(torch.full((1, 8, 8), 0.5), locations((-1, -1)), GlimpseSensor(2), "a")
    colors = sample(frame, 8)
    lit, dim = colors[0, 0], colors[7, 7]
    assert (lit > dim + 50).all()
    expected = np.broadcast_to(dim, (8, 8, 3)).copy()
    expected[:2, :2] = lit
    np.testing.assert_array_equal(colors, expected)


def test_only_the_larger_windows_of_the_latest_glimpse_have_half_brightness():
    # The rows of glimpse 1 around row 0 start at floor(0 - 1/2 + 1/2) = 0. Around 7.5 the windows start at
    # floor(7.5 - 1/2 + 1/2) = 7, floor(7.5 - 3/2 + 1/2) = 6 and floor(7.5 - 7/2 + 1/2) = 4.
    frame = render_glimpses(torch.full((3, 16, 16), 0.5), locations((0, -1), (0, 0)), GlimpseSensor(2, 3), "a")
    colors = sample(frame, 16)[..., 0].astype(int)
    dim, half, lit = colors[15, 0], colors[5, 5], colors[7, 7]
    assert lit > half + 25 > dim + 50
    expected = np.full((16, 16), dim)
    expected[4:12, 4:12] = half
    expected[7:9, 7:9] = lit
    expected[0:2, 7:9] = lit
    np.testing.assert_array_equal(colors, expected)


def test_in_a_dynamic_scene_only_the_latest_glimpse_is_lit():
    path = locations((0, -1), (0, 0))
    dynamic = render_glimpses(torch.full((3, 16, 16), 0.5), path, GlimpseSensor(2, 3), "a", dynamic=True)
    colors = sample(dynamic, 16)[..., 0].astype(int)
    assert colors[0, 8] == colors[15, 0] < colors[7, 7]  # the window of glimpse 1 is dim
    static = render_glimpses(torch.full((3, 16, 16), 0.5), path, GlimpseSensor(2, 3), "a")
    dots = [(frame == rendering._LATEST).all(-1).sum() for frame in (dynamic, static)]
    assert dots[0] < dots[1]  # the latest glimpse has no dot


def test_windows_are_visible_on_black():
    colors = sample(render_glimpses(torch.zeros(1, 8, 8), locations((-1, -1)), GlimpseSensor(2), "a"), 8)
    assert (colors[0, 0] > colors[7, 7]).all()


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    patch=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    scales=st.integers(1, 3),
    factor=st.integers(2, 3),
    glimpses=st.lists(st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32)), min_size=1, max_size=4),
)
def test_brightness_matches_the_pixels_that_the_sensor_reads(size, patch, scales, factor, glimpses):
    sensor = GlimpseSensor(patch, scales, factor)
    path = locations(*glimpses)
    image = torch.ones(1, 1, *size, dtype=torch.float64, requires_grad=True)
    patches = sensor(image, path)  # (n, scales, 1, h, w)

    def read(values):
        """The pixels on which the values depend."""
        return (torch.autograd.grad(values.sum(), image, retain_graph=True)[0][0, 0] > 0).numpy()

    windows = sensor.windows(*size, path).numpy().clip(0, [*size[::-1], *size[::-1]])
    light = rendering._light(windows, False, *size)
    np.testing.assert_array_equal(light == light.max(), read(patches[:, 0]))
    np.testing.assert_array_equal(light > np.float32(rendering._UNSEEN), read(patches[:, 0]) | read(patches[-1]))


@settings(deadline=None, max_examples=60)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 320),
    width=st.integers(1, 320),
    patch=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    scales=st.integers(1, 3),
    glimpses=st.integers(0, 12),
    size=st.integers(16, 300),
)
def test_the_frame_size_depends_on_the_image_size_only(channels, height, width, patch, scales, glimpses, size):
    generator = torch.Generator().manual_seed(height * width)
    image = torch.rand(channels, height, width, generator=generator)
    path = torch.rand(glimpses, 2, generator=generator) * 3 - 1.5  # some beyond the border
    sensor = GlimpseSensor(patch, scales)
    before = render_glimpses(image, path, sensor, "cat", size=size)
    after = render_glimpses(image, path[:1], sensor, "a label too long for any frame", "a long answer", size=size)
    assert before.dtype == np.uint8
    assert before.shape == after.shape
    assert before.shape[2] == 3
    assert max(before.shape[:2]) > 0.66 * size  # rounding to an integer factor changes the size by a third at most


@pytest.mark.parametrize(
    ("image", "size", "expected"),
    [
        ((1, 28, 28), 224, (224 + 10 + 34, 224 + 20)),  # enlarged 8 times
        ((3, 8, 8), 224, (224 + 10 + 34, 224 + 20)),  # enlarged 28 times
        ((3, 300, 200), 224, (224 + 10 + 34, 149 + 20)),  # shrunk
        ((1, 100, 10), 200, (200 + 9 + 30, 133 + 18)),  # enlarged twice, with room for the caption
    ],
)
def test_frame_sizes(image, size, expected):
    frame = render_glimpses(torch.rand(image), locations((0, 0)), GlimpseSensor(4), "a", size=size)
    assert frame.shape == (*expected, 3)


def test_grayscale_equals_rgb_of_equal_channels_and_locations_are_clamped():
    image, sensor = torch.rand(1, 9, 7), GlimpseSensor((3, 2), 2)
    gray = render_glimpses(image, locations((0, 0), (1, -1)), sensor, "a")
    same = render_glimpses(image.expand(3, -1, -1), locations((0, 0), (1.7, -5)), sensor, "a")
    np.testing.assert_array_equal(gray, same)


def test_any_float_dtype_and_tensors_with_gradients_can_be_drawn():
    image = torch.rand(1, 8, 8).bfloat16()
    frame = render_glimpses(image, locations((0, 0)).requires_grad_(), GlimpseSensor(3), "a")
    np.testing.assert_array_equal(frame, render_glimpses(image.float(), locations((0, 0)), GlimpseSensor(3), "a"))


@pytest.mark.parametrize("shape", [(8, 8), (2, 8, 8), (1, 1, 8, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="1 or 3 channels"):
        render_glimpses(torch.zeros(shape), locations((0, 0)), GlimpseSensor(2), "a")


@pytest.mark.parametrize("label", ["seven", "a label that is much too long for half a frame"])
def test_the_answer_is_green_if_correct_and_red_if_wrong_and_does_not_change_the_label(label):
    def caption(answer):
        frame = render_glimpses(torch.zeros(1, 28, 28), locations((0, 0)), GlimpseSensor(8), label, answer)
        return frame[-34:].astype(int)

    none, correct, wrong = caption(None), caption(label), caption("one")
    half = none.shape[1] // 2
    for answered in (correct, wrong):
        np.testing.assert_array_equal(answered[:, :half], none[:, :half])
    assert np.ptp(none[:, half:], axis=(0, 1)).max() == 0
    red, green = 0, 1
    assert (correct[:, half:, green] - correct[:, half:, red]).max() > 100
    assert (wrong[:, half:, red] - wrong[:, half:, green]).max() > 100


def test_every_glimpse_changes_the_frame():
    path = locations((-1, 0), (0, 0), (1, 0))
    frames = [render_glimpses(torch.rand(1, 9, 9), path[:n], GlimpseSensor(3), "a") for n in range(4)]
    assert len({frame.tobytes() for frame in frames}) == 4


def test_grid_arranges_frames_in_rows():
    frames = [np.full((2, 3, 3), value, np.uint8) for value in (101, 102, 103)]
    sheet = grid(frames, columns=2, padding=1)
    assert sheet.dtype == np.uint8
    assert sheet.shape == (1 + 2 + 1 + 2 + 1, 1 + 3 + 1 + 3 + 1, 3)
    for (top, left), value in zip([(1, 1), (1, 5), (4, 1)], (101, 102, 103), strict=True):
        assert (sheet[top : top + 2, left : left + 3] == value).all()
    assert (sheet[4:6, 5:8] == sheet[0, 0]).all()
    assert (sheet[[0, 3, 6]] == sheet[0, 0]).all() and (sheet[:, [0, 4, 8]] == sheet[0, 0]).all()
    assert grid(frames, columns=7, padding=1).shape == (4, 13, 3)


def test_the_heatmap_is_brightest_at_the_most_frequent_locations():
    # Glimpse 1 is always at the bottom left; a quarter of glimpses 2 at the top right, the others at the top left.
    path = torch.tensor([[(-1.0, 1.0)] * 4, [(1.0, -1.0), (-1.0, -1.0), (-1.0, -1.0), (-9.0, -9.0)]])
    sheet = location_heatmap(path, bins=4).astype(int)
    width = 128 + 2 * 5
    assert sheet.shape == (6 + 22 + 128 + 5 + 6, 6 + 2 * (width + 6), 3)

    def cells(panel):
        left = 6 + panel * (width + 6) + 5
        return sheet[6 + 22 : 6 + 22 + 128, left : left + 128][16::32, 16::32].sum(-1)

    bright = cells(0).max()
    assert cells(0)[3, 0] == bright
    assert (np.delete(cells(0).ravel(), 12) < bright / 4).all()
    assert cells(1)[0, 0] == bright
    assert bright > cells(1)[0, 3] > cells(1)[1, 1]


def test_png_stores_every_pixel(tmp_path):
    frame = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    save_png(tmp_path / "frame.png", frame)
    with Image.open(tmp_path / "frame.png") as file:
        np.testing.assert_array_equal(np.asarray(file), frame)


def test_a_gif_has_every_frame_and_extends_the_last():
    path = locations((-1, 0), (0, 0), (1, 0), (0, 1))
    image = (torch.arange(64.0) / 63).view(1, 8, 8)
    frames = [render_glimpses(image, path[:n], GlimpseSensor(3), "a", "a" if n == 4 else None) for n in range(1, 5)]
    with Image.open(io.BytesIO(encode_gif(frames, frames_per_second=4))) as file:
        assert file.format == "GIF"
        assert file.n_frames == 4
        assert file.info["loop"] == 0
        durations = []
        for number, frame in enumerate(frames):
            file.seek(number)
            durations.append(file.info["duration"])
            # 256 colors suffice, except for some shades at the edges of lines.
            assert np.abs(np.asarray(file.convert("RGB")).astype(int) - frame).mean() < 0.5
    assert durations == [250, 250, 250, 1750]


@pytest.mark.parametrize(("frames_per_second", "duration"), [(1000, 20), (30, 30), (0.5, 2000)])
def test_durations_are_multiples_of_10_ms_and_at_least_20(frames_per_second, duration):
    frames = [np.full((4, 4, 3), value, np.uint8) for value in (0, 255)]
    with Image.open(io.BytesIO(encode_gif(frames, frames_per_second))) as file:
        assert file.info["duration"] == duration


def test_a_gif_may_have_a_single_frame():
    with Image.open(io.BytesIO(encode_gif([np.zeros((4, 4, 3), np.uint8)], 2))) as file:
        assert file.n_frames == 1


def test_rendering_does_not_import_pyplot():
    program = (
        "import sys, torch, envs.rendering as r\n"
        "r.location_heatmap(torch.zeros(1, 1, 2))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
