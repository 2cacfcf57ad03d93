"""The networks of the Recurrent Attention Model (Mnih et al. 2014, section 3.1 and figure 1) and of its successors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive_integers
from ram.attention.scores import ScaledDot, Score
from ram.attention.selection import Hard
from ram.distributions import Categorical, Gaussian, GridCategorical, Uniform

State = Tensor | tuple[Tensor, Tensor]
"""What a layer of a core remembers of B rows: h (B, size), or for an LSTM (h, c)."""


class GlimpseNetwork(nn.Module):
    """What is seen and where, in one vector: g = ReLU(Lin(h_g) + Lin(h_l)).

    h_g = ReLU(Lin(patches)) and h_l = ReLU(Lin(location)). Where a class to look for is named, a learned vector of
    that class is added within the last ReLU.

    Args:
        patch_shape: (scales, C, h, w).
        num_goals: classes that may be named; 0 where none is.
        patch_features: width of h_g.
        location_features: width of h_l.
        output_size: width of g.
        contrast: what the patch of each scale is multiplied by, over that of the scale before. An object smaller than a
            pixel of a wide window has paled in the average, by the square of the sensor's factor from scale to scale.
    """

    gain: Tensor

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        num_goals: int = 0,
        patch_features: int = 128,
        location_features: int = 128,
        output_size: int = 256,
        contrast: float = 1.0,
    ) -> None:
        super().__init__()
        if contrast <= 0:
            raise InputError(f"task.agent.glimpse.contrast must be positive, got {contrast}.")
        sizes = {"patch_features": patch_features, "location_features": location_features, "output_size": output_size}
        check_positive_integers("task.agent.glimpse", **sizes)
        self.output_size = output_size
        self.patch = nn.Linear(math.prod(patch_shape), patch_features)
        self.location = nn.Linear(2, location_features)
        # The sum of two linear maps is one linear map of both inputs, in a single product.
        self.merge = nn.Linear(patch_features + location_features, output_size)
        self.goal = nn.Embedding(num_goals, output_size) if num_goals else None
        gain = float(contrast) ** torch.arange(patch_shape[0]).view(-1, 1, 1, 1)
        self.register_buffer("gain", gain, persistent=False)

    def forward(self, patches: Tensor, location: Tensor, goal: Tensor | None = None) -> Tensor:
        """(B, scales, C, h, w), (B, 2) and perhaps (B,) -> (B, output_size)."""
        seen = torch.cat([self.patch((patches * self.gain).flatten(1)), self.location(location)], dim=1)
        merged = self.merge(F.relu(seen))
        return F.relu(merged if self.goal is None else merged + self.goal(goal))


class ContextNetwork(nn.Module):
    """The first state of the upper core, from a coarse view of the whole scene (Ba et al. 2015, section 2).

    Three convolutions, the last two of stride 2, and a linear map.

    Args:
        context_shape: (C, h, w) of the view.
        output_size: width of the core.
        channels: of the first convolution; the others have twice as many.
    """

    def __init__(self, context_shape: tuple[int, ...], output_size: int, channels: int = 16) -> None:
        super().__init__()
        check_positive_integers("task.agent.context", channels=channels)
        depth, height, width = context_shape
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

    def forward(self, context: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, output_size), in [-1, 1]."""
        return self.layers(context)


class CoreNetwork(nn.Module):
    """The memory: h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), or a gated cell.

    With two layers, the lower reads the glimpses and the upper the lower's state (Ba et al. 2015, section 2): answers
    are read from the lower, the next location from the upper, which alone knows the context. The upper layer belongs
    to the policy, which trains it.

    Args:
        input_size: width of g.
        cell: "rnn" (ReLU), "gru" or "lstm".
        size: width of h, in either layer.
        num_layers: 1 or 2.

    Attributes:
        through: whether the upper layer lets its gradient into the lower.
    """

    def __init__(self, input_size: int, cell: str = "rnn", size: int = 256, num_layers: int = 1) -> None:
        super().__init__()
        check_positive_integers("core", size=size)
        if num_layers not in (1, 2):
            raise InputError(f"core.num_layers must be 1 or 2, got {num_layers}.")
        cells: dict[str, Callable[[int, int], nn.Module]] = {"rnn": _ReLUCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
        if cell not in cells:
            raise InputError(f"core.cell must be one of {', '.join(cells)}, got {cell!r}.")
        self.size = size
        self.layers = nn.ModuleList(cells[cell](width, size) for width in (input_size, size)[:num_layers])
        self._gated = cell == "lstm"
        self.through = False

    def begin(self, context: Tensor) -> tuple[State | None, ...]:
        """The state before the first look, where the upper layer starts from ``context`` (B, size)."""
        first = (context, torch.zeros_like(context)) if self._gated else context
        return (*[None] * (len(self.layers) - 1), first)

    def forward(
        self, glimpse: Tensor, state: tuple[State | None, ...] | None
    ) -> tuple[Tensor, Tensor, tuple[State, ...]]:
        """Takes in one glimpse.

        Args:
            glimpse: (B, input_size).
            state: of every layer after the last step, or None before the first, which stands for zeros.

        Returns:
            h_t of the upper and of the lower layer, (B, size) each and one and the same with one layer, and the next
            state.
        """
        into = glimpse
        outputs: list[Tensor] = []
        states: list[State] = []
        for layer, held in zip(self.layers, state or [None] * len(self.layers), strict=True):
            new = layer(into.detach() if outputs and not self.through else into, held)
            into = new[0] if isinstance(new, tuple) else new
            outputs.append(into)
            states.append(new)
        return outputs[-1], outputs[0], tuple(states)


class _ReLUCell(nn.Module):
    """h_t = ReLU(Lin(h_{t-1}) + Lin(g_t)), with the interface of torch's own cells."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.glimpse = nn.Linear(input_size, size)
        self.hidden = nn.Linear(size, size, bias=False)

    def forward(self, glimpse: Tensor, hidden: Tensor | None) -> Tensor:
        into = self.glimpse(glimpse)
        return F.relu(into if hidden is None else torch.addmm(into, hidden, self.hidden.weight.T))


class LocationNetwork(nn.Module):
    """Where to look next: a Gaussian whose mean depends on h_t; the mean is bounded, the sample is not.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer, or 0 for the paper's linear map.
        std: the standard deviation, in units of half the image.
        final_std: what the deviation changes to over the budget, geometrically; None keeps it.
        learn_std: train the deviation, from ``std`` on.
        backprop_into_core: let the policy's gradient into the core and glimpse networks.
    """

    outputs = 2
    options = "policy"  # where a configuration sets them
    log_std: Tensor

    def __init__(
        self,
        feature_size: int,
        hidden_size: int = 0,
        std: float = 0.15,
        final_std: float | None = None,
        learn_std: bool = False,
        backprop_into_core: bool = False,
    ) -> None:
        super().__init__()
        if hidden_size < 0:
            raise InputError(f"{self.options}.hidden_size must not be negative, got {hidden_size}.")
        for name, value in [("std", std), ("final_std", final_std)]:
            if value is not None and value <= 0:
                raise InputError(f"{self.options}.{name} must be positive, got {value}.")
        if learn_std and final_std is not None:
            raise InputError("policy.learn_std and policy.final_std exclude each other: set one of them.")
        self.initial_std, self.final_std = std, final_std
        self.backprop_into_core = backprop_into_core
        self.mean = nn.Sequential(*output_layers(feature_size, self.outputs, hidden_size), nn.Tanh())
        log_std = torch.full((self.outputs,), math.log(std))
        if learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def anneal(self, progress: float) -> None:
        """Sets the deviation when a share of the budget, in [0, 1], is spent, unless it is learned."""
        if self.final_std is not None:
            scheduled = (1 - progress) * math.log(self.initial_std) + progress * math.log(self.final_std)
            self.log_std.fill_(scheduled)
        elif not isinstance(self.log_std, nn.Parameter):
            self.log_std.fill_(math.log(self.initial_std))

    def forward(self, features: Tensor) -> Gaussian:
        """(..., D) -> the distribution of the next location."""
        return Gaussian(self.mean(features if self.backprop_into_core else features.detach()), self.log_std.exp())


class GridLocation(nn.Module):
    """Where to look next: hard attention over a square grid of places, whose keys are learned.

    The query is h_t; score and selection are those of :mod:`ram.attention`.

    Args:
        feature_size: width of h.
        size: places along a side, from border to border.
        score: builds what compares h with the key of a place, from the widths of both.
        backprop_into_core: let the policy's gradient into the core and glimpse networks.
    """

    location: Tensor

    def __init__(
        self,
        feature_size: int,
        size: int = 7,
        score: Callable[[int, int], Score] = ScaledDot,
        backprop_into_core: bool = False,
    ) -> None:
        super().__init__()
        if size < 2:
            raise InputError(f"policy.size must be at least 2, got {size}.")
        self.backprop_into_core = backprop_into_core
        self.score, self.select = score(feature_size, feature_size), Hard()
        self.keys = nn.Parameter(torch.randn(size**2, feature_size) / math.sqrt(feature_size))
        side = torch.linspace(-1, 1, size)
        self.register_buffer("location", torch.cartesian_prod(side, side).flip(-1), persistent=False)

    def anneal(self, progress: float) -> None:
        """Nothing changes."""

    def forward(self, features: Tensor) -> GridCategorical:
        """(..., D) -> the distribution of the next location."""
        query = (features if self.backprop_into_core else features.detach()).flatten(0, -2)[None]
        scores = self.score(query, self.keys[None])
        return GridCategorical(self.select.choices(scores.view(*features.shape[:-1], -1)), self.location)


class RandomLocation(nn.Module):
    """The control: every location is equally likely, whatever has been seen.

    Args:
        feature_size: width of h, of which nothing is used.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Nothing changes."""

    def forward(self, features: Tensor) -> Uniform:
        """(..., D) -> the distribution of the next location."""
        return Uniform()


class ActionNetwork(nn.Module):
    """The answer, or a move: class logits, linear in h_t or through a hidden ReLU layer.

    Args:
        feature_size: width of h.
        num_classes: how many answers there are.
        hidden_size: width of the hidden layer, or 0 for none.
    """

    def __init__(self, feature_size: int, num_classes: int, hidden_size: int = 0) -> None:
        super().__init__()
        if hidden_size < 0:
            raise InputError(f"task.agent.action.hidden_size must not be negative, got {hidden_size}.")
        self.logits = output_layers(feature_size, num_classes, hidden_size)

    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of the answer."""
        return Categorical(self.logits(features))


class BoxNetwork(LocationNetwork):
    """The answer where a box is asked for: a Gaussian of its left, top, right and bottom, the means bounded.

    Nothing but the reward teaches it, so its gradient goes on into core and glimpse networks.

    Args:
        feature_size: width of h.
        hidden_size: width of a hidden ReLU layer, or 0 for none.
        std: the standard deviation, in units of half the image.
        final_std: what the deviation changes to over the budget, geometrically; None keeps it.
    """

    outputs = 4
    options = "task.agent.box"

    def __init__(
        self, feature_size: int, hidden_size: int = 0, std: float = 0.15, final_std: float | None = None
    ) -> None:
        super().__init__(feature_size, hidden_size, std, final_std, backprop_into_core=True)


class StopNetwork(nn.Module):
    """Whether to answer now or to look on: two logits, linear in h_t, of going on and of stopping.

    It reads the features without sending a gradient back, as the location network does.

    Args:
        feature_size: width of h.
        probability: of stopping, before anything has been learnt.
    """

    def __init__(self, feature_size: int, probability: float = 0.1) -> None:
        super().__init__()
        if not 0 < probability < 1:
            raise InputError(f"task.agent.stop.probability must lie between 0 and 1, got {probability}.")
        self.logits = nn.Linear(feature_size, 2)
        nn.init.zeros_(self.logits.weight)
        self.logits.bias.data = torch.tensor([1 - probability, probability]).log()

    def forward(self, features: Tensor) -> Categorical:
        """(..., D) -> the distribution of 0, going on, and 1, stopping."""
        return Categorical(self.logits(features.detach()))


def output_layers(feature_size: int, outputs: int, hidden_size: int) -> nn.Sequential:
    """A linear map, or one through a hidden ReLU layer where ``hidden_size`` is not 0: (..., D) -> (..., outputs)."""
    return nn.Sequential(
        *([nn.Linear(feature_size, hidden_size), nn.ReLU()] if hidden_size else []),
        nn.Linear(hidden_size or feature_size, outputs),
    )
