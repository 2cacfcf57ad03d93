"""Search: what a model says when it goes on by itself, sampled, the likeliest word by word, or by beam search."""

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


@dataclass(frozen=True)
class Hypothesis:
    """What a beam search has found.

    Attributes:
        token_ids: without the end symbol.
        log_prob: of all of them and the end symbol, in nats.
        score: what it was ranked by.
        ended: whether it ended by itself, rather than at the largest length.
    """

    token_ids: tuple[int, ...]
    log_prob: float
    score: float
    ended: bool


@dataclass(frozen=True)
class Search:
    """How a model goes on by itself.

    Attributes:
        beam_size: hypotheses followed at once; 1 takes the likeliest word at every step.
        length_penalty: 0 ranks hypotheses by log-probability, 1 by its mean over the words.
        max_length: words said, at most; None for twice the source's and ten, or for 40 where it is an image.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    max_length: int | None = None

    def __post_init__(self) -> None:
        check_beam(self.beam_size, self.length_penalty, where="task.search.")
        check_positive_integers("task.search", max_length=self.max_length)


def truncated_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Probabilities of what may be sampled.

    Args:
        logits: (..., K).
        temperature: what the logits are divided by, at least 0; towards 0 only the likeliest is left.
        top_k: keep so many of the likeliest, at least 1; None keeps all (Fan et al. 2018).
        top_p: of these keep the likeliest until their share has reached it, in (0, 1] (Holtzman et al. 2020).

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
    share = ((ranked - ranked[..., :1]) / temperature).softmax(-1)  # of the largest, which is finite at any temperature
    if top_k is not None:
        share[..., top_k:] = 0
        share = share / share.sum(-1, keepdim=True)
    if top_p < 1:
        before = share.cumsum(-1) - share
        share = torch.where(before < top_p, share, 0)
    return torch.zeros_like(share).scatter(-1, order, share / share.sum(-1, keepdim=True))


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
    """What follows B beginnings of one length, up to the end symbol, which is left out, or to ``max_length`` words.

    Args:
        model: in evaluation mode.
        begun: (B, n) int64, with the start symbol.
        max_length: of what follows, at least 1; a model that knows fewer places ends before.
        memory: of B rows, what the model reads in.
        temperature: see :func:`truncated_probabilities`, like the next two; 0 takes the likeliest word.
        top_k: see there.
        top_p: see there.
        generator: of the samples.
    """
    words, state, written = prefix, None, []
    ended = torch.zeros(len(prefix), dtype=torch.bool, device=prefix.device)
    for _ in range(_longest(model, prefix, max_length)):
        said = model.decode(words, memory, state)
        state, logits = said.state, mask_special_tokens(said.logits[:, -1])
        chosen = torch.multinomial(truncated_probabilities(logits, temperature, top_k, top_p), 1, generator=generator)
        words = torch.where(ended[:, None], END, chosen)
        ended = ended | (words[:, 0] == END)
        written.append(words)
        if ended.all():
            break
    rows_written = torch.cat(written, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows_written]


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
    """The best of what may follow B beginnings, the best first.

    A hypothesis that has ended keeps its place in the beam, and the search goes on with the others until all have
    ended: a beam of 1 takes the likeliest word at every step. They are ranked by log-probability over
    length^length_penalty, the end symbol counted (Wu et al. 2016, section 7, with their alpha and without their
    constants).

    Args:
        model: in evaluation mode.
        begun: (B, n) int64, with the start symbol.
        max_length: of what follows, at least 1; a model that knows fewer places ends before.
        memory: of B rows, what the model reads in.
        beam_size: how many hypotheses are followed, at least 1.
        length_penalty: 0 ranks by log-probability, which favours what is short.
        n_best: how many to tell, from 1 to ``beam_size``.

    Returns:
        B times ``n_best`` hypotheses, or fewer where there are no more.
    """
    check_beam(beam_size, length_penalty)
    if not 1 <= n_best <= beam_size:
        raise InputError(f"n_best must be in 1 .. beam_size ({beam_size}), got {n_best}.")
    max_length = _longest(model, prefix, max_length)
    device, rows = prefix.device, len(prefix)
    found: list[list[Hypothesis]] = [[] for _ in range(rows)]
    alive = list(range(rows))  # the rows that go on, each with beam_size hypotheses side by side
    memory = index_rows(memory, torch.arange(rows, device=device).repeat_interleave(beam_size))
    words, state = prefix.repeat_interleave(beam_size, dim=0), None
    written = torch.zeros(rows, beam_size, 0, dtype=torch.int64, device=device)
    total = torch.full((rows, beam_size), -math.inf, device=device)
    total[:, 0] = 0  # at first all are one
    for length in range(1, max_length + 1):
        said = model.decode(words, memory, state)
        log_probs = mask_special_tokens(said.logits[:, -1]).log_softmax(-1).view(len(alive), beam_size, -1)
        best, where = (total[..., None] + log_probs).flatten(1).topk(beam_size)
        parent, word = where // log_probs.shape[-1], where % log_probs.shape[-1]
        room = torch.tensor([beam_size - len(found[row]) for row in alive], device=device)
        best[torch.arange(beam_size, device=device) >= room[:, None]] = -math.inf
        written = torch.cat([written.gather(1, parent[..., None].expand_as(written)), word[..., None]], dim=-1)
        over = (best > -math.inf) & ((word == END) | (length == max_length))
        for number, place in over.nonzero().tolist():
            said_words, log_prob = written[number, place].tolist(), float(best[number, place])
            ended = said_words[-1] == END
            kept = tuple(said_words[:-1] if ended else said_words)
            found[alive[number]].append(Hypothesis(kept, log_prob, log_prob / length**length_penalty, ended))
        total = best.masked_fill(over, -math.inf)
        going_on = (total > -math.inf).any(1).nonzero()[:, 0]
        if not len(going_on):
            break
        alive = [alive[number] for number in going_on.tolist()]
        before = (going_on[:, None] * beam_size + parent[going_on]).flatten()
        total, written = total[going_on], written[going_on]
        memory, state = index_rows(memory, before), index_rows(said.state, before)
        words = word[going_on].view(-1, 1)
    return [sorted(each, key=lambda hypothesis: -hypothesis.score)[:n_best] for each in found]


def check_beam(beam_size: int, length_penalty: float, where: str = "") -> None:
    """Refuses options of a beam search; ``where`` is written before their names."""
    if beam_size < 1:
        raise InputError(f"{where}beam_size must be at least 1, got {beam_size}.")
    if not 0 <= length_penalty <= 10:
        raise InputError(f"{where}length_penalty must be in [0, 10], got {length_penalty}.")


def index_rows(tree: Any, rows: Tensor) -> Any:
    """Of every tensor in dataclasses, tuples and lists the given rows; all else as it is."""
    if isinstance(tree, Tensor):
        return tree[rows]
    if isinstance(tree, (tuple, list)):
        return type(tree)(index_rows(each, rows) for each in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: index_rows(getattr(tree, each.name), rows) for each in fields(tree)})
    return tree


def mask_special_tokens(logits: Tensor) -> Tensor:
    """Logits (..., K) of what may be said: what is no word has none."""
    logits = logits.clone()
    logits[..., SPECIAL_TOKENS] = -math.inf
    return logits


def _longest(model: AutoregressiveModel, prefix: Tensor, max_length: int) -> int:
    if max_length < 1:
        raise InputError(f"max_length must be at least 1, got {max_length}.")
    return max_length if model.max_length is None else max(1, min(max_length, model.max_length - prefix.shape[1] + 1))
