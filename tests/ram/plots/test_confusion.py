"""Figure of a confusion matrix: errors are shaded by their share of the row."""

from typing import Any

import numpy as np
import torch

from ram.plots.confusion import confusion_matrix


def test_the_cell_of_the_largest_share_of_errors_is_darkest(assert_figure: Any, near: Any, shade: Any) -> None:
    counts, names = torch.tensor([[90, 10, 0], [0, 4, 1], [0, 0, 50]]), ["cat", "dog", "cow"]
    figure = confusion_matrix(counts, names)
    assert_figure(figure)
    dark = np.argwhere(near(figure, shade("Oranges", 1 / 1.3)))  # 1 of 5 dogs, though 10 cats are more
    half = np.argwhere(near(figure, shade("Oranges", 0.5 / 1.3)))
    assert len(dark) > 100 and len(half) > 100
    assert dark[:, 0].mean() > half[:, 0].mean() + 10 and dark[:, 1].mean() > half[:, 1].mean() + 10


def test_many_classes_and_long_names_fit(assert_figure: Any) -> None:
    counts = torch.eye(100, dtype=torch.int64)
    assert_figure(confusion_matrix(counts, [f"a class with a very long name {index}" for index in range(100)]))
    assert_figure(confusion_matrix(counts[:2, :2], ["costs $1", "costs $2"]))
