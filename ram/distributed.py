"""What several processes compute together: their shares of the data, means over all of them, and what they exchange.

All processes hold the same weights and call the same functions in the same order. Each computes the loss of its share
of the global batch, and ``DistributedDataParallel`` averages the gradients. In a single process every function here
returns its argument and nothing is exchanged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of the values where ``mask`` is True, over all processes; 0 if it is nowhere."""
    count = mask.sum()
    return global_mean((values * mask).sum() / count.clamp(min=1), count)


def average(values: Tensor) -> Tensor:
    """Returns the average of a tensor over the processes, without gradient."""
    size = world().size
    return values if size == 1 else total(values) / size


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


def data_parallel(task: nn.Module) -> Callable[[int], Any]:
    """Returns the training step of a task, whose backward pass averages the gradients over the processes."""
    if world().size == 1:
        return task
    step = _Step(task)
    # An episode of one look, for example, does not use the recurrent weights.
    model = DistributedDataParallel(step, find_unused_parameters=True)
    model.broadcast_buffers = False  # they are computed from exchanged values where they depend on the batch
    return model


class _Step(nn.Module):
    """A task for ``DistributedDataParallel``, which prints a warning if no parameter is ever unused."""

    def __init__(self, task: nn.Module) -> None:
        super().__init__()
        self.task, self.unused = task, nn.Parameter(next(task.parameters()).new_zeros(()))

    def forward(self, step: int) -> Any:
        return self.task(step)
