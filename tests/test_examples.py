"""The scripts of ``examples/`` that train, each run as a user does, with a small budget."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Chance is 10 %. The last accuracy printed is of 2,560, 1,000 and 256 episodes, so that an agent that learns nothing
# reaches the margin with less than one chance in 10,000.
BUDGETS = [
    (
        "ppo_single_page.py",
        "torch",
        ["--num_envs", "256", "--num_iterations", "80", "--num_glimpses", "2", "--learning_rate", "3e-3"],
        20,
    ),
    ("stable_baselines.py", "sb3_contrib", ["--steps", "8192"], 16),
    ("torchrl_rollout.py", "torchrl", ["--batches", "5", "--steps", "512"], 18),
]


@pytest.mark.parametrize(("script", "package", "options", "margin"), BUDGETS, ids=[each[0] for each in BUDGETS])
def test_an_example_learns_above_chance(
    script: str, package: str, options: list[str], margin: float, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / script), *options]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    accuracies = [float(accuracy) for accuracy in re.findall(r"accuracy\s+([\d.]+) %", run.stdout)]
    assert margin < accuracies[-1] <= 100
