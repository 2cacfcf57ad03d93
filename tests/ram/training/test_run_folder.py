"""The lock of a run folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envs import InputError
from ram import train
from ram.training.run_folder import RunFolder

HOLD = """
import sys, time
from pathlib import Path
from ram.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(600)
"""
SMALL = ["images.num_train=64", "images.num_validation=8", "images.num_test=8", "task.batch_size=16"]
SMALL += ["trainer.max_steps=2", "num_processes=1"]


def test_two_processes_cannot_use_one_folder_and_a_killed_one_frees_it(
    tmp_path: Path, command: Callable[..., None], refusal: Callable[..., str]
) -> None:
    run = tmp_path / "run"
    command(train, *SMALL, f"hydra.run.dir={run}")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        try:
            message = refusal(train, f"resume={run}")
            assert message.startswith(f"Error: The run folder {run} is in use by process {other.pid} on ")
        finally:
            other.kill()
    command(train, f"resume={run}", "trainer.max_steps=3")


def test_a_folder_is_reserved_before_anything_is_written_to_it(tmp_path: Path, refusal: Callable[..., str]) -> None:
    with RunFolder(tmp_path / "run").locked():
        message = refusal(train, *SMALL, f"hydra.run.dir={tmp_path / 'run'}")
        assert message.startswith(f"Error: The run folder {tmp_path / 'run'} is in use by process ")
    with RunFolder.create(tmp_path / "run").locked():  # no process has it, and nothing is in it
        pass


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, refusal: Callable[..., str]) -> None:
    (tmp_path / "file").touch()
    run = tmp_path / "file" / "run"
    with pytest.raises(InputError, match=r"run cannot be written: Not a directory\.$"), RunFolder(run).locked():
        pass
    assert refusal(train, *SMALL, f"hydra.run.dir={run}").endswith("cannot be written: Not a directory.")
