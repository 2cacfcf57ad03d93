"""The scripts of ``examples/``, each run as a user would, on a small budget."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "needed", "budget"),
    [
        ("ppo_single_page.py", "torch", ["--num_envs", "16", "--num_iterations", "20"]),
        ("stable_baselines.py", "sb3_contrib", ["--steps", "4096"]),
        ("torchrl_rollout.py", "torchrl", ["--batches", "5", "--steps", "32", "--epochs", "1"]),
    ],
    ids=lambda part: part[-1] if isinstance(part, list) else part,
)
def test_an_example_trains_and_tells_its_accuracy(script: str, needed: str, budget: list[str], tmp_path: Path) -> None:
    pytest.importorskip(needed)
    command = [sys.executable, str(EXAMPLES / script), *budget]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    shares = [float(share) for share in re.findall(r"accuracy\s+([\d.]+) %", run.stdout)]
    assert shares
    assert all(0 <= share <= 100 for share in shares)
