"""Trained captioners: captions of images by beam search and sampling, with the attention weights of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from envs.errors import InputError
from envs.validation import parse_images
from ram.captioning.captioner import Captioner
from ram.corpora import CaptionCorpus, Tokens
from ram.corpora.batches import EVALUATION_BATCH_SIZE
from ram.corpora.vocabulary import Vocabulary, teacher_forcing_batch
from ram.inference import ImageModel, Row
from ram.plots.captions import caption_strips
from ram.sequence.search import Search, beam_search, sample

_MAX_LENGTH = 40


class ImageCaptioner(ImageModel):
    """A trained captioner, as :func:`ram.load` returns it.

    Args:
        model: the network.
        vocabulary: of the captions.
        image_shape: (C, H, W) of the images.
        corpus: a corpus of the kind it was trained on, used to detokenize captions.
        search: the default options of the search.
        device: where the model computes.
    """

    def __init__(
        self,
        model: Captioner,
        vocabulary: Vocabulary,
        image_shape: Sequence[int],
        corpus: CaptionCorpus,
        search: Search,
        device: str,
    ) -> None:
        self.model, self.vocabulary, self.corpus, self.search = model.to(device).eval(), vocabulary, corpus, search
        self.image_shape, self.device = tuple(image_shape), torch.device(device)

    def caption(self, images: Tensor | np.ndarray, beam_size: int | None = None) -> list[str]:
        """Returns the best caption of every image.

        Args:
            images: (N, C, H, W), uint8 or float in [0, 1].
            beam_size: overrides the beam size of the run.

        Raises:
            InputError: if the images have another shape, dtype or range.
        """
        return [captions[0] for captions in self.n_best(images, 1, beam_size)]

    def n_best(self, images: Tensor | np.ndarray, count: int, beam_size: int | None = None) -> list[list[str]]:
        """Returns the ``count`` best captions of every image, or fewer, best first; see :meth:`caption`."""
        size = max(count, self.search.beam_size) if beam_size is None else beam_size
        generated = generate(self.model, self.vocabulary, self._parse(images), self.search, size, count)
        return [list(dict.fromkeys(map(self.corpus.detokenize, captions))) for captions in generated]

    @torch.no_grad()
    def sample(
        self,
        images: Tensor | np.ndarray,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """Samples one caption of every image.

        Args:
            images: see :meth:`caption`.
            temperature: divides the logits; see :func:`ram.sequence.search.truncated_probabilities`.
            top_k: sample from the k most likely words only; None for all words.
            top_p: sample from the most likely words whose total probability reaches this share.
            seed: of the samples.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        prefix, memory = self.model.start_decoding(to_float(self._parse(images)))
        limit = max_caption_length(self.model, self.search)
        sampled = sample(self.model, prefix, limit, memory, temperature, top_k, top_p, generator)
        return [self.corpus.detokenize(self.vocabulary.decode(token_ids)) for token_ids in sampled]

    @torch.no_grad()
    def caption_with_weights(self, images: Tensor | np.ndarray) -> tuple[list[Tokens], Tensor | None]:
        """Returns the words of the best caption of every image, and the attention weights.

        Args:
            images: see :meth:`caption`.

        Returns:
            N captions, and the weights of every word and of the end symbol, (N, T, rows * columns); None if the model
            has no attention.
        """
        parsed = self._parse(images)
        generated = generate(self.model, self.vocabulary, parsed, self.search, self.search.beam_size)
        captions = [best[0] for best in generated]
        inputs = decoder_inputs(self.model, self.vocabulary, captions, self.device)
        return captions, self.model(to_float(parsed), inputs, need_weights=True).weights

    def tabulate(self, images: Tensor) -> tuple[list[Row], Callable[[int], np.ndarray]]:
        """Captions images, and draws the attention of each word; see :meth:`ram.inference.ImageModel.tabulate`."""
        captions, weights = self.caption_with_weights(images)
        texts = [self.corpus.detokenize(caption) for caption in captions]

        def draw(index: int) -> np.ndarray:
            pixels, grid = to_float(images[index : index + 1]), self.model.image_encoder.grid
            words = torch.ones(1, len(captions[index]), grid[0] * grid[1])  # without attention
            if weights is not None:
                words = weights[index : index + 1].float().cpu()
            return caption_strips(pixels, captions[index : index + 1], words, grid, self.model.sensor)

        return [{"caption": text} for text in texts], draw

    def _parse(self, images: Tensor | np.ndarray) -> Tensor:
        parsed = parse_images("The argument images", images)
        if tuple(parsed.shape[1:]) != self.image_shape or not len(parsed):
            raise InputError(
                f"Images must be (N, {', '.join(map(str, self.image_shape))}) with N of at least 1, got "
                f"{tuple(parsed.shape)}."
            )
        return parsed.to(self.device)


@torch.no_grad()
def generate(
    model: Captioner, vocabulary: Vocabulary, images: Tensor, search: Search, beam_size: int, n_best: int = 1
) -> list[list[Tokens]]:
    """Generates the ``n_best`` captions of every image (N, C, H, W) by beam search, best first."""
    captions: list[list[Tokens]] = []
    limit = max_caption_length(model, search)
    for batch in images.split(EVALUATION_BATCH_SIZE):
        prefix, memory = model.start_decoding(to_float(batch))
        found = beam_search(model, prefix, limit, memory, beam_size, search.length_penalty, n_best)
        captions += [[tuple(vocabulary.decode(each.token_ids)) for each in hypotheses] for hypotheses in found]
    return captions


def max_caption_length(model: Captioner, search: Search) -> int:
    """Returns the largest number of generated tokens: ``search.max_length`` or 40, within the model's positions."""
    limit = search.max_length or _MAX_LENGTH
    return min(limit, model.max_length or limit)


def decoder_inputs(
    model: Captioner, vocabulary: Vocabulary, captions: Sequence[Tokens], device: torch.device
) -> Tensor:
    """Returns the start symbol and the token ids of captions, (B, T) int64, as many as the model has positions."""
    token_ids = [vocabulary.encode(caption) for caption in captions]
    return teacher_forcing_batch(token_ids, device)[0][:, : model.max_length]


def to_float(images: Tensor) -> Tensor:
    """Returns uint8 images as float in [0, 1], and float images unchanged."""
    return images.float() / 255 if images.dtype == torch.uint8 else images
