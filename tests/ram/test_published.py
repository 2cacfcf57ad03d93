"""Published models: written from a run, loaded by name, evaluated, and refused if damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import ram
from envs import InputError
from envs.images.canvas import Canvas
from envs.images.glyphs import Glyphs
from ram import evaluate, publish, published, train
from ram.config import check

SMALL = [
    *("images.size=16", "images.num_train=64", "images.num_validation=32", "images.num_test=32", "scenes=translated"),
    *("scenes.size=20", "task.batch_size=16", "glimpse=convolutional", "glimpse.output_size=16", "core=gru"),
    *("core.size=16", "env.num_glimpses=2", "task.patch_reward=1", "env.context_size=5", "core.num_layers=2"),
    *("num_threads=1", "trainer.max_epochs=1", "trainer.picture_every=0", "num_processes=1", "hydra.run.dir=run"),
]


@pytest.fixture
def model(
    command: Callable[..., None], empty_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> str:
    """The name of a published model, in a folder of its own."""
    monkeypatch.setattr(published, "FOLDER", empty_folder / "weights")
    command(train, *SMALL)
    command(publish, "run=run", "name=small")
    capsys.readouterr()
    return "small"


def test_a_published_model_predicts_as_its_run(model: str) -> None:
    scenes = Canvas(Glyphs(size=16, num_train=64, num_validation=32, num_test=32), size=20).load("train")
    images = torch.rand(5, 1, 20, 20)
    assert len(scenes) == 64
    ours, theirs = ram.load(model).predict(images), ram.load("run").predict(images)
    assert ours.label == theirs.label
    torch.testing.assert_close(ours.probability, theirs.probability, atol=2e-3, rtol=0)  # weights in float16
    torch.testing.assert_close(ours.location, theirs.location, atol=2e-3, rtol=0)


def test_a_published_model_is_evaluated_by_its_name(
    model: str, command: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    command(evaluate, f"run={model}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    expected = json.loads(Path("run/metrics.json").read_text())
    assert float(printed["test/error"]) == pytest.approx(expected["test/error"], abs=100 / 32 + 0.01)
    assert float(printed["validation/error"]) == pytest.approx(expected["validation/error"], abs=0.01)


def test_a_published_model_is_initial_weights_with_another_reward(model: str, command: Callable[..., None]) -> None:
    command(train, *SMALL[:-1], f"init={model}", "task.patch_reward=0", "optimizer.lr=0", "hydra.run.dir=other")
    assert json.loads(Path("other/metrics.json").read_text())["test/error"] == pytest.approx(
        json.loads(Path("run/metrics.json").read_text())["test/error"], abs=100 / 32 + 0.01
    )
    names = published.read(published.find(model))["task"]
    assert not any(name.startswith(("baseline.", "patch_classifier.")) for name in names)


def test_the_card_names_command_commit_and_figures(model: str) -> None:
    card = published.read(published.find(model))["card"]
    expected = json.loads(Path("run/metrics.json").read_text())
    assert card["command"].startswith("python -m ram.train images.size=16 ")
    assert "hydra.run.dir" not in card["command"]
    assert (card["commit"], card["seed"]) == (expected["commit"], 0)
    assert card["metrics"]["test/error"] == expected["test/error"]
    text = (published.FOLDER / "small.md").read_text()
    assert card["command"] in text and f"| `test/error` | {expected['test/error']:.2f} |" in text


def test_unknown_and_damaged_models_are_refused(model: str) -> None:
    with pytest.raises(InputError, match=r"^nosuch is not the folder of a run"):
        ram.load("nosuch")
    with pytest.raises(InputError, match=r"^nosuch is neither the folder of a run nor a published model: small\.$"):
        published.find("nosuch")
    path = published.find(model)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"small\.safetensors is damaged: install the package again\.$"):
        ram.load(model)


def test_publishing_needs_a_run_and_a_name(refusal: Callable[..., str]) -> None:
    for arguments in (["name=a"], ["run=run"], ["run=run", "name=a", "seed=1"]):
        assert refusal(publish, *arguments).startswith("Error: Give a run and a name: python -m ram.publish")


def test_shipped_weights_classify_glyphs_without_hydra_and_without_data() -> None:
    program = """
import sys
sys.modules["hydra"] = sys.modules["omegaconf"] = None  # cannot be imported
import ram
from envs.images.glyphs import Glyphs
glyphs = Glyphs().load("test")
step = len(glyphs) // 100
prediction = ram.load("glyphs").predict(glyphs.images[::step][:100])
labels = [glyphs.classes[number] for number in glyphs.labels[::step][:100].tolist()]
print(sum(ours == theirs for ours, theirs in zip(prediction.label, labels, strict=True)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 97


@pytest.mark.parametrize("name", published.names())
def test_every_shipped_model_is_loaded(name: str) -> None:
    state = published.read(published.find(name))
    model = ram.load(name)
    assert len(model.predict(torch.rand(2, *model.image_shape)).label) == 2
    channels, height, width = model.image_shape
    assert repr(model) == f"GlimpsePredictor(images {channels} x {height} x {width}, 10 classes)"
    assert published.find(name).with_suffix(".md").is_file()
    assert "/" not in state["config"]["images"].get("root", "data")
    check(OmegaConf.create(state["config"]))  # python -m ram.evaluate builds the task


def test_shipped_weights_are_small() -> None:
    assert "glyphs" in published.names()
    assert sum(published.find(name).stat().st_size for name in published.names()) <= 12e6
