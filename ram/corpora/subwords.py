"""Pieces of words: a vocabulary that no word is unknown to (Sennrich et al. 2016), by the library sentencepiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

import sentencepiece
import torch
from torch import Tensor

from envs.errors import InputError
from ram.corpora.batches import pad
from ram.corpora.vocabulary import END, PADDING, SPECIAL, START, UNKNOWN


class Subwords:
    """The pieces that byte-pair encoding finds in some texts, and their numbers; the first four as in a Vocabulary.

    Args:
        model: of sentencepiece, as it writes it.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]], number: int) -> Subwords:
        """Learns ``number`` pieces, all letters of the texts among them.

        Raises:
            InputError: the texts do not hold so many, or have more letters.
        """
        lines, written = list(map(_line, texts)), io.BytesIO()
        least = len(set("".join(lines)) | {" "}) + len(SPECIAL)
        if number < least:
            raise InputError(f"task.subwords={number} cannot be found in the corpus: all letters alone are {least}.")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=written,
                model_type="bpe",
                vocab_size=number,
                character_coverage=1.0,
                normalization_rule_name="identity",
                pad_id=PADDING,
                unk_id=UNKNOWN,
                bos_id=START,
                eos_id=END,
                max_sentence_length=2**30,  # of bytes; longer texts would be left out
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            most = re.search(r"value <= (\d+)", str(error))
            told = "." if most is None else f": there are no more than {most[1]}."
            raise InputError(f"task.subwords={number} cannot be found in the corpus{told}") from error
        return cls(written.getvalue())

    def __len__(self) -> int:
        return self._processor.vocab_size()

    def encode(self, text: Iterable[str], unknown: Sequence[str] = ()) -> list[int]:
        """The numbers of the pieces of a text; 1 for letters never seen."""
        return self._processor.encode(_line(text))

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
        pieces = self._processor.id_to_piece
        return [SPECIAL[each] if each < len(SPECIAL) else pieces(each).replace("\u2581", "_") for each in numbers]

    def places(self, numbers: Sequence[int]) -> list[int]:
        """Which word of a text each of its numbers is part of."""
        begins = [self._processor.id_to_piece(number).startswith("\u2581") for number in numbers]
        return [max(0, sum(begins[: place + 1]) - 1) for place in range(len(begins))]

    def state(self) -> bytes:
        """What the constructor needs to make it again."""
        return self._model


def _line(text: Iterable[str]) -> str:
    """Words as sentencepiece takes them; the sign that it writes for a space is none."""
    return " ".join(text).replace("\u2581", "_")
