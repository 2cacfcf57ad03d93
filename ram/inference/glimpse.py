"""Trained glimpse agents: classes of given images."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from envs import GlimpseVectorEnv
from envs.errors import InputError
from envs.images import ImageSet
from envs.random import RowRandom
from envs.rendering import render_glimpses
from envs.rewards.answers import CorrectAnswer
from envs.scene import END_CLASS, Scene
from ram.agent import RecurrentAttention
from ram.inference import ImageModel, Row, class_rows, parse_image_batch
from ram.rollout import draw_noise, run_episode


@dataclass(frozen=True)
class Prediction:
    """The classes of N images.

    Attributes:
        label: N class names; where an image has several answers, their names up to the end, separated by spaces.
        probability: (N, K), of every class; (N, A, K) where an image has A answers.
        location: (N, T, 2), the location of each look; after a stop the last location is repeated.
    """

    label: tuple[str, ...]
    probability: Tensor
    location: Tensor


@dataclass(frozen=True, repr=False)
class GlimpsePredictor(ImageModel):
    """A trained agent with its sensor, as returned by :func:`ram.load`.

    Attributes:
        env: builds the environment, as for :class:`ram.tasks.glimpse.GlimpseTask`.
        agent: the trained agent, in evaluation mode.
        classes: the class names.
        image_shape: (C, H, W) of the training images.
        label_shape: the shape of an image's label in training, () or (A,); None without labels.
        interface: :attr:`envs.GlimpseVectorEnv.interface` of the training environment.
        seed: of the first locations.
        device: where to compute.
    """

    env: Callable[..., GlimpseVectorEnv]
    agent: RecurrentAttention
    classes: Sequence[str]
    image_shape: Sequence[int]
    label_shape: Sequence[int] | None
    interface: Mapping[str, Any]
    seed: int
    device: str

    @torch.no_grad()
    def predict(self, images: Tensor | np.ndarray) -> Prediction:
        """Classifies images, each along one trajectory of the policy's modes.

        The first location is the same for all images, so that predictions do not depend on the other images.

        Args:
            images: (N, C, H, W), float in [0, 1] or uint8; C as in training. H and W may be others, with a warning:
                the agent has not learned to explore images of another size.

        Raises:
            InputError: if the images have another shape or type, or the agent does not answer with classes.
        """
        if self.label_shape is None or self.interface["num_goals"]:
            raise InputError("predict needs an agent that classifies images: this run was trained for another answer.")
        tensor = parse_image_batch(images, self.image_shape[0], None, None)
        if tensor.shape[1:] != tuple(self.image_shape):
            given, trained = (f"{height} x {width}" for height, width in (tensor.shape[2:], self.image_shape[1:]))
            warnings.warn(f"The agent was trained on images of {trained} pixels, not {given}.", stacklevel=2)
        env = self._build_env(tensor)
        env.reset(seed=self.seed)
        zeros = torch.zeros(len(tensor), dtype=torch.long, device=self.device)
        random = RowRandom(zeros + self.seed, zeros)
        options: dict[str, Any] = {"index": torch.arange(len(tensor), device=self.device)}
        if env.first_location == "random":
            options["location"] = random.uniform("first_location", 2) * 2 - 1
        rollout = run_episode(self.agent, env, draw_noise(random, env, "policy/0"), options, greedy=True)
        several = math.prod(self.label_shape) > 1
        probability = rollout.final_answers(several)[0].transpose(0, 1)
        names = [[self.classes[number] for number in row] for row in probability.argmax(-1).tolist()]
        label = tuple(" ".join(takewhile(END_CLASS.__ne__, row)) if several else row[0] for row in names)
        return Prediction(label, probability if several else probability[:, 0], rollout.location.transpose(0, 1))

    def _build_env(self, images: Tensor) -> GlimpseVectorEnv:
        """Builds an environment that shows the given images, one in each row."""
        labels = torch.zeros(len(images), *(self.label_shape or ()), dtype=torch.long)  # not used
        return self.env(
            images=ImageSet(images, labels, tuple(self.classes)),
            reward=CorrectAnswer(),  # the reward of the run may need annotations that images do not have
            num_envs=len(images),
            split="test",
            output="torch",
            device=self.device,
            autoreset_mode=AutoresetMode.DISABLED,
        )

    def tabulate(self, images: Tensor) -> tuple[list[Row], Callable[[int], np.ndarray]]:
        """Classifies images; see :meth:`ram.inference.ImageModel.tabulate`.

        The columns x1, y1, x2, ... are the locations of the looks, in [-1, 1].
        """
        prediction = self.predict(images)
        rows: list[Row] = [{"label": label} for label in prediction.label]
        if prediction.probability.ndim == 2:  # one answer for an image
            rows = class_rows(prediction.label, prediction.probability, self.classes)
        for row, looks in zip(rows, prediction.location.tolist(), strict=True):
            for number, (x, y) in enumerate(looks, start=1):
                row |= {f"x{number}": round(x, 4), f"y{number}": round(y, 4)}
        sensor = self._build_env(images[:1]).sensor

        def draw(index: int) -> np.ndarray:
            pixels = Scene(images[index : index + 1]).pixels()[0]
            return render_glimpses(pixels, prediction.location[index], sensor, prediction.label[index])

        return rows, draw
