"""The captioner: an image encoder and a decoder that attends to its grid, or looks through a glimpse sensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.sensor import GlimpseSensor, Sensor, pixel_coordinates
from envs.validation import check_factory
from ram.attention import AttentionOutput
from ram.corpora.vocabulary import START
from ram.image_encoders import ImageEncoder, Pixels
from ram.networks import GlimpseNetwork
from ram.policies import LocationNetwork
from ram.sequence.autoregressive import DecoderModel
from ram.sequence.context import ContextModule
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import Decoder, DecoderSizes, Memory, ModelOutput


class Captioner(DecoderModel):
    """Generates the caption of an image (Xu et al. 2015).

    Args:
        vocabulary_size: number of tokens, K.
        image_shape: (C, H, W).
        embedding: builds the token embedding from the vocabulary size.
        image_encoder: builds the image encoder from the image shape.
        decoder: builds the decoder; its source is the encoder's grid, its summary the mean of the grid.
        dropout: of the decoder's output.
        tie_embeddings: use the token embeddings as output weights (Press and Wolf 2017); both need the same size.
    """

    def __init__(
        self,
        vocabulary_size: int,
        image_shape: tuple[int, int, int],
        embedding: Callable[[int], TokenEmbedding],
        image_encoder: Callable[[tuple[int, int, int]], ImageEncoder],
        decoder: Callable[[DecoderSizes], Decoder],
        dropout: float = 0.0,
        tie_embeddings: bool = False,
    ) -> None:
        check_factory("image_encoder", image_encoder, ImageEncoder, "conf/image_encoder, such as convolutional")
        tokens, encoder = embedding(vocabulary_size), image_encoder(image_shape)
        size = encoder.output_size
        sizes = DecoderSizes(tokens.size, size, size, size, encoder.grid)
        super().__init__(tokens, decoder(sizes), vocabulary_size, dropout, tie_embeddings)
        self.image_encoder = encoder
        if self.sensor is not None and not isinstance(encoder, Pixels):
            raise InputError("decoder=glimpse needs the pixels of the image: set image_encoder=pixels.")
        cells, limit = encoder.grid[0] * encoder.grid[1], self.decoder.max_source_length
        if limit is not None and cells > limit:
            raise InputError(
                f"The decoder attends to at most {limit} positions, and the grid of image_encoder has {cells}: raise "
                "decoder.context.score.max_length."
            )

    @property
    def sensor(self) -> Sensor | None:
        """The glimpse sensor of a decoder that looks at the image; None if it attends to a grid."""
        return next((context.sensor for context in self._glimpse_contexts()), None)

    @property
    def patch_features(self) -> int:
        """The width of h_g of a decoder that looks at the image; 0 if it attends to a grid."""
        return next((context.glimpse.patch_features for context in self._glimpse_contexts()), 0)

    def forward(self, images: Tensor, inputs: Tensor, need_weights: bool = False) -> ModelOutput:
        """Computes the logits of the next token after every prefix of given captions (teacher forcing).

        Args:
            images: (B, C, H, W), in [0, 1].
            inputs: (B, T) int64, the start symbol and the caption; arbitrary after its end.
            need_weights: return the attention weights, even if a faster implementation exists without them.
        """
        return self.decode(inputs, self.encode(images), need_weights=need_weights)

    def start_decoding(self, images: Tensor) -> tuple[Tensor, Memory]:
        """Returns the prefix of every caption, (B, 1), and the memory of the images (B, C, H, W)."""
        return torch.full((len(images), 1), START, device=images.device), self.encode(images)

    def anneal(self, progress: float) -> None:
        """Updates the schedules to the given share of the training budget, in [0, 1]."""
        self.image_encoder.anneal(progress)
        for context in self._glimpse_contexts():
            context.location.anneal(progress)

    def encode(self, images: Tensor) -> Memory:
        """Encodes images (B, C, H, W) in [0, 1] for the decoder."""
        grid = self.image_encoder(images)
        lengths = torch.full((len(images),), grid.shape[1], device=images.device)
        return self.decoder.prepare(Memory(grid, grid, lengths, grid.mean(1)))

    def _glimpse_contexts(self) -> Iterator[GlimpseContext]:
        return (module for module in self.modules() if isinstance(module, GlimpseContext))


class GlimpseContext(ContextModule):
    """Looks at the image once per token, through a glimpse sensor at a location chosen from the decoder's state.

    The source is the image, pixel by pixel; the decoder has no access to it but through the glimpses (Mnih et al.
    2014). In training the location is sampled and its log-probability returned for REINFORCE; in evaluation it is the
    mode of the policy. A policy without a mode draws the same locations for every image then.

    Args:
        query_size: size of the decoder's state.
        sizes: sizes of the memory, with the grid.
        sensor: the glimpse sensor.
        glimpse: builds the glimpse network from the patch shape and the number of goal classes, 0.
        policy: builds the location network from the query size.
    """

    def __init__(
        self,
        query_size: int,
        sizes: DecoderSizes,
        sensor: Sensor | None = None,
        glimpse: Callable[..., GlimpseNetwork] = GlimpseNetwork,
        policy: Callable[[int], LocationNetwork] = LocationNetwork,
    ) -> None:
        super().__init__(query_size, sizes)
        if sizes.grid is None:
            raise InputError("decoder=glimpse needs an image as its source: set image_encoder=pixels.")
        self.grid, self.sensor = sizes.grid, sensor or GlimpseSensor()
        self.glimpse = glimpse(self.sensor.patch_shape(sizes.vectors), 0)
        self.location = policy(query_size)
        self.context_size = self.glimpse.output_size

    def prepare(self, memory: Memory) -> Tensor:
        """Returns the images: (B, C, rows, columns)."""
        return memory.vectors.mT.unflatten(2, self.grid).contiguous()

    def forward(self, query: Tensor, memory: Memory, step: Tensor) -> AttentionOutput:
        """Returns the vector g of one glimpse per query (B, 1, context_size), and its patch features.

        The weights (B, 1, rows * columns) are 1 at the pixel nearest to the location and 0 elsewhere.
        """
        if query.shape[1] != 1:
            raise InputError("decoder=glimpse looks once per token: set decoder.attend=before.")
        distribution = self.location(query[:, 0], step[0])
        if self.training:
            location = distribution.sample(torch.randn(len(query), 2, device=query.device))
        else:  # noise that depends on the step alone: decoding the same caption again repeats its locations
            generator = torch.Generator().manual_seed(int(step[0]))
            noise = torch.randn(1, 2, generator=generator).to(query.device)
            location = distribution.mode(noise.expand(len(query), 2))
        clamped = location.clamp(-1, 1)
        glimpse, patch_features = self.glimpse(self.sensor(memory.prepared, clamped), clamped)
        rows, columns = self.grid
        row, column = pixel_coordinates(clamped, rows, columns).round().long().unbind(1)
        weights = F.one_hot(row * columns + column, rows * columns).to(glimpse.dtype)
        log_prob = distribution.log_prob(location)
        return AttentionOutput(glimpse[:, None], weights[:, None], log_prob[:, None], patch_features[:, None])
