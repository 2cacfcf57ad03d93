"""The output of sequence models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class ModelOutput:
    """Output of a classifier, tagger, language model or decoder model.

    Attributes:
        logits: (B, K) of a text, or (B, N, K) of its tokens.
        features: input of learned baselines, computed before any hard choice: (B, D) of the text, or (B, T, D) of every
            decoding step.
        log_prob: log-probability of the hard choices, with gradient: (B,) of all, or (B, T) of every step; None without
            hard attention.
        weights: attention weights (B, Q, N); None without attention.
        state: state of the encoder or decoder, from which decoding continues.
        copied: (B, T), probability mass copied from the source; None without copying.
        source_logits: (B, N, K) of the source tokens, from models with ``models_source``.
    """

    logits: Tensor
    features: Tensor
    log_prob: Tensor | None = None
    weights: Tensor | None = None
    state: Any = None
    copied: Tensor | None = None
    source_logits: Tensor | None = None
