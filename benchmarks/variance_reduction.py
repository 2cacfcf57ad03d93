"""Trains with every baseline at an equal number of episodes, and draws gradient variance and error over training.

    python -m benchmarks.variance_reduction runs/variance images.root=data
    python -m benchmarks.variance_reduction runs/variance images.root=data --study cluttered_60x60 --seeds 0 1 2

The runs are ordinary runs of ``ram.train``, in folders STUDY/BASELINE/SEED. After an interruption the same command
continues: finished runs are kept, and unfinished ones are resumed from their last checkpoint. With several rollouts of
an image, fewer distinct images are seen.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.timing import show

_Curve = list[tuple[int, float]]

_STUDIES = {  # episodes of a step, steps, and options
    "mnist_28x28": (512, 1600, ("experiment=mnist_28x28", "num_processes=1")),
    "cluttered_60x60": (256, 1200, ("experiment=cluttered_60x60",)),
}
_BASELINES = {  # rollouts of an image, and options
    "none": (1, ("baseline=none",)),
    "moving average": (1, ("baseline=moving_average",)),
    "learned": (1, ("baseline=learned",)),
    "leave-one-out, 2 rollouts": (2, ("baseline=leave_one_out",)),
    "leave-one-out, 4 rollouts": (4, ("baseline=leave_one_out",)),
    "leave-one-out, 8 rollouts": (8, ("baseline=leave_one_out",)),
}
_TRAINING_IMAGES = 55_000  # of MNIST
_NUM_POINTS = 20  # of a curve
_ERROR, _RATIO = "validation/error", "grad/variance_ratio"


def main() -> None:
    """The command ``python -m benchmarks.variance_reduction``."""
    parser = argparse.ArgumentParser(description="Compares the baselines of REINFORCE at equal episodes.")
    parser.add_argument("folder", type=Path, help="folder of the runs")
    parser.add_argument("options", nargs="*", help="further options of ram.train, for all runs")
    parser.add_argument("--study", choices=list(_STUDIES), action="append", help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--plot", type=Path, help="PNG file of the figure (default: FOLDER/variance.png)")
    arguments = parser.parse_args()
    studies = arguments.study or list(_STUDIES)
    for study in studies:
        for seed in arguments.seeds:
            for baseline in _BASELINES:
                _train(study, baseline, seed, arguments.folder, arguments.options)
    records = {study: _records(arguments.folder / study, arguments.seeds) for study in studies}
    curves = {study: {name: _curves(paths) for name, paths in found.items()} for study, found in records.items()}
    for study in studies:
        _show(study, records[study], curves[study])
    _plot(curves, arguments.plot or arguments.folder / "variance.png")


def _train(study: str, baseline: str, seed: int, folder: Path, options: Sequence[str]) -> None:
    """Trains with a baseline, unless the run has finished."""
    run = _folder(folder / study, baseline) / str(seed)
    if (run / "metrics.json").exists():
        return
    episodes, steps, given = _STUDIES[study]
    rollouts, chosen = _BASELINES[baseline]
    command = [sys.executable, "-m", "ram.train"]
    if (run / "checkpoints" / "last.pt").exists():
        command.append(f"resume={run}")
    else:
        shutil.rmtree(run, ignore_errors=True)  # stopped before its first checkpoint
        images = episodes // rollouts
        period = steps / _NUM_POINTS / (_TRAINING_IMAGES // images)  # in epochs
        command += [*given, *chosen, f"task.batch_size={images}", f"task.rollouts_per_image={rollouts}"]
        command += [
            f"trainer.max_steps={steps}",
            f"trainer.evaluate_every={period}",
            f"trainer.diagnose_every={period}",
        ]
        command += ["trainer.picture_every=0", f"seed={seed}", *options, f"hydra.run.dir={run}"]
    print(" ".join(command[1:]), flush=True)
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(code)  # the run has printed why


def _folder(study: Path, baseline: str) -> Path:
    return study / baseline.replace(",", "").replace(" ", "_")


def _records(study: Path, seeds: Sequence[int]) -> dict[str, list[Path]]:
    """Returns the metrics.json of the runs by baseline."""
    return {name: [_folder(study, name) / str(seed) / "metrics.json" for seed in seeds] for name in _BASELINES}


def _curves(records: Sequence[Path]) -> dict[str, list[_Curve]]:
    """Reads the curves of runs by metric."""
    curves = defaultdict(list)
    for record in records:
        events = EventAccumulator(str(record.parent), size_guidance={"scalars": 0})
        events.Reload()
        for metric in (_ERROR, _RATIO):
            # At the end the best value is logged again at the last step.
            by_step = {event.step: event.value for event in reversed(events.Scalars(metric))}
            curves[metric].append(sorted(by_step.items()))
    return curves


def _show(
    study: str, records: Mapping[str, Sequence[Path]], curves: Mapping[str, Mapping[str, Sequence[_Curve]]]
) -> None:
    """Prints the error at the best validation error and the mean variance ratio of every baseline."""
    rows = []
    for baseline, paths in records.items():
        metrics = [json.loads(path.read_text()) for path in paths]
        values = [[record[name] for record in metrics] for name in ("validation/error", "test/error", "seconds")]
        ratio = [mean(value for _, value in curve[len(curve) // 2 :]) for curve in curves[baseline][_RATIO]]
        rows.append([baseline, *(_spread(each) for each in (*values[:2], ratio)), f"{mean(values[2]):.0f}"])
    header = ["baseline", "validation error, %", "test error, %", "variance ratio, second half", "seconds"]
    note = (
        "Errors of the best checkpoint. The ratio is that of the variance of the policy gradient to the variance with "
        "the best constant\nbaseline and one rollout of each image, at an equal number of episodes."
    )
    show(study, header, rows, note)


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def _plot(studies: Mapping[str, Mapping[str, Mapping[str, Sequence[_Curve]]]], path: Path) -> None:
    """Draws for each study the variance relative to the best constant baseline, and the validation error."""
    figure = Figure(figsize=(9, 3.2 * len(studies)), layout="constrained")
    panels = {_RATIO: "gradient variance / with the best constant", _ERROR: "validation error (%)"}
    for row, (study, curves) in zip(figure.subplots(len(studies), 2, squeeze=False), studies.items(), strict=True):
        for axes, (metric, label) in zip(row, panels.items(), strict=True):
            for number, (baseline, metrics) in enumerate(curves.items()):
                color, runs = colormaps["tab10"](number), metrics[metric]
                steps = [step for step, _ in runs[0]]
                values = [[run[index][1] for run in runs] for index in range(len(steps))]
                axes.plot(steps, list(map(mean, values)), color=color, linewidth=1.4, label=baseline)
                axes.fill_between(steps, list(map(min, values)), list(map(max, values)), color=color, alpha=0.15)
            axes.set(yscale="log", xlabel="training step")
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{study}: {label}", loc="left", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    figure.axes[1].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
