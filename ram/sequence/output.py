"""The output of every model of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class ModelOutput:
    """What a model says.

    Attributes:
        logits: (B, K) of a text, or (B, N, K) of its words.
        features: (B, D), of the text before any choice is made, or (B, T, D) before each; what baselines judge by.
        log_prob: (B,), of all hard choices on the way, or (B, T), of those of a step; with gradient, None where there
            are none.
        weights: (B, Q, N), of the reading; None where nothing is weighed.
        state: of the encoder or the decoder, to go on with.
        copied: (B, T), the share of each answer that is copied from the source; None where nothing can be.
        source_logits: (B, N, K), of the source's words, where they are told too.
    """

    logits: Tensor
    features: Tensor
    log_prob: Tensor | None = None
    weights: Tensor | None = None
    state: Any = None
    copied: Tensor | None = None
    source_logits: Tensor | None = None
