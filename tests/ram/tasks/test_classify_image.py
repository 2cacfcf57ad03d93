"""Classification of whole images: values worked out by hand, the scenes of the environment, and learning."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from envs import GlimpseVectorEnv, InputError
from envs.images import ImageSet
from envs.images.canvas import Canvas
from envs.images.glyphs import Glyphs
from ram.attention.selection import Hard
from ram.baselines import MovingAverageBaseline, NoBaseline
from ram.image_classifier import ImageClassifier
from ram.image_encoders import FullyConnected, Pixels
from ram.inference.images import ImagePredictor
from ram.sequence.pooling import AttentionPooling, SumPooling
from ram.tasks.classify_image import ClassifyImageTask

FEW_GLYPHS = Glyphs(num_train=32, num_validation=24, num_test=16)


def labelled(*pixels: tuple[float, ...], labels: list[int]) -> ImageSet:
    """Images of 1 x 2 pixels."""
    return ImageSet(torch.tensor(pixels)[:, None, None], torch.tensor(labels), ("dark", "bright"))


IMAGES = labelled((0.25, 0.5), (1.0, 0.5), (0.25, 0.75), (0.0, 0.0), labels=[0, 1, 0, 1])


def build_task(images: Any = IMAGES, encoder: Any = Pixels, pooling: Any = SumPooling, **options: Any) -> Any:
    model = partial(ImageClassifier, image_encoder=encoder, pooling=pooling)
    return ClassifyImageTask(images, model, **{"baseline": NoBaseline, "batch_size": 4, **options})


def set_output(task: ClassifyImageTask) -> None:
    """Sets the logits of x, the only pooled feature, to (1, 2 x)."""
    layer = task.model.out[0]
    layer.weight.data, layer.bias.data = torch.tensor([[0.0], [2.0]]), torch.tensor([1.0, 0.0])


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_error_and_loss_match_manual_values(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.classify_image.EVALUATION_ROWS", rows)
    task = build_task().eval()
    set_output(task)
    # The sums of the pixels are 0.75, 1.5, 1 and 0; the logits of "bright" 1.5, 3, 2 and 0, those of "dark" 1.
    losses = [
        math.log(1 + math.exp(0.5)),
        math.log(1 + math.exp(-2.0)),
        math.log(1 + math.exp(1.0)),
        math.log(1 + math.exp(1.0)),
    ]
    measured = task.evaluate("test")
    assert measured.keys() == {"error", "loss"}
    assert measured["error"] == 75
    assert measured["loss"] == pytest.approx(sum(losses) / 4)
    found = task.classify("test")
    correct = found.probability.gather(1, found.labels[:, None])[:, 0]
    torch.testing.assert_close(-correct.log(), torch.tensor(losses))
    assert list(found.inputs) == ["0", "1", "2", "3"] and list(found.classes) == list(task.classes)
    result = task(0)
    assert float(result.loss.detach()) == pytest.approx(sum(losses) / 4)
    assert result.metrics()["train/accuracy"] == 25


def test_the_scenes_are_those_of_the_environment() -> None:
    source = Canvas(FEW_GLYPHS, size=40, num_clutter=2)
    task = build_task(source, partial(FullyConnected, sizes=(4,)))
    env = GlimpseVectorEnv(source, num_envs=24, split="validation", context_size=40, output="torch")
    env.reset(seed=0)
    index = torch.arange(24)
    observation, info = env.reset(options={"index": index})
    scene = task._evaluation_scene("validation", index)
    torch.testing.assert_close(scene.pixels(), observation["context"])
    assert torch.equal(scene.annotations["label"], info["label"])


def test_attention_to_the_object_points_to_it() -> None:
    task = build_task(
        Canvas(FEW_GLYPHS, size=[36, 150]), Pixels, AttentionPooling, policy_weight=0.0, seed=3
    ).eval()  # attends to bright pixels, which are those of the only object
    for value in task.model.pooling.parameters():
        value.data.fill_(100.0)
    measured = task.evaluate("test")
    assert measured["pointing"] == 100
    assert measured["mass_in_box"] == pytest.approx(100, abs=1e-3)
    assert measured["pointing_shuffled"] < 60
    assert task.higher_is_better("pointing") and not task.higher_is_better("error")
    picture = task.pictures("test")["images.png"]
    assert isinstance(picture, np.ndarray) and picture.ndim == 3


class Marked:
    """Images of two channels: the first marks one pixel, whose second channel is the class; the others are random."""

    def load(self, split: str, device: Any = "cpu") -> ImageSet:
        generator = torch.Generator().manual_seed(len(split))
        images = torch.zeros(64, 2, 1, 5)
        images[:, 1] = torch.randint(2, (64, 1, 5), generator=generator).float()
        place = torch.randint(5, (64,), generator=generator)
        images[torch.arange(64), 0, 0, place] = 1
        return ImageSet(images, images[torch.arange(64), 1, 0, place].long(), ("0", "1"))


def train(task: ClassifyImageTask, steps: int, lr: float) -> None:
    optimizer = torch.optim.AdamW(task.parameters(), lr=lr)
    for step in range(steps):
        loss = task(step).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("select", [None, Hard])
def test_soft_and_hard_attention_learn_to_look_at_the_mark(select: Any) -> None:
    pooling = partial(AttentionPooling, select=select) if select else AttentionPooling
    task = build_task(Marked(), Pixels, pooling, batch_size=32, baseline=MovingAverageBaseline)
    before = task.evaluate("test")["error"]
    assert before > 25
    train(task, 300, 0.05)
    assert task.eval().evaluate("test")["error"] < 2


def test_a_fully_connected_network_learns_glyphs() -> None:
    task = build_task(FEW_GLYPHS, partial(FullyConnected, sizes=(32,)), batch_size=16)
    train(task, 60, 0.01)
    index = torch.arange(32)
    images: Tensor = FEW_GLYPHS.load("train").draw(index, None).pixels()
    labels = FEW_GLYPHS.load("train").labels
    assert (task.model(images).logits.argmax(-1) == labels).float().mean() > 0.95


def test_a_trained_model_predicts_the_classes_of_images() -> None:
    task = build_task(pooling=AttentionPooling)
    set_output(task)
    arguments = {"model": partial(ImageClassifier, image_encoder=Pixels, pooling=AttentionPooling), "device": "cpu"}
    model = ClassifyImageTask.restore(task.state_dict(), arguments)
    assert isinstance(model, ImagePredictor)
    prediction = model.predict(IMAGES.images)
    assert prediction.label == ("dark", "bright", "bright", "dark")
    torch.testing.assert_close(prediction.probability.sum(-1), torch.ones(4))
    assert prediction.weights is not None and prediction.weights.shape == (4, 1, 1, 2)
    as_bytes = model.predict((IMAGES.images * 255).round().byte().numpy())
    torch.testing.assert_close(as_bytes.probability, prediction.probability, atol=0.01, rtol=0)
    for wrong in (torch.zeros(2, 1, 2, 1), torch.zeros(0, 1, 1, 2), torch.zeros(1, 1, 2)):
        with pytest.raises(InputError, match=r"^predict needs images of shape \(N, 1, 1, 2\)"):
            model.predict(wrong)


def test_scenes_with_several_labels_are_refused() -> None:
    source = Canvas(FEW_GLYPHS, size=[36, 80], num_objects=2, target_type="sequence")
    with pytest.raises(InputError, match="needs scenes with one label"):
        build_task(source)


def test_a_checkpoint_of_other_classes_is_refused() -> None:
    state = build_task().state_dict()
    state["_extra_state"] = {**state["_extra_state"], "classes": ["a", "b"]}
    with pytest.raises(KeyError, match="differ from those of the checkpoint"):
        build_task().load_state_dict(state)
