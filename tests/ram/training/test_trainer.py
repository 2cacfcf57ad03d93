"""The training loop on a task with known gradients."""

import math
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from envs import InputError
from ram.tasks import StepResult, Task
from ram.training import checkpoint
from ram.training.tracker import Tracker
from ram.training.trainer import Trainer, TrainingStopped


class Slope(Task):
    """A linear loss of one parameter; the error of each evaluation is given."""

    steps_per_epoch, examples_per_step, unit, monitor = 4, 2, "things", "error"

    def __init__(self, errors: tuple[float, ...] = (), broken_at: int | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.errors, self.broken_at = list(errors), broken_at
        self.seen: list[int] = []
        self.evaluated_with: list[float] = []
        self.signal_at: int | None = None

    def forward(self, step: int) -> StepResult:
        self.seen.append(step)
        if step == self.signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        term = self.weight.sum() * (3.0 + step % 2)
        broken = term * (math.nan if step == self.broken_at else 0.0)
        loss = term + broken
        values = {"loss/slope": term.item(), "loss/broken": broken.item()}
        return StepResult(loss, lambda: values)

    def evaluate(self, split: str) -> dict[str, float]:
        self.evaluated_with.append(self.weight[0].item())
        return {"error": self.errors.pop(0) if self.errors else 1.0}

    @classmethod
    def restore(cls, state: object, arguments: object) -> None:
        return None

    def diagnostics(self, step: int) -> dict[str, float]:
        return {"grad/variance_location": 1.5}

    def pictures(self, split: str) -> dict[str, np.ndarray]:
        return {"dot.png": np.zeros((4, 4, 3), np.uint8)}


SGD = partial(torch.optim.SGD, lr=0.5)


def _fit(folder: Path, task: Task, resume: bool = False, optimizer: object = SGD, run: str = "a", **options: object):
    trainer = Trainer(**({"max_epochs": 3, "average_decay": 0.0, "schedule": "constant"} | options))  # type: ignore[arg-type]
    tracker = Tracker(folder)
    try:
        return trainer.fit(task, optimizer, tracker, folder / "checkpoints", run, resume)  # type: ignore[arg-type]
    finally:
        tracker.close()


def test_training_takes_the_steps_of_the_budget(tmp_path: Path) -> None:
    task = Slope()
    progress = _fit(tmp_path, task)
    assert task.seen == list(range(12))
    assert progress.step == 12
    assert _fit(tmp_path, Slope(), max_steps=5).step == 5


@pytest.mark.parametrize(
    ("schedule", "halfway"), [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5), ("exponential", 0.1)]
)
def test_schedules(tmp_path: Path, schedule: str, halfway: float) -> None:
    rates = []

    class Recording(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])

    _fit(tmp_path, Slope(), schedule=schedule, optimizer=partial(Recording, lr=0.5))
    assert rates[0] == pytest.approx(0.5)
    assert rates[6] == pytest.approx(0.5 * halfway)


def test_the_gradient_is_clipped(tmp_path: Path) -> None:
    free, clipped = Slope(), Slope()
    _fit(tmp_path / "free", free, max_steps=1)
    _fit(tmp_path / "clipped", clipped, max_steps=1, clip_norm=1.0)
    assert free.weight.tolist() == pytest.approx([-1.5, -1.5])
    assert clipped.weight.norm().item() == pytest.approx(0.5)


def test_the_best_checkpoint_holds_the_averaged_weights_that_were_evaluated(tmp_path: Path) -> None:
    task = Slope(errors=(5.0, 2.0, 4.0))
    progress = _fit(tmp_path, task, average_decay=0.9)
    assert (progress.best, progress.best_step) == (2.0, 8)
    state = checkpoint.load(tmp_path / "checkpoints" / "best.pt")
    assert state["progress"]["step"] == 8
    assert state["average"]["weight"][0].item() == pytest.approx(task.evaluated_with[1])
    assert checkpoint.load(tmp_path / "checkpoints" / "last.pt")["progress"]["step"] == 12


def test_a_maximized_monitor_keeps_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Slope(errors=(5.0, 9.0, 4.0))
    monkeypatch.setattr(Slope, "higher_is_better", lambda self, metric: metric == "error")
    assert _fit(tmp_path, task).best == 9.0


def test_patience_ends_the_training(tmp_path: Path) -> None:
    progress = _fit(tmp_path, Slope(errors=(5.0, 4.0, 4.0, 6.0, 1.0)), max_epochs=10, patience=2)
    assert (progress.step, progress.best, progress.stopped_early) == (16, 4.0, True)


def test_a_run_resumes_with_more_patience(tmp_path: Path) -> None:
    _fit(tmp_path, Slope(errors=(5.0, 6.0)), max_epochs=10, patience=1)
    progress = _fit(tmp_path, Slope(errors=(7.0, 7.0)), max_epochs=10, patience=3, resume=True)
    assert (progress.step, progress.stale, progress.stopped_early) == (16, 3, True)


def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    _fit(tmp_path, Slope(), run="a")
    with pytest.raises(InputError, match=r"last\.pt belongs to a run with another configuration"):
        _fit(tmp_path, Slope(), run="b", resume=True)


def test_broken_weights_are_never_saved(tmp_path: Path) -> None:
    class Breaking(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()
            if len(task.seen) == 8:
                self.param_groups[0]["params"][0].data.fill_(math.inf)

    task = Slope()
    with pytest.raises(TrainingStopped, match="a weight is not finite at step 7"):
        _fit(tmp_path, task, optimizer=partial(Breaking, lr=0.5))
    assert checkpoint.load(tmp_path / "checkpoints" / "last.pt")["progress"]["step"] == 4


def test_the_task_receives_its_progress(tmp_path: Path) -> None:
    received = []

    class Recording(Slope):
        def forward(self, step: int) -> StepResult:
            received.append(self.progress)
            return super().forward(step)

    _fit(tmp_path, Recording(), max_steps=4)
    assert received == [0.0, 0.25, 0.5, 0.75]


def test_a_loss_that_is_not_finite_stops_and_names_the_term(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped, match=r"loss/broken is not finite at step 6"):
        _fit(tmp_path, Slope(broken_at=6))
    state = checkpoint.load(tmp_path / "checkpoints" / "last.pt")
    assert state["progress"]["step"] == 4
    assert torch.isfinite(state["task"]["weight"]).all()


@pytest.mark.parametrize("optimizer", [SGD, partial(torch.optim.AdamW, lr=0.1)])
def test_resumed_equals_uninterrupted(tmp_path: Path, optimizer: object) -> None:
    options = {"average_decay": 0.5, "schedule": "cosine", "optimizer": optimizer}
    whole = Slope(errors=(5.0, 2.0, 4.0))
    expected = _fit(tmp_path / "whole", whole, **options)

    interrupted = Slope(errors=(5.0, 2.0, 4.0))
    interrupted.signal_at = 5
    with pytest.raises(TrainingStopped, match="Interrupted after step 6"):
        _fit(tmp_path / "cut", interrupted, **options)
    rest = Slope(errors=(2.0, 4.0))
    progress = _fit(tmp_path / "cut", rest, resume=True, **options)
    assert interrupted.seen + rest.seen == whole.seen
    assert torch.equal(rest.weight, whole.weight)
    assert (progress.best, progress.best_step, progress.stale) == (expected.best, expected.best_step, expected.stale)
    ends = [checkpoint.load(tmp_path / name / "checkpoints" / "last.pt") for name in ("whole", "cut")]
    assert torch.equal(ends[0]["average"]["weight"], ends[1]["average"]["weight"])


def test_metrics_gradients_speed_diagnostics_and_pictures_are_logged(tmp_path: Path) -> None:
    _fit(tmp_path, Slope(), log_every=1, picture_every=1)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    logged = set(events.Tags()["scalars"])
    assert {"loss/total", "grad/norm", "optimizer/lr", "speed/things_per_second", "validation/error"} <= logged
    assert "grad/variance_location" in logged
    assert events.Tags()["images"] == ["validation/dot.png"]
    assert [event.step for event in events.Scalars("loss/total")] == list(range(12))


def test_a_monitor_that_never_changes_is_reported_once(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"^validation/error is 1\.00 in all of 5 evaluations") as caught:
        _fit(tmp_path, Slope(), evaluate_every=0.25)
    assert len(caught) == 1


@pytest.mark.filterwarnings("ignore:validation/error is 1.00 in all")
@pytest.mark.parametrize(
    ("every", "steps"), [(2, [8, 12]), (1, [4, 8, 12]), (0.5, [2, 4, 6, 8, 10, 12]), (0.01, list(range(1, 13)))]
)
def test_evaluations_are_some_epochs_or_a_part_of_an_epoch_apart(
    tmp_path: Path, every: float, steps: list[int]
) -> None:
    _fit(tmp_path, Slope(), evaluate_every=every, diagnose_every=every)  # an epoch has four steps
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert sorted({event.step for event in events.Scalars("validation/error")}) == steps
    diagnosed = [event.step for event in events.Scalars("grad/variance_location")]
    assert diagnosed == [1, *(step for step in steps if step > 1 and (step % (every * 4) == 0 or every < 0.25))]


def test_a_wrong_optimizer_option_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"optimizer: .*-1"):
        _fit(tmp_path, Slope(), optimizer=partial(torch.optim.SGD, lr=-1.0))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_epochs": 0}, "max_epochs"),
        ({"max_steps": 0}, "max_steps"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"patience": 0}, "patience"),
        ({"log_every": 0}, "log_every"),
        ({"diagnose_every": -1}, "diagnose_every"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"average_decay": 1.0}, "average_decay"),
        ({"schedule": "sometimes"}, "schedule"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=rf"trainer\.{name}"):
        Trainer(**options)  # type: ignore[arg-type]
