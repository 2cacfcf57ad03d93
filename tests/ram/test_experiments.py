"""Every shipped experiment composes, trains, is evaluated and draws its pictures, with small networks on small data."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ram.config import check, config_folder
from ram.tasks import Animation
from ram.training.job import Job
from tests.ram.data_files import use_data_sets, write_data_sets

FOLDER = config_folder()
EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("experiment/*.yaml"))
FEW = ["num_train=48", "num_validation=12", "num_test=12"]
GLIMPSES = ["core.size=16", "glimpse.output_size=16"]
TRANSLATION = ["encoder.size=8", "decoder.size=8", "task.model.embedding.size=8", "task.search.max_length=5"]
AERIAL = ["corpus.size=16", "image_encoder.widths=[4,8]", "decoder.size=16", "task.search.max_length=5"]
SCENES = [
    "corpus.num_train=64",
    "image_encoder.widths=[4,4,8]",
    "image_encoder.encoder.size=8",
    "decoder.size=16",
    "task.model.embedding.size=16",
    "task.search.max_length=5",
]
DATA = {"pictures": ["images.root=data/pictures", "glimpse.convolutions.widths=[4,8]"]}  # its images have no default
SMALL = {  # options of experiments; all others are experiments on glimpses
    "aerial": AERIAL,
    "aerial_hard": AERIAL,
    "aerial_self_critical": AERIAL,
    "scenes": SCENES,
    "scenes_hard": SCENES,
    "scenes_glimpses": ["corpus.num_train=64", "decoder.size=16", "task.search.max_length=5"],
    "arithmetic": ["corpus.size=64", "corpus.max_operands=2", "encoder.size=16"],
    "inflection": TRANSLATION,
    "latin": [*TRANSLATION, "corpus.size=200"],
    "multi30k": ["encoder.size=16", "task.model.embedding.size=16"],
    "names": [*TRANSLATION, "corpus.size=200"],
    "negation": ["corpus.size=64", "encoder.size=16"],
    "pronunciation": TRANSLATION,
    "reversal": [*TRANSLATION, "corpus.size=64"],
    "sentiment": ["encoder.size=16"],
    "tags": ["encoder.size=16"],
    "whole_image": ["image_encoder.widths=[4,8]"],
    "translation": [*TRANSLATION, "encoder.num_layers=1", "decoder.num_layers=1", "task.subwords=60"],
    "translation_recurrent": [*TRANSLATION, "task.subwords=60"],
}


def _compose(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        return compose("config", list(overrides))


def _small(name: str) -> list[str]:
    """Returns the options of an experiment that make networks and data small."""
    if name in SMALL:
        return SMALL[name]
    config = _compose(f"experiment={name}")
    for group in ("scenes", "images"):
        if config[group]._target_ in ("envs.images.glyphs.Glyphs", "envs.catch.Catch"):
            return [*GLIMPSES, *(f"{group}.{option}" for option in FEW)]
    return GLIMPSES


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small files of every data set."""
    folder = tmp_path_factory.mktemp("data_sets")
    write_data_sets(folder)
    return folder


@pytest.fixture(scope="module", params=[*EXPERIMENTS, "sentiment corpus=sst2"])
def experiment(request: pytest.FixtureRequest, data_sets: Path) -> Iterator[SimpleNamespace]:
    """The job of an experiment, its task and its name."""
    name, *more = request.param.split()
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_data_sets(data_sets, monkeypatch)
        monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 20)
        job = Job(_compose(f"experiment={name}", "task.batch_size=16", *_small(name), *DATA.get(name, []), *more))
        yield SimpleNamespace(job=job, task=job.task, name=name)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_composes(name: str) -> None:
    check(_compose(f"experiment={name}", *DATA.get(name, [])))


def test_experiment_trains_all_parameters(experiment: SimpleNamespace) -> None:
    task = experiment.task.train()
    optimizer = experiment.job.optimizer([{**group, "lr_scale": 1.0} for group in task.parameter_groups()])
    losses = []
    for step in (0, 1, 0):
        result = task(step)
        result.loss.backward()
        losses.append(float(result.loss.detach()))
        metrics = {name: value for name, value in result.metrics().items() if name != "baseline/explained_variance"}
        assert math.isfinite(losses[-1]) and all(map(math.isfinite, metrics.values()))
        optimizer.step()
    assert losses[2] != losses[0], "the loss of a batch is the same after two updates"
    without = {name for name, value in task.named_parameters() if value.grad is None or not value.grad.any()}
    if "loss/baseline" not in metrics:  # without hard choices, nothing uses the baseline
        without = {name for name in without if not name.startswith("baseline.")}
    assert not without


def test_experiment_is_evaluated(experiment: SimpleNamespace) -> None:
    task = experiment.task.eval()
    measured = task.evaluate("validation")
    assert math.isfinite(measured[task.monitor])
    if experiment.name not in SMALL:
        assert task.evaluate("test").keys() >= {"return", "return_sampled", "return_random"}
        assert task.diagnostics(2)["grad/variance_location"] >= 0


def test_experiment_draws_pictures(experiment: SimpleNamespace) -> None:
    pictures = experiment.task.eval().pictures("validation")
    assert pictures
    if experiment.name not in SMALL:
        assert isinstance(pictures["glimpses.gif"], Animation)
        assert isinstance(pictures["glimpses.png"], np.ndarray)
