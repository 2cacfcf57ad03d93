"""Times training steps, the matrix products in them, and the drawing of scenes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.timing import NUM_GLIMPSES, alternate, show
from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet, ImageSource
from envs.images.canvas import Canvas
from envs.random import RowRandom
from ram.agent import RecurrentAttention
from ram.baselines import LearnedBaseline
from ram.distributed import TrainingStep, data_parallel
from ram.policies import ActionNetwork, LocationNetwork
from ram.tasks.glimpse import GlimpseTask
from ram.training.averaging import WeightAverage


class Training:
    """A task of the paper's size with its optimizer and weight average, stepped as by the trainer.

    With several processes each computes its share of the batch.

    Args:
        images: the training images.
        batch_size: distinct images in a step.
        task: the class of the task.
        agent: the class of the agent.
        env: the class of the environment.
        compiled: whether the agent's step is compiled with torch.compile.
        optimizer: options of AdamW; ``fused`` by default.
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
        build_env = partial(env, images=images, num_glimpses=NUM_GLIMPSES)
        self.task = task(build_env, agent, LearnedBaseline, batch_size=batch_size, compile=compiled)
        options: dict[str, Any] = optimizer or {"fused": True}
        self.optimizer = torch.optim.AdamW(self.task.parameter_groups(), lr=1e-3, weight_decay=0.0, **options)
        self.compute = data_parallel(TrainingStep(self.task))
        self.average = WeightAverage(self.task, decay=0.999)
        self.num_steps = 0

    def step(self) -> None:
        """Runs one whole training step."""
        loss = self.loss()
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"The loss of step {self.num_steps} is not finite.")
        self.backward(loss)
        self.update()
        self.num_steps += 1

    def loss(self) -> Tensor:
        """Computes the loss of the next step."""
        return cast(Tensor, self.compute(self.num_steps, False).loss)

    def backward(self, loss: Tensor) -> None:
        """Computes the gradients."""
        self.optimizer.zero_grad()
        loss.backward()

    def update(self) -> None:
        """Updates the weights and their average."""
        self.optimizer.step()
        self.average.update(self.num_steps)


class MatrixProducts:
    """The matrix products of a training step without the other operations: a lower bound of its time.

    They have the shapes and transpositions of :class:`ram.unroll.BatchedUnroll`, separate operands, and preallocated
    results. Gradients for patches, locations, and the inputs of the location network and the baseline are not needed
    and left out.

    Args:
        task: the task whose step is reproduced.
    """

    def __init__(self, task: GlimpseTask) -> None:
        glimpse, rows, looks = task.agent.glimpse, task.env.num_envs, task.env.num_glimpses
        location = cast(LocationNetwork, task.agent.location).mean[0]
        answer = cast(ActionNetwork, task.agent.action).logits[0]
        baseline = cast(LearnedBaseline, task.baseline).head
        core = cast(Any, task.agent.core.layers[0])
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        for look in range(looks):
            for layer in (glimpse.patch, glimpse.location, glimpse.merge, core.glimpse, location):
                self._add_forward(layer, rows)
            if look > 0:  # the first step has no previous state
                self._add_forward(core.hidden, rows)
                self._add_input_gradient(core.hidden, rows)
        self._add_weight_gradient(core.hidden, rows * (looks - 1))
        for layer in (glimpse.patch, glimpse.location, glimpse.merge, core.glimpse):
            self._add_weight_gradient(layer, rows * looks)
        for layer in (glimpse.merge, core.glimpse):
            self._add_input_gradient(layer, rows * looks)
        # For the loss, of all looks at once, and for the answer of the last.
        for layer in (location, baseline):
            self._add_forward(layer, rows * looks)
            self._add_weight_gradient(layer, rows * looks)
        for _ in range(2):  # to answer, and for the loss
            self._add_forward(answer, rows)
        self._add_weight_gradient(answer, rows)
        self._add_input_gradient(answer, rows)

    def _add_forward(self, layer: Any, rows: int) -> None:
        self._add(torch.randn(rows, layer.in_features), layer.weight.detach().T)

    def _add_weight_gradient(self, layer: Any, rows: int) -> None:
        self._add(torch.randn(rows, layer.out_features).T, torch.randn(rows, layer.in_features))

    def _add_input_gradient(self, layer: Any, rows: int) -> None:
        self._add(torch.randn(rows, layer.out_features), layer.weight.detach())

    def _add(self, a: Tensor, b: Tensor) -> None:
        self.products.append((a, b, torch.empty(len(a), b.shape[1])))

    def __call__(self) -> None:
        for a, b, result in self.products:
            torch.mm(a, b, out=result)

    @property
    def operations(self) -> int:
        """The number of multiplications and additions."""
        return sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in self.products)


def random_images() -> ImageSet:
    """Returns 20,000 random images of 28 x 28, the same in every process."""
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (20_000, 1, 28, 28), dtype=torch.uint8, generator=random)
    return ImageSet(pixels, torch.randint(10, (20_000,), generator=random), tuple("0123456789"))


def time_training(images: ImageSet, seconds: float) -> None:
    """Times training steps, and their matrix products alone."""
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
        f"Whole steps of the paper's model, {NUM_GLIMPSES} glimpses at 28 x 28: environment, sampling, backward, fused "
        "AdamW, weight average.\nThe ceiling is the matrix products of a step alone, forward and backward.",
    )


def time_scenes(images: ImageSet, seconds: float) -> None:
    """Times the drawing of a batch of scenes of Mnih et al. (2014), and a training step on it."""
    rows = []
    for size, num_clutter, num_scales in ((60, 0, 3), (60, 4, 3), (100, 8, 4)):
        source = Canvas(objects=images, size=size, num_clutter=num_clutter)
        training = Training(source, 128, env=partial(GlimpseVectorEnv, sensor=GlimpseSensor(12, num_scales)))
        products = MatrixProducts(training.task)
        index = torch.arange(128)
        draw = partial(training.task.env.scenes.draw, index, RowRandom(index, index))
        spent = alternate({"draw": draw, "step": training.step, "products": products}, seconds)
        shares = [f"{100 * spent[name] / spent['step']:.0f} %" for name in ("draw", "products")]
        numbers = [f"{1e3 * value:.2f}" for value in spent.values()]
        rows.append([f"{size} x {size}", str(num_clutter), str(num_scales), *numbers, *shares])
    show(
        "Scenes",
        [
            "canvas",
            "pieces of clutter",
            "scales",
            "draw (ms)",
            "training step (ms)",
            "products (ms)",
            "share of drawing",
            "share of the ceiling",
        ],
        rows,
        f"A new batch of 128 scenes of 28 x 28 digits, and a whole training step on one, {NUM_GLIMPSES} glimpses of "
        "12 x 12.",
    )
