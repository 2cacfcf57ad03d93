"""Caption metrics: BLEU, ROUGE-L and CIDEr-D.

BLEU is sacrebleu's. ROUGE-L with several references and CIDEr-D are implemented here as the COCO evaluation
(pycocoevalcap) defines them: that package needs Java, and no maintained library computes them without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from sacrebleu import BLEU

Tokens = tuple[str, ...]

_ORDERS = (1, 2, 3, 4)  # words in an n-gram
_BETA = 1.2  # weight of the recall in ROUGE-L, as in the COCO evaluation
_SIGMA = 6.0  # of the length penalty of CIDEr-D, in words
_CACHE_SIZE = 50_000  # references whose n-gram weights are kept

References = Sequence[Sequence[Tokens]]
"""One or more reference captions of each of N images."""
NgramWeights = list[tuple[dict[Tokens, float], float]]
"""For every order, the weights of a caption's n-grams and their Euclidean norm."""

_CORPUS_BLEU = BLEU(tokenize="none", smooth_method="none", force=True)
_SENTENCE_BLEU = BLEU(tokenize="none", smooth_method="add-k", smooth_value=1, effective_order=True)


def bleu(captions: Sequence[Tokens], references: References) -> dict[str, float]:
    """Computes BLEU-1 to BLEU-4 of a whole corpus, in percent, without smoothing (Papineni et al. 2002).

    The brevity penalty uses the length of the reference that is closest to the caption's, the shorter one on ties.

    Args:
        captions: N captions, of words without spaces.
        references: of each caption.
    """
    streams = zip_longest(*([" ".join(reference) for reference in each] for each in references))
    score = _CORPUS_BLEU.corpus_score([" ".join(caption) for caption in captions], list(streams))
    return {
        f"bleu_{order}": BLEU.compute_bleu(
            score.counts[:order], score.totals[:order], score.sys_len, score.ref_len, max_ngram_order=order
        ).score
        for order in _ORDERS
    }


def sentence_bleu(captions: Sequence[Tokens], references: References) -> list[float]:
    """Computes BLEU-4 of each caption, in percent, with add-one smoothing above unigrams (Lin and Och 2004).

    Args:
        captions: N captions, of words without spaces.
        references: of each caption.
    """
    return [
        _SENTENCE_BLEU.sentence_score(" ".join(caption), [" ".join(reference) for reference in each]).score
        for caption, each in zip(captions, references, strict=True)
    ]


def rouge_l(captions: Sequence[Tokens], references: References) -> list[float]:
    """Computes ROUGE-L of each caption, in percent: the F-measure of the longest common subsequence (Lin 2004, sec. 3).

    Recall weighs 1.2 times as much as precision; each is the maximum over the references.

    Args:
        captions: N captions.
        references: of each caption.
    """
    return [_rouge_l(caption, each) for caption, each in zip(captions, references, strict=True)]


def _rouge_l(caption: Tokens, references: Sequence[Tokens]) -> float:
    if not caption:
        return 0.0
    common = [_longest_common_subsequence(caption, reference) for reference in references]
    precision = max(common) / len(caption)
    recall = max(length / len(reference) for length, reference in zip(common, references, strict=True))
    if not precision:
        return 0.0
    return 100 * (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _longest_common_subsequence(first: Tokens, second: Tokens) -> int:
    """Returns the length of the longest common subsequence, in words."""
    row = [0] * (len(second) + 1)
    for word in first:
        previous = row[:]
        for index, other in enumerate(second, start=1):
            row[index] = previous[index - 1] + 1 if word == other else max(previous[index], row[index - 1])
    return row[-1]


@dataclass(frozen=True)
class Cider:
    """CIDEr-D (Vedantam et al. 2015, sections 4 and 5): similarity of TF-IDF weighted n-grams.

    Attributes:
        document_frequency: number of images in whose references each n-gram of one to four words occurs.
        num_images: number of images of these references.
    """

    document_frequency: Counter[Tokens]
    num_images: int
    _cache: dict[Tokens, NgramWeights] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_references(cls, references: References) -> Cider:
        """Returns the metric with the document frequencies of the given references."""
        frequency = Counter(
            ngram
            for each in references
            for ngram in {ngram for reference in each for order in _ORDERS for ngram in _ngrams(reference, order)}
        )
        return cls(frequency, len(references))

    def __call__(self, captions: Sequence[Tokens], references: References) -> list[float]:
        """Computes the score of each caption, in [0, 10].

        Args:
            captions: N captions.
            references: of each caption.
        """
        return [self._score(caption, each) for caption, each in zip(captions, references, strict=True)]

    def _score(self, caption: Tokens, references: Sequence[Tokens]) -> float:
        total, candidate = 0.0, self._ngram_weights(caption)
        for reference in references:
            if reference not in self._cache:
                if len(self._cache) == _CACHE_SIZE:
                    self._cache.clear()
                self._cache[reference] = self._ngram_weights(reference)
            for (weights, norm), (others, other_norm) in zip(candidate, self._cache[reference], strict=True):
                # Weights are clipped to the reference's, so that repeating an n-gram gains nothing.
                product = sum(
                    min(weight, others[ngram]) * others[ngram] for ngram, weight in weights.items() if ngram in others
                )
                if norms := norm * other_norm:
                    total += product / norms * math.exp(-((len(caption) - len(reference)) ** 2) / (2 * _SIGMA**2))
        return 10 * total / (len(_ORDERS) * len(references))

    def _ngram_weights(self, caption: Tokens) -> NgramWeights:
        """Computes for every order the term frequency times the inverse document frequency of the n-grams."""
        by_order = []
        for order in _ORDERS:
            weights = {
                ngram: count * math.log(self.num_images / max(1, self.document_frequency[ngram]))
                for ngram, count in _ngrams(caption, order).items()
            }
            by_order.append((weights, math.sqrt(sum(weight**2 for weight in weights.values()))))
        return by_order


def _ngrams(words: Tokens, order: int) -> Counter[Tokens]:
    """Counts the n-grams of a caption."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))
