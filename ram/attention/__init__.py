"""Attention: scores, selections, layers, masks and positional encodings."""

from ram.attention.heads import Attention, AttentionOutput, FixedAttention, MultiHeadAttention, record_weights
from ram.attention.scores import Score
from ram.attention.selection import AttentionWeights, Select, causal_mask, padding_mask

__all__ = [
    "Attention",
    "AttentionOutput",
    "AttentionWeights",
    "FixedAttention",
    "MultiHeadAttention",
    "Score",
    "Select",
    "causal_mask",
    "padding_mask",
    "record_weights",
]
