"""Decoders of every kind, and random sources for them."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from ram.attention.positions import LearnedPositions, LinearPositions, NoPositions
from ram.attention.scores import Additive, Content, Dot, General, Location, ScaledDot
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Uniform,
    Unnormalized,
)
from ram.sequence.context import CrossAttention, ReencodedContext
from ram.sequence.interfaces import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.recurrent import AttentiveRecurrentEncoder, Bridge, RecurrentDecoder, RecurrentEncoder
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder

SIZE = 4
DISTINCT, EQUAL = (
    DecoderSizes(inputs=3, vectors=5, states=6, summary=7),
    DecoderSizes(inputs=3, vectors=SIZE, states=SIZE, summary=SIZE),
)
"""Widths that all differ, and equal widths, which dot products and bridge=state need."""
CELLS: Any = ("rnn", "gru", "lstm")
BRIDGES: Any = get_args(Bridge)
MODES: dict[str, dict[str, Any]] = {
    "before": {"attend": "before"},
    "feeding": {"attend": "after", "input_feeding": True},
    "parallel": {"attend": "after", "input_feeding": False},
}
SCORES: dict[str, Any] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": partial(Additive, hidden_size=3),
    "content": Content,
    "location": partial(Location, max_length=9),
}
SELECTIONS: dict[str, Any] = {
    "unnormalized": Unnormalized,
    "uniform": Uniform,
    "diagonal": Diagonal,
    "diagonal_from_end": partial(Diagonal, from_end=True),
    "hard": Hard,
    "gumbel": GumbelSoftmax,
    "local_m": partial(LocalMonotonic, half_width=1),
    "local_m_gaussian": partial(LocalMonotonic, half_width=2, gaussian=True),
    "local_p": partial(LocalPredictive, half_width=2),
}
REENCODERS: dict[str, Any] = {
    "bigru": partial(RecurrentEncoder, cell="gru", size=3, bidirectional=True),
    "lstm": partial(RecurrentEncoder, size=5),
    "transformer": partial(TransformerEncoder, size=4, num_heads=2, num_layers=1),
    "hard": partial(AttentiveRecurrentEncoder, over="below", cell="rnn", size=4, causal=False, select=Hard),
}
small = partial(TransformerDecoder, size=SIZE, num_heads=2, hidden_size=5)


def recurrent_decoder(bridge: Bridge = "none", **options: Any) -> Callable[[], Decoder]:
    """A recurrent decoder with sizes that all differ, as far as the options allow."""
    score = options.pop("score", None)
    if score is not None:
        options["context"] = partial(options["context"], score=SCORES[score])
    products = score in ("dot", "scaled_dot", "content")
    sizes = EQUAL if bridge == "state" or products else DISTINCT
    return partial(RecurrentDecoder, sizes, size=SIZE, bridge=bridge, **options)


WITHOUT_CONTEXT = {
    f"{cell}_{layers}_{bridge}": recurrent_decoder(bridge, cell=cell, num_layers=layers, dropout=0.3)
    for cell, layers, bridge in product(CELLS, (1, 2), BRIDGES)
}
"""Decoders without context, which depend on the summary of the source only."""
WITH_CONTEXT: dict[str, Callable[[], Decoder]] = {
    **{
        f"{cell}_attends_{mode}": recurrent_decoder("state", cell=cell, context=CrossAttention, **MODES[mode])
        for cell, mode in product(CELLS, MODES)
    },
    **{
        f"deep_lstm_{bridge}_attends_{mode}": recurrent_decoder(
            bridge, num_layers=2, context=CrossAttention, **MODES[mode]
        )
        for bridge, mode in product(BRIDGES, MODES)
    },
    **{
        f"{score}_{heads}_over_{over}": recurrent_decoder(
            cell="gru", score=score, context=partial(CrossAttention, num_heads=heads, over=over)
        )
        for score, (heads, over) in product(SCORES, ((1, "states"), (1, "vectors"), (2, "states")))
    },
    **{
        f"{select}_{heads}_{mode}": recurrent_decoder(
            cell="rnn", context=partial(CrossAttention, num_heads=heads, select=SELECTIONS[select]), **MODES[mode]
        )
        for select, (heads, mode) in [
            *product(SELECTIONS, ((1, "parallel"), (2, "feeding"))),
            *product(("hard", "local_m"), ((1, "before"),)),
        ]
    },
    **{
        f"reencoding_{encoder}_{mode}": recurrent_decoder(
            cell="gru", context=partial(ReencodedContext, encoder=REENCODERS[encoder]), **MODES[mode]
        )
        for encoder, mode in zip(
            ("bigru", "bigru", "lstm", "transformer", "hard", "hard"),
            [*MODES, "parallel", "parallel", "feeding"],
            strict=True,
        )
    },
    **{f"transformer_{score}": partial(small, DISTINCT, score=SCORES[score], dropout=0.3) for score in SCORES},
    **{
        f"transformer_{select}": partial(small, DISTINCT, num_layers=1, select=SELECTIONS[select])
        for select in SELECTIONS
    },
    "transformer_equal": partial(small, DecoderSizes(SIZE, SIZE, SIZE, SIZE), num_heads=1),
    "transformer_learned": partial(small, DISTINCT, positions=partial(LearnedPositions, max_length=6)),
    "transformer_linear": partial(small, DISTINCT, positions=LinearPositions),
    "transformer_no_positions": partial(small, DISTINCT, positions=NoPositions),
}
"""Decoders with attention or a re-encoded context at every step."""
EVERY = WITHOUT_CONTEXT | WITH_CONTEXT


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def sizes_of(name: str) -> DecoderSizes:
    build: Any = EVERY[name]
    return build.args[0]


def make_source(sizes: DecoderSizes, lengths: list[int]) -> Memory:
    """A random source with large values at padding."""
    batch, longest = len(lengths), max(lengths)
    vectors, states = randn(batch, longest, sizes.vectors), randn(batch, longest, sizes.states)
    for row, length in enumerate(lengths):
        vectors[row, length:] *= 10
        states[row, length:] *= 10
    return Memory(vectors, states, torch.tensor(lengths), randn(batch, sizes.summary))


def build(name: str, *lengths: int, steps: int = 4) -> tuple[Decoder, Memory, Tensor]:
    """Builds a decoder in double precision and evaluation mode, an unprepared memory, and random inputs."""
    torch.manual_seed(0)
    decoder = EVERY[name]().double().eval()
    sizes = sizes_of(name)
    return decoder, make_source(sizes, list(lengths)), randn(len(lengths), steps, sizes.inputs)


def scalar(decoded: DecoderOutput, *index: Any) -> Tensor:
    """A scalar that depends on every entry of a part of the output, and on log_prob."""
    factors = torch.linspace(1, 2, decoded.output.shape[-1], dtype=torch.float64)
    total = (decoded.output[index] * factors).sum()
    return total if decoded.log_prob is None else total + decoded.log_prob[index].sum()


def decode_in_parts(
    decoder: Decoder, inputs: Tensor, memory: Memory, sizes: list[int], need_weights: bool = True
) -> DecoderOutput:
    """Concatenates the outputs of one call per part."""
    state, outputs = None, []
    for part in inputs.split(sizes, dim=1):
        outputs.append(decoder(part, memory, state, need_weights))
        state = outputs[-1].state
    weights, log_probs = [each.weights for each in outputs], [each.log_prob for each in outputs]
    return DecoderOutput(
        torch.cat([each.output for each in outputs], dim=1),
        state,
        None if weights[0] is None else torch.cat([each for each in weights if each is not None], dim=1),
        None if log_probs[0] is None else torch.cat([each for each in log_probs if each is not None], dim=1),
    )
