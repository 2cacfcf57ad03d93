"""Decoding of autoregressive models: sampling, greedy decoding and beam search."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from envs.errors import InputError
from envs.validation import check_positive_integers
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN
from ram.sequence.autoregressive import AutoregressiveModel

SPECIAL_TOKENS = [PADDING, UNKNOWN, START]
"""Tokens that are never generated."""


@dataclass(frozen=True)
class Hypothesis:
    """A result of beam search.

    Attributes:
        token_ids: generated tokens, without the end symbol.
        log_prob: log-probability of the tokens and the end symbol, in nats.
        score: log-probability with length penalty, by which hypotheses are ranked.
        ended: whether the end symbol was generated, rather than the maximum length reached.
    """

    token_ids: tuple[int, ...]
    log_prob: float
    score: float
    ended: bool


@dataclass(frozen=True)
class Search:
    """Options of decoding in evaluation.

    Attributes:
        beam_size: number of hypotheses; 1 is greedy decoding.
        length_penalty: exponent of the length by which log-probabilities are divided, in [0, 10].
        max_length: maximum number of generated tokens; None for twice the source length plus 10, or 40 for images.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    max_length: int | None = None

    def __post_init__(self) -> None:
        _check_beam(self.beam_size, self.length_penalty, prefix="task.search.")
        check_positive_integers("task.search", max_length=self.max_length)


def truncated_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Computes the probabilities from which tokens are sampled.

    Args:
        logits: (..., K).
        temperature: divides the logits, at least 0; 0 gives the most probable token.
        top_k: number of most probable tokens to keep, at least 1; None keeps all (Fan et al. 2018).
        top_p: of these, keep the most probable ones up to this total probability, in (0, 1] (Holtzman et al. 2020).

    Returns:
        (..., K), summing to 1.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature must be a finite number of at least 0, got {temperature}.")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}.")
    if not 0 < top_p <= 1:
        raise InputError(f"top_p must be in (0, 1], got {top_p}.")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    ranked = logits.gather(-1, order)
    if temperature == 0:
        top_k, temperature = 1, 1.0
    probs = ((ranked - ranked[..., :1]) / temperature).softmax(-1)  # the largest is 0, finite at any temperature
    if top_k is not None:
        probs[..., top_k:] = 0
        probs = probs / probs.sum(-1, keepdim=True)
    if top_p < 1:
        preceding = probs.cumsum(-1) - probs
        probs = torch.where(preceding < top_p, probs, 0)
    return torch.zeros_like(probs).scatter(-1, order, probs / probs.sum(-1, keepdim=True))


@torch.no_grad()
def sample(
    model: AutoregressiveModel,
    prefix: Tensor,
    max_length: int,
    memory: Any = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[list[int]]:
    """Samples a continuation of each of B prefixes, up to the end symbol, which is removed, or ``max_length`` tokens.

    Args:
        model: in evaluation mode.
        prefix: (B, n) int64, with the start symbol.
        max_length: maximum number of generated tokens, at least 1; reduced to the positions of the model.
        memory: the encoded sources, of B rows.
        temperature: see :func:`truncated_probabilities`; 0 is greedy decoding.
        top_k: see :func:`truncated_probabilities`.
        top_p: see :func:`truncated_probabilities`.
        generator: of the samples.
    """
    token_ids, state, generated = prefix, None, []
    ended = torch.zeros(len(prefix), dtype=torch.bool, device=prefix.device)
    for _ in range(_limit_length(model, prefix, max_length)):
        output = model.decode(token_ids, memory, state)
        state, logits = output.state, mask_special_tokens(output.logits[:, -1])
        probs = truncated_probabilities(logits, temperature, top_k, top_p)
        sampled = torch.multinomial(probs, 1, generator=generator)  # (B, 1)
        token_ids = torch.where(ended[:, None], END, sampled)
        ended = ended | (token_ids[:, 0] == END)
        generated.append(token_ids)
        if ended.all():
            break
    rows = torch.cat(generated, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    prefix: Tensor,
    max_length: int,
    memory: Any = None,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Finds the most probable continuations of each of B prefixes, best first.

    An ended hypothesis keeps its place in the beam. The score is log-probability / length^length_penalty, where the
    length includes the end symbol (Wu et al. 2016, section 7, with their alpha and without their constants).

    Args:
        model: in evaluation mode.
        prefix: (B, n) int64, with the start symbol.
        max_length: maximum number of generated tokens, at least 1; reduced to the positions of the model.
        memory: the encoded sources, of B rows.
        beam_size: number of hypotheses of a row, at least 1; 1 is greedy decoding.
        length_penalty: in [0, 10]; 0 ranks by log-probability, which favors short hypotheses.
        n_best: number of hypotheses to return, in [1, beam_size].

    Returns:
        B lists of ``n_best`` hypotheses, or of fewer if there are no more.
    """
    _check_beam(beam_size, length_penalty)
    if not 1 <= n_best <= beam_size:
        raise InputError(f"n_best must be in 1 .. beam_size ({beam_size}), got {n_best}.")
    max_length = _limit_length(model, prefix, max_length)
    device, batch = prefix.device, len(prefix)
    finished: list[list[Hypothesis]] = [[] for _ in range(batch)]
    active = list(range(batch))  # A rows of the batch with unfinished hypotheses, beam_size adjacent ones each
    memory = index_rows(memory, torch.arange(batch, device=device).repeat_interleave(beam_size))
    token_ids, state = prefix.repeat_interleave(beam_size, dim=0), None
    generated = torch.zeros(batch, beam_size, 0, dtype=torch.int64, device=device)
    scores = torch.full((batch, beam_size), -math.inf, device=device)
    scores[:, 0] = 0  # the hypotheses of a row are equal at first: extend one of them
    for length in range(1, max_length + 1):
        output = model.decode(token_ids, memory, state)
        log_probs = mask_special_tokens(output.logits[:, -1]).log_softmax(-1).view(len(active), beam_size, -1)
        best, flat_index = (scores[..., None] + log_probs).flatten(1).topk(beam_size)  # (A, beam_size)
        parent, token = flat_index // log_probs.shape[-1], flat_index % log_probs.shape[-1]
        places = torch.tensor([beam_size - len(finished[row]) for row in active], device=device)
        best[torch.arange(beam_size, device=device) >= places[:, None]] = -math.inf
        generated = torch.cat([generated.gather(1, parent[..., None].expand_as(generated)), token[..., None]], dim=-1)
        over = (best > -math.inf) & ((token == END) | (length == max_length))
        for index, beam in over.nonzero().tolist():
            hypothesis = _finish(generated[index, beam].tolist(), float(best[index, beam]), length_penalty)
            finished[active[index]].append(hypothesis)
        scores = best.masked_fill(over, -math.inf)
        remaining = (scores > -math.inf).any(1).nonzero()[:, 0]
        if not len(remaining):
            break
        active = [active[index] for index in remaining.tolist()]
        rows = (remaining[:, None] * beam_size + parent[remaining]).flatten()
        scores, generated = scores[remaining], generated[remaining]
        memory, state = index_rows(memory, rows), index_rows(output.state, rows)
        token_ids = token[remaining].view(-1, 1)
    return [sorted(each, key=lambda hypothesis: -hypothesis.score)[:n_best] for each in finished]


def index_rows(tree: Any, rows: Tensor) -> Any:
    """Indexes dimension 0 of every tensor in nested dataclasses, tuples and lists; returns other objects unchanged.

    A tensor that occurs several times, such as keys that are also values, is indexed once.
    """
    indexed: dict[int, Tensor] = {}

    def index(node: Any) -> Any:
        if isinstance(node, Tensor):
            if id(node) not in indexed:
                indexed[id(node)] = node[rows]
            return indexed[id(node)]
        if isinstance(node, (tuple, list)):
            return type(node)(map(index, node))
        if is_dataclass(node) and not isinstance(node, type):
            return replace(node, **{each.name: index(getattr(node, each.name)) for each in fields(node)})
        return node

    return index(tree)


def mask_special_tokens(logits: Tensor) -> Tensor:
    """Returns logits (..., K) with -inf for SPECIAL_TOKENS."""
    logits = logits.clone()
    logits[..., SPECIAL_TOKENS] = -math.inf
    return logits


def _finish(token_ids: list[int], log_prob: float, length_penalty: float) -> Hypothesis:
    ended = token_ids[-1] == END
    score = log_prob / len(token_ids) ** length_penalty
    return Hypothesis(tuple(token_ids[:-1] if ended else token_ids), log_prob, score, ended)


def _check_beam(beam_size: int, length_penalty: float, prefix: str = "") -> None:
    if beam_size < 1:
        raise InputError(f"{prefix}beam_size must be at least 1, got {beam_size}.")
    if not 0 <= length_penalty <= 10:
        raise InputError(f"{prefix}length_penalty must be in [0, 10], got {length_penalty}.")


def _limit_length(model: AutoregressiveModel, prefix: Tensor, max_length: int) -> int:
    """Returns the largest number of tokens, at least 1, that the positions of the model permit."""
    if max_length < 1:
        raise InputError(f"max_length must be at least 1, got {max_length}.")
    return max_length if model.max_length is None else max(1, min(max_length, model.max_length - prefix.shape[1] + 1))
