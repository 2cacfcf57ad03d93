"""Strips of captions: a picture a word, lit where it looked, or with the windows of its look."""

import numpy as np
import torch
import torch.nn.functional as F

from envs.sensor import GlimpseSensor, LogPolarSensor
from ram.plots.captions import strips

WHITE = torch.ones(1, 1, 16, 16)


def amber(strip: np.ndarray) -> int:
    red, green, blue = (strip[..., channel].astype(int) for channel in range(3))
    return int(((red > 180) & (green > 110) & (blue < 120) & (red - blue > 80)).sum())


def test_a_picture_is_lit_where_the_word_looked() -> None:
    everywhere, corner = torch.full((1, 1, 4), 0.25), torch.tensor([[[1.0, 0, 0, 0]]])
    told = [("word",)]
    whole, part = (strips(WHITE, told, weights, (2, 2)).astype(int) for weights in (everywhere, corner))
    assert whole.shape == part.shape
    changed = np.argwhere((whole != part).any(-1))
    (top, left), (bottom, right) = changed.min(0), changed.max(0)
    lit = part[top : bottom + 1, left : right + 1].mean(-1)
    half = lit.shape[0] // 2, lit.shape[1] // 2
    assert lit[half[0] :, half[1] :].max() < 150 < lit[: half[0], : half[1]].mean()
    black = strips(0 * WHITE, told, corner, (2, 2)).astype(int)
    assert (black[..., 0] - black[..., 2]).max() > 80  # attention on nothing shows too


def test_a_long_caption_goes_on_in_the_next_line() -> None:
    short, long = (strips(WHITE, [("a",) * count], torch.ones(1, count, 4), (2, 2)) for count in (12, 13))
    assert long.shape[0] > 1.9 * short.shape[0] - 5 and long.shape[1] == short.shape[1]


def test_the_windows_of_a_look_are_drawn() -> None:
    looks = F.one_hot(torch.tensor([[8 * 16 + 8, 0]]), 256).float()
    told = [("a", "b")]
    assert amber(strips(WHITE, told, looks, (16, 16))) == 0
    for sensor in (GlimpseSensor(4, 2), LogPolarSensor()):
        assert amber(strips(WHITE, told, looks, (16, 16), sensor)) > 50
