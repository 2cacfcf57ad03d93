"""The training loop of every task: step, clip, schedule, average, evaluate, log, save, resume."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from envs.errors import InputError
from ram.tasks import StepResult, Task
from ram.training import checkpoint
from ram.training.averaging import WeightAverage
from ram.training.tracker import Tracker

_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
    "exponential": lambda progress: 0.01**progress,
}
_STATISTICS_STEPS = 20  # steps over which the statistics of batch normalization are computed for the average


class TrainingStopped(RuntimeError):
    """Training cannot continue; the last good checkpoint is kept."""


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


class Trainer:
    """Trains a task within a budget of epochs or steps.

    Args:
        max_epochs: largest number of passes over the training split.
        max_steps: largest number of steps; the smaller of both limits applies.
        schedule: learning rate over the budget: "constant"; "linear" or "cosine" to 0; "exponential" to 1 %.
        clip_norm: largest gradient norm over all parameters; null for no clipping.
        average_decay: decay of the moving average of the weights, which is evaluated and saved; 0 for the last weights.
            Batch normalization uses statistics of the averaged weights.
        evaluate_every: epochs between evaluations on the validation split; each also saves ``last.pt``.
        patience: evaluations without improvement before training stops; null for no limit.
        log_every: steps between logged metrics.
        diagnose_every: epochs between diagnostics; 0 for none.
        picture_every: epochs between pictures; 0 for none.
    """

    def __init__(
        self,
        max_epochs: int = 20,
        max_steps: int | None = None,
        schedule: Literal["constant", "linear", "cosine", "exponential"] = "cosine",
        clip_norm: float | None = None,
        average_decay: float = 0.999,
        evaluate_every: int = 1,
        patience: int | None = None,
        log_every: int = 50,
        diagnose_every: int = 1,
        picture_every: int = 5,
    ) -> None:
        for name, value, least in [
            ("max_epochs", max_epochs, 1),
            ("max_steps", max_steps, 1),
            ("evaluate_every", evaluate_every, 1),
            ("patience", patience, 1),
            ("log_every", log_every, 1),
            ("diagnose_every", diagnose_every, 0),
            ("picture_every", picture_every, 0),
        ]:
            if value is not None and value < least:
                raise InputError(f"trainer.{name} must be at least {least}, got {value}.")
        if clip_norm is not None and clip_norm <= 0:
            raise InputError(f"trainer.clip_norm must be positive, got {clip_norm}.")
        if not 0 <= average_decay < 1:
            raise InputError(f"trainer.average_decay must be in [0, 1), got {average_decay}.")
        if schedule not in _SCHEDULES:
            raise InputError(f"trainer.schedule must be one of {', '.join(_SCHEDULES)}, got {schedule!r}.")
        self.max_epochs, self.max_steps = max_epochs, max_steps
        self.schedule = _SCHEDULES[schedule]
        self.clip_norm, self.average_decay = clip_norm, average_decay
        self.evaluate_every, self.patience, self.log_every = evaluate_every, patience, log_every
        self.diagnose_every, self.picture_every = diagnose_every, picture_every

    def total_steps(self, task: Task) -> int:
        """Returns the budget in steps."""
        steps = self.max_epochs * task.steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def is_over(self, task: Task, progress: Progress) -> bool:
        """Returns whether the budget is spent or patience has run out."""
        return progress.step >= self.total_steps(task) or self.out_of_patience(progress)

    def out_of_patience(self, progress: Progress) -> bool:
        """Returns whether patience has run out."""
        return self.patience is not None and progress.stale >= self.patience

    def fit(
        self,
        task: Task,
        build_optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        tracker: Tracker,
        checkpoints: Path,
        run: str = "",
        resume: bool = False,
    ) -> Progress:
        """Trains until the budget is spent or patience runs out.

        Args:
            task: the task to train.
            build_optimizer: builds the optimizer from parameter groups.
            tracker: the log of the run.
            checkpoints: the folder of ``last.pt`` (to resume), ``best.pt`` and ``best.safetensors``.
            run: identifies the configuration; a checkpoint of another one is refused.
            resume: continue from ``last.pt``.

        Raises:
            InputError: if the optimizer rejects its options, or ``last.pt`` cannot be resumed.
            TrainingStopped: on a loss or weight that is not finite, or on an interrupt.
        """
        training = _Training(self, task, build_optimizer, tracker, checkpoints, run)
        if resume:
            training.resume()
        return training.loop()


class _Training:
    """State of one call of :meth:`Trainer.fit`; see there for the arguments."""

    def __init__(
        self,
        trainer: Trainer,
        task: Task,
        build_optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        tracker: Tracker,
        checkpoints: Path,
        run: str,
    ) -> None:
        groups = task.parameter_groups()
        self.parameters = [value for group in groups for value in group["params"]]
        try:
            self.optimizer = build_optimizer(groups)
        except (TypeError, ValueError) as error:
            raise InputError(f"optimizer: {error}.") from error
        self.rates = [group["lr"] * group["lr_scale"] for group in self.optimizer.param_groups]
        self.average = WeightAverage(task, trainer.average_decay)
        self.trainer, self.task, self.tracker = trainer, task, tracker
        self.checkpoints, self.run = checkpoints, run
        self.total = trainer.total_steps(task)
        self.progress = Progress()
        self.postfix: dict[str, str] = {}

    def resume(self) -> None:
        """Restores the state of ``last.pt``."""
        path = self.checkpoints / "last.pt"
        state = checkpoint.load(path)
        if state.get("run") != self.run:
            raise InputError(f"{path} belongs to a run with another configuration: restore this run's file.")
        checkpoint.load_state(self.task, state["task"], path)
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])
        self.progress.stopped_early = self.trainer.out_of_patience(self.progress)

    def save(self, name: str) -> None:
        """Writes the checkpoint ``name``.pt."""
        self.progress.seconds = time.perf_counter() - self.start
        state = {"run": self.run, "task": self.task.state_dict(), "average": self.average.state_dict()}
        state |= {"optimizer": self.optimizer.state_dict(), "progress": asdict(self.progress)}
        checkpoint.save(self.checkpoints / f"{name}.pt", state)

    def loop(self) -> Progress:
        """Trains until the end and returns the progress."""
        trainer, task, progress = self.trainer, self.task, self.progress
        self.start = time.perf_counter() - progress.seconds
        self.restart_clock()
        self.bar = tqdm(
            total=self.total * task.examples_per_step,
            initial=progress.step * task.examples_per_step,
            unit=f" {task.unit}",
            unit_scale=True,
            dynamic_ncols=True,
            mininterval=0.5,
        )
        with self.bar, _interrupts() as interrupted:
            while progress.step < self.total and not progress.stopped_early:
                self.step()
                finished, epochs = progress.step == self.total, progress.step / task.steps_per_epoch
                if finished or _due(epochs, trainer.evaluate_every):
                    self.evaluate(trainer.picture_every > 0 and (finished or _due(epochs, trainer.picture_every)))
                if trainer.diagnose_every and (progress.step == 1 or _due(epochs, trainer.diagnose_every)):
                    self.tracker.scalars(task.diagnostics(progress.step), progress.step)
                    self.restart_clock()
                if interrupted() and not finished:
                    self.save("last")
                    raise TrainingStopped(
                        f"Interrupted after step {progress.step}: the state is saved in {self.checkpoints}."
                    )
        return progress

    def step(self) -> None:
        """Takes one optimizer step."""
        trainer, task, step = self.trainer, self.task, self.progress.step
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * trainer.schedule(step / self.total)
        task.progress = step / self.total
        result = task(step)
        if not math.isfinite(float(result.loss.detach())):
            terms = {name: value for name, value in result.metrics().items() if name.startswith("loss/")}
            broken = [name for name, value in terms.items() if not math.isfinite(value)]
            raise self.not_finite(" and ".join(broken) or "the loss", step)
        self.optimizer.zero_grad()
        result.loss.backward()
        if step % trainer.log_every == 0:
            self.log(result, step)
        if trainer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, trainer.clip_norm)
        self.optimizer.step()
        self.average.update(step)
        self.progress.step += 1
        self.bar.update(task.examples_per_step)

    def log(self, result: StepResult, step: int) -> None:
        """Logs the metrics of a step, the gradient before it is clipped, and the speed since the last call."""
        task = self.task
        metrics = {"loss/total": float(result.loss.detach())} | result.metrics() | _gradient_norms(task)
        metrics["optimizer/lr"] = self.optimizer.param_groups[0]["lr"]
        if step > self.clock_step:
            examples = (step - self.clock_step) * task.examples_per_step
            metrics[f"speed/{task.unit}_per_second"] = examples / (time.perf_counter() - self.clock_time)
        self.restart_clock()
        self.tracker.scalars(metrics | {"epoch": step / task.steps_per_epoch}, step)
        self.postfix["loss"] = f"{metrics['loss/total']:.3f}"
        self.bar.set_postfix(self.postfix, refresh=False)

    def evaluate(self, draw: bool) -> None:
        """Evaluates the averaged weights on the validation split and saves the checkpoints.

        Args:
            draw: whether to log pictures.
        """
        task, progress = self.task, self.progress
        if not all(value.isfinite().all() for value in self.parameters):
            raise self.not_finite("a weight", progress.step - 1)
        self.average.gather_statistics(range(max(0, progress.step - _STATISTICS_STEPS), progress.step))
        task.eval()
        with self.average.applied():
            measured = task.evaluate("validation")
            self.tracker.scalars({f"validation/{name}": value for name, value in measured.items()}, progress.step)
            if draw:
                self.tracker.pictures(task.pictures("validation"), progress.step, "validation")
            value, best = measured[task.monitor], progress.best
            better = best is None or (value > best if task.maximize else value < best)
            if better:
                checkpoint.save_weights(self.checkpoints / "best.safetensors", task)
        task.train()
        if better:
            progress.best, progress.best_step, progress.stale = value, progress.step, 0
            self.save("best")
        else:
            progress.stale += 1
            progress.stopped_early = self.trainer.out_of_patience(progress)
        self.save("last")
        self.postfix[task.monitor] = f"{value:.2f} (best {progress.best:.2f})"
        self.bar.set_postfix(self.postfix)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Starts the interval over which the logged speed is measured."""
        self.clock_time, self.clock_step = time.perf_counter(), self.progress.step

    def not_finite(self, what: str, step: int) -> TrainingStopped:
        """Returns the error of a loss or weight that is not finite."""
        return TrainingStopped(
            f"Training stopped because {what} is not finite at step {step}: lower optimizer.lr or set "
            f"trainer.clip_norm. {self.checkpoints} holds the state before that."
        )


def _due(epochs: float, every: int) -> bool:
    """Whether a number of finished epochs is whole and a multiple of ``every``."""
    return epochs % every == 0


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
