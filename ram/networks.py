"""Networks of recurrent attention models (Mnih et al. 2014, section 3.1 and figure 1; Ba et al. 2015, section 2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_choice, check_positive, check_positive_integers
from ram.attention.scores import ScaledDot, Score
from ram.attention.selection import Hard, Select
from ram.distributions import Categorical, Gaussian, GridCategorical, Uniform, full_precision
from ram.initialization import InputScale, initialize_gates, initialize_relu, initialize_tanh

State = Tensor | tuple[Tensor, Tensor]
"""State of one layer of the core: h (B, size), or (h, c) for an LSTM."""


class GlimpseNetwork(nn.Module):
    """Encodes patches and location in one vector: g = ReLU(Lin(h_g) + Lin(h_l)).

    h_g = ReLU(Lin(patches)) and h_l = ReLU(Lin(location)). If the observation names a class to search for, a learned
    embedding of the class is added inside the last ReLU.

    Args:
        patch_shape: (scales, C, h, w).
        num_goals: number of classes to search for; 0 if the observation has no goal.
        patch_features: width of h_g.
        location_features: width of h_l.
        output_size: width of g.
    """

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        num_goals: int = 0,
        patch_features: int = 128,
        location_features: int = 128,
        output_size: int = 256,
    ) -> None:
        super().__init__()
        sizes = {"patch_features": patch_features, "location_features": location_features, "output_size": output_size}
        check_positive_integers("task.agent.glimpse", **sizes)
        self.output_size = output_size
        self.input_scale = InputScale(patch_shape[0])
        self.patch = nn.Linear(math.prod(patch_shape), patch_features)
        self.location = nn.Linear(2, location_features)
        # The sum of two linear maps is one linear map of both inputs, in a single product.
        self.merge = nn.Linear(patch_features + location_features, output_size)
        self.goal = nn.Embedding(num_goals, output_size) if num_goals else None
        initialize_relu(self.patch, self.location, self.merge)

    def forward(self, patches: Tensor, location: Tensor, goal: Tensor | None = None) -> Tensor:
        """(B, scales, C, h, w), (B, 2) and optionally (B,) -> (B, output_size)."""
        inputs = torch.cat([self.patch(self.input_scale(patches).flatten(1)), self.location(location)], dim=1)
        merged = self.merge(F.relu(inputs))
        return F.relu(merged if self.goal is None else merged + self.goal(goal))


class ContextNetwork(nn.Module):
    """Computes the initial state of the upper core layer from a coarse view of the scene (Ba et al. 2015, section 2).

    Three convolutions, the last two with stride 2, and a linear layer.

    Args:
        context_shape: (C, h, w) of the coarse view.
        output_size: width of the core.
        channels: number of channels of the first convolution; the others have twice as many.
    """

    def __init__(self, context_shape: tuple[int, ...], output_size: int, channels: int = 16) -> None:
        super().__init__()
        check_positive_integers("task.agent.context", channels=channels)
        depth, height, width = context_shape
        self.input_scale = InputScale()
        self.layers = nn.Sequential(
            nn.Conv2d(depth, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * channels * -(-height // 4) * -(-width // 4), output_size),
            nn.Tanh(),
        )
        initialize_relu(*(layer for layer in self.layers if isinstance(layer, nn.Conv2d)))
        initialize_tanh(*(layer for layer in self.layers if isinstance(layer, nn.Linear)))

    def forward(self, context: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, output_size), in [-1, 1]."""
        return self.layers(self.input_scale(context))


class CoreOutput(NamedTuple):
    """The output of one step of the core.

    Attributes:
        features: h_t of the upper layer, (B, size): the input of the location and stop networks and of the baseline.
        action_features: h_t of the lower layer, (B, size): the input of the action network. The same tensor unless the
            core has two layers.
        state: the state of every layer for the next step.
    """

    features: Tensor
    action_features: Tensor
    state: tuple[State, ...]


class CoreNetwork(nn.Module):
    """Recurrent core: h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), or a gated cell.

    With two layers (Ba et al. 2015, section 2) the lower takes the glimpses and the upper the output of the lower.
    Answers are computed from the lower layer, locations from the upper, which is initialized from the context and
    trained by the policy loss.

    Args:
        input_size: width of g.
        cell: "rnn" (ReLU), "gru" or "lstm".
        size: width of h in each layer.
        num_layers: 1 or 2.

    Attributes:
        backprop_into_lower: whether gradients of the upper layer flow into the lower one.
    """

    def __init__(self, input_size: int, cell: str = "rnn", size: int = 256, num_layers: int = 1) -> None:
        super().__init__()
        check_positive_integers("core", size=size)
        check_choice("core.num_layers", num_layers, (1, 2))
        cells: dict[str, Callable[[int, int], nn.Module]] = {"rnn": ReLUCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
        check_choice("core.cell", cell, list(cells))
        self.size = size
        self.layers = nn.ModuleList(cells[cell](width, size) for width in (input_size, size)[:num_layers])
        for layer in self.layers:
            if isinstance(layer, nn.GRUCell | nn.LSTMCell):
                initialize_gates(layer)
        self.backprop_into_lower = False

    def initial_state(self, context: Tensor) -> tuple[State | None, ...]:
        """Returns the state before the first glimpse, with ``context`` (B, size) as that of the upper layer."""
        first = (context, torch.zeros_like(context)) if isinstance(self.layers[-1], nn.LSTMCell) else context
        return (*[None] * (len(self.layers) - 1), first)

    def forward(self, glimpse: Tensor, state: tuple[State | None, ...] | None) -> CoreOutput:
        """Computes one step.

        Args:
            glimpse: (B, input_size).
            state: the state of every layer after the previous step; None before the first step, for zeros.
        """
        inputs, outputs, states = glimpse, list[Tensor](), list[State]()
        for layer, previous in zip(self.layers, state or [None] * len(self.layers), strict=True):
            states.append(layer(inputs, previous))
            outputs.append(states[-1][0] if isinstance(states[-1], tuple) else states[-1])
            inputs = outputs[-1] if self.backprop_into_lower else outputs[-1].detach()
        return CoreOutput(outputs[-1], outputs[0], tuple(states))


class ReLUCell(nn.Module):
    """h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), with the interface of PyTorch's recurrent cells."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.glimpse = nn.Linear(input_size, size)
        self.hidden = nn.Linear(size, size, bias=False)
        # Both terms of the sum, so that h has the scale of g at every step.
        initialize_relu(self.glimpse, self.hidden, num_inputs=input_size + size)

    def forward(self, glimpse: Tensor, hidden: Tensor | None) -> Tensor:
        inputs = self.glimpse(glimpse)
        return F.relu(inputs if hidden is None else torch.addmm(inputs, hidden, self.hidden.weight.T))


class GaussianPolicy(nn.Module):
    """Base class of Gaussian policies, with a scheduled, constant or learned standard deviation.

    Args:
        feature_size: width of h.
        outputs: the number of components.
        hidden_size: width of a hidden ReLU layer of the mean; 0 for none.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation at the end of the budget, approached geometrically; None keeps ``std``.
        learn_std: train the standard deviation, starting from ``std``.
        options: the configuration key, for error messages.

    Attributes:
        mean: computes the mean before the tanh that bounds it.
    """

    log_std: Tensor

    def __init__(
        self,
        feature_size: int,
        outputs: int,
        hidden_size: int,
        std: float,
        final_std: float | None,
        learn_std: bool,
        options: str,
    ) -> None:
        super().__init__()
        for name, value in [("std", std), ("final_std", final_std)]:
            if value is not None:
                check_positive(f"{options}.{name}", value)
        if learn_std and final_std is not None:
            raise InputError(f"{options}.learn_std=true needs {options}.final_std=null, which is a schedule.")
        self.initial_std, self.final_std = std, final_std
        self.mean = output_layers(feature_size, outputs, hidden_size, options)
        log_std = torch.full((outputs,), math.log(std))
        if learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def anneal(self, progress: float) -> None:
        """Sets the standard deviation for a fraction ``progress`` of the budget, in [0, 1], unless it is learned."""
        if self.final_std is not None:
            self.log_std.fill_((1 - progress) * math.log(self.initial_std) + progress * math.log(self.final_std))
        elif not isinstance(self.log_std, nn.Parameter):
            self.log_std.fill_(math.log(self.initial_std))


class LocationNetwork(GaussianPolicy):
    """Gaussian location policy with the mean tanh(f(h_t) + p_t) in [-1, 1]; samples are not bounded.

    f is linear and begins at 0, so that the first episodes of a training follow the constant path tanh(p_t), which
    spreads the looks over the image. The other networks learn from informative glimpses at once, and the policy
    improves on the path; from random initial means both wait for each other.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer of f; 0 for the paper's linear map.
        reach: the path covers [-reach, reach]^2, in [0, 1); 0 for the center of the image at every step.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation at the end of the budget, approached geometrically; None keeps ``std``.
        learn_std: train the standard deviation, starting from ``std``.
        backprop_into_core: let the gradient of the policy loss flow into the core and glimpse networks.
        lr_scale: factor of ``optimizer.lr`` for this network (:meth:`ram.tasks.Task.parameter_groups`; the trainer
            multiplies them). Optimizers that normalize the gradient, such as AdamW, update a policy at full size from
            noise when nearly all answers are correct; a smaller rate limits this.
    """

    path: Tensor

    def __init__(
        self,
        feature_size: int,
        hidden_size: int = 0,
        reach: float = 0.5,
        std: float = 0.1,
        final_std: float | None = 0.04,
        learn_std: bool = False,
        backprop_into_core: bool = False,
        lr_scale: float = 1.0,
    ) -> None:
        super().__init__(feature_size, 2, hidden_size, std, final_std, learn_std, "policy")
        check_positive("policy.lr_scale", lr_scale)
        if not 0 <= reach < 1:
            raise InputError(f"policy.reach must be in [0, 1), got {reach}.")
        self.backprop_into_core, self.lr_scale = backprop_into_core, lr_scale
        for value in self.mean[-1].parameters():
            nn.init.zeros_(value)
        self.register_buffer("path", (reach * _spread_points(_PATH_LENGTH)).atanh())

    @full_precision
    def forward(self, features: Tensor, step: Tensor | None = None) -> Gaussian:
        """Computes the distribution of the next location.

        Args:
            features: (..., D).
            step: int64, the number of the look, from 0: a scalar, or (T,) for features (T, ..., D). None for 0.
        """
        step = torch.zeros((), dtype=torch.long, device=features.device) if step is None else step
        path = F.embedding(step % _PATH_LENGTH, self.path)
        if step.ndim:
            path = path.view(*step.shape, *[1] * (features.ndim - 1 - step.ndim), 2)
        mean = self.mean(features if self.backprop_into_core else features.detach())
        return Gaussian((mean + path).tanh(), self.log_std.exp())


_PATH_LENGTH = 64  # then the path repeats


def _spread_points(count: int) -> Tensor:
    """Returns points that cover [-1, 1]^2 evenly, however many are used: (count, 2), from (0, 0) on.

    The additive recurrence of Roberts (2018), "The Unreasonable Effectiveness of Quasirandom Sequences".
    """
    ratio = 1.32471795724474602596  # the real root of x^3 = x + 1
    multiples = torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor([1 / ratio, 1 / ratio**2]).double()
    return (2 * ((0.5 + multiples) % 1) - 1).float()


class GridLocation(nn.Module):
    """Location policy that is hard attention over a square grid of locations with learned keys.

    The query is h_t. One location is sampled from the distribution of the selection over the keys, which are numbered
    row by row from the top left.

    Args:
        feature_size: width of h.
        size: number of locations along a side, from border to border.
        score: builds the score from the widths of query and key.
        select: builds the selection from the width of a query; its weights must be probabilities. With Soft, Hard and
            GumbelSoftmax the distribution is the softmax of the scores; local windows restrict it to some keys, those
            of LocalMonotonic around the key with the number of the look.
        backprop_into_core: let the gradient of the policy loss flow into the core and glimpse networks.
        lr_scale: learning rate relative to the other networks.
    """

    location: Tensor

    def __init__(
        self,
        feature_size: int,
        size: int = 7,
        score: Callable[[int, int], Score] = ScaledDot,
        select: Callable[[int], Select] = Hard,
        backprop_into_core: bool = False,
        lr_scale: float = 2.0,
    ) -> None:
        super().__init__()
        check_positive("policy.lr_scale", lr_scale)
        if size < 2:
            raise InputError(f"policy.size must be at least 2, got {size}.")
        self.backprop_into_core, self.lr_scale = backprop_into_core, lr_scale
        self.score, self.select = score(feature_size, feature_size), select(feature_size)
        if self.score.max_length is not None and self.score.max_length < size**2:
            raise InputError(f"policy.score.max_length must be at least {size**2}, the number of locations.")
        if type(self.select).logits is Select.logits:
            raise InputError(
                f"policy.select={type(self.select).__name__} gives no probabilities to sample a location from: use "
                "another selection, such as hard."
            )
        self.keys = nn.Parameter(torch.randn(size**2, feature_size) / math.sqrt(feature_size))
        side = torch.linspace(-1, 1, size)
        self.register_buffer("location", torch.cartesian_prod(side, side).flip(-1), persistent=False)

    def anneal(self, progress: float) -> None:
        """Does nothing: no parameter has a schedule."""

    @full_precision
    def forward(self, features: Tensor, step: Tensor | None = None) -> GridCategorical:
        """Computes the distribution of the next location.

        Args:
            features: (..., D).
            step: int64, the number of the look, from 0: a scalar, or (T,) for features (T, ..., D). None for 0.
        """
        rows = features.shape[:-1]
        query = (features if self.backprop_into_core else features.detach()).flatten(0, -2)[None]
        step = torch.zeros((), dtype=torch.long, device=features.device) if step is None else step
        step = step.reshape(*step.shape, *[1] * (len(rows) - step.ndim)).expand(rows).flatten()
        logits = self.select.logits(self.score(query, self.keys[None]), None, query, step)
        return GridCategorical(Categorical(logits.view(*rows, -1)), self.location)


class RandomLocation(nn.Module):
    """Uniform location policy: a control that ignores its input.

    Args:
        feature_size: not used.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Does nothing: no parameter has a schedule."""

    def forward(self, features: Tensor, step: Tensor | None = None) -> Uniform:
        """(..., D) -> the distribution of the next location."""
        return Uniform()


class ActionNetwork(nn.Module):
    """Computes the logits of the answer, a class or a move: linear in h_t, or with a hidden ReLU layer.

    Args:
        feature_size: width of h.
        num_classes: number of answers.
        hidden_size: width of the hidden layer; 0 for none.
    """

    def __init__(self, feature_size: int, num_classes: int, hidden_size: int = 0) -> None:
        super().__init__()
        self.logits = output_layers(feature_size, num_classes, hidden_size, "task.agent.action")

    @full_precision
    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of the answer."""
        return Categorical(self.logits(features))


class BoxNetwork(GaussianPolicy):
    """Computes the answer of env.answer=box: a Gaussian of left, top, right and bottom with means in [-1, 1].

    It is trained by the reward only; its gradient flows into the core and glimpse networks.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer; 0 for none.
        std: initial standard deviation, in units of half the image.
        final_std: standard deviation at the end of the budget, approached geometrically; None keeps ``std``.
    """

    def __init__(
        self, feature_size: int, hidden_size: int = 0, std: float = 0.15, final_std: float | None = 0.04
    ) -> None:
        super().__init__(feature_size, 4, hidden_size, std, final_std, learn_std=False, options="task.agent.box")
        # The sides begin near the center: if left and right are exchanged by more than ``std``, no sample has a reward.
        for value in self.mean[-1].parameters():
            value.data.mul_(0.25)

    @full_precision
    def forward(self, features: Tensor) -> Gaussian:
        """(..., D) -> the distribution of the box."""
        return Gaussian(self.mean(features).tanh(), self.log_std.exp())


class StopNetwork(nn.Module):
    """Computes the logits of going on and of stopping, linear in h_t.

    No gradient flows back into the features.

    Args:
        feature_size: width of h.
        probability: initial probability of stopping, in (0, 1).
    """

    def __init__(self, feature_size: int, probability: float = 0.1) -> None:
        super().__init__()
        if not 0 < probability < 1:
            raise InputError(f"task.agent.stop.probability must be in (0, 1), got {probability}.")
        self.logits = nn.Linear(feature_size, 2)
        nn.init.zeros_(self.logits.weight)
        self.logits.bias.data = torch.tensor([1 - probability, probability]).log()

    @full_precision
    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of 0 (go on) and 1 (stop)."""
        return Categorical(self.logits(features.detach()))


def output_layers(feature_size: int, outputs: int, hidden_size: int, options: str) -> nn.Sequential:
    """Builds a linear layer, after a hidden ReLU layer if ``hidden_size`` > 0: (..., D) -> (..., outputs).

    Raises:
        InputError: ``hidden_size`` is negative; the message names the option ``hidden_size`` of ``options``.
    """
    if hidden_size < 0:
        raise InputError(f"{options}.hidden_size must not be negative, got {hidden_size}.")
    if not hidden_size:
        return nn.Sequential(nn.Linear(feature_size, outputs))
    hidden = nn.Linear(feature_size, hidden_size)
    initialize_relu(hidden)
    return nn.Sequential(hidden, nn.ReLU(), nn.Linear(hidden_size, outputs))
