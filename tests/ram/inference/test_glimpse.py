"""Predictions of trained glimpse agents."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from envs import GlimpseSensor, GlimpseVectorEnv, InputError
from envs.rewards.answers import EarlyAnswer
from envs.rewards.targets import TargetDistance
from ram.agent import RecurrentAttention
from ram.inference.glimpse import GlimpsePredictor
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.rollout import run_episode
from ram.tasks.glimpse import GlimpseTask
from tests.ram.glimpse_tasks import (
    WITH_END,
    A,
    build_task,
    class_probabilities,
    constant_images,
    expected_locations,
    followable_task,
    random_images,
)


def test_predictions_do_not_depend_on_the_other_images() -> None:
    task = build_task()
    images = random_images()
    arguments = {
        "env": partial(GlimpseVectorEnv, images=images, sensor=GlimpseSensor(4), num_glimpses=3),
        "agent": partial(
            RecurrentAttention,
            glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=16),
            core=partial(CoreNetwork, size=16),
        ),
        "seed": 0,
        "device": "cpu",
    }
    model = GlimpseTask.restore(task.state_dict(), arguments)
    assert isinstance(model, GlimpsePredictor)
    prediction = model.predict(images.images)
    single = model.predict(images.images[3:4])
    torch.testing.assert_close(single.probability[0], prediction.probability[3])
    env = task._env("test", 40)
    options = {"index": torch.arange(40), "location": prediction.location[:, 0]}
    env.reset(seed=0)
    rollout = run_episode(task.agent, env, {"location": torch.zeros(3, 40, 2)}, options, greedy=True)
    torch.testing.assert_close(rollout.logits[-1].softmax(-1), prediction.probability)
    assert prediction.label == tuple(images.classes[number] for number in rollout.logits[-1].argmax(-1).tolist())
    assert prediction.location.shape == (40, 3, 2)
    torch.testing.assert_close(prediction.probability.sum(-1), torch.ones(40))
    with pytest.warns(UserWarning, match="was trained on images of 10 x 10 pixels, not 30 x 17"):
        other_size = model.predict(np.zeros((2, 1, 30, 17), np.uint8))
    assert len(other_size.label) == 2
    with pytest.raises(InputError, match=r"\(N, 1, H, W\)"):
        model.predict(torch.zeros(2, 3, 10, 10))
    with pytest.raises(InputError, match=r"in \[0, 1\] if it is floating point"):
        model.predict(255 * images.images)
    with pytest.raises(
        InputError, match=r"^The argument images contains NaN: remove the image, or replace the values\.$"
    ):
        model.predict(images.images * math.nan)
    with pytest.raises(InputError, match=r"^The argument images must be an array of numbers, got 'abc'\.$"):
        model.predict("abc")


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (WITH_END, ("a b", "b", "a a a", "a a b", "")),
        (("a", "b", "c"), ("a b c", "b c c", "a a a", "a a b", "c c c")),
    ],
)
def test_several_answers_are_predicted_up_to_the_end(classes: tuple[str, ...], labels: tuple[str, ...]) -> None:
    _, model = followable_task(constant_images(0.5), [[A, A, A]], classes, glimpses_per_answer=2)
    brightness = (0.25, 0.5, 0.1, 0.15, 1.0)
    prediction = model.predict(constant_images(*brightness))
    assert prediction.label == labels
    # (N, A, K) after looks 2, 4 and 6, including answers after the end.
    expected = torch.tensor([[class_probabilities(t * v) for t in (2, 4, 6)] for v in brightness])
    torch.testing.assert_close(prediction.probability, expected)
    torch.testing.assert_close(prediction.location, expected_locations(dict.fromkeys(brightness, 6), 6))


def test_one_of_several_answers_is_predicted_at_the_look_where_it_is_due() -> None:
    _, model = followable_task(constant_images(0.5), [[A]], ("a", "b", "c"), glimpses_per_answer=3)
    prediction = model.predict(constant_images(0.2, 0.4))  # h is 0.6 and 1.2 after three looks, twice as much after six
    assert prediction.label == ("a", "b")
    torch.testing.assert_close(
        prediction.probability, torch.tensor([class_probabilities(0.6), class_probabilities(1.2)])
    )
    assert prediction.location.shape == (2, 3, 2)


def test_predict_does_not_need_the_annotations_of_the_reward() -> None:
    _, model = followable_task(constant_images(0.5), [A], ("a", "b", "c"))
    model = replace(model, env=partial(model.env, reward=TargetDistance()))
    assert model.predict(constant_images(0.1, 0.5)).label == ("a", "c")


def test_an_agent_that_may_stop_predicts_at_its_stop_and_repeats_its_last_location() -> None:
    _, model = followable_task(constant_images(0.5), [A], ("a", "b", "c"), stop=True, reward=EarlyAnswer())
    looks = {1.0: 2, 0.6: 2, 0.5: 3, 0.3: 4, 0.1: 6}
    prediction = model.predict(constant_images(*looks))
    assert prediction.label == ("c", "b", "c", "b", "a")
    expected = torch.tensor([class_probabilities(count * v) for v, count in looks.items()])
    torch.testing.assert_close(prediction.probability, expected)
    torch.testing.assert_close(prediction.location, expected_locations(looks, 6))
    # The number of looks is that of the slowest image.
    fast = {1.0: 2, 0.5: 3}
    torch.testing.assert_close(model.predict(constant_images(*fast)).location, expected_locations(fast, 3))
