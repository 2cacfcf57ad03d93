"""Records the looks and answers of the current episodes, and renders them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from envs.answer_schedule import Answer
from envs.rendering import render_glimpses
from envs.scene import SceneBatch
from envs.sensor import Sensor
from envs.splits import IGNORE_INDEX


class EpisodeRecorder:
    """Keeps the path and the answers of every row.

    Args:
        num_rows: the number of rows, B.
        num_glimpses: the number of looks of an episode, T.
        sensor: the sensor of the environment.
        classes: the names of the answers.
        answer: the kind of the answers.
        device: of the locations.
    """

    def __init__(
        self,
        num_rows: int,
        num_glimpses: int,
        sensor: Sensor,
        classes: Sequence[str],
        answer: Answer | None,
        device: torch.device,
    ) -> None:
        self._path = torch.zeros(num_rows, num_glimpses, 2, device=device)
        self._answers: list[list[Tensor]] = [[] for _ in range(num_rows)]
        self._sensor = sensor
        self._classes = classes
        self._answer = answer

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

    def render(self, scenes: SceneBatch, row: int, image: int, look: int, moving: bool) -> np.ndarray:
        """Draws a row's looks so far: (H, W, 3) uint8.

        Args:
            scenes: the scenes of all rows.
            row: the row.
            image: the number of its image.
            look: the index of its last look.
            moving: whether the scene changes from look to look.
        """
        annotations = {name: value[row] for name, value in scenes.annotations.items()}
        answers = self._answers[row]
        return render_glimpses(
            scenes.images[image],
            self._path[row, : look + 1],
            self._sensor,
            label=self._label_text(annotations),
            answer=self._answer_text(annotations, answers),
            target_box=annotations.get("target"),
            answer_box=answers[-1] if self._answer == "box" and answers else None,
            dynamic=moving,
        )

    def _label_text(self, annotations: dict[str, Tensor]) -> str:
        if "label" in annotations:
            labels = annotations["label"].flatten().tolist()
            return " ".join(self._classes[label] for label in labels if label != IGNORE_INDEX)
        return f"find {self._classes[int(annotations['goal'])]}" if "goal" in annotations else ""

    def _answer_text(self, annotations: dict[str, Tensor], answers: list[Tensor]) -> str | None:
        """The names of the classes answered: all of a sequence, the last one of a single label."""
        if "label" not in annotations or self._answer not in ("label", "log_probs") or not answers:
            return None
        shown = answers if annotations["label"].ndim else answers[-1:]
        return " ".join(self._classes[int(each if self._answer == "label" else each.argmax())] for each in shown)
