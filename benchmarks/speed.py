"""Times the sensor, the environment and training against their alternatives: ``python -m benchmarks.speed``.

All of it runs in one process and prints Markdown. What a table compares is timed in turn, A B A B ..., so that a busy
machine disturbs all of it alike; a number is the median over the rounds, a ratio one of medians.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

import gymnasium
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from envs import GlimpseEnv, GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet, ImageSource, canvas
from envs.random import RowRandom
from ram.agent import RecurrentAttention
from ram.baselines import LearnedBaseline
from ram.distributions import Gaussian
from ram.networks import ActionNetwork, LocationNetwork
from ram.reinforce import discounted_returns, policy_gradient_loss
from ram.tasks import StepResult
from ram.tasks.glimpse import GlimpseTask
from ram.training.averaging import WeightAverage

_ROWS = 1024
_GLIMPSES = 6


# Timing and printing.


def alternate(runs: Mapping[str, Callable[[], object]], seconds: float, least: int = 3) -> dict[str, float]:
    """Times several functions, called in turn, after one call each to warm up.

    Args:
        runs: what to call, by name.
        seconds: for all together.
        least: how many rounds there are at least.

    Returns:
        The median seconds of a call, by name.
    """
    for run in runs.values():
        run()
    spent: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - began)
        rounds += 1
    return {name: median(values) for name, values in spent.items()}


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """Prints a table with aligned columns, which is also Markdown."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join([first, *(other.strip().rjust(len(other)) for other in others)]) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    print(f"\n### {title}\n\n{note}\n", *map(line, [header, rule, *rows]), sep="\n", flush=True)


def machine() -> str:
    """The facts that the numbers depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or platform.machine()
    return (
        f"{cpu}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()}); torch {torch.__version__} on "
        f"{_threads(torch.get_num_threads())}; Python {platform.python_version()}; {platform.system()}."
    )


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


# The sensor.


def pad_crop_pool(images: Tensor, locations: Tensor, sensor: GlimpseSensor) -> Tensor:
    """The common implementation: every image is padded, cropped and averaged on its own, at every scale."""
    starts = sensor.window_starts(images.shape[-2], images.shape[-1], locations)
    patches = []
    for image, corners in zip(images, starts.tolist(), strict=True):
        scales = []
        for k, (row, column) in enumerate(corners):
            pool = sensor.factor**k
            height, width = (side * pool for side in sensor.patch_size)
            row, column = row + height // 2, column + width // 2
            padded = F.pad(image, (width // 2, width // 2, height // 2, height // 2))
            window = padded[:, row : row + height, column : column + width]
            scales.append(window if pool == 1 else F.avg_pool2d(window, pool))
        patches.append(torch.stack(scales))
    return torch.stack(patches)


def pad_once(images: Tensor, sensor: GlimpseSensor) -> list[Tensor]:
    """The images with the padding of every scale."""
    pads = [[side * sensor.factor**k // 2 for side in sensor.patch_size] for k in range(sensor.num_scales)]
    return [F.pad(images, (width, width, height, height)) for height, width in pads]


def slice_pool(images: Tensor, padded: list[Tensor], locations: Tensor, sensor: GlimpseSensor) -> Tensor:
    """Slices images padded before, one after another, and averages a scale's windows together."""
    starts = sensor.window_starts(images.shape[-2], images.shape[-1], locations)
    scales = []
    for k, values in enumerate(padded):
        pool = sensor.factor**k
        height, width = (side * pool for side in sensor.patch_size)
        corners = (starts[:, k] + torch.tensor([height // 2, width // 2])).tolist()
        windows = torch.stack(
            [image[:, y : y + height, x : x + width] for image, (y, x) in zip(values, corners, strict=True)]
        )
        scales.append(windows if pool == 1 else F.avg_pool2d(windows, pool))
    return torch.stack(scales, dim=1)


def prepare_and_look(images: Tensor, locations: Tensor, sensor: GlimpseSensor) -> Tensor:
    """The first look at images that the sensor has not seen."""
    return sensor(sensor.prepare(images), locations)


def time_sensor(seconds: float) -> None:
    """One look at every image of a batch, by a loop over images and by the sensor."""
    rows = []
    for size in (28, 60):
        for num_scales in (1, 3):
            sensor = GlimpseSensor(patch_size=8, num_scales=num_scales)
            images, locations = torch.rand(_ROWS, 1, size, size), torch.rand(_ROWS, 2) * 2 - 1
            padded, prepared = pad_once(images, sensor), sensor.prepare(images)
            runs = {
                "a": partial(pad_crop_pool, images, locations, sensor),
                "b": partial(slice_pool, images, padded, locations, sensor),
                "c": partial(prepare_and_look, images, locations, sensor),
                "d": partial(sensor, prepared, locations),
            }
            expected = runs["a"]()
            for run in runs.values():
                torch.testing.assert_close(run(), expected)
            spent = alternate(runs, seconds)
            rows.append(
                [f"{size} x {size}", str(num_scales)]
                + [f"{1e3 * spent[name]:.2f}" for name in runs]
                + [f"{spent[slow] / spent[ours]:.1f}" for slow, ours in ("ac", "ad", "bc", "bd")]
            )
    show(
        "Sensor",
        ["image", "scales", *(f"{name} (ms)" for name in "abcd"), "a / c", "a / d", "b / c", "b / d"],
        rows,
        f"One look of 8 x 8 pixels a scale at each of {_ROWS:,} grey images; all four return equal patches.\n"
        "a: a loop that pads, crops and averages image by image. b: a loop that crops images padded before.\n"
        "c: this sensor, preparing the images and looking once. d: this sensor, one look at prepared images.",
    )


# Training.


class Training:
    """A task of the paper's size with optimiser and weight average, stepped as the trainer does.

    Args:
        images: what to train on.
        batch_size: distinct images a step.
        task: what to build.
        agent: the same, for the task.
        env: the same.
        compiled: whether torch.compile fuses the agent's step.
        optimizer: options of AdamW; fused by default.
    """

    def __init__(
        self,
        images: ImageSource,
        batch_size: int,
        task: type[GlimpseTask] = GlimpseTask,
        agent: Callable[..., RecurrentAttention] = RecurrentAttention,
        env: Callable[..., GlimpseVectorEnv] = GlimpseVectorEnv,
        compiled: bool = False,
        **optimizer: bool,
    ) -> None:
        build_env = partial(env, images=images, num_glimpses=_GLIMPSES)
        self.task = task(build_env, agent, LearnedBaseline, batch_size=batch_size, compile=compiled)
        options: dict[str, Any] = optimizer or {"fused": True}
        self.optimizer = torch.optim.AdamW(self.task.parameter_groups(), lr=1e-3, weight_decay=0.0, **options)
        self.average = WeightAverage(self.task, decay=0.999)
        self.done = 0

    def step(self) -> None:
        """One whole training step."""
        loss = self.loss()
        if not loss.detach().isfinite():
            raise RuntimeError(f"The loss of step {self.done} is not finite.")
        self.backward(loss)
        self.update()
        self.done += 1

    def loss(self) -> Tensor:
        """What to descend."""
        return cast(Tensor, self.task(self.done).loss)

    def backward(self, loss: Tensor) -> None:
        """Sets the gradients."""
        self.optimizer.zero_grad()
        loss.backward()

    def update(self) -> None:
        """Sets the weights and their average."""
        self.optimizer.step()
        self.average.update(self.done)


class MatrixProducts:
    """The matrix products of a training step and nothing else: the least that its time could be.

    They have the shapes and the transpositions that autograd gives them, operands of their own as in the step, and
    results that are allocated once. Neither patches nor locations need a gradient, and neither does what the location
    network and the baseline read, so the products for these are left out.

    Args:
        task: whose step to mimic.
    """

    def __init__(self, task: GlimpseTask) -> None:
        glimpse, rows = task.agent.glimpse, task.env.num_envs
        location = cast(LocationNetwork, task.agent.location).mean[0]
        answer = cast(ActionNetwork, task.agent.action).logits[0]
        baseline = cast(LearnedBaseline, task.baseline).head
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        core = cast(Any, task.agent.core.layers[0])
        for look in range(_GLIMPSES):
            self._add(glimpse.patch, rows, input_gradient=False)
            self._add(glimpse.location, rows, input_gradient=False)
            self._add(glimpse.merge, rows)
            self._add(core.glimpse, rows)
            if look > 0:  # before the first look there is no memory
                self._add(core.hidden, rows)
            self._add(location, rows, weight_gradient=False, input_gradient=False)  # to sample
        self._add(answer, rows)
        # To learn, of all looks at once.
        self._add(location, rows * _GLIMPSES, input_gradient=False)
        self._add(baseline, rows * _GLIMPSES, input_gradient=False)

    def _add(self, layer: Any, rows: int, weight_gradient: bool = True, input_gradient: bool = True) -> None:
        weight = cast(nn.Linear, layer).weight.detach()
        given, gradient = torch.randn(rows, weight.shape[1]), torch.randn(rows, weight.shape[0])
        pairs = [(given, weight.T)]
        if weight_gradient:
            pairs.append((gradient.T, given))
        if input_gradient:
            pairs.append((gradient, weight))
        self.products += [(a, b, torch.empty(len(a), b.shape[1])) for a, b in pairs]

    def __call__(self) -> None:
        for a, b, result in self.products:
            torch.mm(a, b, out=result)

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in self.products)


def time_training(images: ImageSet, seconds: float) -> None:
    """Training steps, and the matrix products in them alone."""
    rows = []
    for batch_size in (128, 1024):
        training = Training(images, batch_size)
        products = MatrixProducts(training.task)
        spent = alternate({"step": training.step, "products": products}, seconds)
        rows.append(
            [
                f"{batch_size:,}",
                f"{batch_size / spent['step']:,.0f}",
                f"{1e3 * spent['step']:.2f}",
                f"{1e3 * spent['products']:.2f}",
                f"{products.operations / spent['products'] / 1e9:.0f}",
                f"{100 * spent['products'] / spent['step']:.0f} %",
            ]
        )
    show(
        "Training",
        ["batch", "images/s", "step (ms)", "products (ms)", "products (GFLOP/s)", "share of the ceiling"],
        rows,
        f"Whole steps of the paper's model, {_GLIMPSES} glimpses at 28 x 28: environment, sampling, backward, fused "
        "AdamW, weight average.\nThe ceiling is the matrix products of a step alone, forward and backward.",
    )


# Scenes.


def time_scenes(images: ImageSet, seconds: float) -> None:
    """Drawing a batch of the RAM paper's scenes, and a whole training step on it."""
    rows = []
    for size, num_clutter, num_scales in ((60, 0, 3), (60, 4, 3), (100, 8, 4)):
        source = canvas.Canvas(objects=images, size=size, num_clutter=num_clutter)
        training = Training(source, 128, env=partial(GlimpseVectorEnv, sensor=GlimpseSensor(12, num_scales)))
        index = torch.arange(128)
        draw = partial(training.task.env.scenes.draw, index, RowRandom(index, index))
        spent = alternate({"draw": draw, "step": training.step}, seconds)
        share = f"{100 * spent['draw'] / spent['step']:.0f} %"
        numbers = [f"{1e3 * value:.2f}" for value in spent.values()]
        rows.append([f"{size} x {size}", str(num_clutter), str(num_scales), *numbers, share])
    show(
        "Scenes",
        ["canvas", "pieces of clutter", "scales", "draw (ms)", "training step (ms)", "share"],
        rows,
        f"A fresh batch of 128 scenes of 28 x 28 digits, and a whole step of training on one, {_GLIMPSES} glimpses of "
        "12 x 12.",
    )


# The environment.


def episode(env: gymnasium.vector.VectorEnv, as_tensors: bool = False) -> Callable[[], None]:
    """A function that plays an episode in every row, the step that starts it included."""
    env.reset(seed=0)
    actions: dict[str, Any] = {
        "location": torch.rand(env.num_envs, 2) * 2 - 1,
        "answer": torch.zeros(env.num_envs, dtype=torch.int64),
    }
    if not as_tensors:
        actions = {name: value.numpy() for name, value in actions.items()}

    def run() -> None:
        for _ in range(_GLIMPSES + 1):
            env.step(actions)

    return run


def time_environment(images: ImageSet, seconds: float, least: int) -> None:
    """Environment steps a second, by the number of rows."""
    rows = []
    for count in (1, 16, 256, _ROWS, 8192):
        build = partial(GlimpseVectorEnv, images=images, num_envs=count, num_glimpses=_GLIMPSES)
        runs = {"torch": episode(build(output="torch"), as_tensors=True), "numpy": episode(build())}
        single = partial(GlimpseEnv, images=images, num_glimpses=_GLIMPSES)
        runs["plain"] = episode(gymnasium.vector.SyncVectorEnv([single] * count))
        spent = alternate(runs, seconds, least if count <= _ROWS else 1)
        speeds = [f"{count * (_GLIMPSES + 1) / value:,.0f}" for value in spent.values()]
        rows.append([f"{count:,}", *speeds, *(f"{spent['plain'] / spent[name]:.1f}" for name in ("torch", "numpy"))])
    show(
        "Environment",
        ["rows", "torch (steps/s)", "numpy (steps/s)", "SyncVectorEnv (steps/s)", "torch faster by", "numpy faster by"],
        rows,
        f"Steps a second, all rows together, of GlimpseVectorEnv with torch and with numpy output, and of "
        f"gymnasium.vector.SyncVectorEnv\nover as many GlimpseEnv. One step in {_GLIMPSES + 1} starts a new episode.",
    )


# Where the time goes. The classes below do what their parents do, in sight of the profiler.

_PRODUCTS = "matrix products, forward and backward"
_NETWORKS = "glimpse and core networks but their products"
_ENVIRONMENT = "environment and sensor"
_SAMPLING = "sampling and random numbers"
_LOSS = "loss, baseline and heads"
_AUTOGRAD = "the rest of autograd"
_OPTIMIZER = "optimiser and averaging"
_PARTS = (_PRODUCTS, _NETWORKS, _ENVIRONMENT, _SAMPLING, _LOSS, _AUTOGRAD, _OPTIMIZER)
_STEP = "training step"


class _SeenEnv(GlimpseVectorEnv):
    reset = record_function(_ENVIRONMENT)(GlimpseVectorEnv.reset)
    step = record_function(_ENVIRONMENT)(GlimpseVectorEnv.step)


class _SeenGaussian(Gaussian):
    sample = record_function(_SAMPLING)(Gaussian.sample)


class _SeenLocation(LocationNetwork):
    def forward(self, features: Tensor) -> Gaussian:
        with record_function(_LOSS if torch.is_grad_enabled() else _SAMPLING):
            policy = super().forward(features)
        return _SeenGaussian(policy.mean, policy.std)


class _SeenAgent(RecurrentAttention):
    step = record_function(_NETWORKS)(RecurrentAttention.step)


class _SeenTask(GlimpseTask):
    _noise = record_function(_SAMPLING)(GlimpseTask._noise)
    _batch = record_function(_SAMPLING)(GlimpseTask._batch)


class _SeenTraining(Training):
    step = record_function(_STEP)(Training.step)
    backward = record_function(_AUTOGRAD)(Training.backward)
    update = record_function(_OPTIMIZER)(Training.update)


def _attribute(event: Any, part: str, spent: dict[str, float]) -> None:
    """Adds the milliseconds of an event of the profiler, and of those within, to the parts that they belong to."""
    part = event.name if event.name in spent else part
    spent[_PRODUCTS if event.name in ("aten::mm", "aten::addmm") else part] += event.self_cpu_time_total / 1e3
    for child in event.cpu_children:
        _attribute(child, part, spent)


def time_parts(images: ImageSet, steps: int) -> None:
    """The parts of a training step, by the profiler."""
    training = _SeenTraining(images, 128, _SeenTask, partial(_SeenAgent, policy=_SeenLocation), _SeenEnv)
    training.step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            training.step()
    each: list[dict[str, float]] = []
    for event in profiler.events() or []:
        if event.name == _STEP:
            each.append(dict.fromkeys(_PARTS, 0.0))
            _attribute(event, _LOSS, each[-1])
    # A step that other processes interrupt counts their time for some part at random.
    fastest = sorted(each, key=lambda spent: sum(spent.values()))[: math.ceil(steps / 4)]
    parts = {name: mean(spent[name] for spent in fastest) for name in _PARTS}
    total = sum(parts.values())
    show(
        "Where the time of a training step goes",
        ["part", "ms", "share"],
        [[name, f"{value:.2f}", f"{100 * value / total:.0f} %"] for name, value in parts.items()],
        f"Batch 128, the mean of the fastest quarter of {steps} steps under the profiler, which makes small operations "
        f"look slower.\nA part holds the time that Python takes in it. The whole: {total:.1f} ms.",
    )


# What was tried.


class HeadsEveryStep(GlimpseTask):
    """Scores locations and asks the baseline at every look, where the default does so once for all looks."""

    def forward(self, step: int) -> StepResult:
        agent, env = self.agent, self.env
        noise = self._noise(step)
        observation, info = env.reset(options={"index": self._batch(step), "episode": step})
        state = None
        log_probs, values, rewards = [], [], []
        answer = torch.zeros_like(info["label"])
        for look in range(env.num_glimpses):
            hidden, _, state = agent.step(observation, state)
            policy = agent.location(hidden)
            sample = policy.sample(noise["location"][look])
            log_probs.append(policy.log_prob(sample))
            values.append(cast(LearnedBaseline, self.baseline).head(hidden.detach()).squeeze(-1))
            if look == env.num_glimpses - 1:
                logits = cast(ActionNetwork, agent.action)(hidden).logits
                answer = logits.argmax(-1)
            observation, reward, _, _, _ = env.step({"location": sample.clamp(-1, 1), "answer": answer})
            rewards.append(reward)
        value, returns = torch.stack(values), discounted_returns(torch.stack(rewards), self.gamma)
        log_prob, advantage = torch.stack(log_probs[:-1]), returns - value
        loss = policy_gradient_loss(log_prob, advantage[:-1], torch.ones_like(log_prob, dtype=torch.bool))
        loss = loss + F.cross_entropy(logits, info["label"]) + advantage.square().mean()
        return StepResult(loss, dict)


class LowPrecision(Training):
    """Computes the loss in bfloat16 where torch.autocast deems it safe."""

    def loss(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss()


def time_variants(images: ImageSet, seconds: float, least: int, compiled: bool) -> None:
    """Other ways to take the same training steps."""
    threads = torch.get_num_threads()
    other = 2 if threads == 1 else 1
    default, each, threaded = Training(images, 128), Training(images, 128, HeadsEveryStep), Training(images, 128)
    torch.testing.assert_close(each.task(0).loss, default.task(0).loss)

    def step_with_other_threads() -> None:
        torch.set_num_threads(other)
        threaded.step()
        torch.set_num_threads(threads)

    runs = {
        f"the default: {_threads(threads)}, fused AdamW, heads once for all looks": default.step,
        "AdamW, foreach": Training(images, 128, foreach=True).step,
        "AdamW, one parameter after another": Training(images, 128, foreach=False).step,
        "heads at every look": each.step,
        "products in bfloat16 (another arithmetic)": LowPrecision(images, 128).step,
    }
    note = "torch.compile is left out."
    if compiled:
        began = time.perf_counter()
        training = Training(images, 128, compiled=True)
        try:
            training.step()
        except RuntimeError as error:  # the class of all that torch.compile raises, as for want of a C++ compiler
            note = f"torch.compile failed: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        else:
            runs["torch.compile of the agent's step"] = training.step
            note = f"The first compiled step took {time.perf_counter() - began:.0f} s."
    rows = []
    # Apart, for threads that wait for work keep a core busy for a while and slow down whatever comes next.
    for group in (runs, {"": default.step, _threads(other): step_with_other_threads}):
        spent = alternate(group, seconds, least)
        base = next(iter(spent.values()))
        rows += [[name, f"{1e3 * value:.2f}", f"{value / base:.2f}"] for name, value in spent.items() if name]
    show(
        "What was tried",
        ["variant", "step (ms)", "against the default"],
        rows,
        f"A training step at batch 128; below 1 is faster. {note}\n"
        "On a machine that is busy otherwise, two threads wait for each other at every product.",
    )


def main() -> None:
    """The command ``python -m benchmarks.speed``."""
    parser = argparse.ArgumentParser(description="Times the sensor, the environment and training.")
    parser.add_argument("--quick", action="store_true", help="shorter and noisier, and without torch.compile")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    arguments = parser.parse_args()
    quick = arguments.quick
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    images = ImageSet(
        torch.randint(256, (20_000, 1, 28, 28), dtype=torch.uint8),
        torch.randint(10, (20_000,)),
        tuple("0123456789"),
    )
    print(f"{machine()}\nEach number is a median; what a table compares was timed in turn. The images are random.")
    time_sensor(seconds=0.2 if quick else 4)
    time_training(images, seconds=1 if quick else 15)
    time_scenes(images, seconds=0.5 if quick else 10)
    time_environment(images, seconds=0.2 if quick else 6, least=1 if quick else 3)
    time_parts(images, steps=12 if quick else 100)
    time_variants(images, seconds=0.5 if quick else 20, least=1 if quick else 3, compiled=not quick)


if __name__ == "__main__":
    main()
