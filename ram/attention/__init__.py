"""Attention: choosing what to read next, and reading it."""

from ram.attention.masks import causal_mask, padding_mask
from ram.attention.reading import Attention, FixedAttention, MultiHead, Read, record_weights
from ram.attention.scores import Score
from ram.attention.selection import Select, Selection

__all__ = [
    "Attention",
    "FixedAttention",
    "MultiHead",
    "Read",
    "Score",
    "Select",
    "Selection",
    "causal_mask",
    "padding_mask",
    "record_weights",
]
