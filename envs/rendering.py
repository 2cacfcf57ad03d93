"""Rendering of episodes and helpers for image files: glimpses, heatmaps, grids of frames, PNG and GIF."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from envs.answer_schedule import Answer
from envs.errors import InputError
from envs.fonts import choose_fonts
from envs.scene import SceneBatch
from envs.sensor import Sensor
from envs.splits import IGNORE_INDEX

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Brightness of pixels outside all windows, in the larger windows of the latest glimpse, and in a smallest window.
_UNSEEN, _PERIPHERY, _SEEN = 0.3, 0.6, 1.0
_MIN_REFLECTANCE = 0.12  # of a black pixel, so that windows are visible on black

_BACKGROUND = (23, 25, 30)
_TEXT = (236, 238, 242)
_GUTTER = 47  # gray level between the frames of a grid
# Amber and blue, bluish green and vermilion (after Okabe and Ito, 2008) are distinct in every common color blindness.
_LATEST = (255, 183, 27)
_OLD, _RECENT = (96, 126, 168), (120, 196, 255)
_CORRECT = (52, 201, 152)
_WRONG = (255, 120, 66)

_BASE = 224  # the image size to which the lengths below refer; they scale with the image
_OVERSAMPLE = 4  # resolution at which lines and dots are drawn, because Pillow does not antialias


def render_glimpses(
    image: Tensor,
    locations: Tensor,
    sensor: Sensor,
    label: str,
    answer: str | None = None,
    target_box: Tensor | None = None,
    answer_box: Tensor | None = None,
    dynamic: bool = False,
    size: int = _BASE,
) -> np.ndarray:
    """Draws the glimpses of an image so far.

    The image is dimmed outside the windows: the smallest window of every glimpse has full brightness, the larger
    windows of the latest glimpse have half. The path is blue and fades with age; the latest glimpse is amber.

    Args:
        image: (C, H, W) float in [0, 1], C 1 or 3.
        locations: (n, 2) float, (x, y), the locations so far in order; clamped to [-1, 1].
        sensor: the sensor of the glimpses.
        label: the name of the correct class, written below the image.
        answer: the name of the class answered, if any: green with a tick if it equals the label, else red with a cross.
        target_box: (4,), the target's box, drawn in green; left, top, right, bottom in units of locations.
        answer_box: (4,), the box answered, drawn in red.
        dynamic: whether the scene changes from glimpse to glimpse: only the latest glimpse is lit, and the path has no
            numbered dots, which would hide moving objects.
        size: length of the image's longer side in pixels. Smaller images are enlarged by the nearest integer factor.

    Returns:
        (H', W', 3) uint8; H' and W' depend only on H, W and ``size``.

    Raises:
        InputError: the image has another shape.
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise InputError(f"render_glimpses draws (C, H, W) images with 1 or 3 channels, got {tuple(image.shape)}.")
    height, width = image.shape[-2:]
    locations = locations.detach().cpu().float().clamp(-1, 1)
    windows = sensor.windows(height, width, locations).numpy()
    if not sensor.is_round:  # a disc is outlined as a whole, even beyond the image
        windows = windows.clip(0, [width, height, width, height])
    light = _light(windows[-1:] if dynamic else windows, sensor.is_round, height, width)
    picture = _lit_image(image, light, size)

    overlay = _Overlay(picture)
    scale = np.array(picture.size) / (width, height)
    for box, color in ((target_box, _CORRECT), (answer_box, _WRONG)):
        if box is not None:
            overlay.outline(_box_corners(box, height, width) * scale, color)
    overlay.windows(windows[-1:].reshape(-1, 2, 2) * scale, sensor.is_round)
    centers = (locations.numpy() + 1) / 2 * (width - 1, height - 1) + 0.5
    overlay.path(centers * scale, numbered=not dynamic)
    return _frame(picture, overlay, label, answer)


def _lit_image(image: Tensor, light: np.ndarray, size: int) -> Image.Image:
    """Multiplies an image (C, H, W) by the brightness (H, W) and resizes it."""
    height, width = image.shape[-2:]
    longer = max(height, width)
    zoom = size / longer if longer > size else round(size / longer)
    shown = max(1, round(width * zoom)), max(1, round(height * zoom))
    pixels = image.detach().cpu().float().clamp(0, 1).expand(3, -1, -1).permute(1, 2, 0).numpy()
    pixels = (_MIN_REFLECTANCE + (1 - _MIN_REFLECTANCE) * pixels) * light[..., None]
    # A box filter repeats pixels when enlarging by an integer factor, and averages them when shrinking.
    return Image.fromarray(np.rint(pixels * 255).astype(np.uint8)).resize(shown, Image.Resampling.BOX)


def _frame(picture: Image.Image, overlay: _Overlay, label: str, answer: str | None) -> np.ndarray:
    """Places the image and its overlay above the caption: (H', W', 3) uint8."""
    unit = max(picture.size) / _BASE
    margin, strip, layer = overlay.margin, round(34 * unit), overlay.image()
    content_width = max(picture.width, max(picture.size) * 2 // 3)  # room for the caption of a narrow image
    frame = Image.new("RGB", (content_width + 2 * margin, margin + picture.height + strip), _BACKGROUND)
    left = (frame.width - picture.width) // 2
    frame.paste(picture, (left, margin))
    frame.paste(layer, (left - margin, 0), layer)

    draw, middle = ImageDraw.Draw(frame), frame.height - strip / 2
    # The label has the left half, so that it does not change when the answer is added.
    text, font = _fit_text(label, content_width / 2, unit)
    draw.text((margin, middle), text, fill=_TEXT, font=font, anchor="lm")
    if answer is not None:
        sign, color = ("✓", _CORRECT) if answer == label else ("✗", _WRONG)
        text, font = _fit_text(f"{sign} {answer}", content_width - font.getlength(text) - 8 * unit, unit)
        draw.text((margin + content_width, middle), text, fill=color, font=font, anchor="rm")
    return np.array(frame)


def _box_corners(box: Tensor, height: int, width: int) -> np.ndarray:
    """Returns the outer corners of a box's corner pixels: (2, 2), (x, y) in pixels of the image."""
    first, last = (box.detach().cpu().float().view(2, 2).numpy() + 1) / 2 * (width - 1, height - 1)
    return np.stack([np.minimum(first, last), np.maximum(first, last) + 1])


def _light(windows: np.ndarray, is_round: bool, height: int, width: int) -> np.ndarray:
    """Returns the brightness of every pixel of the image: (H, W) float32."""
    light = np.full((height, width), _UNSEEN, np.float32)
    y, x = np.mgrid[:height, :width] + 0.5
    for boxes, level in [(windows[-1:, 1:].reshape(-1, 4), _PERIPHERY), (windows[:, 0], _SEEN)]:
        for left, top, right, bottom in boxes:
            if is_round:
                horizontal = (2 * x - left - right) / (right - left)
                vertical = (2 * y - top - bottom) / (bottom - top)
                light[horizontal**2 + vertical**2 <= 1] = level
            else:
                light[top:bottom, left:right] = level
    return light


class _Overlay:
    """A transparent layer of boxes, windows and the path; coordinates are (x, y) in pixels of the picture.

    Args:
        picture: the picture below, which the layer exceeds by the margin on all sides.

    Attributes:
        margin: in pixels of the picture.
    """

    def __init__(self, picture: Image.Image) -> None:
        unit = max(picture.size) / _BASE
        self.margin, self._unit = round(10 * unit), unit * _OVERSAMPLE
        self._layer = Image.new("RGBA", [(side + 2 * self.margin) * _OVERSAMPLE for side in picture.size])
        self._draw = ImageDraw.Draw(self._layer)
        # Lines have a dark border, so that they are visible on bright pixels.
        self._border, self._thick, self._thin = (max(1, round(length * self._unit)) for length in (4, 2, 1))
        self._border_color = (*_BACKGROUND, 150)

    def image(self) -> Image.Image:
        """Returns the layer at the resolution of the picture, RGBA."""
        return self._layer.reduce(_OVERSAMPLE)

    def outline(self, box: np.ndarray, color: tuple[int, int, int], is_round: bool = False) -> None:
        """Outlines the rectangle, or the ellipse in it, with the corners (2, 2)."""
        self._line(box, self._border_color, self._border, is_round)
        self._line(box, (*color, 255), self._thick, is_round)

    def windows(self, windows: np.ndarray, is_round: bool) -> None:
        """Outlines the windows of a glimpse, (scales, 2, 2) corners from the smallest on."""
        for box in windows[:0:-1]:
            self._line(box, (*_LATEST, 130), self._thin, is_round)
        for box in windows[:1]:
            self.outline(box, _LATEST, is_round)

    def path(self, points: np.ndarray, numbered: bool) -> None:
        """Connects the points (n, 2) by lines, and numbers them if ``numbered`` is set."""
        path = [tuple(point) for point in ((points + self.margin) * _OVERSAMPLE).tolist()]
        ages = np.linspace(_RECENT, _OLD, max(len(path) - 1, 0)).astype(int)[::-1].tolist()
        shades = [tuple(shade) for shade in ages]
        for colors, line in [([self._border_color] * len(shades), self._border), (shades, self._thick)]:
            for begin, end, color in zip(path, path[1:], colors, strict=False):
                self._draw.line([begin, end], fill=color, width=line)
        dots = zip(path, [*shades, _LATEST], strict=False) if numbered else ()
        for number, (point, color) in enumerate(dots, start=1):
            self._draw.circle(point, 7.5 * self._unit, fill=_BACKGROUND)
            self._draw.circle(point, 6.5 * self._unit, fill=color)
            text = str(number)
            font = _font(True, (12.5 - 2.5 * len(text)) * self._unit)
            self._draw.text(point, text, fill=_BACKGROUND, font=font, anchor="mm")

    def _line(self, box: np.ndarray, color: tuple[int, ...], line: int, is_round: bool) -> None:
        corners = (box + self.margin) * _OVERSAMPLE
        (left, top), (right, bottom) = corners[0] - line / 2, corners[1] + line / 2 - 1
        shape = self._draw.ellipse if is_round else self._draw.rectangle
        shape((left, top, right, bottom), outline=color, width=line)


def _fit_text(text: str, width: float, unit: float) -> tuple[str, ImageFont.FreeTypeFont]:
    """Returns the text and the largest font in which it fits; truncated if it does not fit in the smallest."""
    for points in (15, 13, 11, 10):
        font = _font(True, points * unit)
        if font.getlength(text) <= width:
            return text, font
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…", font


@cache
def _font(bold: bool, points: float) -> ImageFont.FreeTypeFont:
    """Returns DejaVu Sans from the files of matplotlib."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), max(points, 1))


@dataclass(eq=False)
class EpisodeRecorder:
    """Keeps the path and the answers of every row.

    Attributes:
        num_rows: the number of rows, B.
        num_glimpses: the number of looks of an episode, T.
        sensor: the sensor of the environment.
        classes: the names of the answers.
        answer: the kind of the answers.
        device: of the locations.
    """

    num_rows: int
    num_glimpses: int
    sensor: Sensor
    classes: Sequence[str]
    answer: Answer | None
    device: torch.device

    def __post_init__(self) -> None:
        self._path = torch.zeros(self.num_rows, self.num_glimpses, 2, device=self.device)
        self._answers: list[list[Tensor]] = [[] for _ in range(self.num_rows)]

    def start(self, rows: Tensor, location: Tensor) -> None:
        """Begins a record in the given rows (n,), at their first locations (n, 2)."""
        self._path[rows, 0] = location
        for row in rows.tolist():
            self._answers[row] = []

    def record(self, look: Tensor, location: Tensor, answer: Tensor | None, due: Tensor) -> None:
        """Adds the location (B, 2) of each row's look (B,), and the answer (B, ...) of the rows where one was due."""
        self._path.scatter_(1, look[:, None, None].expand(-1, 1, 2), location[:, None])
        if answer is not None:
            for row in due.nonzero().flatten().tolist():
                self._answers[row].append(answer[row].clone())

    def render(self, scenes: SceneBatch, row: int, look: int, dynamic: bool) -> np.ndarray:
        """Draws a row's looks so far: (H, W, 3) uint8.

        Args:
            scenes: the scenes of all rows.
            row: the row.
            look: the index of its last look.
            dynamic: whether the scene changes from look to look.
        """
        annotations = {name: value[row] for name, value in scenes.annotations.items()}
        answers = self._answers[row]
        return render_glimpses(
            scenes.image(row),
            self._path[row, : look + 1],
            self.sensor,
            label=self._label_text(annotations),
            answer=self._answer_text(annotations, answers),
            target_box=annotations.get("target"),
            answer_box=answers[-1] if self.answer == "box" and answers else None,
            dynamic=dynamic,
        )

    def _label_text(self, annotations: dict[str, Tensor]) -> str:
        if "label" in annotations:
            labels = annotations["label"].flatten().tolist()
            return " ".join(self.classes[label] for label in labels if label != IGNORE_INDEX)
        return f"find {self.classes[int(annotations['goal'])]}" if "goal" in annotations else ""

    def _answer_text(self, annotations: dict[str, Tensor], answers: list[Tensor]) -> str | None:
        """The names of the classes answered: all of a sequence, the last one of a single label."""
        if "label" not in annotations or self.answer not in ("label", "log_probs") or not answers:
            return None
        shown = answers if annotations["label"].ndim else answers[-1:]
        return " ".join(self.classes[int(each if self.answer == "label" else each.argmax())] for each in shown)


def grid(frames: Sequence[np.ndarray], columns: int, padding: int = 6) -> np.ndarray:
    """Arranges frames in rows with :func:`torchvision.utils.make_grid`; a single frame is returned without padding.

    Args:
        frames: n arrays (H, W, 3) uint8 of one size.
        columns: frames in a row, at least 1; the last row may have fewer.
        padding: pixels between and around the frames.

    Returns:
        (rows * (H + padding) + padding, columns * (W + padding) + padding, 3) uint8.
    """
    from torchvision.utils import make_grid  # imported here because torchvision is slow to import

    images = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)
    return make_grid(images, nrow=columns, padding=padding, pad_value=_GUTTER).permute(1, 2, 0).numpy()


def location_heatmap(locations: Tensor, bins: int = 32) -> np.ndarray:
    """Draws a histogram of the locations of every glimpse: one panel each, left to right, y pointing down.

    The color (magma) of a cell shows the square root of its count, from 0 to the panel's maximum.

    Args:
        locations: (T, B, 2) float, (x, y); clamped to [-1, 1].
        bins: cells along each axis, at most 128. A panel has 128 pixels, rounded down to a multiple of ``bins``.

    Returns:
        (H', W', 3) uint8.
    """
    from matplotlib import colormaps

    margin, strip, cell = 5, 22, 128 // bins
    panels = []
    for number, (x, y) in enumerate(locations.detach().cpu().float().clamp(-1, 1).permute(0, 2, 1).numpy(), start=1):
        counts, _, _ = np.histogram2d(y, x, bins=bins, range=[(-1, 1), (-1, 1)])
        colors = colormaps["magma"](np.sqrt(counts / max(counts.max(), 1)), bytes=True)[..., :3]
        heat = Image.fromarray(colors.repeat(cell, axis=0).repeat(cell, axis=1))
        panel = Image.new("RGB", (heat.width + 2 * margin, heat.height + strip + margin), _BACKGROUND)
        panel.paste(heat, (margin, strip))
        center = (panel.width / 2, strip / 2)
        ImageDraw.Draw(panel).text(center, f"glimpse {number}", fill=_TEXT, font=_font(False, 11), anchor="mm")
        panels.append(np.array(panel))
    return grid(panels, len(panels))


def figure_pixels(figure: Figure) -> np.ndarray:
    """Rasterizes a matplotlib figure: (H, W, 3) uint8; see :func:`envs.fonts.choose_fonts`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    choose_fonts(figure)
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_png(path: str | Path, frame: np.ndarray) -> None:
    """Writes an (H, W, 3) uint8 frame to a PNG file."""
    Image.fromarray(frame).save(path, format="PNG")


def encode_gif(frames: Sequence[np.ndarray], frames_per_second: float) -> bytes:
    """Encodes frames as a looping GIF.

    Args:
        frames: n arrays (H, W, 3) uint8 of one size.
        frames_per_second: at most 50: GIF durations are multiples of 10 ms, and viewers slow down shorter ones.

    Returns:
        The content of the file. The last frame lasts 1.5 seconds longer.
    """
    # One palette for all frames and no dithering avoid flicker. k-means, until less than one pixel in ten changes,
    # keeps strong colors on few pixels, which a median cut alone would blend.
    height, width, _ = frames[0].shape
    film = Image.fromarray(np.concatenate(list(frames)))
    film = film.quantize(256, kmeans=film.width * film.height // 10 + 1, dither=Image.Dither.NONE)
    images = [film.crop((0, top, width, top + height)) for top in range(0, film.height, height)]
    duration = max(round(100 / frames_per_second), 2) * 10
    durations = [duration] * (len(images) - 1) + [duration + 1500]
    file = io.BytesIO()
    images[0].save(file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
    return file.getvalue()
