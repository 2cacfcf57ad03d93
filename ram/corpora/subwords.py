"""Subword vocabulary by byte-pair encoding (Sennrich et al. 2016), trained with the library sentencepiece."""

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
    """Byte-pair subwords and their token ids, with the interface and the special ids of Vocabulary.

    Args:
        model: serialized sentencepiece model.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, texts: Iterable[Sequence[str]], size: int) -> Subwords:
        """Learns a vocabulary of ``size`` tokens, among them all characters of the texts.

        Raises:
            InputError: if the texts have more characters, or fewer subwords.
        """
        lines, written = list(map(_line, texts)), io.BytesIO()
        smallest = len(set("".join(lines)) | {" "}) + len(SPECIAL)
        if size < smallest:
            raise InputError(f"task.subwords={size} is too small for the corpus: its characters need {smallest}.")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=written,
                model_type="bpe",
                vocab_size=size,
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
            largest = re.search(r"value <= (\d+)", str(error))
            reason = "." if largest is None else f": it has at most {largest[1]} subwords."
            raise InputError(f"task.subwords={size} is too large for the corpus{reason}") from error
        return cls(written.getvalue())

    def __len__(self) -> int:
        return self._processor.vocab_size()

    def encode(self, text: Iterable[str], unknown: Sequence[str] = ()) -> list[int]:
        """Returns the token ids of a text; UNKNOWN for characters that the training texts lack."""
        return self._processor.encode(_line(text))

    def unknown(self, text: Iterable[str]) -> tuple[str, ...]:
        """Returns (): no word is out of vocabulary."""
        return ()

    def encode_batch(self, texts: Sequence[Sequence[str]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns the padded token ids of B texts, (B, N) int64, and their lengths (B,)."""
        return pad([self.encode(text) for text in texts], device)

    def decode(self, token_ids: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """Returns the words that the subwords form."""
        return self._processor.decode(list(token_ids)).split()

    def ids_to_tokens(self, token_ids: Iterable[int], unknown: Sequence[str] = ()) -> list[str]:
        """Returns one subword per id; an underscore marks the beginning of a word."""
        piece = self._processor.id_to_piece
        return [SPECIAL[each] if each < len(SPECIAL) else piece(each).replace("\u2581", "_") for each in token_ids]

    def positions(self, token_ids: Sequence[int]) -> list[int]:
        """Returns for every token the index of the word it belongs to."""
        begins = [self._processor.id_to_piece(token_id).startswith("\u2581") for token_id in token_ids]
        return [max(0, sum(begins[: index + 1]) - 1) for index in range(len(begins))]

    def state(self) -> bytes:
        """Returns the constructor's argument."""
        return self._model


def _line(text: Iterable[str]) -> str:
    """Joins words for sentencepiece; its sign for a space is replaced."""
    return " ".join(text).replace("\u2581", "_")
