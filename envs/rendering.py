"""Pictures of a gaze: where it went, in which order, and what was answered."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from envs.errors import InputError
from envs.sensor import Sensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The light on a pixel that no look has read, that only a wider window of the latest look reads, and that was read.
_UNSEEN, _PERIPHERY, _SEEN = 0.3, 0.6, 1.0
_SHEEN = 0.12  # how much of it a black pixel sends back, so that windows show on black too

_GROUND = (23, 25, 30)
_TEXT = (236, 238, 242)
_GUTTER = (44, 47, 54)
# Amber against blue and bluish green against vermilion (after Okabe and Ito, 2008) stay apart in every common colour
# blindness; tick and cross differ in shape besides.
_NOW = (255, 183, 27)
_OLD, _RECENT = (96, 126, 168), (120, 196, 255)
_RIGHT = (52, 201, 152)
_WRONG = (255, 120, 66)

_BASE = 224  # the picture size for which lengths below are in pixels; they grow and shrink with it
_FINE = 4  # lines and dots are drawn this much larger, then averaged: Pillow's own have jagged edges


def render_glimpses(
    image: Tensor,
    locations: Tensor,
    sensor: Sensor,
    label: str,
    answer: str | None = None,
    target: Tensor | None = None,
    named: Tensor | None = None,
    moving: bool = False,
    size: int = _BASE,
) -> np.ndarray:
    """Draws the looks at an image so far.

    The image is dimmed but for what was read: the smallest window of every look lies in full light, the wider windows
    of the latest look in half. The path is blue, the older the duller; the latest look and its windows are amber.

    Args:
        image: (C, H, W) float in [0, 1], C 1 or 3.
        locations: (n, 2) float, (x, y), the looks so far in order; read as the sensor reads them.
        sensor: the sensor that looked.
        label: the true class, written below the image.
        answer: the class named, if any yet: green with a tick where it is the label, else red with a cross.
        target: (4,), the box of the object asked for, drawn in green; left, top, right, bottom as locations.
        named: (4,), the box answered, drawn in red.
        moving: whether the scene has changed from look to look: then none but the latest look has read what is shown,
            and the path is a line, without numbers that would hide what moves.
        size: pixels of the picture's longer side. Smaller images are enlarged by the whole factor that comes closest.

    Returns:
        (H', W', 3) uint8; H' and W' depend on H, W and ``size`` alone.

    Raises:
        InputError: if the image has another shape.
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise InputError(f"render_glimpses draws (C, H, W) images with 1 or 3 channels, got {tuple(image.shape)}.")
    height, width = image.shape[-2:]
    longer = max(height, width)
    zoom = size / longer if longer > size else round(size / longer)
    shown = max(1, round(width * zoom)), max(1, round(height * zoom))
    unit = max(shown) / _BASE
    locations = locations.detach().cpu().float().clamp(-1, 1)
    windows = sensor.windows(height, width, locations).numpy()
    if not sensor.is_round:  # of a disc, a part cannot be outlined as a rectangle is
        windows = windows.clip(0, [width, height, width, height])

    light = _light(windows[-1:] if moving else windows, sensor.is_round, height, width)
    pixels = image.detach().cpu().float().clamp(0, 1).expand(3, -1, -1).permute(1, 2, 0).numpy()
    pixels = (_SHEEN + (1 - _SHEEN) * pixels) * light[..., None]
    # A box filter repeats pixels where it enlarges by a whole factor, and averages them where it shrinks.
    picture = Image.fromarray(np.rint(pixels * 255).astype(np.uint8)).resize(shown, Image.Resampling.BOX)

    margin, strip = round(10 * unit), round(34 * unit)
    across = max(shown[0], max(shown) * 2 // 3)  # a narrow image leaves its caption some room
    frame = Image.new("RGB", (across + 2 * margin, margin + shown[1] + strip), _GROUND)
    left = (frame.width - shown[0]) // 2
    frame.paste(picture, (left, margin))
    stretch = np.array(shown) / (width, height)
    centres = (locations.numpy() + 1) / 2 * (width - 1, height - 1) + 0.5
    latest = windows[-1:].reshape(-1, 2, 2) * stretch
    boxes = [
        (_box_corners(box, height, width) * stretch, colour)
        for box, colour in ((target, _RIGHT), (named, _WRONG))
        if box is not None
    ]
    marks = _marks(shown, margin, latest, sensor.is_round, boxes, centres * stretch, not moving, unit)
    frame.paste(marks, (left - margin, 0), marks)
    _write_caption(frame, margin, strip, label, answer, unit)
    return np.array(frame)


def _box_corners(box: Tensor, height: int, width: int) -> np.ndarray:
    """The outer corners of the pixels in a box's corners: (2, 2), (x, y) in pixels of the image."""
    first, last = (box.detach().cpu().float().view(2, 2).numpy() + 1) / 2 * (width - 1, height - 1)
    return np.stack([np.minimum(first, last), np.maximum(first, last) + 1])


def _light(windows: np.ndarray, is_round: bool, height: int, width: int) -> np.ndarray:
    """How brightly each pixel of the image is shown: (H, W) float32."""
    light = np.full((height, width), _UNSEEN, np.float32)
    y, x = np.mgrid[:height, :width] + 0.5
    for boxes, level in [(windows[-1:, 1:].reshape(-1, 4), _PERIPHERY), (windows[:, 0], _SEEN)]:
        for left, top, right, bottom in boxes:
            if is_round:
                across = (2 * x - left - right) / (right - left)
                down = (2 * y - top - bottom) / (bottom - top)
                light[across**2 + down**2 <= 1] = level
            else:
                light[top:bottom, left:right] = level
    return light


def _marks(
    shown: tuple[int, int],
    margin: int,
    windows: np.ndarray,
    is_round: bool,
    boxes: Sequence[tuple[np.ndarray, tuple[int, ...]]],
    points: np.ndarray,
    numbered: bool,
    unit: float,
) -> Image.Image:
    """Draws boxes, the latest windows and the numbered path, on nothing, for a picture with the margin all around.

    Args:
        shown: width and height of the picture.
        margin: pixels around it.
        windows: (scales, 2, 2), top left and bottom right corners, in pixels of the picture.
        is_round: whether they are discs within these corners.
        boxes: corners (2, 2) alike, each with its colour.
        points: (n, 2), the centres of the looks.
        numbered: whether each has a dot with its number.
        unit: what a length of 1 is in pixels.
    """
    marks = Image.new("RGBA", ((shown[0] + 2 * margin) * _FINE, (shown[1] + 2 * margin) * _FINE))
    draw = ImageDraw.Draw(marks)
    windows, points, unit = (windows + margin) * _FINE, (points + margin) * _FINE, unit * _FINE
    # A line has a dark rim, without which it would be lost on bright pixels.
    rim, thick, thin = (max(1, round(length * unit)) for length in (4, 2, 1))
    rim_colour = (*_GROUND, 150)

    def outline(box: np.ndarray, colour: tuple[int, ...], line: int, is_round: bool = is_round) -> None:
        (left, top), (right, bottom) = box[0] - line / 2, box[1] + line / 2 - 1
        shape = draw.ellipse if is_round else draw.rectangle
        shape((left, top, right, bottom), outline=colour, width=line)

    for box, colour in boxes:
        corners = (box + margin) * _FINE
        outline(corners, rim_colour, rim, is_round=False)
        outline(corners, (*colour, 255), thick, is_round=False)
    for box in windows[:0:-1]:
        outline(box, (*_NOW, 130), thin)
    for box in windows[:1]:
        outline(box, rim_colour, rim)
        outline(box, (*_NOW, 255), thick)

    path = [tuple(point) for point in points.tolist()]
    shades = [tuple(shade) for shade in np.linspace(_RECENT, _OLD, max(len(path) - 1, 0)).astype(int)[::-1].tolist()]
    for colours, line in [([rim_colour] * len(shades), rim), (shades, thick)]:
        for begin, end, colour in zip(path, path[1:], colours, strict=False):
            draw.line([begin, end], fill=colour, width=line)
    dots = zip(path, [*shades, _NOW], strict=False) if numbered else ()
    for number, (point, colour) in enumerate(dots, start=1):
        draw.circle(point, 7.5 * unit, fill=_GROUND)
        draw.circle(point, 6.5 * unit, fill=colour)
        text = str(number)
        draw.text(point, text, fill=_GROUND, font=_font(True, (12.5 - 2.5 * len(text)) * unit), anchor="mm")
    return marks.reduce(_FINE)


def _write_caption(frame: Image.Image, margin: int, strip: int, label: str, answer: str | None, unit: float) -> None:
    """Writes the label, and the answer once there is one, in the strip at the bottom of the frame."""
    draw = ImageDraw.Draw(frame)
    left, right, middle = margin, frame.width - margin, frame.height - strip / 2
    # The label keeps to its half from the first, so that it does not change when the answer comes.
    text, font = _fit(label, (right - left) / 2, unit)
    draw.text((left, middle), text, fill=_TEXT, font=font, anchor="lm")
    if answer is not None:
        sign, colour = ("✓", _RIGHT) if answer == label else ("✗", _WRONG)
        text, font = _fit(f"{sign} {answer}", right - left - font.getlength(text) - 8 * unit, unit)
        draw.text((right, middle), text, fill=colour, font=font, anchor="rm")


def _fit(text: str, room: float, unit: float) -> tuple[str, ImageFont.FreeTypeFont]:
    """The largest font in which the text fits, and the text; cut where the smallest is too large."""
    for points in (15, 13, 11, 10):
        font = _font(True, points * unit)
        if font.getlength(text) <= room:
            return text, font
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…", font


@cache
def _font(bold: bool, points: float) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, from the files that matplotlib ships."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), max(points, 1))


def grid(frames: Sequence[np.ndarray], columns: int, gutter: int = 6) -> np.ndarray:
    """Lays frames out in rows.

    Args:
        frames: n arrays (H, W, 3) uint8, of one size.
        columns: frames a row, at least 1; the last row may have fewer.
        gutter: pixels between frames and around them.

    Returns:
        (rows * (H + gutter) + gutter, columns * (W + gutter) + gutter, 3) uint8.
    """
    height, width, _ = frames[0].shape
    columns = min(columns, len(frames))
    rows = -(-len(frames) // columns)
    sheet = np.full((rows * (height + gutter) + gutter, columns * (width + gutter) + gutter, 3), _GUTTER, np.uint8)
    for number, frame in enumerate(frames):
        top = number // columns * (height + gutter) + gutter
        left = number % columns * (width + gutter) + gutter
        sheet[top : top + height, left : left + width] = frame
    return sheet


def location_heatmap(locations: Tensor, size: int = 128, bins: int = 32) -> np.ndarray:
    """Draws where each look went: one panel a look, left to right, as the image lies (y points down).

    A cell's colour (magma) tells the square root of its count, from none to the panel's largest.

    Args:
        locations: (T, B, 2) float, (x, y); clamped to [-1, 1].
        size: pixels of a panel's side; cells are whole, so it may come out a little smaller.
        bins: cells a side.

    Returns:
        (H', W', 3) uint8.
    """
    from matplotlib import colormaps

    unit = size / 128
    margin, strip, cell = round(5 * unit), round(22 * unit), max(1, size // bins)
    panels = []
    for number, (x, y) in enumerate(locations.detach().cpu().float().clamp(-1, 1).permute(0, 2, 1).numpy(), start=1):
        counts, _, _ = np.histogram2d(y, x, bins=bins, range=[(-1, 1), (-1, 1)])
        colours = colormaps["magma"](np.sqrt(counts / max(counts.max(), 1)), bytes=True)[..., :3]
        heat = Image.fromarray(colours.repeat(cell, axis=0).repeat(cell, axis=1))
        panel = Image.new("RGB", (heat.width + 2 * margin, heat.height + strip + margin), _GROUND)
        panel.paste(heat, (margin, strip))
        place = (panel.width / 2, strip / 2)
        ImageDraw.Draw(panel).text(place, f"look {number}", fill=_TEXT, font=_font(False, 11 * unit), anchor="mm")
        panels.append(np.array(panel))
    return grid(panels, len(panels))


def figure_pixels(figure: Figure) -> np.ndarray:
    """What a figure of matplotlib looks like: (H, W, 3) uint8. A sign that its font lacks is a small box."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_png(path: str | Path, frame: np.ndarray) -> None:
    """Writes an (H, W, 3) uint8 frame."""
    Image.fromarray(frame).save(path, format="PNG")


def animation_bytes(frames: Sequence[np.ndarray], frames_per_second: float) -> bytes:
    """Encodes frames as a GIF that loops for ever.

    Args:
        frames: n arrays (H, W, 3) uint8, of one size.
        frames_per_second: at most 50; GIF counts hundredths of a second, and viewers slow down what is faster.

    Returns:
        The file's content. The last frame stays 1.5 seconds longer.
    """
    # One palette for all, and no dithering, so that what stands still does not flicker. k-means, until less than one
    # pixel in ten changes, keeps the accents: strong colours on few pixels, which a median cut alone would blend.
    height, width, _ = frames[0].shape
    film = Image.fromarray(np.concatenate(list(frames)))
    film = film.quantize(256, kmeans=film.width * film.height // 10 + 1, dither=Image.Dither.NONE)
    images = [film.crop((0, top, width, top + height)) for top in range(0, film.height, height)]
    duration = max(round(100 / frames_per_second), 2) * 10
    durations = [duration] * (len(images) - 1) + [duration + 1500]
    file = io.BytesIO()
    images[0].save(file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
    return file.getvalue()
