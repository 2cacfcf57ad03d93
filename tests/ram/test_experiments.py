"""Every experiment that ships trains, is measured and is drawn, on a few small scenes."""

import math
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ram.config import config_folder
from ram.tasks import Animation
from ram.train import Job

FOLDER = config_folder()
EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("experiment/*.yaml"))
GLYPHS = ["num_train=48", "num_validation=12", "num_test=12"]
DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = {
    "aerial": DATA / "ucm_captions",
    "aerial_hard": DATA / "ucm_captions",
    "aerial_self_critical": DATA / "ucm_captions",
    "inflection": DATA / "inflection",
    "multi30k": DATA / "multi30k",
    "pronunciation": DATA / "cmudict",
    "sentiment": DATA / "sentiment",
    "tags": DATA / "multi30k",
    "translation": DATA / "multi30k",
    "translation_recurrent": DATA / "multi30k",
}
SPOKEN = ["encoder.size=8", "decoder.size=8", "task.model.embedding.size=8", "task.search.max_length=5"]
AERIAL = ["corpus.size=16", "encoder.widths=[4,8]", "decoder.size=16", "task.search.max_length=5"]
SCENES = ["corpus.num_train=64", "encoder.widths=[4,4,8]", "decoder.size=16", "task.model.embedding.size=16"]
TEXTS = {
    "aerial": AERIAL,
    "aerial_hard": AERIAL,
    "aerial_self_critical": AERIAL,
    "scenes": SCENES,
    "scenes_hard": SCENES,
    "scenes_glimpses": ["corpus.num_train=64", "decoder.size=16"],
    "arithmetic": ["corpus.size=64", "corpus.max_operands=2", "encoder.size=16"],
    "inflection": SPOKEN,
    "latin": [*SPOKEN, "corpus.size=200"],
    "multi30k": ["encoder.size=16", "task.model.embedding.size=16"],
    "names": [*SPOKEN, "corpus.size=200"],
    "negation": ["corpus.size=64", "encoder.size=16"],
    "pronunciation": SPOKEN,
    "reversal": [*SPOKEN, "corpus.size=64"],
    "sentiment": ["encoder.size=16"],
    "tags": ["encoder.size=16"],
    "translation": [*SPOKEN, "encoder.num_layers=1", "decoder.num_layers=1", "task.subwords=500"],
    "translation_recurrent": [*SPOKEN, "task.subwords=500"],
}
SMALL = ["task.batch_size=16", "core.size=16", "task.agent.glimpse.output_size=16"]


def _compose(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        return compose("config", list(overrides))


def _overrides(name: str) -> list[str]:
    """Glyphs in place of digits that would have to be downloaded, and few of either."""
    images = _compose(f"experiment={name}").images
    if "objects" in images:
        few = [f"images.objects.{option}" for option in ("size=28", *GLYPHS)]
        return ["images@images.objects=glyphs", *few]
    base = ["images=glyphs"] if images._target_ == "envs.images.mnist.MNIST" else []
    return [*base, *(f"images.{option}" for option in GLYPHS)]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_an_experiment_on_texts_trains_and_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 30)
    folder = FOLDERS.get(name)
    if folder is not None and not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    root = [] if folder is None else [f"corpus.root={folder}"]
    task = Job(_compose(f"experiment={name}", *TEXTS[name], *root)).task
    result = task(0)
    result.loss.backward()
    assert all(map(math.isfinite, result.metrics().values()))
    task.eval()
    assert task.monitor in task.evaluate("validation")
    assert task.pictures("validation")


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in TEXTS])
def test_an_experiment_trains_and_is_measured(name: str) -> None:
    config = _compose(f"experiment={name}", *_overrides(name), *SMALL)
    task = Job(config).task
    for step in range(2):
        result = task(step)
        result.loss.backward()
        assert all(
            math.isfinite(value) or name == "baseline/explained_variance" for name, value in result.metrics().items()
        )
    idle = [name for name, value in task.named_parameters() if value.grad is None or not value.grad.any()]
    assert not idle
    measured = task.evaluate("validation")
    assert task.monitor in measured
    assert task.evaluate("test").keys() >= {"return", "return_sampled", "return_random"}
    diagnostics = task.diagnostics(2)
    assert diagnostics["grad/variance_location"] >= 0
    pictures = task.pictures("validation")
    assert isinstance(pictures["glimpses.gif"], Animation)
    assert isinstance(pictures["glimpses.png"], np.ndarray)
