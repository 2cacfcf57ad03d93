"""The commands as a user types them, in one small world."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ram
from envs import InputError
from ram import evaluate, train
from ram.rollout import evaluate_episodes
from ram.run_folder import report_errors

SMALL = [
    *("images.size=16", "images.num_train=64", "images.num_validation=32", "images.num_test=32"),
    *("task.batch_size=16", "task.agent.glimpse.output_size=16", "core.size=16", "env.num_glimpses=2"),
    *("num_threads=1", "trainer.log_every=2", "trainer.max_epochs=3", "trainer.picture_every=0"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def _command(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])  # type: ignore[attr-defined]
    module.main()  # type: ignore[attr-defined]


def _train(monkeypatch: pytest.MonkeyPatch, *arguments: str, run: str = "runs/a") -> Path:
    _command(monkeypatch, train, *SMALL, f"hydra.run.dir={run}", *arguments)
    return Path(run)


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


def test_training_leaves_everything_the_readme_names(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch)
    metrics = _metrics(run)
    assert {
        *("test/error", "test/error_sampled", "test/error_mc", "test/error_random", "validation/error"),
        *("seed", "commit", "seconds", "steps", "images_per_second"),
    } <= metrics.keys()
    assert metrics["steps"] == 12
    for name in ["glimpses.png", "glimpses.gif", "locations.png", ".hydra/config.yaml", ".hydra/overrides.yaml"]:
        assert (run / name).stat().st_size > 0
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.pt", "last.pt", "best.safetensors"}


def test_the_default_run_folder_is_named_by_experiment_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, train, *SMALL, "trainer.max_steps=1")
    (run,) = Path("runs").glob("*/*")
    assert re.fullmatch(r"glyphs/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{6}-train", str(run.relative_to("runs")))


def test_a_sweep_makes_one_folder_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, train, "--multirun", *SMALL, "trainer.max_steps=1", "seed=0,1")
    runs = sorted(Path("runs").glob("glyphs/*-sweep/*/metrics.json"))
    assert [path.parent.name for path in runs] == ["0", "1"]
    assert [json.loads(path.read_text())["seed"] for path in runs] == [0, 1]


def test_a_users_own_reward_is_found_in_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("seven_rewards.py").write_text(
        "import torch\n"
        "class Seven:\n"
        "    def __call__(self, transition):\n"
        "        return 7.0 * transition.last.float()\n"
    )
    run = _train(monkeypatch, "reward._target_=seven_rewards.Seven", "trainer.log_every=1")
    events = EventAccumulator(str(run))
    events.Reload()
    assert {event.value for event in events.Scalars("train/return")} == {7.0}


def test_evaluate_prints_the_figures_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _train(monkeypatch)
    capsys.readouterr()
    _command(monkeypatch, evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    metrics = _metrics(run)
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}


@pytest.mark.parametrize("policy", ["policy=gaussian", "policy=random", "policy.learn_std=true policy.final_std=null"])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    options = [*policy.split(), "baseline=moving_average"]
    whole = _train(monkeypatch, *options, run="runs/whole")
    _train_until(monkeypatch, 7, *options, run="runs/cut")
    _command(monkeypatch, train, "resume=runs/cut")
    _assert_same_run(whole, Path("runs/cut"))


def _train_until(monkeypatch: pytest.MonkeyPatch, step: int, *arguments: str, run: str) -> None:
    """Trains, and is told to stop while it computes a step."""
    from ram.tasks.glimpse import GlimpseTask

    forward = GlimpseTask.forward

    def interrupted(self: GlimpseTask, at: int) -> object:
        if at == step:
            os.kill(os.getpid(), 2)
        return forward(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(GlimpseTask, "forward", interrupted)
        with pytest.raises(SystemExit, match=f"Interrupted after step {step + 1}"):
            _train(monkeypatch, *arguments, run=run)


def test_repeat_trains_the_same_again_in_a_new_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, "seed=3")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    _command(monkeypatch, train, f"repeat={run}")
    (again,) = Path("runs").glob("*-repeat")
    _assert_same_run(run, again)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_starts_from_the_best_weights_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _train(monkeypatch, "policy.final_std=null")
    still = ["optimizer.lr=0.0", "trainer.max_steps=1", "policy.final_std=null"]
    second = _train(monkeypatch, f"init={first}", "baseline=moving_average", "seed=1", *still, run="runs/b")
    best = torch.load(first / "checkpoints" / "best.pt")
    expected, weights = best["task"] | best["average"], _weights(second)
    agent = [name for name in weights if name.startswith("agent.")]
    assert agent and [name for name in agent if not torch.equal(weights[name], expected[name])] == []
    shutil.rmtree(first)  # it is needed no more
    _command(monkeypatch, train, f"resume={second}", "trainer.max_steps=2")
    assert _metrics(second)["steps"] == 2


def test_a_start_that_does_not_fit_is_refused_and_leaves_the_folder_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _train(monkeypatch, "trainer.max_steps=1")
    told = _refusal(monkeypatch, train, *SMALL, f"init={first}", "core.size=8", "hydra.run.dir=runs/b")
    assert told.startswith(f"Error: {first}/checkpoints/best.pt does not fit this model: ")
    texts = ["experiment=negation", "corpus.size=64", "encoder.size=8", f"init={first}", "hydra.run.dir=runs/b"]
    assert "trained without words of a corpus" in _refusal(monkeypatch, train, *texts)
    assert "runs/c is not the folder of a run" in _refusal(monkeypatch, train, *SMALL, "init=runs/c")
    _train(monkeypatch, "trainer.max_steps=1", run="runs/b")


def test_a_finished_run_goes_on_with_a_larger_budget_and_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, "trainer.schedule=constant")
    first, config = _metrics(run), (run / ".hydra/config.yaml").read_bytes()
    with pytest.raises(SystemExit, match=r"has ended after 12 steps: raise trainer\.max_epochs"):
        _command(monkeypatch, train, f"resume={run}")
    _command(monkeypatch, train, f"resume={run}", "trainer.max_epochs=4")
    assert _metrics(run)["steps"] == 16
    with pytest.raises(SystemExit, match="has ended after 16 steps"):  # the larger budget is remembered
        _command(monkeypatch, train, f"resume={run}")
    assert json.loads((run / "metrics.step12.json").read_text()) == first
    assert (run / "glimpses.step12.png").exists()
    assert (run / ".hydra/config.yaml").read_bytes() == config


def test_the_trained_model_predicts_without_the_training_data(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    arrays = {"images": np.random.default_rng(0).integers(0, 255, (60, 12, 12), np.uint8), "labels": np.arange(60) % 3}
    np.savez("data.npz", **arrays)
    small = [word for word in SMALL if not word.startswith("images.")]
    _command(monkeypatch, train, *small, "images=arrays", "images.path=data.npz", "hydra.run.dir=runs/a")
    Path("data.npz").unlink()
    model = ram.load("runs/a")
    prediction = model.predict(torch.rand(5, 1, 12, 12))
    assert set(prediction.label) <= {"0", "1", "2"}
    assert prediction.probability.shape == (5, 3)
    assert prediction.location.shape == (5, 2, 2)


OBJECTS = [
    *("images@images.objects=arrays", "images.objects.path=data.npz"),
    *("images.num_train=32", "images.num_validation=16", "images.num_test=16"),
]
WORLDS = {
    "search": [*OBJECTS, "images.size=24", "reward=target_distance", "env.num_glimpses=3"],
    "locate": [*OBJECTS, "images.size=16", "images.clutter_size=4", "env.num_glimpses=2"],
    "sequences": [
        *(*OBJECTS, "images.size=24", "env.context_size=8"),
        *("env.num_glimpses=4", "env.glimpses_per_answer=1"),
    ],
    "catch": [
        *("images.size=6", "images.num_train=32", "images.num_validation=16", "images.num_test=16"),
        "env.num_glimpses=5",
    ],
}


@pytest.mark.parametrize("experiment", WORLDS)
def test_a_run_of_any_world_is_loaded_with_its_best_weights_and_plays_on(
    monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 255, (80, 8, 8), np.uint8), np.arange(80) % 4
    np.savez("data.npz", images=images, labels=labels)
    small = [word for word in SMALL if not word.startswith(("images.", "env.", "trainer.max_epochs"))]
    words = [f"experiment={experiment}", *small, *WORLDS[experiment], "trainer.max_steps=2"]
    _command(monkeypatch, train, *words, "hydra.run.dir=runs/a")

    Path("data.npz").rename("away.npz")
    model = ram.load("runs/a")
    kept, agent = load_file("runs/a/checkpoints/best.safetensors"), model.agent.state_dict()
    assert agent.keys() == {name.removeprefix("agent.") for name in kept if name.startswith("agent.")}
    assert all(torch.equal(value, kept[f"agent.{name}"]) for name, value in agent.items())
    last = _weights(Path("runs/a"))
    assert not all(torch.equal(value, last[f"agent.{name}"]) for name, value in agent.items()), "not the averaged ones"

    if experiment == "sequences":
        prediction = model.predict(images.reshape(5, 1, 32, 32))
        assert prediction.probability.shape == (5, 4, 5)  # up to three objects and the end; four classes and the end
        assert prediction.location.shape == (5, 4, 2)
        for label, likeliest in zip(prediction.label, prediction.probability.argmax(-1).tolist(), strict=True):
            names = ["end" if number == 4 else str(number) for number in [*likeliest, 4]]
            assert label.split() == names[: names.index("end")]
    else:
        with pytest.raises(InputError, match=r"^predict names classes, which this agent has not learnt: [^.]*[.]$"):
            model.predict(images.reshape(5, 1, 32, 32))

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


def _refusal(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> str:
    """The one sentence with which a command ends."""
    with pytest.raises(SystemExit) as refused:
        _command(monkeypatch, module, *arguments)
    told = str(refused.value.code)
    assert told.startswith("Error: ")
    assert "\n" not in told
    return told


def test_a_used_run_folder_is_refused_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "already in use" in _refusal(monkeypatch, train, *SMALL, f"hydra.run.dir={run}")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_resuming_what_is_no_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nosuch is not the folder of a run" in _refusal(monkeypatch, train, "resume=nosuch")
    assert "nosuch is not the folder of a run" in _refusal(monkeypatch, evaluate, "run=nosuch")
    with pytest.raises(InputError, match="nosuch"):
        ram.load("nosuch")


def test_resuming_a_damaged_or_foreign_checkpoint_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, "trainer.max_steps=2")
    other = _train(monkeypatch, "core.size=8", "trainer.max_steps=2", run="runs/b")
    last, best = run / "checkpoints/last.pt", run / "checkpoints/best.pt"
    for path in (last, best):
        shutil.copy(other / "checkpoints" / path.name, path)
    told = _refusal(monkeypatch, train, f"resume={run}", "trainer.max_steps=9")
    assert "last.pt belongs to a run of another configuration" in told
    assert "best.pt does not fit" in _refusal(monkeypatch, evaluate, f"run={run}")
    with pytest.raises(InputError, match=r"best\.pt does not fit"):
        ram.load(run)
    last.write_bytes(last.read_bytes()[:1000])
    assert "last.pt is damaged" in _refusal(monkeypatch, train, f"resume={run}", "trainer.max_steps=9")
    last.unlink()
    assert "no checkpoint" in _refusal(monkeypatch, train, f"resume={run}", "trainer.max_steps=9")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["+extra=1"], "extra is no option"),
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
        (["task.agent.glimpse.patch_features=-1"], "glimpse.patch_features"),
    ],
)
def test_a_users_mistake_is_one_sentence(monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str) -> None:
    assert told in _refusal(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a", *arguments)


def test_a_patch_larger_than_the_image_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _metrics(_train(monkeypatch, "sensor.patch_size=40", "trainer.max_steps=1"))["steps"] == 1


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    from ram.tasks import glimpse

    cross_entropy = glimpse.F.cross_entropy
    calls = []

    def broken(*arguments: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return cross_entropy(*arguments) * (float("nan") if len(calls) == 7 else 1.0)

    monkeypatch.setattr(glimpse.F, "cross_entropy", broken)
    told = _refusal(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a")
    assert "loss/answer" in told
    assert all(value.isfinite().all() for name, value in _weights(Path("runs/a")).items() if name != "_extra_state")


def test_an_exploding_network_is_named_and_keeps_the_last_good_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _refusal(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a", "optimizer=sgd", "optimizer.lr=1e30")
    assert "loss/" in told
    assert "is not finite" in told


def test_a_refused_job_leaves_its_folder_free(monkeypatch: pytest.MonkeyPatch) -> None:
    _refusal(monkeypatch, train, *SMALL, "hydra.run.dir=runs/a", "core.size=-4")
    assert _metrics(_train(monkeypatch, "trainer.max_steps=1"))["steps"] == 1


def test_one_failed_job_of_a_sweep_lets_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ram.train", "--multirun", *SMALL, "trainer.max_steps=1", "core.size=-4,8"])
    with pytest.raises(SystemExit, match="1 of the jobs failed"):
        train.main()
    (done,) = Path("runs").glob("glyphs/*-sweep/*/metrics.json")
    assert done.parent.name == "1"


def test_a_warning_of_ours_is_a_sentence() -> None:
    with report_errors():
        assert warnings.formatwarning("told", UserWarning, train.__file__, 3) == "Warning: told\n"
        assert "/elsewhere.py:3: UserWarning: told" in warnings.formatwarning("told", UserWarning, "/elsewhere.py", 3)
    assert f"{train.__file__}:3: UserWarning: told" in warnings.formatwarning("told", UserWarning, train.__file__, 3)


def test_no_traceback_reaches_the_terminal() -> None:
    for arguments in (["+extra=1"], ["nosuch.option=1"], ["experiment=nosuch"], ["resume=nosuch"]):
        done = subprocess.run(
            [sys.executable, "-m", "ram.train", *SMALL[: 0 if arguments[0].startswith("resume") else None], *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert arguments[0].split("=")[-1].split(".")[0] in done.stderr or "extra" in done.stderr
