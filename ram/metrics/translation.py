"""Metrics of translations: BLEU and chrF, computed by sacrebleu (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any


def bleu_and_chrf(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Computes case-insensitive corpus BLEU and chrF in percent.

    Args:
        predictions: N texts.
        references: one or more reference texts for each prediction.
    """
    (bleu, _), (chrf, _) = _scores_and_signatures(predictions, references)
    return {"bleu": bleu, "chrf": chrf}


def signatures(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> str:
    """Returns the sacrebleu signatures of :func:`bleu_and_chrf`, one per line."""
    (_, bleu), (_, chrf) = _scores_and_signatures(predictions, references)
    return f"BLEU  {bleu}\nchrF  {chrf}\n"


def _scores_and_signatures(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, str]]:
    """Returns score and signature of BLEU and of chrF."""
    from sacrebleu import BLEU, CHRF

    streams: list[Any] = list(zip_longest(*references))
    metrics = BLEU(lowercase=True), CHRF(lowercase=True)
    return [(metric.corpus_score(predictions, streams).score, str(metric.get_signature())) for metric in metrics]
