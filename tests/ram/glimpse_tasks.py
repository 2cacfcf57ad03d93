"""Small glimpse tasks for tests."""

import math
from functools import partial

import torch
from torch import Tensor

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet
from envs.rewards import Reward
from envs.scene import END_CLASS
from ram.agent import RecurrentAttention
from ram.baselines import NoBaseline
from ram.inference.glimpse import GlimpsePredictor
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.policies import LocationNetwork
from ram.tasks.glimpse import GlimpseTask


def random_images(count: int = 40, size: int = 10, classes: int = 3) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, 1, size, size, generator=generator)
    labels = torch.arange(count) % classes
    return ImageSet(images, labels, tuple("abcdefghij"[:classes]))


def build_task(
    images: ImageSet | None = None,
    policy: object = LocationNetwork,
    num_glimpses: int = 3,
    reward: Reward | None = None,
    glimpses_per_answer: int | None = None,
    **options: object,
) -> GlimpseTask:
    env = partial(
        GlimpseVectorEnv,
        images=images or random_images(),
        sensor=GlimpseSensor(4),
        num_glimpses=num_glimpses,
        reward=reward,
        glimpses_per_answer=glimpses_per_answer,
    )
    agent = partial(
        RecurrentAttention,
        glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=16),
        core=partial(CoreNetwork, size=16),
        policy=policy,
    )
    options = {"baseline": NoBaseline, "batch_size": 8} | options
    return GlimpseTask(env, agent, **options)  # type: ignore[arg-type]


# An agent whose states can be computed by hand: on images of constant brightness v, h is t v after look t.

CLASS_CENTERS = (0.5, 1.0, 1.5)
"""The logit of a class is 4 (c h - c^2 / 2), so that the most probable class is the one whose c is nearest to h."""


def class_probabilities(h: float) -> list[float]:
    """Returns the probability of every class, proportional to exp(-2 (h - c)^2)."""
    density = [math.exp(-2 * (h - center) ** 2) for center in CLASS_CENTERS]
    return [each / sum(density) for each in density]


def constant_images(*brightness: float) -> Tensor:
    """Returns one image of constant brightness for each argument."""
    return torch.tensor(brightness)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()


def followable_task(
    images: Tensor, labels: list[list[int]] | list[int], classes: tuple[str, ...], **options: object
) -> tuple[GlimpseTask, GlimpsePredictor]:
    """Returns a task with such an agent, and the predictor restored from it.

    A look reads one pixel: first at the center, then at x = tanh(h / 2), y = -x. If the agent may stop, the logits are
    0 of going on and h - 1.1 of stopping, so that the greedy agent stops once h exceeds 1.1.
    """
    arguments = {
        "env": partial(
            GlimpseVectorEnv,
            images=ImageSet(images, torch.tensor(labels), classes),
            sensor=GlimpseSensor(1),
            num_glimpses=6,
            first_location="center",
            **options,
        ),
        "agent": partial(
            RecurrentAttention,
            glimpse=partial(GlimpseNetwork, patch_features=1, location_features=1, output_size=1),
            core=partial(CoreNetwork, size=1),
            policy=partial(LocationNetwork, reach=0.0, std=0.15, final_std=None),
        ),
    }
    task = GlimpseTask(**arguments, baseline=NoBaseline, batch_size=1)  # type: ignore[arg-type]
    centers = torch.tensor(CLASS_CENTERS)
    weights = {
        "glimpse.patch.weight": torch.ones(1, 1),
        "glimpse.merge.weight": torch.tensor([[1.0, 0.0]]),
        "core.layers.0.glimpse.weight": torch.ones(1, 1),
        "core.layers.0.hidden.weight": torch.ones(1, 1),
        "location.mean.0.weight": torch.tensor([[0.5], [-0.5]]),
        "action.logits.0.weight": 4 * centers[:, None],
        "action.logits.0.bias": -2 * centers**2,
        "stop.logits.weight": torch.tensor([[0.0], [1.0]]),
        "stop.logits.bias": torch.tensor([0.0, -1.1]),
    }
    for name, parameter in task.agent.named_parameters():
        parameter.data = weights.get(name, torch.zeros_like(parameter))
    task.agent.glimpse.input_scale.rms.fill_(1)
    model = GlimpseTask.restore(task.state_dict(), arguments | {"seed": 0, "device": "cpu"})
    return task, model


A, B, E = range(3)
WITH_END = ("a", "b", END_CLASS)


def expected_locations(looks: dict[float, int], num_looks: int) -> Tensor:
    """Returns the locations at images of each brightness, given their numbers of looks; the last one repeats."""
    x = [[math.tanh(min(t, looks[v] - 1) * v / 2) for t in range(num_looks)] for v in looks]
    return torch.stack([torch.tensor(x), -torch.tensor(x)], dim=-1)
