"""Classification of whole images: an image encoder, and a pooling of its grid of features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from envs.validation import check_probability
from ram.distributions import at_least_float32
from ram.image_encoders import ImageEncoder
from ram.initialization import InputScale
from ram.networks import output_layers
from ram.sequence.interfaces import ModelOutput
from ram.sequence.pooling import Pooling


class ImageClassifier(nn.Module):
    """Classifies images: image encoder, pooling of the cells of its grid, and an output layer.

    With :class:`ram.sequence.pooling.AttentionPooling` it is attention over the image, soft or hard, in one step.

    Args:
        image_shape: (C, H, W).
        num_classes: K.
        image_encoder: builds the encoder from ``image_shape``.
        pooling: builds the pooling from the width of the cells and the number of directions, 1.
        hidden_size: width of a hidden ReLU layer before the output layer; 0 for none.
        dropout: dropout probability of the pooled vector.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        image_encoder: Callable[[tuple[int, int, int]], ImageEncoder],
        pooling: Callable[[int, int], Pooling],
        hidden_size: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_probability("task.model.dropout", dropout)
        self.image_encoder = image_encoder(image_shape)
        self.pooling = pooling(self.image_encoder.output_size, 1)
        self.dropout = nn.Dropout(dropout)
        self.out = output_layers(self.pooling.output_size, num_classes, hidden_size, "task.model")

    def fit_input_scales(self, images: Tensor) -> None:
        """Brings images to unit scale, by (N, C, H, W) of the training split, where the encoder has no other scale."""
        for module in self.image_encoder.modules():
            if isinstance(module, InputScale):
                module.fit(images)

    def forward(self, images: Tensor) -> ModelOutput:
        """(B, C, H, W) in [0, 1] -> ``logits`` (B, K) and, with attention, ``weights`` (B, Q, rows * columns)."""
        cells = self.image_encoder(images)
        lengths = torch.full((len(cells),), cells.shape[1], device=cells.device)
        pooled = self.pooling(cells, lengths)
        return ModelOutput(
            logits=at_least_float32(self.out(self.dropout(pooled.context))),
            features=cells.mean(1),
            log_prob=None if pooled.log_prob is None else pooled.log_prob.flatten(1).sum(1),
            weights=pooled.weights,
        )
