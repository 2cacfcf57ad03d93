"""Trained sequence-to-sequence models: translation of texts by beam search and sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from ram.corpora import PairCorpus, Tokens
from ram.corpora.batches import EVALUATION_BATCH_SIZE
from ram.corpora.vocabulary_pair import VocabularyPair
from ram.inference import Row
from ram.inference.text import check_length, tokenize_texts
from ram.sequence.interfaces import Memory
from ram.sequence.search import Hypothesis, Search, beam_search, sample
from ram.sequence.seq2seq import Seq2SeqModel

Generated = list[tuple[Tokens, Hypothesis]]
"""The hypotheses of one text with their tokens, best first."""

_Result = TypeVar("_Result")


class TextTranslator:
    """A trained translator, as :func:`ram.load` returns it.

    Args:
        model: the network.
        vocabularies: of sources and targets.
        corpus: a corpus of the kind it was trained on, used to tokenize and detokenize texts.
        search: the default options of the search.
        device: where the model computes.
    """

    def __init__(
        self, model: Seq2SeqModel, vocabularies: VocabularyPair, corpus: PairCorpus, search: Search, device: str
    ) -> None:
        self.model, self.vocabularies, self.corpus, self.search = model.to(device).eval(), vocabularies, corpus, search
        self.device = torch.device(device)

    def __repr__(self) -> str:
        source, target = len(self.vocabularies.source), len(self.vocabularies.target)
        return f"{type(self).__name__}({source} source tokens, {target} target tokens)"

    def check(self, description: str, tokens: Tokens) -> None:
        """Refuses a text with more tokens than the model has positions; ``description`` completes "A text ..."."""
        length = len(self.vocabularies.source.encode(tokens))
        check_length(description, tokens, length, self.model.max_source_length)

    def translate(self, texts: Sequence[str], beam_size: int | None = None) -> list[str]:
        """Returns the best hypothesis of every text.

        Args:
            texts: the sources.
            beam_size: overrides the beam size of the run.

        Raises:
            InputError: there are no texts, one has no words, or more tokens than the model has positions.
        """
        return [translations[0] for translations in self.n_best(texts, 1, beam_size)]

    def tabulate(self, texts: Sequence[str]) -> list[Row]:
        """Translates every text: ``translation``."""
        return [{"translation": text} for text in self.translate(texts)]

    def n_best(self, texts: Sequence[str], count: int, beam_size: int | None = None) -> list[list[str]]:
        """Returns the ``count`` best hypotheses of every text, best first; see :meth:`translate`.

        There are fewer if the search finds fewer, or if several hypotheses are the same text in other subwords.
        """
        tokens = tokenize_texts(self.corpus, texts)
        size = max(count, self.search.beam_size) if beam_size is None else beam_size
        generated = generate(self.model, self.vocabularies, tokens, self.search, self.device, size, count)
        return [list(dict.fromkeys(self.corpus.detokenize(words) for words, _ in best)) for best in generated]

    def sample(
        self,
        texts: Sequence[str],
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """Samples one translation of every text.

        Args:
            texts: the sources.
            temperature: divides the logits; see :func:`ram.sequence.search.truncated_probabilities`.
            top_k: sample from the k most likely words only; None for all words.
            top_p: sample from the most likely words whose total probability reaches this share.
            seed: of the samples.
        """
        tokens, generator = tokenize_texts(self.corpus, texts), torch.Generator(self.device).manual_seed(seed)
        decode = partial(sample, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        sampled = decode_by_length(self.model, self.vocabularies, tokens, self.search.max_length, self.device, decode)
        to_words = self.vocabularies.target.decode
        return [self.corpus.detokenize(to_words(token_ids, unknown)) for token_ids, unknown in sampled]


def generate(
    model: Seq2SeqModel,
    vocabularies: VocabularyPair,
    texts: Sequence[Tokens],
    search: Search,
    device: torch.device,
    beam_size: int,
    n_best: int = 1,
) -> list[Generated]:
    """Decodes every text by beam search; see :func:`decode_by_length`."""
    decode = partial(beam_search, beam_size=beam_size, length_penalty=search.length_penalty, n_best=n_best)
    decoded = decode_by_length(model, vocabularies, texts, search.max_length, device, decode)
    to_words = vocabularies.target.decode
    return [[(tuple(to_words(each.token_ids, unknown)), each) for each in best] for best, unknown in decoded]


@torch.no_grad()
def decode_by_length(
    model: Seq2SeqModel,
    vocabularies: VocabularyPair,
    texts: Sequence[Tokens],
    max_length: int | None,
    device: torch.device,
    decode: Callable[[Seq2SeqModel, Tensor, int, Memory | None], Sequence[_Result]],
) -> list[tuple[_Result, Tokens]]:
    """Decodes every text, in batches of sources of equal length, which need no padding.

    Args:
        model: in evaluation mode.
        vocabularies: of sources and targets.
        texts: the tokens of N sources.
        max_length: maximum number of generated tokens; None for twice the length of the source plus ten.
        device: where the model is.
        decode: called with the model, prefixes (B, n), the maximum number of tokens after them, and the memory; returns
            B results.

    Returns:
        For every text the result, and the words of the source that are out of vocabulary.

    Raises:
        InputError: naming a text with more tokens than the model has positions.
    """
    encoded = [vocabularies.source.encode(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: len(encoded[index]))
    results: dict[int, tuple[_Result, Tokens]] = {}
    for length, group in groupby(order, key=lambda index: len(encoded[index])):
        indices = list(group)
        check_length("to translate", texts[indices[0]], length, model.max_source_length)
        for start in range(0, len(indices), EVALUATION_BATCH_SIZE):
            rows = indices[start : start + EVALUATION_BATCH_SIZE]
            sources = vocabularies.source_batch([texts[row] for row in rows], device, model.can_copy)
            prefix, memory = model.start_decoding(sources.token_ids, sources.lengths, sources.copy_ids)
            limit = max_length or 2 * length + 10
            if model.max_length is not None:
                limit = max(1, min(limit, model.max_length - prefix.shape[1]))
            results |= zip(rows, zip(decode(model, prefix, limit, memory), sources.unknown, strict=True), strict=True)
    return [results[index] for index in range(len(texts))]
