"""Initial weights that fit the nonlinearity of each layer, and inputs of unit scale; biases begin at 0.

Linear outputs, such as logits and mean locations, keep PyTorch's default.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class InputScale(nn.Module):
    """Divides images by the root mean square of their pixels, so that they enter a network at unit scale.

    Every scale of a sensor has its own value: the mean over a wide window weakens small objects. The values are part
    of the state, and 1 until :meth:`fit` is called.

    Args:
        num_scales: number of scales, S.
    """

    rms: Tensor

    def __init__(self, num_scales: int = 1) -> None:
        super().__init__()
        self.register_buffer("rms", torch.ones(num_scales, 1, 1, 1))

    def fit(self, images: Tensor) -> None:
        """Computes the values from images (N, S, C, h, w), or (N, C, h, w) for one scale; black scales keep theirs."""
        rms = images.view(-1, *self.rms.shape[:1], *images.shape[-3:]).square().mean((0, 2, 3, 4)).sqrt()
        self.rms.copy_(torch.where(rms > 0, rms, self.rms.flatten()).view_as(self.rms))

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, C, h, w), or (B, C, h, w) for one scale -> the same shape."""
        return images / self.rms


def initialize_relu(*layers: nn.Linear | nn.Conv2d, num_inputs: int | None = None) -> None:
    """Initializes layers before a ReLU, which halves the mean square of its input (He et al. 2015).

    Args:
        layers: linear or convolutional layers.
        num_inputs: the inputs of all layers whose sum enters the ReLU; those of each layer by default.
    """
    for layer in layers:
        nn.init.normal_(layer.weight, std=math.sqrt(2 / (num_inputs or layer.weight[0].numel())))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def initialize_tanh(*layers: nn.Linear) -> None:
    """Initializes layers before a tanh (Glorot and Bengio 2010)."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


def initialize_recurrent(layers: nn.RNNBase | nn.RNNCellBase) -> None:
    """Initializes recurrent layers: orthogonal recurrent matrices (Saxe et al. 2014), an open forget gate.

    Each gate has a matrix of its own; those of the inputs are initialized as before a tanh (Glorot and Bengio 2010).
    The forget gate of an LSTM begins with bias 1 (Jozefowicz et al. 2015).
    """
    size = layers.hidden_size
    for name, values in layers.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(values)
            if isinstance(layers, nn.LSTM | nn.LSTMCell) and "_ih" in name:
                nn.init.ones_(values[size : 2 * size])
        else:
            for gate in values.split(size):
                (nn.init.orthogonal_ if "_hh" in name else nn.init.xavier_uniform_)(gate)
