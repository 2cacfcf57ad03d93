"""Pieces of words: a vocabulary that no word is unknown to (Sennrich et al. 2016), by the library sentencepiece."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import sentencepiece
import torch
from torch import Tensor

from envs.errors import InputError
from ram.corpora.batches import pad
from ram.corpora.vocabulary import END, PADDING, START, UNKNOWN


class Pieces:
    """The pieces that byte-pair encoding finds in some texts, and their numbers; the first four as in a Vocabulary.

    Args:
        model: of sentencepiece, as it writes it.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]], number: int) -> Pieces:
        """Learns ``number`` pieces, all letters of the texts among them.

        Raises:
            InputError: the texts do not hold so many, or have more letters.
        """
        written = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(" ".join(text) for text in texts),
                model_writer=written,
                model_type="bpe",
                vocab_size=number,
                character_coverage=1.0,
                normalization_rule_name="identity",
                pad_id=PADDING,
                unk_id=UNKNOWN,
                bos_id=START,
                eos_id=END,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise InputError(
                f"task.pieces={number} cannot be found in the corpus: {str(error).split(') ')[-1]}"
            ) from error
        return cls(written.getvalue())

    def __len__(self) -> int:
        return self._processor.vocab_size()

    def encode(self, text: Iterable[str], unknown: Sequence[str] = ()) -> list[int]:
        """The numbers of the pieces of a text; 1 for letters never seen."""
        return self._processor.encode(" ".join(text))

    def unknown(self, text: Iterable[str]) -> tuple[str, ...]:
        """No word is."""
        return ()

    def numbers(self, texts: Sequence[Sequence[str]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Those of B texts, (B, N) int64, filled up at the end, and their lengths (B,)."""
        return pad([self.encode(text) for text in texts], device)

    def decode(self, numbers: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """The words that the pieces make together."""
        return self._processor.decode(list(numbers)).split()

    def names(self, numbers: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """Every piece by itself; one that begins a word has a low line before it."""
        return [self._processor.id_to_piece(number).replace("\u2581", "_") for number in numbers]

    def state(self) -> bytes:
        """What :meth:`restore` needs."""
        return self._model

    @classmethod
    def restore(cls, state: bytes) -> Pieces:
        """The pieces whose state that was."""
        return cls(state)
