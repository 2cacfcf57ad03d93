"""Pictures of a gaze: they show what the sensor read, they hold their size, and files keep what was drawn."""

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
from envs.rendering import animation_bytes, grid, location_heatmap, render_glimpses, save_png
from envs.sensor import GlimpseSensor


def locations(*points):
    return torch.tensor(points, dtype=torch.float32).reshape(-1, 2)


def sample(frame, side):
    """One colour for each pixel of a square image of ``side``, taken where the marks of these tests do not reach."""
    corner = 10  # the margin of a picture 224 wide
    zoom = 224 // side
    # Away from the pixel's edge, where outlines run, and from the middle of the image, where dots and lines lie.
    at = [corner + i * zoom + (zoom // 4 if i < side / 2 else zoom - zoom // 4) for i in range(side)]
    return frame[np.ix_(at, at)]


def test_exactly_the_pixels_of_the_window_are_lit():
    # A 2 x 2 window around pixel (0, 0) starts at floor(0 - 1/2 + 1/2) = 0.
    frame = render_glimpses(torch.full((1, 8, 8), 0.5), locations((-1, -1)), GlimpseSensor(2), "a")
    colours = sample(frame, 8)
    lit, dim = colours[0, 0], colours[7, 7]
    assert (lit > dim + 50).all()
    expected = np.broadcast_to(dim, (8, 8, 3)).copy()
    expected[:2, :2] = lit
    np.testing.assert_array_equal(colours, expected)


def test_only_the_latest_look_half_lights_its_wider_windows():
    # Rows of look 1 around row 0: start floor(0 - 1/2 + 1/2) = 0. Around 7.5, in all else: floor(7.5 - 1/2 + 1/2) = 7,
    # then floor(7.5 - 3/2 + 1/2) = 6 and floor(7.5 - 7/2 + 1/2) = 4.
    frame = render_glimpses(torch.full((3, 16, 16), 0.5), locations((0, -1), (0, 0)), GlimpseSensor(2, 3), "a")
    colours = sample(frame, 16)[..., 0].astype(int)
    dim, half, lit = colours[15, 0], colours[5, 5], colours[7, 7]
    assert lit > half + 25 > dim + 50
    expected = np.full((16, 16), dim)
    expected[4:12, 4:12] = half
    expected[7:9, 7:9] = lit
    expected[0:2, 7:9] = lit
    np.testing.assert_array_equal(colours, expected)


def test_of_a_moving_scene_only_the_latest_look_is_lit():
    looks = locations((0, -1), (0, 0))
    moving = render_glimpses(torch.full((3, 16, 16), 0.5), looks, GlimpseSensor(2, 3), "a", moving=True)
    colours = sample(moving, 16)[..., 0].astype(int)
    assert colours[0, 8] == colours[15, 0] < colours[7, 7]  # what look 1 read is as dim as the rest
    still = render_glimpses(torch.full((3, 16, 16), 0.5), looks, GlimpseSensor(2, 3), "a")
    dots = [(frame == rendering._NOW).all(-1).sum() for frame in (moving, still)]
    assert dots[0] < dots[1]  # there is no dot in amber at the latest look


def test_black_is_lit_too():
    colours = sample(render_glimpses(torch.zeros(1, 8, 8), locations((-1, -1)), GlimpseSensor(2), "a"), 8)
    assert (colours[0, 0] > colours[7, 7]).all()


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    patch=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    scales=st.integers(1, 3),
    factor=st.integers(2, 3),
    looks=st.lists(st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32)), min_size=1, max_size=4),
)
def test_light_falls_where_the_sensor_reads(size, patch, scales, factor, looks):
    sensor = GlimpseSensor(patch, scales, factor)
    path = locations(*looks)
    image = torch.ones(1, 1, *size, dtype=torch.float64, requires_grad=True)
    patches = sensor(sensor.prepare(image), path)  # (n, scales, 1, h, w)

    def read(values):
        """The pixels that values depend on."""
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
    looks=st.integers(0, 12),
    size=st.integers(16, 300),
)
def test_any_size_gives_a_frame_of_one_size(channels, height, width, patch, scales, looks, size):
    generator = torch.Generator().manual_seed(height * width)
    image = torch.rand(channels, height, width, generator=generator)
    path = torch.rand(looks, 2, generator=generator) * 3 - 1.5  # some beyond the border
    sensor = GlimpseSensor(patch, scales)
    before = render_glimpses(image, path, sensor, "cat", size=size)
    after = render_glimpses(image, path[:1], sensor, "a label too long for any frame", "a long answer", size=size)
    assert before.dtype == np.uint8
    assert before.shape == after.shape
    assert before.shape[2] == 3
    assert max(before.shape[:2]) > 0.66 * size  # a whole factor is off by a third at most


@pytest.mark.parametrize(
    ("image", "size", "expected"),
    [
        ((1, 28, 28), 224, (224 + 10 + 34, 224 + 20)),  # 8 times
        ((3, 8, 8), 224, (224 + 10 + 34, 224 + 20)),  # 28 times
        ((3, 300, 200), 224, (224 + 10 + 34, 149 + 20)),  # shrunk
        ((1, 100, 10), 200, (200 + 9 + 30, 133 + 18)),  # twice, and room for the caption
    ],
)
def test_frame_sizes(image, size, expected):
    frame = render_glimpses(torch.rand(image), locations((0, 0)), GlimpseSensor(4), "a", size=size)
    assert frame.shape == (*expected, 3)


def test_gray_is_drawn_as_equal_colours_and_locations_beyond_the_border_at_it():
    image, sensor = torch.rand(1, 9, 7), GlimpseSensor((3, 2), 2)
    gray = render_glimpses(image, locations((0, 0), (1, -1)), sensor, "a")
    same = render_glimpses(image.expand(3, -1, -1), locations((0, 0), (1.7, -5)), sensor, "a")
    np.testing.assert_array_equal(gray, same)


def test_drawing_takes_any_float_and_tensors_that_need_gradients():
    image = torch.rand(1, 8, 8).bfloat16()
    frame = render_glimpses(image, locations((0, 0)).requires_grad_(), GlimpseSensor(3), "a")
    np.testing.assert_array_equal(frame, render_glimpses(image.float(), locations((0, 0)), GlimpseSensor(3), "a"))


@pytest.mark.parametrize("shape", [(8, 8), (2, 8, 8), (1, 1, 8, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="1 or 3 channels"):
        render_glimpses(torch.zeros(shape), locations((0, 0)), GlimpseSensor(2), "a")


@pytest.mark.parametrize("label", ["seven", "a label that is much too long for half a frame"])
def test_the_answer_is_green_if_right_and_red_if_wrong_and_leaves_the_label_alone(label):
    def caption(answer):
        frame = render_glimpses(torch.zeros(1, 28, 28), locations((0, 0)), GlimpseSensor(8), label, answer)
        return frame[-34:].astype(int)

    none, right, wrong = caption(None), caption(label), caption("one")
    half = none.shape[1] // 2
    for answered in (right, wrong):
        np.testing.assert_array_equal(answered[:, :half], none[:, :half])
    assert np.ptp(none[:, half:], axis=(0, 1)).max() == 0
    red, green = 0, 1
    assert (right[:, half:, green] - right[:, half:, red]).max() > 100
    assert (wrong[:, half:, red] - wrong[:, half:, green]).max() > 100


def test_a_new_look_changes_the_picture():
    path = locations((-1, 0), (0, 0), (1, 0))
    frames = [render_glimpses(torch.rand(1, 9, 9), path[:n], GlimpseSensor(3), "a") for n in range(4)]
    assert len({frame.tobytes() for frame in frames}) == 4


def test_grid_lays_frames_out_in_rows():
    frames = [np.full((2, 3, 3), value, np.uint8) for value in (101, 102, 103)]
    sheet = grid(frames, columns=2, gutter=1)
    assert sheet.shape == (1 + 2 + 1 + 2 + 1, 1 + 3 + 1 + 3 + 1, 3)
    for (top, left), value in zip([(1, 1), (1, 5), (4, 1)], (101, 102, 103), strict=True):
        assert (sheet[top : top + 2, left : left + 3] == value).all()
    assert (sheet[4:6, 5:8] == sheet[0, 0]).all()
    assert grid(frames, columns=7, gutter=1).shape == (4, 13, 3)


def test_heatmap_is_brightest_where_the_looks_were():
    # Look 1 always at the bottom left; of look 2 a quarter at the top right, the rest at the top left.
    path = torch.tensor([[(-1.0, 1.0)] * 4, [(1.0, -1.0), (-1.0, -1.0), (-1.0, -1.0), (-9.0, -9.0)]])
    sheet = location_heatmap(path, size=128, bins=4).astype(int)
    width = 128 + 2 * 5
    assert sheet.shape == (6 + 22 + 128 + 5 + 6, 6 + 2 * (width + 6), 3)

    def cells(look):
        left = 6 + look * (width + 6) + 5
        return sheet[6 + 22 : 6 + 22 + 128, left : left + 128][16::32, 16::32].sum(-1)

    bright = cells(0).max()
    assert cells(0)[3, 0] == bright
    assert (np.delete(cells(0).ravel(), 12) < bright / 4).all()
    assert cells(1)[0, 0] == bright
    assert bright > cells(1)[0, 3] > cells(1)[1, 1]


def test_png_keeps_every_pixel(tmp_path):
    frame = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    save_png(tmp_path / "frame.png", frame)
    with Image.open(tmp_path / "frame.png") as file:
        np.testing.assert_array_equal(np.asarray(file), frame)


def test_animation_shows_every_frame_and_holds_the_last():
    path = locations((-1, 0), (0, 0), (1, 0), (0, 1))
    image = (torch.arange(64.0) / 63).view(1, 8, 8)
    frames = [render_glimpses(image, path[:n], GlimpseSensor(3), "a", "a" if n == 4 else None) for n in range(1, 5)]
    with Image.open(io.BytesIO(animation_bytes(frames, frames_per_second=4))) as file:
        assert file.format == "GIF"
        assert file.n_frames == 4
        assert file.info["loop"] == 0
        durations = []
        for number, frame in enumerate(frames):
            file.seek(number)
            durations.append(file.info["duration"])
            # A palette of 256 suffices for such pictures, but for a shade on the edge of a line.
            assert np.abs(np.asarray(file.convert("RGB")).astype(int) - frame).mean() < 0.5
    assert durations == [250, 250, 250, 1750]


@pytest.mark.parametrize(("frames_per_second", "duration"), [(1000, 20), (30, 30), (0.5, 2000)])
def test_durations_are_what_viewers_respect(frames_per_second, duration):
    frames = [np.full((4, 4, 3), value, np.uint8) for value in (0, 255)]
    with Image.open(io.BytesIO(animation_bytes(frames, frames_per_second))) as file:
        assert file.info["duration"] == duration


def test_a_single_frame_is_an_animation_too():
    with Image.open(io.BytesIO(animation_bytes([np.zeros((4, 4, 3), np.uint8)], 2))) as file:
        assert file.n_frames == 1


def test_drawing_needs_no_pyplot():
    program = (
        "import sys, torch, envs.rendering as r\n"
        "r.location_heatmap(torch.zeros(1, 1, 2))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
