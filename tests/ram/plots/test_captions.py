"""Figures of captions: bright where a word attends, or with the windows of its glimpse."""

import numpy as np
import torch
import torch.nn.functional as F

from envs.sensor import GlimpseSensor, LogPolarSensor
from ram.plots.captions import caption_strips

WHITE = torch.ones(1, 1, 16, 16)


def amber_pixels(figure: np.ndarray) -> int:
    red, green, blue = (figure[..., channel].astype(int) for channel in range(3))
    return int(((red > 180) & (green > 110) & (blue < 120) & (red - blue > 80)).sum())


def test_an_image_is_bright_where_the_word_attends() -> None:
    uniform, corner = torch.full((1, 1, 4), 0.25), torch.tensor([[[1.0, 0, 0, 0]]])
    caption = [("word",)]
    whole, part = (caption_strips(WHITE, caption, weights, (2, 2)).astype(int) for weights in (uniform, corner))
    assert whole.shape == part.shape
    changed = np.argwhere((whole != part).any(-1))
    (top, left), (bottom, right) = changed.min(0), changed.max(0)
    brightness = part[top : bottom + 1, left : right + 1].mean(-1)
    half = brightness.shape[0] // 2, brightness.shape[1] // 2
    assert brightness[half[0] :, half[1] :].max() < 150 < brightness[: half[0], : half[1]].mean()
    black = caption_strips(0 * WHITE, caption, corner, (2, 2)).astype(int)
    assert (black[..., 0] - black[..., 2]).max() > 80  # attention to black pixels is visible


def test_long_captions_are_wrapped() -> None:
    short, long = (caption_strips(WHITE, [("a",) * count], torch.ones(1, count, 4), (2, 2)) for count in (12, 13))
    assert long.shape[0] > 1.9 * short.shape[0] - 5 and long.shape[1] == short.shape[1]


def test_the_windows_of_a_glimpse_are_outlined() -> None:
    weights = F.one_hot(torch.tensor([[8 * 16 + 8, 0]]), 256).float()
    caption = [("a", "b")]
    assert amber_pixels(caption_strips(WHITE, caption, weights, (16, 16))) == 0
    for sensor in (GlimpseSensor(4, 2), LogPolarSensor()):
        assert amber_pixels(caption_strips(WHITE, caption, weights, (16, 16), sensor)) > 50
