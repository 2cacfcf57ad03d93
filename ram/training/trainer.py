"""The training loop of every task: step, clip, schedule, average, evaluate, log, save, resume."""

from __future__ import annotations

import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from envs.errors import InputError
from envs.validation import check_choice, check_positive, check_positive_integers, check_probability, check_weight
from ram.distributed import TrainingStep, average_metrics, data_parallel, world
from ram.tasks import StepResult, Task
from ram.training import checkpoint
from ram.training.averaging import WeightAverage
from ram.training.batch_norm import synchronize_batch_norm
from ram.training.tracker import Tracker

_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
    "exponential": lambda progress: 0.01**progress,
}
_CONSTANT = 5  # equal evaluations before a warning
_STATISTICS_STEPS = 20  # steps over which the statistics of batch normalization are computed for the average


class TrainingStopped(RuntimeError):
    """Training cannot continue, in any process; the last good checkpoint is kept."""


@dataclass
class Progress:
    """Progress of a run.

    Attributes:
        step: finished training steps.
        best: the best value of the task's monitor so far.
        best_step: the step of the best value.
        stale: evaluations since the best one.
        seconds: time spent on training and evaluation.
        stopped_early: whether patience has run out.
    """

    step: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    stopped_early: bool = False


@dataclass
class Trainer:
    """Trains a task within a budget of epochs or steps.

    With several processes each trains on its share of every batch, and process 0 writes all records.

    Args:
        max_epochs: largest number of passes over the training split.
        max_steps: largest number of steps; the smaller of both limits applies.
        schedule: learning rate over the budget: "constant"; "linear" or "cosine" to 0; "exponential" to 1 %.
        clip_norm: largest gradient norm over all parameters; null for no clipping.
        average_decay: decay of the moving average of the weights, which is evaluated and saved; 0 for the last weights.
            Batch normalization uses statistics of the averaged weights.
        evaluate_every: epochs between evaluations on the validation split, such as 1 or 0.5; each also saves
            ``last.pt``.
        patience: evaluations without improvement before training stops; null for no limit.
        log_every: steps between logged metrics.
        diagnose_every: epochs between diagnostics; 0 for none.
        picture_every: epochs between pictures; 0 for none.
    """

    max_epochs: int = 20
    max_steps: int | None = None
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "cosine"
    clip_norm: float | None = None
    average_decay: float = 0.999
    evaluate_every: float = 1
    patience: int | None = None
    log_every: int = 50
    diagnose_every: float = 1
    picture_every: float = 5

    def __post_init__(self) -> None:
        counts = ("max_epochs", "max_steps", "patience", "log_every")
        check_positive_integers("trainer", **{name: getattr(self, name) for name in counts})
        check_positive("trainer.evaluate_every", self.evaluate_every)
        check_weight("trainer.diagnose_every", self.diagnose_every)
        check_weight("trainer.picture_every", self.picture_every)
        if self.clip_norm is not None:
            check_positive("trainer.clip_norm", self.clip_norm)
        check_probability("trainer.average_decay", self.average_decay)
        check_choice("trainer.schedule", self.schedule, tuple(_SCHEDULES))

    def total_steps(self, task: Task) -> int:
        """Returns the budget in steps."""
        steps = self.max_epochs * task.steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def is_over(self, task: Task, progress: Progress) -> bool:
        """Returns whether the budget is spent or patience has run out."""
        return progress.step >= self.total_steps(task) or self._out_of_patience(progress)

    def _out_of_patience(self, progress: Progress) -> bool:
        return self.patience is not None and progress.stale >= self.patience

    def fit(
        self,
        task: Task,
        build_optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        tracker: Tracker | None,
        checkpoints: Path,
        run: str = "",
        resume: bool = False,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Progress:
        """Trains until the budget is spent or patience runs out.

        Args:
            task: the task to train.
            build_optimizer: builds the optimizer from parameter groups.
            tracker: the log of the run; None in processes other than 0.
            checkpoints: the folder of ``last.pt`` (to resume), ``best.pt`` and ``best.safetensors``.
            run: identifies the configuration; a checkpoint of another one is refused.
            resume: continue from ``last.pt``.
            autocast: creates the context of every forward pass; see :func:`ram.training.precision.autocast`.

        Raises:
            InputError: if the optimizer rejects its options, or ``last.pt`` cannot be resumed.
            TrainingStopped: on a loss or weight that is not finite, or on an interrupt.
        """
        self._task, self._tracker, self._checkpoints, self._run = task, tracker, checkpoints, run
        self._autocast = autocast
        groups = task.parameter_groups()
        self._parameters = [value for group in groups for value in group["params"]]
        try:
            self._optimizer = build_optimizer(groups)
        except (TypeError, ValueError) as error:
            raise InputError(f"optimizer: {error}.") from error
        synchronize_batch_norm(task)
        self._training_step = TrainingStep(task)
        self._parallel_step = data_parallel(self._training_step)
        self._rates = [group["lr"] * group["lr_scale"] for group in self._optimizer.param_groups]
        self._average = WeightAverage(task, self.average_decay)
        self._progress = self._resume() if resume else Progress()
        self._monitored, self._is_resumed = list[float](), resume
        self._loop()
        return self._progress

    def _resume(self) -> Progress:
        """Restores the state of ``last.pt`` and returns its progress."""
        path = self._checkpoints / "last.pt"
        state = checkpoint.load(path)
        if state.get("run") != self._run:
            raise InputError(f"{path} belongs to a run with another configuration: restore this run's file.")
        checkpoint.load_state(self._task, state["task"], path)
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        progress = Progress(**state["progress"])
        progress.stopped_early = self._out_of_patience(progress)
        return progress

    def _save(self, name: str) -> None:
        """Writes ``name``.pt in process 0: the hash of the run, the task, averages, optimizer and progress.

        There is no generator state, because batches and noise are functions of (seed, step).
        """
        self._progress.seconds = time.perf_counter() - self._start
        if self._tracker is None:
            return
        state = {"run": self._run, "task": self._task.state_dict(), "average": self._average.state_dict()}
        state |= {"optimizer": self._optimizer.state_dict(), "progress": asdict(self._progress)}
        checkpoint.save(self._checkpoints / f"{name}.pt", state)

    def _loop(self) -> None:
        """Takes steps, with evaluations and diagnostics between them, until training is over."""
        task, progress, total = self._task, self._progress, self.total_steps(self._task)
        self._start = time.perf_counter() - progress.seconds
        self._restart_clock()
        self._postfix: dict[str, str] = {}
        self._share_stopping = 0.0  # of the processes that are interrupted, when it was last exchanged
        examples, done = total * task.examples_per_step, progress.step * task.examples_per_step
        options: dict[str, Any] = {"unit_scale": True, "dynamic_ncols": True, "mininterval": 0.5}
        options["disable"] = self._tracker is None
        self._bar = tqdm(total=examples, initial=done, unit=f" {task.unit}", **options)
        with self._bar, _interrupts() as self._interrupted:
            while not self.is_over(task, progress):
                self._step(progress.step, total)
                finished = progress.step == total
                if finished or self._is_due(self.evaluate_every):
                    self._evaluate(self.picture_every > 0 and (finished or self._is_due(self.picture_every)))
                if self.diagnose_every and (progress.step == 1 or self._is_due(self.diagnose_every)):
                    self._track(task.diagnostics(progress.step))
                    self._restart_clock()
                if self._is_stopping() and not finished:
                    self._check_weights()
                    self._save("last")
                    raise TrainingStopped(
                        f"Interrupted after step {progress.step}: the state is saved in {self._checkpoints}."
                    )

    def _is_due(self, epochs: float) -> bool:
        """Returns whether a whole number of periods of some epochs have passed; a period has at least one step."""
        return epochs > 0 and self._progress.step % max(1, round(epochs * self._task.steps_per_epoch)) == 0

    def _step(self, step: int, total: int) -> None:
        """Takes one optimizer step."""
        task = self._task
        task.progress = step / total
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * _SCHEDULES[self.schedule](task.progress)
        with self._autocast():
            result = self._parallel_step(step, self._interrupted())
        self._optimizer.zero_grad()
        result.loss.backward()
        for value in self._parameters:
            if value.grad is None:  # not used in this step; DistributedDataParallel gives zeros too
                value.grad = torch.zeros_like(value)
        # Reading the loss waits for an accelerator; the weights are checked before they are saved.
        if result.loss.device.type == "cpu" or step % self.log_every == 0:
            self._check_loss(result, step)
        if step % self.log_every == 0:
            self._log(result, step)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.clip_norm)
        self._optimizer.step()
        self._average.update(step)
        self._progress.step += 1
        self._bar.update(task.examples_per_step)

    def _check_loss(self, result: StepResult, step: int) -> None:
        """Raises TrainingStopped if the loss is not finite."""
        value, self._share_stopping = self._training_step.averages()
        if not math.isfinite(value):
            terms = average_metrics(result.metrics())
            broken = [name for name, value in terms.items() if name.startswith("loss/") and not math.isfinite(value)]
            raise self._not_finite(" and ".join(broken) or "the loss", step)

    def _is_stopping(self) -> bool:
        """Returns whether any process is interrupted; the same in all."""
        return self._interrupted() if world().size == 1 else self._share_stopping > 0

    def _check_weights(self) -> None:
        """Raises TrainingStopped if a weight is not finite."""
        if not all(value.isfinite().all() for value in self._parameters):
            raise self._not_finite("a weight", self._progress.step - 1)

    def _track(self, metrics: Mapping[str, float]) -> None:
        """Logs metrics of the present step in process 0."""
        if self._tracker is not None:
            self._tracker.scalars(metrics, self._progress.step)

    def _log(self, result: StepResult, step: int) -> None:
        """Logs the metrics of a step, the gradient before it is clipped, and the speed since the last call."""
        task = self._task
        metrics = average_metrics({"loss/total": float(result.loss.detach())} | result.metrics())
        if self._tracker is None:
            return
        metrics |= _gradient_norms(task)
        metrics["optimizer/lr"] = self._optimizer.param_groups[0]["lr"]
        start, first = self._clock
        if step > first:
            examples = (step - first) * task.examples_per_step
            metrics[f"speed/{task.unit}_per_second"] = examples / (time.perf_counter() - start)
        self._restart_clock()
        self._tracker.scalars(metrics | {"epoch": step / task.steps_per_epoch}, step)
        self._postfix["loss"] = f"{metrics['loss/total']:.3f}"
        self._bar.set_postfix(self._postfix, refresh=False)

    def _evaluate(self, draw: bool) -> None:
        """Evaluates the averaged weights on the validation split and saves the checkpoints.

        Args:
            draw: whether to log pictures.
        """
        task, progress = self._task, self._progress
        self._check_weights()
        with self._autocast():
            self._average.gather_statistics(range(max(0, progress.step - _STATISTICS_STEPS), progress.step))
        task.eval()
        with self._average.applied(), self._autocast():
            measured = task.evaluate("validation")
            self._track({f"validation/{name}": value for name, value in measured.items()})
            if draw and self._tracker is not None:
                self._tracker.pictures(task.pictures("validation"), progress.step, "validation")
            value, best = measured[task.monitor], progress.best
            better = best is None or (value > best if task.maximize else value < best)
            self._monitored.append(value)
            if better and self._tracker is not None:
                checkpoint.save_weights(self._checkpoints / "best.safetensors", task)
        task.train()
        if not self._is_resumed and len(self._monitored) == _CONSTANT and len(set(self._monitored)) == 1:
            warnings.warn(
                f"validation/{task.monitor} is {value:.2f} in all of {_CONSTANT} evaluations, so the first checkpoint "
                "is still the best. Unless this is the best possible value, the metric cannot select a checkpoint.",
                stacklevel=1,
            )
        if better:
            progress.best, progress.best_step, progress.stale = value, progress.step, 0
            self._save("best")
        else:
            progress.stale += 1
            progress.stopped_early = self._out_of_patience(progress)
        self._save("last")
        self._postfix[task.monitor] = f"{value:.2f} (best {progress.best:.2f})"
        self._bar.set_postfix(self._postfix)
        self._restart_clock()

    def _restart_clock(self) -> None:
        """Starts the interval over which the logged speed is measured, with its first step."""
        self._clock = time.perf_counter(), self._progress.step

    def _not_finite(self, what: str, step: int) -> TrainingStopped:
        """Returns the error of a loss or weight that is not finite."""
        return TrainingStopped(
            f"Training stopped because {what} is not finite at step {step}: lower optimizer.lr or set "
            f"trainer.clip_norm. {self._checkpoints} holds the state before that."
        )


def _gradient_norms(task: Task) -> dict[str, float]:
    """Computes the gradient norm of all parameters and of every part of the task, such as ``agent.location``."""
    parts: dict[str, list[Tensor]] = {}
    for name, value in task.named_parameters():
        if value.grad is not None:
            parts.setdefault(".".join(name.split(".")[:2]), []).append(value.grad)
    norms = {f"grad/norm_{part}": float(nn.utils.get_total_norm(grads)) for part, grads in parts.items()}
    return {"grad/norm": math.hypot(*norms.values())} | norms


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Delays the first Ctrl-C or SIGTERM to the end of the step; yields a function that returns whether one came."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(number, previous[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):  # outside the main thread, the program handles interrupts itself
            previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for caught, handler in previous.items():
            signal.signal(caught, handler)
