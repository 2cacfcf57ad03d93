"""Sampling: go on with a text, word by word."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.errors import InputError
from ram.corpora.vocabulary import END, PADDING, START
from ram.sequence.models import LanguageModel


def truncated(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> Tensor:
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
def go_on(
    model: LanguageModel,
    prompts: Tensor,
    max_length: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[list[int]]:
    """What follows B prompts of one length, up to the end symbol, which is left out, or to ``max_length`` words.

    Args:
        model: in evaluation mode.
        prompts: (B, n) int64, without the start symbol; n may be 0.
        max_length: of what follows, at least 1; a model that knows fewer places ends before.
        temperature: see :func:`truncated`, like the next two; 0 takes the likeliest word.
        top_k: see there.
        top_p: see there.
        generator: of the samples.
    """
    rows, device = len(prompts), prompts.device
    if model.encoder.max_length is not None:
        max_length = max(1, min(max_length, model.encoder.max_length - prompts.shape[1]))
    words = torch.cat([torch.full((rows, 1), START, device=device), prompts], dim=1)
    state, written, ended = None, [], torch.zeros(rows, dtype=torch.bool, device=device)
    for _ in range(max_length):
        said = model(words, torch.full((rows,), words.shape[1], device=device), state)
        state, logits = said.state, said.logits[:, -1].clone()
        logits[:, [PADDING, START]] = -math.inf  # no words
        chosen = torch.multinomial(truncated(logits, temperature, top_k, top_p), 1, generator=generator)
        chosen = torch.where(ended[:, None], END, chosen)
        ended = ended | (chosen[:, 0] == END)
        written.append(chosen)
        if ended.all():
            break
        words = chosen
    rows_written = torch.cat(written, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows_written]
