"""Starts the processes of a job: process 0 runs the command, the others call the functions that it passes to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from envs.errors import InputError
from ram.distributed import AgreedError, init_process_group, world
from ram.training.trainer import TrainingStopped

Result = TypeVar("Result")

_HOST = "127.0.0.1"
_AGREED = (AgreedError, TrainingStopped)
_MIN_SHARE = 128  # examples of a batch; with fewer a process gains less than the exchange costs


def resolve_num_processes(config: DictConfig) -> int:
    """Returns the number of processes that train a configuration.

    It is that of torchrun if it has started this one, else the option ``num_processes``.

    Raises:
        InputError: if there are too many for the batch or the GPUs.
    """
    device, batch_size = torch.device(config.device), OmegaConf.select(config, "task.batch_size")
    started, number = world().size, config.get("num_processes", 1)
    if number == "auto":
        number = _num_cores() if device.type == "cpu" and started == 1 else 1
        if batch_size is not None:
            number = max(1, min(number, batch_size // _MIN_SHARE))
    if started > 1:
        if number not in (1, started):
            raise InputError(f"num_processes={number} is not the number of torchrun, {started}: leave it out.")
        number = started
    if number == 1:
        return 1
    if batch_size is not None and batch_size < number:
        raise InputError(f"task.batch_size={batch_size} is too small for {number} processes: use at most {batch_size}.")
    if device.type not in ("cpu", "cuda") or device.index is not None:
        raise InputError(f"device={config.device} cannot be used by {number} processes: use device=cpu or device=cuda.")
    local = int(os.environ.get("LOCAL_WORLD_SIZE", number))
    if device.type == "cuda" and local > torch.cuda.device_count():
        raise InputError(f"There are {torch.cuda.device_count()} GPUs for {local} processes: use at most one for each.")
    return number


def _num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(num_processes: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Calls a function in several processes, and returns its result in this one, process 0.

    Args:
        num_processes: from :func:`resolve_num_processes`.
        function: of a module, and its arguments: they are pickled.
        arguments: of the function.

    Raises:
        TrainingStopped: if a process ends with an error.
    """
    if num_processes == 1:
        return function(*arguments)
    if world().size > 1:  # started by torchrun
        return _lead(function, *arguments)
    with started(num_processes):
        return _lead(function, *arguments)


@contextmanager
def joined() -> Iterator[bool]:
    """Joins the processes that torchrun has started, if any, and yields whether this is process 0.

    The others follow process 0 until it leaves the context.
    """
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield True
        return
    init_process_group()
    try:
        if world().rank == 0:
            with _dismissing():
                yield True
        else:
            _follow()
            yield False
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _lead(function: Callable[..., Result], *arguments: Any) -> Result:
    """Calls a function here and in all processes that follow."""
    try:
        dist.broadcast_object_list([(function, arguments)])
        return function(*arguments)
    except _AGREED:
        raise
    except BaseException as error:
        dist.destroy_process_group()  # wherever the other processes are, they end
        if _is_lost_connection(error):
            raise TrainingStopped("Another process has ended; the last checkpoint is kept: resume from it.") from error
        raise


def _follow() -> None:
    """Calls the functions that process 0 passes to all, until it dismisses this process or another one ends."""
    warnings.simplefilter("ignore")  # process 0 shows them
    received: list[Any] = [None]
    try:
        while True:
            dist.broadcast_object_list(received)
            if received[0] is None:
                return
            function, arguments = received[0]
            with suppress(*_AGREED):  # process 0 reports them
                function(*arguments)
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise


@contextmanager
def _dismissing() -> Iterator[None]:
    """Tells the following processes to end when the context ends, unless their connection is lost."""
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.broadcast_object_list([None])


@contextmanager
def started(size: int) -> Iterator[None]:
    """Starts processes 1 to ``size`` - 1 on this machine. They end with the context, or with this process."""
    store = TCPStore(_HOST, 0, size, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(rank, size, store.port), name=f"process {rank}", daemon=True)
        for rank in range(1, size)
    ]
    try:
        with _ignored_interrupts():  # by the new processes too: this one decides when all stop
            for process in processes:
                process.start()
        while not store.check([f"ready/{rank}" for rank in range(1, size)]):
            _check_alive(processes)
            time.sleep(0.02)
        init_process_group(0, size, store)
        with _dismissing():
            yield
    except TrainingStopped:
        if not dist.is_initialized():
            _check_alive(processes, wait=2.0)
        raise
    finally:
        clean = dist.is_initialized()
        if clean:
            dist.destroy_process_group()
        for process in processes:
            if clean:
                process.join(timeout=10)
            process.kill()
            process.join()


def _check_alive(processes: list[SpawnProcess], wait: float = 0.0) -> None:
    """Raises TrainingStopped if a process has ended with an error, or does so in the next ``wait`` seconds."""
    end = time.monotonic() + wait
    while True:
        for process in processes:
            if process.exitcode:
                raise TrainingStopped(
                    f"{process.name.capitalize()} has ended with exit status {process.exitcode}; the last checkpoint, "
                    "if any, is kept: resume from it."
                )
        if time.monotonic() >= end:
            return
        time.sleep(0.02)


def _work(rank: int, size: int, port: int) -> None:
    """The main function of a process that :func:`started` has started."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    store = TCPStore(_HOST, port, size, is_master=False)
    store.set(f"ready/{rank}", "")
    init_process_group(rank, size, store)
    try:
        _follow()
    except InputError as error:
        sys.exit(f"Error in process {rank}: {error}")
    finally:
        dist.destroy_process_group()


def _end_with_parent() -> None:
    """Ends this process as soon as the one that started it has ended, however that was."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _is_lost_connection(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Context in which Ctrl-C is ignored; the processes that are started in it inherit this."""
    try:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
