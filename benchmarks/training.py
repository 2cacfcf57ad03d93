"""Times training steps, the matrix products in them, and the drawing of scenes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.timing import NUM_GLIMPSES, alternate, show
from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet, ImageSource
from envs.images.canvas import Canvas
from envs.random import RowRandom
from ram.agent import RecurrentAttention
from ram.baselines import LearnedBaseline
from ram.networks import ActionNetwork, LocationNetwork
from ram.tasks.glimpse import GlimpseTask
from ram.training.averaging import WeightAverage


class Training:
    """A task of the paper's size with its optimizer and weight average, stepped as by the trainer.

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
        self.average = WeightAverage(self.task, decay=0.999)
        self.num_steps = 0

    def step(self) -> None:
        """Runs one whole training step."""
        loss = self.loss()
        if not loss.detach().isfinite():
            raise RuntimeError(f"The loss of step {self.num_steps} is not finite.")
        self.backward(loss)
        self.update()
        self.num_steps += 1

    def loss(self) -> Tensor:
        """Computes the loss of the next step."""
        return cast(Tensor, self.task(self.num_steps).loss)

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

    They have the shapes and transpositions of autograd, separate operands, and preallocated results. Gradients for
    patches, locations, and the inputs of the location network and the baseline are not needed and left out.

    Args:
        task: the task whose step is reproduced.
    """

    def __init__(self, task: GlimpseTask) -> None:
        glimpse, rows = task.agent.glimpse, task.env.num_envs
        location = cast(LocationNetwork, task.agent.location).mean[0]
        answer = cast(ActionNetwork, task.agent.action).logits[0]
        baseline = cast(LearnedBaseline, task.baseline).head
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        core = cast(Any, task.agent.core.layers[0])
        for glimpse_index in range(NUM_GLIMPSES):
            self._add(glimpse.patch, rows, input_gradient=False)
            self._add(glimpse.location, rows, input_gradient=False)
            self._add(glimpse.merge, rows)
            self._add(core.glimpse, rows)
            if glimpse_index > 0:  # the first step has no previous state
                self._add(core.hidden, rows)
            self._add(location, rows, weight_gradient=False, input_gradient=False)  # to sample
        self._add(answer, rows)
        # For the loss, of all glimpses at once.
        self._add(location, rows * NUM_GLIMPSES, input_gradient=False)
        self._add(baseline, rows * NUM_GLIMPSES, input_gradient=False)

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
        """The number of multiplications and additions."""
        return sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in self.products)


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
        f"A new batch of 128 scenes of 28 x 28 digits, and a whole training step on one, {NUM_GLIMPSES} glimpses of "
        "12 x 12.",
    )
