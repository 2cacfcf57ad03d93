"""Translates text files line by line and scores the translations against a file of references."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, repeat
from pathlib import Path

from tqdm import tqdm

from envs.errors import InputError
from ram.corpora import normalize
from ram.corpora.files import read_lines
from ram.corpora.parallel_files import read_parallel_lines
from ram.inference.translation import TextTranslator
from ram.metrics.translation import bleu_and_chrf

_LINES = 2000  # translated at a time


def translate_file(translator: TextTranslator, source: Path, n_best: int = 1) -> Iterator[str]:
    """Yields the best ``n_best`` translations of every line of a file, best first.

    The translations of an empty line are empty, as are those that the search does not find.

    Raises:
        InputError: if the file cannot be read, or a line is longer than the model's positions.
    """
    lines = read_lines(source)
    texts = [translator.corpus.tokenize(line) for line in lines]
    if not any(texts):
        raise InputError(f"{source} has no line with a word.")
    for number, text in enumerate(texts, start=1):
        translator.check(f"in {source}, line {number},", text)
    with tqdm(total=len(lines), unit="texts", disable=len(lines) <= _LINES) as bar:
        for start in range(0, len(lines), _LINES):
            batch = range(start, min(start + _LINES, len(lines)))
            full = [lines[index] for index in batch if texts[index]]
            translations = iter(translator.n_best(full, n_best) if full else ())
            for index in batch:
                yield from islice(chain(next(translations) if texts[index] else (), repeat("")), n_best)
            bar.update(len(batch))


def score_file(
    translator: TextTranslator, source: Path, target: Path, tokenizer: str | None = None
) -> dict[str, float]:
    """Returns exact matches in percent, BLEU and chrF against a file of references; all ignore case.

    ``tokenizer`` is that of BLEU; see :func:`ram.metrics.translation.bleu_and_chrf`.
    """
    references = [normalize(line.strip()) for _, line in read_parallel_lines(source, target)]
    translations = list(translate_file(translator, source))
    exact = [normalize(text) == line for text, line in zip(translations, references, strict=True)]
    scores = bleu_and_chrf(translations, [(line,) for line in references], tokenizer)
    return {"exact": 100 * sum(exact) / len(exact)} | scores
