"""Word vocabulary: a token id for every word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX
from ram.corpora.batches import pad

PADDING, UNKNOWN, START, END = range(4)
SPECIAL = ("<padding>", "<unknown>", "<start>", "<end>")


class Vocabulary:
    """Words and their token ids; the first four ids are padding, unknown words, start and end.

    Args:
        tokens: distinct words without the special tokens.

    Attributes:
        tokens: the words without the special tokens.
        all_tokens: the special tokens and the words, in the order of their ids.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self.all_tokens = (*SPECIAL, *tokens)
        self._ids = {token: index for index, token in enumerate(self.all_tokens)}
        if len(self._ids) < len(self.all_tokens):
            raise InputError("A vocabulary contains every word once.")

    @classmethod
    def from_texts(cls, texts: Iterable[Sequence[str]], min_count: int = 1) -> Vocabulary:
        """Builds the vocabulary of all words with at least ``min_count`` occurrences, most frequent first."""
        counts = Counter(word for text in texts for word in text if word not in SPECIAL)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in ordered if counts[word] >= min_count])

    def __len__(self) -> int:
        return len(self.all_tokens)

    def encode(self, text: Iterable[str], unknown: Sequence[str] = ()) -> list[int]:
        """Returns the token ids of a text; words in ``unknown`` get the ids after the last one, all others UNKNOWN."""
        extra = {word: len(self) + index for index, word in enumerate(unknown)}
        return [self._ids.get(word, extra.get(word, UNKNOWN)) for word in text]

    def unknown(self, text: Iterable[str]) -> tuple[str, ...]:
        """Returns the distinct words of a text that are out of vocabulary, in order."""
        return tuple(dict.fromkeys(word for word in text if word not in self._ids))

    def encode_batch(self, texts: Sequence[Sequence[str]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns the padded token ids of B texts, (B, N) int64, and their lengths (B,)."""
        return pad([self.encode(text) for text in texts], device)

    def decode(self, token_ids: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """Returns the words of token ids; ids after the last one index ``unknown``."""
        tokens = (*self.all_tokens, *unknown)
        return [tokens[token_id] for token_id in token_ids]

    def ids_to_tokens(self, token_ids: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """Returns one token per id, special tokens included; the same as :meth:`decode`."""
        return self.decode(token_ids, unknown)

    def positions(self, token_ids: Sequence[int]) -> list[int]:
        """Returns for every token the index of the word it belongs to."""
        return list(range(len(token_ids)))

    def state(self) -> list[str]:
        """Returns the constructor's argument."""
        return list(self.tokens)


def build_vocabulary(texts: Iterable[Sequence[str]], min_count: int) -> Vocabulary:
    """Builds the vocabulary of a training split. Raises :class:`InputError` if it is empty."""
    vocabulary = Vocabulary.from_texts(texts, min_count)
    if not vocabulary.tokens:
        raise InputError(f"No word occurs task.min_count={min_count} times: lower it.")
    return vocabulary


def teacher_forcing_batch(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Builds the decoder inputs and targets of B sequences of token ids.

    Returns:
        The start symbol and the sequence, padded with 0, and the sequence and the end symbol, padded with
        IGNORE_INDEX: both (B, T) int64.
    """
    decoder_inputs, _ = pad([[START, *token_ids] for token_ids in sequences], device)
    return decoder_inputs, pad([[*token_ids, END] for token_ids in sequences], device, IGNORE_INDEX)[0]
