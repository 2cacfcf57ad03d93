"""How good captions are: BLEU, ROUGE-L and CIDEr-D, as the captioning literature computes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ram.corpora import Tokens

_ORDERS = (1, 2, 3, 4)  # words in an n-gram
_BETA = 1.2  # of ROUGE-L, as the COCO evaluation has it
_SIGMA = 6.0  # of CIDEr-D, in words
_KEPT = 50_000  # references that are weighed once

References = Sequence[Sequence[Tokens]]
"""N times one caption or more."""
Profile = list[tuple[dict[Tokens, float], float]]
"""Of every order the weights of a caption's n-grams, and their norm."""


def bleu(said: Sequence[Tokens], references: References, smoothed: bool = False) -> dict[str, float]:
    """BLEU-1 to BLEU-4 of a whole corpus, in percent (Papineni et al. 2002).

    Words are compared as they are, and the length of a caption is compared with that of the reference that comes
    closest to it, the shorter of two.

    Args:
        said: N captions.
        references: of each.
        smoothed: of two words or more, count one n-gram more, which is right (Lin and Och 2004, section 4): one caption
            by itself may have none.
    """
    correct, totals, lengths = dict.fromkeys(_ORDERS, 0), dict.fromkeys(_ORDERS, 0), [0, 0]
    for caption, right in zip(said, references, strict=True):
        lengths[0] += len(caption)
        lengths[1] += min((abs(len(each) - len(caption)), len(each)) for each in right)[1]
        for order in _ORDERS:
            known: Counter[Tokens] = Counter()
            for each in right:
                known |= _counts(each, order)
            counts = _counts(caption, order)
            correct[order] += (counts & known).total()
            totals[order] += counts.total()
    brevity = math.exp(min(0.0, 1 - lengths[1] / lengths[0])) if lengths[0] else 0.0
    measured, logarithm = {}, 0.0
    for order in _ORDERS:
        more = smoothed and order > 1
        logarithm += math.log((correct[order] + more) / (totals[order] + more)) if correct[order] + more else -math.inf
        measured[f"bleu_{order}"] = 100 * brevity * math.exp(logarithm / order)
    return measured


def rouge_l(said: Sequence[Tokens], references: References) -> list[float]:
    """The F-measure of the longest common subsequence, in percent, of every caption (Lin 2004, section 3).

    Its recall counts 1.2 times as much as its precision; each is the best that any reference gives.

    Args:
        said: N captions.
        references: of each.
    """
    return [_rouge_l(caption, right) for caption, right in zip(said, references, strict=True)]


def _rouge_l(caption: Tokens, references: Sequence[Tokens]) -> float:
    if not caption:
        return 0.0
    common = [_longest_common(caption, each) for each in references]
    precision = max(common) / len(caption)
    recall = max(length / len(each) for length, each in zip(common, references, strict=True))
    if not precision:
        return 0.0
    return 100 * (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _longest_common(first: Tokens, second: Tokens) -> int:
    """How many words the longest common subsequence has."""
    row = [0] * (len(second) + 1)
    for word in first:
        before = row[:]
        for place, other in enumerate(second, start=1):
            row[place] = before[place - 1] + 1 if word == other else max(before[place], row[place - 1])
    return row[-1]


@dataclass(frozen=True)
class Cider:
    """CIDEr-D (Vedantam et al. 2015, sections 4 and 5): n-grams weigh the more, the fewer images they are said of.

    Attributes:
        frequency: of how many images each n-gram of one to four words is said.
        images: how many images that is out of.
    """

    frequency: Counter[Tokens]
    images: int
    _references: dict[Tokens, Profile] = field(default_factory=dict, repr=False, compare=False)  # met so far

    @classmethod
    def of(cls, references: References) -> Cider:
        """The measure whose frequencies are those of some images' captions."""
        frequency = Counter(
            gram
            for right in references
            for gram in {gram for each in right for order in _ORDERS for gram in _counts(each, order)}
        )
        return cls(frequency, len(references))

    def __call__(self, said: Sequence[Tokens], references: References) -> list[float]:
        """10 times the similarity of every caption to its references, in [0, 10].

        Args:
            said: N captions.
            references: of each.
        """
        return [self._score(caption, right) for caption, right in zip(said, references, strict=True)]

    def _score(self, caption: Tokens, references: Sequence[Tokens]) -> float:
        total, profile = 0.0, self._profile(caption)
        for each in references:
            if each not in self._references:
                if len(self._references) == _KEPT:
                    self._references.clear()
                self._references[each] = self._profile(each)
            for (mine, length), (theirs, its_length) in zip(profile, self._references[each], strict=True):
                # What is said more often than in the reference is cut, so that repetition does not pay.
                shared = sum(
                    min(weight, theirs[gram]) * theirs[gram] for gram, weight in mine.items() if gram in theirs
                )
                if lengths := length * its_length:
                    total += shared / lengths * math.exp(-((len(caption) - len(each)) ** 2) / (2 * _SIGMA**2))
        return 10 * total / (len(_ORDERS) * len(references))

    def _profile(self, caption: Tokens) -> Profile:
        """Of every order how often n-grams come up times the logarithm of how rare they are, and the norm of that."""
        profile = []
        for order in _ORDERS:
            weights = {
                gram: count * math.log(self.images / max(1, self.frequency[gram]))
                for gram, count in _counts(caption, order).items()
            }
            profile.append((weights, math.sqrt(sum(weight**2 for weight in weights.values()))))
        return profile


def _counts(words: Tokens, order: int) -> Counter[Tokens]:
    """The n-grams of a caption."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))
