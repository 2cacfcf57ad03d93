"""Networks of the agent: glimpse, context and core (Mnih et al. 2014, section 3.1; Ba et al. 2015, section 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_choice, check_positive_integers, check_probability, parse_sizes
from ram.initialization import InputScale, initialize_recurrent, initialize_relu, initialize_tanh

State = Tensor | tuple[Tensor, Tensor]
"""State of one layer of the core: h (B, size), or (h, c) for an LSTM."""


class GlimpseNetwork(nn.Module):
    """Encodes patches and location in one vector: g = ReLU(Lin(h_g) + Lin(h_l)).

    h_g = ReLU(Lin(patches)), or ReLU(Lin(convolutions(patches))), and h_l = ReLU(Lin(location)). If the observation
    names a class to search for, a learned embedding of the class is added inside the last ReLU.

    Args:
        patch_shape: (scales, C, h, w).
        num_goals: number of classes to search for; 0 if the observation has no goal.
        patch_features: width of h_g.
        location_features: width of h_l.
        output_size: width of g.
        convolutions: builds the convolutions from ``patch_shape``; None for the paper's linear map.

    Attributes:
        patch_features: width of h_g.
        output_size: width of g.
    """

    def __init__(
        self,
        patch_shape: tuple[int, ...],
        num_goals: int = 0,
        patch_features: int = 128,
        location_features: int = 128,
        output_size: int = 256,
        convolutions: Callable[[tuple[int, ...]], PatchConvolutions | SharedConvolutions] | None = None,
    ) -> None:
        super().__init__()
        sizes = {"patch_features": patch_features, "location_features": location_features, "output_size": output_size}
        check_positive_integers("glimpse", **sizes)
        self.patch_features, self.output_size = patch_features, output_size
        self.input_scale = InputScale(patch_shape[0])
        self.convolutions = convolutions(patch_shape) if convolutions else None
        inputs = self.convolutions.output_size if self.convolutions else math.prod(patch_shape)
        self.patch = nn.Linear(inputs, patch_features)
        self.location = nn.Linear(2, location_features)
        # The sum of two linear maps is one linear map of both inputs, in a single product.
        self.merge = nn.Linear(patch_features + location_features, output_size)
        self.goal = nn.Embedding(num_goals, output_size) if num_goals else None
        initialize_relu(self.patch, self.location, self.merge)

    def forward(self, patches: Tensor, location: Tensor, goal: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns g (B, output_size) and h_g (B, patch_features).

        Args:
            patches: (B, scales, C, h, w).
            location: (B, 2).
            goal: (B,) int64, the class to search for; None without goals.
        """
        patches = self.input_scale(patches)
        inputs = patches.flatten(1) if self.convolutions is None else self.convolutions(patches)
        hidden = F.relu(torch.cat([self.patch(inputs), self.location(location)], dim=1))
        merged = self.merge(hidden)
        glimpse = F.relu(merged if self.goal is None else merged + self.goal(goal))
        return glimpse, hidden[:, : self.patch_features]


class PatchConvolutions(nn.Module):
    """Two convolutions over the patches of all scales, which are the channels of one image.

    ReLU(Conv), 4 x 4 with stride 2; ReLU(Conv), 3 x 3; and 2 x 2 max pooling.

    Args:
        patch_shape: (scales, C, h, w), h and w at least 2.
        channels: of the two convolutions.

    Attributes:
        output_size: the number of features.
    """

    def __init__(self, patch_shape: tuple[int, ...], channels: Sequence[int] = (24, 48)) -> None:
        super().__init__()
        first, second = parse_sizes("glimpse.convolutions.channels", channels, 2)
        scales, depth, height, width = patch_shape
        if min(height, width) < 2:
            raise InputError("glimpse=convolutional needs patches of at least 2 x 2 pixels: set sensor.patch_size=2.")
        layers = nn.Conv2d(scales * depth, first, 4, 2, padding=1), nn.Conv2d(first, second, 3, padding=1)
        initialize_relu(*layers)
        pooling = nn.MaxPool2d(2, ceil_mode=True)
        self.layers = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), pooling, nn.Flatten())
        self.to(memory_format=torch.channels_last)  # faster on the CPU
        self.output_size = second * -(-(height // 2) // 2) * -(-(width // 2) // 2)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, scales, C, h, w) -> (B, output_size)."""
        return self.layers(patches.flatten(1, 2).contiguous(memory_format=torch.channels_last))


class SharedConvolutions(nn.Module):
    """Blocks of convolutions with shared weights for the patches of all scales; their features are concatenated.

    Args:
        patch_shape: (scales, C, h, w), h and w at least 2**len(widths).
        widths: channels of every block; see :func:`convolution_blocks`.
        dropout: of whole channels, after every block.

    Attributes:
        output_size: the number of features of all scales.
    """

    def __init__(
        self, patch_shape: tuple[int, ...], widths: Sequence[int] = (32, 64, 128), dropout: float = 0.0
    ) -> None:
        super().__init__()
        scales, channels, height, width = patch_shape
        widths = parse_sizes("glimpse.convolutions.widths", widths)
        check_probability("glimpse.convolutions.dropout", dropout)
        factor = 2 ** len(widths)
        if min(height, width) < factor:
            raise InputError(
                f"glimpse.convolutions.widths={list(widths)} needs patches of at least {factor} x {factor} pixels, got "
                f"[{height}, {width}]: set sensor.patch_size={factor}."
            )
        self.blocks = convolution_blocks(channels, widths, dropout)
        self.output_size = scales * widths[-1] * (height // factor) * (width // factor)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, scales, C, h, w) -> (B, output_size)."""
        features = self.blocks(patches.flatten(0, 1).contiguous(memory_format=torch.channels_last))
        return features.reshape(len(patches), -1)


def convolution_blocks(channels: int, widths: Sequence[int], dropout: float) -> nn.Sequential:
    """Builds blocks of convolutions: (B, C, H, W) -> (B, widths[-1], H / 2**n, W / 2**n) for n widths, rounded down.

    A block is ReLU(BatchNorm(Conv)), 4 x 4 with stride 2; ReLU(BatchNorm(Conv)), 3 x 3; and dropout of whole channels.
    The receptive field of an output is centered on its part of the image. With 3 x 3 kernels of stride 2 it would be
    centered on a corner, and attention to a small object would peak next to it.
    """
    layers: list[nn.Module] = []
    for width in widths:
        for inputs, kernel, stride in ((channels, 4, 2), (width, 3, 1)):
            layers.append(nn.Conv2d(inputs, width, kernel, stride, padding=1, bias=False))
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.Dropout2d(dropout))
        channels = width
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # faster on the CPU


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
                initialize_recurrent(layer)
        self.backprop_into_lower = False

    def initial_state(self, context: Tensor) -> tuple[State | None, ...]:
        """Returns the state before the first glimpse, with ``context`` (B, size) as that of the upper layer."""
        first = (context, torch.zeros_like(context)) if isinstance(self.layers[-1], nn.LSTMCell) else context
        return (*[None] * (len(self.layers) - 1), first)

    def forward(
        self, glimpse: Tensor, state: tuple[State | None, ...] | None
    ) -> tuple[Tensor, Tensor, tuple[State, ...]]:
        """Computes one step.

        Args:
            glimpse: (B, input_size).
            state: the state of every layer after the previous step; None before the first step, for zeros.

        Returns:
            h_t of the upper layer and of the lower layer, (B, size) each, the same tensor if there is one layer; and
            the state of every layer for the next step.
        """
        inputs, outputs, states = glimpse, list[Tensor](), list[State]()
        for layer, previous in zip(self.layers, state or [None] * len(self.layers), strict=True):
            states.append(layer(inputs, previous))
            outputs.append(states[-1][0] if isinstance(states[-1], tuple) else states[-1])
            inputs = outputs[-1] if self.backprop_into_lower else outputs[-1].detach()
        return outputs[-1], outputs[0], tuple(states)


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
