"""The captioner: an image encoder, and a decoder that reads in the image at every word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.sensor import GlimpseSensor, PreparedImages, Sensor, pixel
from envs.validation import check_factory
from ram.attention import AttentionOutput
from ram.captioning.image_encoders import ImageEncoder, Pixels
from ram.corpora.vocabulary import START
from ram.networks import GlimpseNetwork, LocationNetwork
from ram.sequence.autoregressive import DecoderModel
from ram.sequence.classifiers import ModelOutput, TokenEmbedding
from ram.sequence.decoders import ContextModule, Decoder, DecoderSizes, Memory


class Captioner(DecoderModel):
    """Says what an image shows (Xu et al. 2015).

    Args:
        vocabulary_size: how many words there are, K.
        image_shape: (C, H, W).
        embedding: builds the vectors of words from their number.
        encoder: builds what sees the image, from its shape.
        decoder: builds what speaks; its source is the encoder's grid, the summary its mean.
        dropout: share of what the decoder says that is dropped in training.
        tied: the vectors of the words are the weights of the answer too; needs one width.
    """

    def __init__(
        self,
        vocabulary_size: int,
        image_shape: tuple[int, int, int],
        embedding: Callable[[int], TokenEmbedding],
        encoder: Callable[[tuple[int, int, int]], ImageEncoder],
        decoder: Callable[[DecoderSizes], Decoder],
        dropout: float = 0.0,
        tie_embeddings: bool = False,
    ) -> None:
        check_factory("encoder", encoder, ImageEncoder, "images, such as encoder=convolutional")
        vectors, seen_by = embedding(vocabulary_size), encoder(image_shape)
        width = seen_by.output_size
        widths = DecoderSizes(vectors.size, width, width, width, seen_by.grid)
        super().__init__(vectors, decoder(widths), vocabulary_size, dropout, tie_embeddings)
        self.encoder = seen_by
        if self.sensor is not None and not isinstance(seen_by, Pixels):
            raise InputError("decoder=glimpse looks at the image itself, pixel by pixel: set encoder=pixels.")
        places = seen_by.grid[0] * seen_by.grid[1]
        if self.decoder.max_source_length is not None and places > self.decoder.max_source_length:
            raise InputError(
                f"The decoder reads at most {self.decoder.max_source_length} places, and the image encoder tells {places}."
            )

    @property
    def sensor(self) -> Sensor | None:
        """What it looks through, where it sees no more than glimpses."""
        return next((glimpse.sensor for glimpse in self._glimpses()), None)

    def forward(self, images: Tensor, inputs: Tensor, need_weights: bool = False) -> ModelOutput:
        """What comes after every word of a caption, the words before it being known.

        Args:
            images: (B, C, H, W), in [0, 1].
            inputs: (B, T) int64, the start symbol and the caption; anything after its end.
            need_weights: tell the weights, where a faster way could do without.
        """
        return self.decode(inputs, self.see(images), need_weights=need_weights)

    def begin(self, images: Tensor) -> tuple[Tensor, Memory]:
        """What stands before the first word, (B, 1), and what to read while going on."""
        return torch.full((len(images), 1), START, device=images.device), self.see(images)

    def anneal(self, progress: float) -> None:
        """Sets what is scheduled when a share of the budget, in [0, 1], is spent."""
        self.encoder.anneal(progress)
        for glimpse in self._glimpses():
            glimpse.location.anneal(progress)

    def _glimpses(self) -> Iterator[GlimpseContext]:
        return (module for module in self.modules() if isinstance(module, GlimpseContext))

    def see(self, images: Tensor) -> Memory:
        """(B, C, H, W), in [0, 1] -> what the decoder reads in."""
        grid = self.encoder(images)
        lengths = torch.full((len(images),), grid.shape[1], device=images.device)
        return self.decoder.prepare(Memory(grid, grid, lengths, grid.mean(1)))


class GlimpseContext(ContextModule):
    """Looks at the image through a glimpse sensor, where the state it is asked from would look (Mnih et al. 2014).

    The source is the image pixel by pixel; nothing of it is known but what the looks so far have shown. The place is
    sampled in training, to be trained by REINFORCE through its log-probability, and the policy's mean in evaluation. A
    policy that has no mean takes the same random places for every image then.

    Args:
        query_size: width of the decoder's state.
        widths: of what is in the memory, with its rows and columns.
        sensor: what looks.
        glimpse: builds the glimpse network from the shape of a look.
        policy: builds the location network from the state's width.
    """

    def __init__(
        self,
        query_size: int,
        widths: DecoderSizes,
        sensor: Sensor | None = None,
        glimpse: Callable[..., GlimpseNetwork] = GlimpseNetwork,
        policy: Callable[[int], LocationNetwork] = LocationNetwork,
    ) -> None:
        super().__init__(query_size, widths)
        if widths.grid is None:
            raise InputError("A glimpse needs a source with rows and columns: an image, as encoder=pixels tells it.")
        self.grid, self.sensor = widths.grid, sensor or GlimpseSensor()
        self.glimpse = glimpse(self.sensor.patch_shape(widths.vectors), 0)
        self.location = policy(query_size)
        self.context_size = self.glimpse.output_size

    def prepare(self, memory: Memory) -> PreparedImages:
        return self.sensor.prepare(memory.vectors.mT.unflatten(2, self.grid))

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        """What is seen by one look a query; the weights are 1 at the pixel nearest to where it was."""
        if query.shape[1] != 1:
            raise InputError("A glimpse is one look a word: set decoder.attend=before.")
        choices = self.location(query[:, 0])
        if self.training:
            location = choices.sample(torch.randn(len(query), 2, device=query.device))
        else:  # a policy that always draws looks where it did before when a caption is read again
            generator = torch.Generator().manual_seed(int(step[0]))
            noise = torch.randn(1, 2, generator=generator).to(query.device)
            location = choices.mode(noise.expand(len(query), 2))
        seen = location.clamp(-1, 1)
        context = self.glimpse(self.sensor(memory.prepared, seen), seen)
        rows, columns = self.grid
        row, column = pixel(seen, rows, columns).round().long().unbind(1)
        weights = F.one_hot(row * columns + column, rows * columns).to(context.dtype)
        return AttentionOutput(context[:, None], weights[:, None], choices.log_prob(location)[:, None])
