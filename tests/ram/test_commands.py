"""Training and evaluation by the commands, in one small environment."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import ram
from envs import InputError
from ram import evaluate, train
from ram.rollout import evaluate_episodes
from ram.training.command_line import report_errors

SMALL = [
    *("images.size=16", "images.num_train=64", "images.num_validation=32", "images.num_test=32"),
    *("task.batch_size=16", "glimpse.output_size=16", "core.size=16", "env.num_glimpses=2"),
    *("num_threads=1", "trainer.log_every=2", "trainer.max_epochs=3", "trainer.picture_every=0"),
]
pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def train_run(command: Callable[..., None]) -> Callable[..., Path]:
    """Trains a small agent in the folder ``run``, which is returned."""

    def train_run(*arguments: str, run: str = "runs/a") -> Path:
        command(train, *SMALL, f"hydra.run.dir={run}", *arguments)
        return Path(run)

    return train_run


def _metrics(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.json").read_text())


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.pt")["task"]


def _assert_same_run(one: Path, other: Path) -> None:
    first, second = _weights(one), _weights(other)
    assert all(torch.equal(first[name], second[name]) for name in first if name != "_extra_state")
    ends = [_metrics(run) for run in (one, other)]
    names = [name for name in ends[0] if "/" in name]
    assert {name: ends[0][name] for name in names} == {name: ends[1][name] for name in names}


def test_training_writes_metrics_pictures_and_checkpoints(train_run: Callable[..., Path]) -> None:
    run = train_run()
    metrics = _metrics(run)
    assert {
        *("test/error", "test/error_sampled", "test/error_mc", "test/error_random", "validation/error"),
        *("seed", "commit", "seconds", "steps", "images_per_second"),
    } <= metrics.keys()
    assert metrics["steps"] == 12
    assert metrics["monitor"] == "error"
    higher = ["test/return", "test/return_sampled", "test/return_random", "images_per_second"]
    assert metrics["higher_is_better"] == higher
    for name in ["glimpses.png", "glimpses.gif", "locations.png", ".hydra/config.yaml", ".hydra/overrides.yaml"]:
        assert (run / name).stat().st_size > 0
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.pt", "last.pt", "best.safetensors"}
    assert (run / "confusion.png").stat().st_size > 0
    session = EventAccumulator(str(run)).Reload().summary_metadata["_hparams_/session_start_info"]
    start = HParamsPluginData.FromString(session.plugin_data.content).session_start_info
    typed = {option.partition("=")[0] for option in SMALL}
    assert set(start.hparams) == typed | {"seed", "optimizer.lr"}
    rows = (run / "predictions.csv").read_text().splitlines()[1:]
    assert 100 * sum(row.endswith(",0") for row in rows) / len(rows) == pytest.approx(metrics["test/error"])
    assert len((run / "classes.csv").read_text().splitlines()) == 1 + len({row.split(",")[1] for row in rows})


@pytest.mark.parametrize(
    ("options", "subject", "name"),
    [
        ([], "glyphs", "train"),
        (["scenes=translated", "name=first"], "translated", "first"),
        (["images=glyphs", "scenes=translated"], "glyphs-translated", "train"),
        (["experiment=early_answer", "images=glyphs"], "early_answer", "train"),
    ],
)
def test_the_run_folder_is_named_by_what_is_trained_by_time_and_name(
    options: list[str], subject: str, name: str, command: Callable[..., None]
) -> None:
    command(train, *options, *SMALL, "trainer.max_steps=1")
    (run,) = Path("runs").glob("*/*")
    assert re.fullmatch(
        rf"{subject}/\d{{4}}(-\d\d){{2}}_(\d\d-){{2}}\d\d\.\d{{6}}-{name}", str(run.relative_to("runs"))
    )


def test_without_an_experiment_the_run_folder_is_named_by_the_task(command: Callable[..., None]) -> None:
    command(train, "~experiment", "task=classify_text", "corpus.size=64", "trainer.max_steps=1")
    (run,) = Path("runs").glob("*/*")
    assert run.parent.name == "classify_text"


def test_a_sweep_makes_one_folder_per_job(command: Callable[..., None]) -> None:
    command(train, "--multirun", *SMALL, "trainer.max_steps=1", "seed=0,1")
    runs = sorted(Path("runs").glob("glyphs/*-sweep/*/metrics.json"))
    assert [path.parent.name for path in runs] == ["0", "1"]
    assert [json.loads(path.read_text())["seed"] for path in runs] == [0, 1]


def test_a_users_own_reward_is_found_in_the_current_folder(train_run: Callable[..., Path]) -> None:
    Path("seven_rewards.py").write_text(
        "import torch\n"
        "class Seven:\n"
        "    def __call__(self, transition):\n"
        "        return 7.0 * transition.last.float()\n"
    )
    run = train_run("reward._target_=seven_rewards.Seven", "trainer.log_every=1")
    events = EventAccumulator(str(run))
    events.Reload()
    assert {event.value for event in events.Scalars("train/return")} == {7.0}


def test_evaluate_prints_the_metrics_of_the_run(
    command: Callable[..., None], train_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train_run()
    capsys.readouterr()
    command(evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    metrics = _metrics(run)
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}


@pytest.mark.parametrize("policy", ["policy=gaussian", "policy=random", "policy.learn_std=true policy.final_std=null"])
def test_a_resumed_run_equals_an_uninterrupted_one(
    command: Callable[..., None], train_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    options = [*policy.split(), "baseline=moving_average"]
    whole = train_run(*options, run="runs/whole")
    _interrupt(train_run, monkeypatch, 7, *options, run="runs/cut")
    command(train, "resume=runs/cut")
    _assert_same_run(whole, Path("runs/cut"))


def _interrupt(
    train_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, step: int, *arguments: str, run: str
) -> None:
    """Trains and sends an interrupt during a step."""
    from ram.tasks.glimpse import GlimpseTask

    forward = GlimpseTask.forward

    def interrupted(self: GlimpseTask, at: int) -> object:
        if at == step:
            os.kill(os.getpid(), 2)
        return forward(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(GlimpseTask, "forward", interrupted)
        with pytest.raises(SystemExit, match=f"Interrupted after step {step + 1}"):
            train_run(*arguments, run=run)


def test_repeat_trains_the_same_again_in_a_new_folder(
    command: Callable[..., None], train_run: Callable[..., Path]
) -> None:
    run = train_run("seed=3")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command(train, f"repeat={run}")
    (again,) = Path("runs").glob("*-repeat")
    _assert_same_run(run, again)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_starts_from_the_best_weights_of_another(
    command: Callable[..., None], train_run: Callable[..., Path]
) -> None:
    first = train_run("policy.final_std=null")
    still = ["optimizer.lr=0.0", "trainer.max_steps=1", "policy.final_std=null"]
    second = train_run(f"init={first}", "baseline=moving_average", "seed=1", *still, run="runs/b")
    best = torch.load(first / "checkpoints" / "best.pt")
    expected, weights = best["task"] | best["average"], _weights(second)
    agent = [name for name in weights if name.startswith("agent.")]
    assert agent and [name for name in agent if not torch.equal(weights[name], expected[name])] == []
    shutil.rmtree(first)  # no longer needed
    command(train, f"resume={second}", "trainer.max_steps=2")
    assert _metrics(second)["steps"] == 2


def test_a_run_with_other_classes_starts_with_a_new_output_layer(
    command: Callable[..., None], train_run: Callable[..., Path]
) -> None:
    first = train_run("trainer.max_steps=1")
    images, labels = np.random.default_rng(0).integers(0, 255, (80, 20, 20), np.uint8), np.arange(80) % 4
    np.savez("data.npz", images=images, labels=labels)
    small = [option for option in SMALL if not option.startswith("images.")]
    options = ["images=arrays", "images.path=data.npz", "optimizer.lr=0.0", "trainer.max_steps=1"]
    with pytest.warns(UserWarning, match=f"^init={first}: its classes differ, so the output layer keeps its random"):
        command(train, *small, *options, f"init={first}", "hydra.run.dir=runs/b")
    weights, best = _weights(Path("runs/b")), torch.load(first / "checkpoints" / "best.pt")
    old = best["task"] | best["average"]
    kept = [name for name in weights if name.startswith(("agent.glimpse.", "agent.core.", "agent.location."))]
    assert kept and all(torch.equal(weights[name], old[name]) for name in kept)
    shapes = {len(value) for name, value in weights.items() if name.startswith("agent.action.")}
    assert shapes == {4}


def test_initial_weights_that_do_not_fit_are_refused_before_the_folder_is_used(
    refusal: Callable[..., str], train_run: Callable[..., Path]
) -> None:
    first = train_run("trainer.max_steps=1")
    message = refusal(train, *SMALL, f"init={first}", "core.size=8", "hydra.run.dir=runs/b")
    assert message.startswith(f"Error: {first}/checkpoints/best.pt does not fit this model: ")
    assert "agent.core.layers.0.hidden.weight is (8, 8) here but (" in message
    assert message.endswith(" Options that differ, with those of the run: core.size=8 (16).")
    texts = ["experiment=negation", "corpus.size=64", "encoder.size=8", f"init={first}", "hydra.run.dir=runs/b"]
    assert "the checkpoint has no words of a corpus" in refusal(train, *texts)
    assert "runs/c is not the folder of a run" in refusal(train, *SMALL, "init=runs/c")
    train_run("trainer.max_steps=1", run="runs/b")


def test_a_finished_run_resumes_with_a_larger_budget_and_keeps_its_records(
    command: Callable[..., None], train_run: Callable[..., Path]
) -> None:
    run = train_run("trainer.schedule=constant")
    first, config = _metrics(run), (run / ".hydra/config.yaml").read_bytes()
    with pytest.raises(SystemExit, match=r"has ended after 12 steps: raise trainer\.max_epochs"):
        command(train, f"resume={run}")
    command(train, f"resume={run}", "trainer.max_epochs=4")
    assert _metrics(run)["steps"] == 16
    with pytest.raises(SystemExit, match="has ended after 16 steps"):  # the larger budget is remembered
        command(train, f"resume={run}")
    assert json.loads((run / "metrics.step12.json").read_text()) == first
    assert (run / "glimpses.step12.png").exists()
    assert (run / ".hydra/config.yaml").read_bytes() == config


def test_the_trained_model_predicts_without_the_training_data(command: Callable[..., None], root: Path) -> None:
    arrays = {"images": np.random.default_rng(0).integers(0, 255, (60, 12, 12), np.uint8), "labels": np.arange(60) % 3}
    np.savez("data.npz", **arrays)
    small = [option for option in SMALL if not option.startswith("images.")]
    command(train, *small, "images=arrays", "images.path=data.npz", "hydra.run.dir=runs/a")
    Path("data.npz").unlink()
    model = ram.load("runs/a")
    prediction = model.predict(torch.rand(5, 1, 12, 12))
    assert set(prediction.label) <= {"0", "1", "2"}
    assert prediction.probability.shape == (5, 3)
    assert prediction.location.shape == (5, 2, 2)


OBJECTS = [
    *("images=arrays", "images.path=data.npz"),
    *("scenes.num_train=32", "scenes.num_validation=16", "scenes.num_test=16"),
]
EXPERIMENTS = {
    "search": [*OBJECTS, "scenes.size=24", "reward=target_distance", "env.num_glimpses=3"],
    "locate": [
        *(*OBJECTS, "scenes.size=16", "scenes.clutter_size=4"),
        *("env.num_glimpses=2", "task.agent.box.std=0.3", "task.agent.box.final_std=null"),
    ],
    "sequences": [
        *(*OBJECTS, "scenes.size=24", "env.context_size=8"),
        *("env.num_glimpses=4", "answers.glimpses_per_answer=1"),
    ],
    "catch": [
        *("scenes.size=6", "scenes.num_train=32", "scenes.num_validation=16", "scenes.num_test=16"),
        "env.num_glimpses=5",
    ],
}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_loaded_model_has_the_best_weights_and_reproduces_the_return(
    command: Callable[..., None], experiment: str
) -> None:
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 255, (80, 8, 8), np.uint8), np.arange(80) % 4
    np.savez("data.npz", images=images, labels=labels)
    small = [option for option in SMALL if not option.startswith(("images.", "env.", "trainer.max_epochs"))]
    arguments = [f"experiment={experiment}", *small, *EXPERIMENTS[experiment], "trainer.max_steps=2"]
    command(train, *arguments, "hydra.run.dir=runs/a")

    Path("data.npz").rename("away.npz")
    model = ram.load("runs/a")
    kept, agent = load_file("runs/a/checkpoints/best.safetensors"), model.agent.state_dict()
    assert agent.keys() == {name.removeprefix("agent.") for name in kept if name.startswith("agent.")}
    assert all(torch.equal(value, kept[f"agent.{name}"]) for name, value in agent.items())
    last = _weights(Path("runs/a"))
    assert not all(torch.equal(value, last[f"agent.{name}"]) for name, value in agent.items()), "best equals last"

    if experiment == "sequences":
        prediction = model.predict(np.resize(images, (5, 1, 24, 24)))
        assert prediction.probability.shape == (5, 4, 5)  # up to three objects and the end; four classes and the end
        assert prediction.location.shape == (5, 4, 2)
        for label, likeliest in zip(prediction.label, prediction.probability.argmax(-1).tolist(), strict=True):
            names = ["end" if number == 4 else str(number) for number in [*likeliest, 4]]
            assert label.split() == names[: names.index("end")]
    else:
        with pytest.raises(InputError, match=r"^predict needs an agent that classifies images: [^.]*[.]$"):
            model.predict(np.resize(images, (5, 1, 24, 24)))

    Path("away.npz").rename("data.npz")
    env = model.env(num_envs=16, split="test", output="torch", autoreset_mode="Disabled")
    env.reset(seed=model.seed)
    played = [
        evaluate_episodes(model.agent, env, torch.arange(16), model.seed, "sampled", number).reward
        for number in range(10)
    ]
    paid = sum(reward.sum(0).mean().item() for reward in played) / 10
    assert paid != 0
    assert paid == pytest.approx(_metrics(Path("runs/a"))["test/return_sampled"], rel=1e-5)


def test_a_used_run_folder_is_refused_and_left_unchanged(
    refusal: Callable[..., str], train_run: Callable[..., Path]
) -> None:
    run = train_run()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "already in use" in refusal(train, *SMALL, f"hydra.run.dir={run}")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_folder_without_a_run_is_refused(refusal: Callable[..., str]) -> None:
    assert "nosuch is not the folder of a run" in refusal(train, "resume=nosuch")
    assert "nosuch is not the folder of a run" in refusal(evaluate, "run=nosuch")
    with pytest.raises(InputError, match="nosuch"):
        ram.load("nosuch")


def test_a_damaged_or_foreign_checkpoint_is_refused_by_name(
    refusal: Callable[..., str], train_run: Callable[..., Path]
) -> None:
    run = train_run("trainer.max_steps=2")
    other = train_run("core.size=8", "trainer.max_steps=2", run="runs/b")
    last, best = run / "checkpoints/last.pt", run / "checkpoints/best.pt"
    for path in (last, best):
        shutil.copy(other / "checkpoints" / path.name, path)
    message = refusal(train, f"resume={run}", "trainer.max_steps=9")
    assert "last.pt belongs to a run with another configuration" in message
    assert "best.pt does not fit" in refusal(evaluate, f"run={run}")
    with pytest.raises(InputError, match=r"best\.pt does not fit"):
        ram.load(run)
    last.write_bytes(last.read_bytes()[:1000])
    assert "last.pt is damaged" in refusal(train, f"resume={run}", "trainer.max_steps=9")
    last.unlink()
    assert "no checkpoint" in refusal(train, f"resume={run}", "trainer.max_steps=9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+extra=1"], "extra is not an option"),
        (["optimizer.lr=nan"], "optimizer.lr"),
        (["optimizer.lr=-1"], "optimizer"),
        (["sensor.patch_size=0"], "sensor.patch_size"),
        (["core.size=-4"], "core.size"),
        (["task.batch_size=1000"], "task.batch_size (1000) is larger than the training split"),
        (["baseline=leave_one_out"], "task.rollouts_per_image"),
        (["device=cuda:7"], "device"),
        (["num_threads=0"], "num_threads"),
        (["seed=-1"], "seed"),
        (["init=5"], "init must be null or the folder of a run, got 5"),
        (["images.height=[0.5]"], "images.height must be a list of 2"),
        (["glimpse.patch_features=-1"], "glimpse.patch_features"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(
    refusal: Callable[..., str], arguments: list[str], message: str
) -> None:
    assert message in refusal(train, *SMALL, "hydra.run.dir=runs/a", *arguments)


def test_a_patch_larger_than_the_image_is_padded(train_run: Callable[..., Path]) -> None:
    assert _metrics(train_run("sensor.patch_size=40", "trainer.max_steps=1"))["steps"] == 1


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(
    refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ram.tasks import glimpse

    cross_entropy = glimpse.F.cross_entropy
    calls = []

    def broken(*arguments: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return cross_entropy(*arguments) * (float("nan") if len(calls) == 7 else 1.0)

    monkeypatch.setattr(glimpse.F, "cross_entropy", broken)
    message = refusal(train, *SMALL, "hydra.run.dir=runs/a")
    assert "loss/answer" in message
    assert all(value.isfinite().all() for name, value in _weights(Path("runs/a")).items() if name != "_extra_state")


def test_a_diverging_loss_is_named(refusal: Callable[..., str]) -> None:
    message = refusal(train, *SMALL, "hydra.run.dir=runs/a", "optimizer=sgd", "optimizer.lr=1e30")
    assert "loss/" in message
    assert "is not finite" in message


def test_a_refused_job_does_not_use_its_folder(refusal: Callable[..., str], train_run: Callable[..., Path]) -> None:
    refusal(train, *SMALL, "hydra.run.dir=runs/a", "core.size=-4")
    assert _metrics(train_run("trainer.max_steps=1"))["steps"] == 1


def test_the_other_jobs_of_a_sweep_continue_after_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ram.train", "--multirun", *SMALL, "trainer.max_steps=1", "core.size=-4,8"])
    with pytest.raises(SystemExit, match="1 of the jobs failed"):
        train.main()
    (done,) = Path("runs").glob("glyphs/*-sweep/*/metrics.json")
    assert done.parent.name == "1"


def test_a_warning_of_the_project_is_printed_without_code() -> None:
    with report_errors():
        assert warnings.formatwarning("text", UserWarning, train.__file__, 3) == "Warning: text\n"
        assert "/elsewhere.py:3: UserWarning: text" in warnings.formatwarning("text", UserWarning, "/elsewhere.py", 3)
    assert f"{train.__file__}:3: UserWarning: text" in warnings.formatwarning("text", UserWarning, train.__file__, 3)


def test_help_of_train_explains_the_arguments_and_the_groups_of_every_task(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    with pytest.raises(SystemExit, match="0"):
        command(train, "resume=nosuch", "--help")
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m ram.train")
    for part in ("resume=DIR", "repeat=DIR", "init=DIR", "--cfg job", "--hydra-help", "experiment: aerial, "):
        assert part in printed
    for file in root.glob("conf/task/*.yaml"):
        groups = re.findall(r"@_global_\.(\w+):", file.read_text())
        (explained,) = re.findall(rf"^  {file.stem} .*?: ((?:\w+,\s+)*\w+)$", printed, re.MULTILINE)
        assert groups == explained.replace(",", "").split()


def test_help_of_evaluate_explains_the_arguments(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        command(evaluate, "--help")
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m ram.evaluate run=DIR [name=value ...]")
    for part in ("device=NAME", "beam_sizes=1,2,5", "source=FILE target=FILE", "n_best=3", "task.search.beam_size=N"):
        assert part in printed


def test_no_traceback_reaches_the_terminal() -> None:
    for argument, named in {
        "+extra=1": "extra is not an option",
        "nosuch.option=1": "nosuch.option is not an option",
        "experiment=nosuch": "experiment=nosuch does not exist",
        "resume=nosuch": "nosuch is not the folder of a run",
    }.items():
        done = subprocess.run(
            [sys.executable, "-m", "ram.train", *([] if argument.startswith("resume") else SMALL), argument],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith(f"Error: {named}")
