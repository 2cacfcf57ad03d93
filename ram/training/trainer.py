"""The one loop that trains every task: step, clip, schedule, average, evaluate, log, save, resume."""

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
from ram.tasks import Task
from ram.training import checkpoint
from ram.training.averaging import WeightAverage
from ram.training.tracker import Tracker

_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
    "exponential": lambda progress: 0.01**progress,
}
_GATHERED = 20  # steps from which the averaged weights take the statistics of batch normalisation


class TrainingStopped(RuntimeError):
    """Training cannot go on, told in one sentence. The last good checkpoint is kept."""


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        step: training steps done.
        best: the best value of the task's monitor so far.
        best_step: when it was reached.
        stale: evaluations since then.
        seconds: spent training and evaluating.
        stopped_early: whether patience ran out.
    """

    step: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    stopped_early: bool = False


class Trainer:
    """Trains a task within a budget.

    Args:
        max_epochs: the budget in passes over the training split.
        max_steps: the budget in steps; the smaller of both counts.
        schedule: of the learning rate over the budget: "constant"; "linear" or "cosine" to 0; "exponential" to 1 %.
        clip_norm: the largest norm of the gradient of all parameters; null leaves it.
        average_decay: of the moving average of the weights that is evaluated and kept; 0 for the last weights. Batch
            normalisation has statistics of its own there.
        evaluate_every: epochs between evaluations of the validation split, each of which also saves ``last``.
        patience: evaluations without a better one after which training stops; null never does.
        log_every: steps between logged metrics.
        diagnose_every: epochs between diagnostics; 0 for never.
        picture_every: epochs between pictures; 0 for never.
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
        """The budget in steps."""
        steps = self.max_epochs * task.steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def is_over(self, task: Task, progress: Progress) -> bool:
        """Whether the budget is spent or patience has run out."""
        return progress.step >= self.total_steps(task) or self._out_of_patience(progress)

    def _out_of_patience(self, progress: Progress) -> bool:
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
        """Trains to the end of the budget, or until patience runs out.

        Args:
            task: what to train.
            build_optimizer: from parameter groups.
            tracker: where to log.
            checkpoints: the folder of ``last.pt`` (to resume), ``best.pt`` and ``best.safetensors``.
            run: tells this run's checkpoints from those of others.
            resume: go on from ``last.pt``.

        Raises:
            TrainingStopped: on a loss that is not finite, or on an interrupt, after which ``last.pt`` can be resumed.
        """
        groups = task.parameter_groups()
        parameters = [value for group in groups for value in group["params"]]
        try:
            optimizer = build_optimizer(groups)
        except (TypeError, ValueError) as error:
            raise InputError(f"optimizer: {error}.") from error
        rates = [group["lr"] * group["rate"] for group in optimizer.param_groups]
        average = WeightAverage(task, self.average_decay)
        progress = Progress()
        if resume:
            path = checkpoints / "last.pt"
            state = checkpoint.load(path)
            if state.get("run") != run:
                raise InputError(f"{path} belongs to a run of another configuration: restore the file of this run.")
            checkpoint.load_state(task, state["task"], path)
            average.load_state_dict(state["average"])
            optimizer.load_state_dict(state["optimizer"])
            progress = Progress(**state["progress"])
            progress.stopped_early = self._out_of_patience(progress)

        def save(name: str) -> None:
            state = {"run": run, "task": task.state_dict(), "average": average.state_dict()}
            state |= {"optimizer": optimizer.state_dict(), "progress": asdict(progress)}
            checkpoint.save(checkpoints / f"{name}.pt", state)

        total = self.total_steps(task)
        began = time.perf_counter() - progress.seconds
        marked_time, marked_step = time.perf_counter(), progress.step
        bar = tqdm(
            total=total * task.examples_per_step,
            initial=progress.step * task.examples_per_step,
            unit=f" {task.unit}",
            unit_scale=True,
            dynamic_ncols=True,
            mininterval=0.5,
        )
        shown: dict[str, str] = {}
        with bar, _interrupts() as interrupted:
            while progress.step < total and not progress.stopped_early:
                step = progress.step
                epoch = step / task.steps_per_epoch
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * self.schedule(step / total)
                task.progress = step / total
                result = task(step)
                if not math.isfinite(float(result.loss.detach())):
                    terms = {name: value for name, value in result.metrics().items() if name.startswith("loss/")}
                    broken = [name for name, value in terms.items() if not math.isfinite(value)]
                    raise _not_finite(" and ".join(broken) or "the loss", step, checkpoints)
                optimizer.zero_grad()
                result.loss.backward()
                if step % self.log_every == 0:
                    metrics = {"loss/total": float(result.loss.detach())} | result.metrics() | _gradient_norms(task)
                    metrics["optimizer/lr"] = optimizer.param_groups[0]["lr"]
                    now = time.perf_counter()
                    if step > marked_step:
                        examples = (step - marked_step) * task.examples_per_step
                        metrics[f"speed/{task.unit}_per_second"] = examples / (now - marked_time)
                    marked_time, marked_step = now, step
                    tracker.scalars(metrics | {"epoch": epoch}, step)
                    shown["loss"] = f"{metrics['loss/total']:.3f}"
                    bar.set_postfix(shown, refresh=False)
                if self.clip_norm is not None:
                    nn.utils.clip_grad_norm_(parameters, self.clip_norm)
                optimizer.step()
                average.update(step)
                progress.step += 1
                bar.update(task.examples_per_step)

                finished, epochs = progress.step == total, progress.step / task.steps_per_epoch
                if finished or _due(epochs, self.evaluate_every):
                    if not all(value.isfinite().all() for value in parameters):
                        raise _not_finite("a weight", step, checkpoints)
                    average.gather_statistics(range(max(0, progress.step - _GATHERED), progress.step))
                    task.eval()
                    with average.applied():
                        measured = task.evaluate("validation")
                        value = measured[task.monitor]
                        tracker.scalars({f"validation/{k}": v for k, v in measured.items()}, progress.step)
                        if self.picture_every and (finished or _due(epochs, self.picture_every)):
                            tracker.pictures(task.pictures("validation"), progress.step, "validation")
                        better = progress.best is None or (
                            value > progress.best if task.maximize else value < progress.best
                        )
                        if better:
                            checkpoint.save_weights(checkpoints / "best.safetensors", task)
                    task.train()
                    progress.seconds = time.perf_counter() - began
                    if better:
                        progress.best, progress.best_step, progress.stale = value, progress.step, 0
                        save("best")
                    else:
                        progress.stale += 1
                        progress.stopped_early = self._out_of_patience(progress)
                    save("last")
                    shown[task.monitor] = f"{value:.2f} (best {progress.best:.2f})"
                    bar.set_postfix(shown)
                    marked_time, marked_step = time.perf_counter(), progress.step
                if self.diagnose_every and (progress.step == 1 or _due(epochs, self.diagnose_every)):
                    tracker.scalars(task.diagnostics(progress.step), progress.step)
                    marked_time, marked_step = time.perf_counter(), progress.step
                if interrupted() and not finished:
                    progress.seconds = time.perf_counter() - began
                    save("last")
                    raise TrainingStopped(f"Interrupted after step {progress.step}; all is saved in {checkpoints}.")
        return progress


def _not_finite(what: str, step: int, checkpoints: Path) -> TrainingStopped:
    return TrainingStopped(
        f"At step {step} {what} is not finite: training has stopped; the checkpoints in {checkpoints} are from before. "
        "Lower optimizer.lr or set trainer.clip_norm."
    )


def _due(epochs: float, every: int) -> bool:
    """Whether a number of finished epochs is whole and a multiple of ``every``."""
    return epochs % every == 0


def _gradient_norms(task: Task) -> dict[str, float]:
    """Of all parameters together, and of every part of the task, such as ``agent.location``."""
    parts: dict[str, list[Tensor]] = {}
    for name, value in task.named_parameters():
        if value.grad is not None:
            parts.setdefault(".".join(name.split(".")[:2]), []).append(value.grad)
    norms = {f"grad/norm_{part}": float(nn.utils.get_total_norm(grads)) for part, grads in parts.items()}
    return {"grad/norm": math.hypot(*norms.values())} | norms


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Within, the first Ctrl-C or SIGTERM only raises a flag, so that a step is never cut in two; a second one acts."""
    raised: list[int] = []
    held: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        raised.append(number)
        signal.signal(number, held[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):  # outside the main thread, the program that owns it handles interrupts
            held[number] = signal.signal(number, note)
    try:
        yield lambda: bool(raised)
    finally:
        for caught, handler in held.items():
            signal.signal(caught, handler)
