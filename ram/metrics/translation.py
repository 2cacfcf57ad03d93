"""Metrics of translations: BLEU and chrF, computed by sacrebleu (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import regex

from envs.errors import InputError

_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
)  # letters of scripts without spaces between words
_LATIN, _LETTER = regex.compile(r"\p{Latin}"), regex.compile(r"\p{L}")


def bleu_and_chrf(
    predictions: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None = None
) -> dict[str, float]:
    """Computes case-insensitive corpus BLEU and chrF in percent.

    Args:
        predictions: N texts.
        references: one or more reference texts for each prediction.
        tokenizer: sacrebleu's, of BLEU; None for :func:`bleu_tokenizer`.
    """
    (bleu, _), (chrf, _) = _scores_and_signatures(predictions, references, tokenizer)
    return {"bleu": bleu, "chrf": chrf}


def signatures(predictions: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None = None) -> str:
    """Returns the sacrebleu signatures of :func:`bleu_and_chrf`, one per line."""
    (_, bleu), (_, chrf) = _scores_and_signatures(predictions, references, tokenizer)
    return f"BLEU  {bleu}\nchrF  {chrf}\n"


def bleu_tokenizer(references: Sequence[Sequence[str]]) -> str:
    """Returns the tokenizer of BLEU for the script of most letters in the references.

    "char" for scripts without spaces between words, such as Japanese and Thai; "13a", that of published figures, for
    Latin; and "intl", which knows the punctuation marks of all scripts, for others.
    """
    text = "".join(each for texts in references for each in texts)
    half = len(_LETTER.findall(text)) / 2
    if len(_UNSPACED.findall(text)) > half:
        return "char"
    return "13a" if len(_LATIN.findall(text)) >= half else "intl"


def check_tokenizer(name: str) -> None:
    """Raises :class:`InputError` if sacrebleu has no tokenizer of this name, or lacks a library for it."""
    from sacrebleu import BLEU

    names = sorted(each for each in BLEU.TOKENIZERS if each)
    if name not in names:
        raise InputError(f"task.bleu_tokenizer must be one of {', '.join(names)}, or null; got {name!r}.")
    try:
        BLEU(tokenize=name)
    except (ImportError, RuntimeError, OSError) as error:
        raise InputError(f"task.bleu_tokenizer={name}: {' '.join(str(error).split())}") from error


def _scores_and_signatures(
    predictions: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None
) -> list[tuple[float, str]]:
    """Returns score and signature of BLEU and of chrF."""
    from sacrebleu import BLEU, CHRF

    streams: list[Any] = list(zip_longest(*references))
    metrics = BLEU(lowercase=True, tokenize=tokenizer or bleu_tokenizer(references)), CHRF(lowercase=True)
    return [(metric.corpus_score(predictions, streams).score, str(metric.get_signature())) for metric in metrics]
