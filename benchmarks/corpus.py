"""Times training steps of captions and of translation, and the products in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain
from typing import Any, cast

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timing import alternate, show
from envs.splits import Split
from ram.config import config_folder
from ram.corpora import Tokens
from ram.corpora.reversal import Reversal
from ram.training.averaging import WeightAverage
from ram.training.job import Job

_CASES = {
    "captions of scenes, soft attention": ["experiment=scenes", "corpus.num_train=1000"],
    "recurrent translator": [
        "experiment=translation_recurrent",
        "corpus=reversal",
        "corpus._target_=benchmarks.corpus.RandomPairs",
        "task.subwords=null",
    ],
}
"""Options of each experiment, with data that need no files."""

aten = torch.ops.aten


class RandomPairs(Reversal):
    """Pairs of random texts of 5,000 words, with about the lengths of Multi30k in subwords."""

    def draw(self, rng: random.Random, split: Split) -> tuple[Tokens, Tokens, tuple[int, ...]]:
        length = min(60, round(4 + rng.lognormvariate(2.25, 0.45)))
        lengths = length, round(length * rng.uniform(0.75, 1.25))
        source, target = (tuple(str(rng.randrange(4996)) for _ in range(length)) for length in lengths)
        return source, target, (-1,) * len(target)

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())


class CorpusTraining:
    """An experiment, stepped as by the trainer."""

    def __init__(self, options: list[str]) -> None:
        with initialize_config_dir(str(config_folder().absolute()), version_base="1.3"):
            config = compose("config", [*options, f"num_threads={torch.get_num_threads()}"])
        self.job = Job(config)
        self.task = self.job.task
        groups = self.task.parameter_groups()
        self.parameters = list(chain(*(group["params"] for group in groups)))
        self.optimizer = self.job.optimizer(groups)
        self.average = WeightAverage(self.task, self.job.trainer.average_decay)

    def step(self, index: int) -> None:
        """Runs one whole training step."""
        loss = cast(Tensor, self.task(index).loss)
        self.optimizer.zero_grad()
        loss.backward()
        if self.job.trainer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.job.trainer.clip_norm)
        self.optimizer.step()
        self.average.update(index)


class Products(TorchDispatchMode):
    """Records the matrix products and convolutions of what runs in its context; a call computes them alone.

    The operands are random tensors of the same shapes and strides. Of fused kernels, those of LSTM layers and of
    attention, only the matrix products are computed; the input projections of all steps are one product.

    Attributes:
        operations: the number of multiplications and additions, without those of convolutions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Callable[[], object]] = []
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.mm.default, aten.bmm.default):
            self._add(args[0], args[1])
        elif func in (aten.addmm.default, aten.baddbmm.default):
            self._add(args[1], args[2])
        elif func in (aten.convolution.default, aten.convolution_backward.default):
            operands = [_random_like(each) if isinstance(each, Tensor) else each for each in args]
            self.runs.append(lambda: func(*operands))
        elif func is aten.mkldnn_rnn_layer.default:
            self._add_lstm(args[0], args[1], args[2], backward=False)
        elif func is aten.mkldnn_rnn_layer_backward.default:
            self._add_lstm(args[0], args[1], args[2], backward=True)
        elif func is aten._scaled_dot_product_flash_attention_for_cpu.default:
            query, key, value = args[:3]
            self._add_each([(query, key.mT), (query @ key.mT, value)])
        elif func is aten._scaled_dot_product_flash_attention_for_cpu_backward.default:
            grad, query, key, value = args[:4]
            weights = query @ key.mT
            self._add_each([(weights.mT, grad), (grad, value.mT), (weights, key), (weights.mT, query)])
        return func(*args, **(kwargs or {}))

    def __call__(self) -> None:
        for run in self.runs:
            run()

    def _add_each(self, products: list[tuple[Tensor, Tensor]]) -> None:
        for a, b in products:
            self._add(a.flatten(0, -3), b.flatten(0, -3))

    def _add(self, a: Tensor, b: Tensor) -> None:
        a, b = _random_like(a), _random_like(b)
        product = torch.bmm if a.ndim == 3 else torch.mm
        result = torch.empty(*a.shape[:-1], b.shape[-1])
        self.operations += 2 * result.numel() * a.shape[-1]
        self.runs.append(lambda: product(a, b, out=result))

    def _add_lstm(self, inputs: Tensor, input_weight: Tensor, hidden_weight: Tensor, backward: bool) -> None:
        steps, rows, _ = inputs.shape  # the sequence is the first dimension
        given = inputs.new_empty(steps * rows, inputs.shape[2])
        gates, hidden = (given.new_empty(steps * rows, width) for width in hidden_weight.shape)
        for _ in range(steps):
            self._add(*((gates[:rows], hidden_weight) if backward else (hidden[:rows], hidden_weight.T)))
        if backward:
            self._add(gates, input_weight)
            self._add(gates.T, given)
            self._add(gates.T, hidden)
        else:
            self._add(given, input_weight.T)


def _random_like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride()).normal_()


def time_corpora(seconds: float, steps: int) -> None:
    """Times training steps on texts and captions, and their products alone."""
    rows = []
    for name, options in _CASES.items():
        training, products = CorpusTraining(options), Products()
        with products:
            for index in range(steps):
                training.step(index)

        def run() -> None:
            for index in range(steps):
                training.step(index)  # noqa: B023 (called in this iteration)

        spent = alternate({"step": run, "products": products}, seconds)
        examples = steps * training.task.examples_per_step
        rows.append(
            [
                name,
                f"{examples / spent['step']:,.0f}",
                f"{1e3 * spent['step'] / steps:.0f}",
                f"{1e3 * spent['products'] / steps:.0f}",
                f"{100 * spent['products'] / spent['step']:.0f} %",
            ]
        )
    show(
        "Captions and translation",
        ["experiment", "examples/s", "step (ms)", "products (ms)", "share of the ceiling"],
        rows,
        "Whole training steps on images, or on random pairs of texts with the lengths of Multi30k.\n"
        "The ceiling is the matrix products and convolutions of the same steps alone, forward and backward.",
    )
