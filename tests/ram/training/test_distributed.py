"""Two processes train as one: the same losses, weights and metrics, one folder, and errors in one sentence."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from envs import InputError
from ram import train
from ram.config import config_folder
from ram.distributed import World, agree, parallel_map, world
from ram.tasks import StepResult, Task
from ram.tasks.corpus import CorpusTask
from ram.training import processes
from ram.training.job import Job, earlier_config, resume, start
from ram.training.run_folder import RunFolder
from ram.training.tracker import Tracker
from ram.training.trainer import Trainer, TrainingStopped

BUDGET = ["trainer.log_every=1", "trainer.max_epochs=1", "trainer.max_steps=6", "trainer.schedule=constant"]
BUDGET += ["trainer.picture_every=0", "trainer.diagnose_every=0", "num_threads=1"]
IMAGES = ["images.size=16", "images.num_train=40", "images.num_validation=21", "images.num_test=11"]
GLIMPSES = [*IMAGES, "glimpse.output_size=16", "core.size=16", "optimizer.lr=0.01"]
JOBS = {
    # Uneven shares of the batch, several rollouts, and episodes of different lengths.
    "early_answer": ["env.num_glimpses=3", "baseline=leave_one_out", "task.rollouts_per_image=2", "task.batch_size=7"],
    "glyphs": ["env.num_glimpses=2", "baseline=moving_average", "task.batch_size=8", "task.patch_reward=1"],
    "whole_image": [*IMAGES, "image_encoder.widths=[4,8]", "images=glyphs", "pooling=fixed", "task.batch_size=7"],
    # The last batch of an epoch has one text.
    "negation": ["corpus.size=50", "encoder.size=8", "task.batch_size=7"],
    # By gradient descent: AdamW makes large steps of gradients that are nearly 0, where rounding decides.
    "reversal": [
        *("corpus.size=60", "encoder.size=8", "decoder.size=8", "task.batch_size=8", "task.label_smoothing=0.1"),
        *("optimizer=sgd", "optimizer.lr=0.5"),
    ],
    "arithmetic": [
        "corpus.size=40",
        "corpus.max_operands=2",
        "task.batch_size=8",
        "encoder.size=8",
        "encoder.dropout=0",
    ],
    # Batch normalization, and one caption drawn for each image.
    "scenes": [
        *("corpus.num_train=32", "task.batch_size=5", "image_encoder.widths=[4,4,8]", "image_encoder.encoder.size=8"),
        *("image_encoder.dropout=0", "image_encoder.encoder.dropout=0", "decoder.size=16", "task.search.max_length=5"),
        *("task.model.embedding.size=16", "task.coverage=0.1", "task.model.dropout=0"),
    ],
}


def _config(name: str) -> DictConfig:
    options = GLIMPSES if name in ("early_answer", "glyphs") else []
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", [f"experiment={name}", *BUDGET, *options, *JOBS[name]])


def _fit(name: str, folder: Path) -> dict[str, float]:
    """Trains a job without pictures, and returns its test metrics."""
    job = Job(_config(name))
    if isinstance(job.task, CorpusTask):  # few examples for evaluation
        for split in ("validation", "test"):
            examples = job.task.split(split)
            job.task._splits[split] = examples.select(range(0, len(examples), -(-len(examples) // 25)))
    with nullcontext() if world().rank else closing(Tracker(folder)) as tracker:
        job.trainer.fit(job.task, job.optimizer, tracker, folder / "checkpoints")
    job.task.eval()
    return job.task.evaluate("test")


def _train(folder: Path) -> None:
    """Trains all jobs in as many processes as there are, each in the folder of its name."""
    for name in JOBS:
        metrics = processes.run(world().size, _fit, name, folder / name)
        (folder / name / "metrics.json").write_text(json.dumps(metrics))


def _start(folder: Path) -> None:
    processes.run(world().size, start, _config("glyphs"), RunFolder(folder), [])


def _resume(folder: Path) -> None:
    run = RunFolder(folder)
    options = {"trainer.max_steps": "9", "trainer.max_epochs": "2"}
    processes.run(world().size, resume, earlier_config(run, options, "resume"), run, list(options))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the jobs in one process, ``1``, and in two, ``2``; and two runs resumed with another number.

    One fixture makes all, because a new process takes seconds to import torch.
    """
    folder = tmp_path_factory.mktemp("runs")
    _train(folder / "1")
    _start(folder / "1-2")
    with processes.started(2):
        _train(folder / "2")
        _start(folder / "2-1")
        _resume(folder / "1-2")
        with pytest.raises(TrainingStopped, match=r"loss/slope is not finite at step 2"):
            processes.run(2, _fit_slope, folder / "slope")
        with pytest.raises(InputError, match=r"^A mistake in process 1\.$"):
            processes.run(2, _refuse)
        assert processes.run(2, _squares) == [0, 1, 4, 9, 16]
    _resume(folder / "2-1")
    return folder


def _metrics(run: Path) -> dict[str, float]:
    metrics = json.loads((run / "metrics.json").read_text())
    left_out = "second", "nearest"  # the nearest of encodings that are almost equal
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, float) and not any(each in name for each in left_out)
    }


def _losses(run: Path) -> dict[str, list[float]]:
    (file,) = run.glob("events.out.tfevents.*")
    events = EventAccumulator(str(file))
    events.Reload()
    return {name: [each.value for each in events.Scalars(name)] for name in events.Tags()["scalars"] if "loss/" in name}


def _assert_same(one: Path, other: Path) -> None:
    states = [torch.load(run / "checkpoints" / "last.pt", weights_only=True) for run in (one, other)]
    for part in ("task", "average"):
        for state in states:
            state[part].pop("_extra_state", None)
        torch.testing.assert_close(states[0][part], states[1][part], rtol=1e-4, atol=1e-5)
    assert states[0]["run"] == states[1]["run"]
    assert _metrics(one) == pytest.approx(_metrics(other), rel=1e-5)


@pytest.mark.parametrize("name", JOBS)
def test_two_processes_train_as_one(runs: Path, name: str) -> None:
    one, two = runs / "1" / name, runs / "2" / name
    _assert_same(one, two)
    losses, others = _losses(one), _losses(two)
    assert losses.keys() == others.keys()
    assert len(losses["loss/total"]) > 4
    for term, values in losses.items():
        assert values == pytest.approx(others[term], rel=1e-4, abs=1e-6), term


def test_one_process_writes_the_records(runs: Path) -> None:
    names = [sorted(path.name.split(".")[0] for path in (runs / each).rglob("*")) for each in ("1-2", "2-1")]
    assert names[0] == names[1]
    records = [json.loads(next((runs / each).glob("metrics.step*.json")).read_text()) for each in ("1-2", "2-1")]
    assert [record["num_processes"] for record in records] == [1, 2]


def test_a_run_is_resumed_with_another_number_of_processes(runs: Path) -> None:
    _assert_same(runs / "1-2", runs / "2-1")


class _Slope(Task):
    """A linear loss, which is not finite in process 1 at step 2."""

    steps_per_epoch, examples_per_step, unit, monitor = 4, 2, "things", "error"

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, step: int) -> StepResult:
        loss = self.weight.sum() * (math.nan if step == 2 and world().rank == 1 else 1.0)
        return StepResult(loss, lambda: {"loss/slope": loss.item()})

    def evaluate(self, split: str) -> dict[str, float]:
        return {"error": 1.0}

    @classmethod
    def restore(cls, state: object, arguments: object) -> None:
        return None


def _fit_slope(folder: Path) -> None:
    Trainer().fit(_Slope(), partial(torch.optim.SGD, lr=0.5), None, folder)


def _refuse() -> None:
    def refuse() -> None:
        if world().rank == 1:
            raise InputError("A mistake in process 1.")

    agree(refuse)


def _squares() -> list[int]:
    return parallel_map(lambda number: number**2, range(5))


def _end_in_process_1() -> None:
    if world().rank == 1:
        os._exit(3)
    _squares()


def test_a_process_that_ends_stops_the_job() -> None:
    with pytest.raises(TrainingStopped, match=r"^Process 1 has ended with exit status 3; "):
        processes.run(2, _end_in_process_1)
    assert world() == World()


def test_shares_are_contiguous_and_cover_a_batch_once() -> None:
    shares = [World(rank, 3).share(8) for rank in range(3)]
    assert [list(share) for share in shares] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert [World(rank, 3).share(2) for rank in range(3)] == [range(2)] * 3
    assert World(2, 3).parts(2) == [range(1), range(1, 2)]


def test_the_weighted_means_of_shares_average_to_the_mean_of_the_batch() -> None:
    for values in (torch.arange(8.0), torch.arange(2.0)):
        worlds = [World(rank, 3) for rank in range(3)]
        means = [values[each.share(len(values))].mean() * each.weight(len(values)) for each in worlds]
        assert sum(means) / 3 == pytest.approx(values.mean())


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["num_processes=9", "task.batch_size=8"], "task.batch_size=8 is too small for 9 processes"),
        (["num_processes=0"], "num_processes must be"),
        (["num_processes=two"], "num_processes must be"),
    ],
)
def test_refused_numbers_of_processes(refusal: Callable[..., str], arguments: list[str], message: str) -> None:
    assert message in refusal(train, *GLIMPSES, *arguments)


def test_auto_is_one_process_for_each_core_and_128_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_num_cores", lambda: 6)
    config = _config("glyphs")
    config.num_processes = "auto"
    numbers = []
    for config.task.batch_size in (64, 512, 1024):
        numbers.append(processes.resolve_num_processes(config))
    assert numbers == [1, 4, 6]


def _command(*launcher: str) -> list[str]:
    return [sys.executable, *launcher, "-m", "ram.train", *BUDGET, *GLIMPSES, "task.batch_size=8", "hydra.run.dir=run"]


@pytest.mark.usefixtures("empty_folder")
def test_torchrun_trains_one_job_in_one_folder() -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(_command(*launcher), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test/error ") == 1
    assert json.loads(Path("run/metrics.json").read_text())["num_processes"] == 2
    assert [path.name for path in Path().iterdir()] == ["run"]
    assert len(list(Path("run").glob("events*"))) == 1


@pytest.mark.usefixtures("empty_folder")
def test_an_interrupt_stops_all_processes_after_the_same_step() -> None:
    command = [*_command(), "num_processes=2", "trainer.max_steps=null", "trainer.max_epochs=100000"]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    last = Path("run/checkpoints/last.pt")
    end = time.monotonic() + 240
    while not last.exists() and job.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    os.killpg(job.pid, signal.SIGINT)  # as the terminal does
    errors = job.communicate(timeout=120)[1]
    assert job.returncode == 1
    (stopped,) = re.findall(r"Error: Interrupted after step (\d+): the state is saved in \S+\.", errors)
    assert "Traceback" not in errors
    assert torch.load(last, weights_only=True)["progress"]["step"] == int(stopped)
    with pytest.raises(ProcessLookupError):  # multiprocessing's own process ends a moment later
        while time.monotonic() < end + 60:
            os.killpg(job.pid, 0)
            time.sleep(0.1)
