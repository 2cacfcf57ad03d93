"""What several processes compute together: their shares of the data, means over all of them, and what they exchange.

All processes hold the same weights and call the same functions in the same order. Each computes the loss of its share
of the global batch, and ``DistributedDataParallel`` averages the gradients. An exchange costs a large part of a
millisecond however small it is, so that what is known without one is not exchanged. In a single process every function
here returns its argument and nothing is exchanged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from envs.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class AgreedError(InputError):
    """A user's mistake that all processes know of; process 0 reports it."""


@dataclass(frozen=True)
class World:
    """The processes of a job.

    Attributes:
        rank: the number of this process, from 0. Process 0 writes all records.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    def parts(self, count: int) -> list[range]:
        """Divides ``count`` items into contiguous parts, at most one for each process and none of them empty."""
        bounds = [rank * count // self.size for rank in range(self.size + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds) if stop > start]

    def share(self, count: int) -> range:
        """Returns the items of a global batch that this process computes.

        A batch of fewer items than processes, such as the last of an epoch, is computed by every process: the average
        of the gradients is the same.
        """
        return range(count) if count < self.size else self.parts(count)[self.rank]

    def weight(self, count: int) -> float:
        """Returns the factor of a mean over this process's share that makes its average the mean over the batch."""
        return 1.0 if count < self.size else len(self.share(count)) * self.size / count


def init_process_group(rank: int = -1, size: int = -1, store: Any = None) -> None:
    """Joins the processes of a job: by a store, or as the environment variables of torchrun say.

    Objects and numbers on the CPU are exchanged by gloo, tensors on GPUs by NCCL.
    """
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=size, store=store)


def use_local_device(device: str) -> None:
    """Makes "cuda" the GPU of this process, by its number on this machine."""
    if world().size > 1 and torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", world().rank)))


def world() -> World:
    """Returns the processes of this job; a single one if there is no process group."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World()


def total(count: Tensor) -> Tensor:
    """Returns the sum of a tensor over all processes, without gradient."""
    if world().size == 1:
        return count
    count = count.detach().clone()
    dist.all_reduce(count)
    return count


def global_mean(mean: Tensor, count: Tensor | int) -> Tensor:
    """Scales a mean so that its average over the processes is the mean over the elements of all processes.

    The gradients, which are averaged over the processes, are then those of the whole batch, although the processes have
    different numbers of tokens, active steps or rows.

    Args:
        mean: mean over the elements of this process; with gradient. 0 if there are none.
        count: the number of these elements, or a mask that is True at each; summed only if there are other processes.
    """
    size = world().size
    if size == 1:
        return mean
    count = torch.as_tensor(count, dtype=torch.float64, device=mean.device).sum()
    return mean * (count * size / total(count).clamp(min=1)).to(mean.dtype)


def average_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Averages metrics over the processes; losses that are not finite remain so, other metrics omit NaN."""
    if world().size == 1:
        return dict(metrics)
    parts, averages = gather(dict(metrics)), dict[str, float]()
    for name in metrics:
        values = [part[name] for part in parts]
        if not name.startswith("loss/"):
            values = [value for value in values if not math.isnan(value)] or values
        averages[name] = sum(values) / len(values)
    return averages


def gather(value: Result) -> list[Result]:
    """Returns the values of all processes by rank. They are pickled: tensors should be on the CPU."""
    size = world().size
    if size == 1:
        return [value]
    values: list[Any] = [None] * size
    dist.all_gather_object(values, value)
    return values


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Returns the results of all items in their order; each process computes some and receives the others.

    Args:
        function: exchanges nothing with other processes; its result can be pickled.
        items: the same in all processes.
    """
    rank, size = world().rank, world().size
    parts = gather([function(item) for item in items[rank::size]])
    return [parts[index % size][index // size] for index in range(len(items))]


def agree(function: Callable[[], Result]) -> Result:
    """Calls a function in every process; a mistake that any of them finds is raised in all.

    Raises:
        AgreedError: the mistake, that of the lowest rank.
    """
    if world().size == 1:
        return function()
    result, mistake = None, None
    try:
        result = function()
    except InputError as error:
        mistake = str(error)
    mistakes = [each for each in gather(mistake) if each is not None]
    if mistakes:
        raise AgreedError(mistakes[0])
    return result  # type: ignore[return-value]


class TrainingStep(nn.Module):
    """The training step of a task, whose backward pass also averages the loss and a flag over the processes.

    The averages are exchanged as the gradient of a parameter, together with those of the task. Every parameter has a
    gradient, zero where it is not used, because finding out which are used takes another exchange.

    Args:
        task: ``task(step)`` computes a result with a ``loss``.
    """

    def __init__(self, task: nn.Module) -> None:
        super().__init__()
        self._trained = [value for value in task.parameters() if value.requires_grad]
        self.task, self.average = task, None
        if world().size > 1:
            self.average = nn.Parameter(torch.zeros(2, device=self._trained[0].device))

    def forward(self, step: int, flag: bool) -> Any:
        """Returns the result of a step; ``flag`` is exchanged."""
        result = self.task(step)
        loss = result.loss.detach().float()
        self._values = torch.stack([loss, torch.full_like(loss, flag)])
        if self.average is None:
            return result
        self.average.grad = None
        return replace(result, loss=_Backward.apply(result.loss, self._values, self.average, *self._trained))

    def averages(self) -> tuple[float, float]:
        """Returns, after the backward pass, the average of the loss and the share of processes whose flag is set."""
        values = self._values if self.average is None else self.average.grad
        return tuple(values.tolist())  # type: ignore[union-attr]


class _Backward(torch.autograd.Function):
    """Returns the loss, and in the backward pass the given gradient of a parameter and zeros for other parameters."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradient: Tensor, *parameters: Tensor) -> Tensor:
        ctx.gradient, ctx.parameters = gradient, parameters
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        zeros = [value.new_zeros(()).expand_as(value) for value in ctx.parameters[1:]]
        return gradient, None, ctx.gradient, *zeros


def data_parallel(step: TrainingStep) -> nn.Module:
    """Returns a training step whose backward pass averages the gradients over the processes."""
    if step.average is None:
        return step
    model = DistributedDataParallel(step, gradient_as_bucket_view=True)
    model.broadcast_buffers = False  # they are computed from exchanged values where they depend on the batch
    return model
