"""Compares the training losses of two checkouts, experiment by experiment, bit for bit.

For example, before and after a change that must not alter training::

    git worktree add ../before HEAD~1
    python -m benchmarks.compare_losses ../before . --data data --steps 50

A checkout may be replaced by a JSON file that ``--save`` has written. The exit status is 1 if any loss differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RECORD = """
import json, sys, tempfile
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

name, steps, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
from ram.config import config_folder
try:
    from ram.training.job import Job
except ImportError:  # an older checkout
    from ram.train import Job


def move(node):  # data sets are looked up below --data
    for key, value in node.items_ex(resolve=False):
        if isinstance(value, DictConfig):
            move(value)
        elif key == "root" and str(value).split("/")[0] == "data":
            node[key] = str(Path(data, *Path(value).parts[1:]))


class Recorder:
    losses = []

    def scalars(self, values, step):
        if "loss/total" in values:
            self.losses.append(values["loss/total"].hex())

    def pictures(self, *arguments):
        pass


with initialize_config_dir(str(config_folder()), version_base="1.3"):
    config = compose("config", [f"experiment={name}", f"trainer.max_steps={steps}", "trainer.log_every=1"])
move(config)
job = Job(config)
job.trainer.diagnose_every = job.trainer.picture_every = 0
job.task.evaluate = lambda split: {job.task.monitor: 0.0}
recorder = Recorder()
with tempfile.TemporaryDirectory() as folder:
    job.trainer.fit(job.task, job.optimizer, recorder, Path(folder))
print(json.dumps(recorder.losses))
"""


def record(checkout: Path, experiment: str, steps: int, data: Path) -> list[str] | None:
    """Returns the losses of the first steps as hexadecimal floats, or None if the experiment does not run."""
    command = [sys.executable, "-c", RECORD, experiment, str(steps), str(data)]
    run = subprocess.run(command, cwd=checkout, env=_environment(checkout), capture_output=True, text=True, check=False)
    if run.returncode:
        error = run.stderr.strip().splitlines()[-1:] or [f"exit status {run.returncode}"]
        print(f"{checkout}: {experiment} failed: {error[0]}", file=sys.stderr)
        return None
    losses: list[str] = json.loads(run.stdout.splitlines()[-1])
    return losses


def _environment(checkout: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}


def compare(before: Mapping[str, list[str] | None], after: Mapping[str, list[str] | None]) -> bool:
    """Prints one line an experiment. Returns whether all losses are equal."""
    equal = True
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            verdict = "missing before" if old is None else "missing after"
        elif old == new:
            verdict = f"equal at {len(old)} steps"
        else:
            first = next((step for step, pair in enumerate(zip(old, new, strict=False)) if len(set(pair)) > 1), -1)
            verdict = f"differs from step {first}: {float.fromhex(old[first])} and {float.fromhex(new[first])}"
        equal = equal and old is not None and old == new
        print(f"{name:<24}{verdict}", flush=True)
    return equal


def main() -> None:
    """Parses the command line, records both checkouts and compares them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout, or a JSON file written by --save")
    parser.add_argument("after", type=Path, nargs="?", help="the same; without it the first is only recorded")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets (default: data)")
    parser.add_argument("--steps", type=int, default=50, help="training steps an experiment (default: 50)")
    parser.add_argument("--experiments", nargs="*", help="names of experiments (default: all)")
    parser.add_argument("--save", type=Path, help="writes the losses of the last checkout to this JSON file")
    options = parser.parse_args()
    records = []
    for source in filter(None, (options.before, options.after)):
        if source.is_file():
            saved = json.loads(source.read_text())
            records.append({name: saved[name] for name in options.experiments or saved})
            continue
        names = options.experiments or sorted(path.stem for path in source.glob("conf/experiment/*.yaml"))
        records.append({})
        for name in names:
            records[-1][name] = record(source, name, options.steps, options.data.resolve())
            if options.save:
                options.save.write_text(json.dumps(records[-1], indent=1) + "\n")
    if options.after:
        sys.exit(not compare(*records))


if __name__ == "__main__":
    main()
