"""Encoders of every kind."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions
from ram.attention.scores import Additive, Content, General
from ram.attention.selection import GumbelSoftmax, Hard, LocalMonotonic, LocalPredictive, Unnormalized
from ram.sequence.interfaces import Encoder, IdentityEncoder
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder

WIDTH, SIZE = 3, 4
CELLS = ("rnn", "gru", "lstm")
SELECTIONS: dict[str, Any] = {
    "additive": {"score": Additive},
    "unnormalized": {"score": General, "select": Unnormalized},
    "hard": {"score": General, "select": Hard},
    "gumbel": {"score": General, "select": GumbelSoftmax},
    "local_m": {"score": General, "select": partial(LocalMonotonic, half_width=1)},
    "local_p": {"score": General, "select": partial(LocalPredictive, half_width=2)},
}
small = partial(TransformerEncoder, size=SIZE, num_heads=2)
CAUSAL: dict[str, Callable[[int], Encoder]] = {
    "identity": IdentityEncoder,
    **{cell: partial(RecurrentEncoder, cell=cell, size=SIZE) for cell in CELLS},
    "deep": partial(RecurrentEncoder, cell="gru", size=SIZE, num_layers=2, dropout=0.3),
    **{f"past_{cell}": partial(AttentiveRecurrentEncoder, cell=cell, size=SIZE) for cell in CELLS},
    **{
        f"past_{name}": partial(AttentiveRecurrentEncoder, size=SIZE, **options) for name, options in SELECTIONS.items()
    },
    **{f"below_{cell}": partial(AttentiveRecurrentEncoder, over="below", cell=cell, size=SIZE) for cell in CELLS},
    **{
        f"below_{name}": partial(AttentiveRecurrentEncoder, over="below", size=SIZE, **options)
        for name, options in SELECTIONS.items()
    },
    "transformer": partial(small, causal=True, dropout=0.3),
    "transformer_learned": partial(small, causal=True, positions=partial(LearnedPositions, max_length=9)),
    "transformer_linear": partial(small, causal=True, positions=LinearPositions),
    "transformer_content": partial(small, causal=True, positions=NoPositions, score=Content),
    **{f"transformer_{name}": partial(small, causal=True, **options) for name, options in SELECTIONS.items()},
}
"""Causal encoders."""
NONCAUSAL: dict[str, Callable[[int], Encoder]] = {
    **{f"bi{cell}": partial(RecurrentEncoder, cell=cell, size=SIZE, bidirectional=True) for cell in CELLS},
    "deep_bigru": partial(RecurrentEncoder, cell="gru", size=SIZE, num_layers=2, bidirectional=True, dropout=0.3),
    **{
        f"noncausal_{cell}": partial(AttentiveRecurrentEncoder, over="below", cell=cell, size=SIZE, causal=False)
        for cell in CELLS
    },
    **{
        f"noncausal_{name}": partial(AttentiveRecurrentEncoder, over="below", size=SIZE, causal=False, **options)
        for name, options in SELECTIONS.items()
    },
    "noncausal_transformer": partial(small, dropout=0.3),
    "noncausal_transformer_unnormalized": partial(small, **SELECTIONS["unnormalized"]),
    "noncausal_transformer_hard": partial(small, **SELECTIONS["hard"]),
    "noncausal_transformer_local_p": partial(small, **SELECTIONS["local_p"]),
}
"""Encoders whose outputs depend on later inputs."""
EVERY = CAUSAL | NONCAUSAL


def build(name: str, width: int = WIDTH) -> Encoder:
    """Builds an encoder in double precision and evaluation mode."""
    torch.manual_seed(0)
    return EVERY[name](width).double().eval()


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)
