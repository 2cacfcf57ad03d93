"""Image encoders: they map an image to a grid of feature vectors, the keys and values of attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_integer, check_positive_integers, check_probability, parse_sizes
from ram.attention.positions import SinusoidalPositions
from ram.initialization import InputScale, initialize_relu
from ram.networks import convolution_blocks
from ram.sequence.interfaces import Encoder, IdentityEncoder
from ram.sequence.transformer import TransformerEncoder


class ImageEncoder(nn.Module):
    """Base class of image encoders.

    Args:
        image_shape: (C, H, W).

    Attributes:
        grid: (rows, columns); a cell is at the position of its part of the image.
        output_size: size D of a feature vector.
    """

    grid: tuple[int, int]
    output_size: int

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Updates the schedules to the given share of the training budget, in [0, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        """Encodes images (B, C, H, W) in [0, 1] as (B, rows * columns, D), row by row."""
        raise NotImplementedError(f"{type(self).__name__} does not implement forward.")


class Convolutional(ImageEncoder):
    """Blocks of two convolutions, 4 x 4 with stride 2 and 3 x 3, and learned position embeddings.

    Args:
        image_shape: (C, H, W), H and W at least 2**len(widths). Where H and W are no multiples of it, the cells are
            centered on the parts of an equal grid at the top left, and up to half a cell beside them at the bottom
            right.
        widths: channels of every block; see :func:`ram.networks.convolution_blocks`.
        dropout: of whole channels, after every block.
        encoder: builds the sequence encoder of the cells from their size, such as self-attention.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        widths: Sequence[int] = (32, 64, 128),
        dropout: float = 0.0,
        encoder: Callable[[int], Encoder] = IdentityEncoder,
    ) -> None:
        super().__init__(image_shape)
        check_probability("image_encoder.dropout", dropout)
        widths = parse_sizes("image_encoder.widths", widths)
        channels, *sides = image_shape
        factor = 2 ** len(widths)
        if min(sides) < factor:
            raise InputError(
                f"image_encoder.widths={list(widths)} needs images of at least {factor} x {factor} pixels, got {sides}."
            )
        self.layers = convolution_blocks(channels, widths, dropout)
        self.grid = sides[0] // factor, sides[1] // factor
        self.positions = _position_embeddings(self.grid, widths[-1])
        self.encoder = encoder(widths[-1])
        self.output_size = self.encoder.output_size

    def forward(self, images: Tensor) -> Tensor:
        return _encode_cells(self.encoder, self.layers(images).flatten(2).mT + self.positions)


class FullyConnected(ImageEncoder):
    """Fully connected ReLU layers over the whole image, which is a single cell; optionally after one convolution.

    With one convolution it is the convolutional network that Mnih et al. (2014), section 4.1, compare with.

    Args:
        image_shape: (C, H, W).
        sizes: widths of the layers, at least one.
        num_filters: of the convolution, which has no padding; 0 for no convolution.
        filter_size: height and width of a filter in pixels.
        stride: of the convolution, in pixels.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        sizes: Sequence[int] = (256, 256),
        num_filters: int = 0,
        filter_size: int = 10,
        stride: int = 5,
    ) -> None:
        super().__init__(image_shape)
        check_integer("image_encoder.num_filters", num_filters, 0)
        check_positive_integers("image_encoder", filter_size=filter_size, stride=stride)
        sizes = parse_sizes("image_encoder.sizes", sizes)
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        if num_filters:
            if filter_size > min(height, width):
                raise InputError(
                    f"image_encoder.filter_size={filter_size} is larger than the images of {height} x {width} pixels."
                )
            layers += [nn.Conv2d(channels, num_filters, filter_size, stride), nn.ReLU()]
            height, width = ((side - filter_size) // stride + 1 for side in (height, width))
            channels = num_filters
        layers.append(nn.Flatten())
        for inputs, outputs in pairwise([channels * height * width, *sizes]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        initialize_relu(*(layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d)))
        self.input_scale = InputScale()
        self.layers = nn.Sequential(*layers)
        self.grid, self.output_size = (1, 1), sizes[-1]

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(self.input_scale(images))[:, None]


class Patches(ImageEncoder):
    """Embeddings of adjacent square patches with self-attention (ViT, Dosovitskiy et al. 2021).

    Args:
        image_shape: (C, H, W), H and W multiples of ``patch_size``.
        patch_size: side of a patch in pixels.
        size: size of a patch embedding.
        encoder: builds the sequence encoder of the patches from their size.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: int = 8,
        size: int = 128,
        encoder: Callable[[int], Encoder] = TransformerEncoder,
    ) -> None:
        super().__init__(image_shape)
        check_positive_integers("image_encoder", patch_size=patch_size, size=size)
        channels, *sides = image_shape
        if any(side % patch_size for side in sides):
            raise InputError(
                f"image_encoder.patch_size={patch_size} must divide the height and width {sides} of the images."
            )
        self.grid = sides[0] // patch_size, sides[1] // patch_size
        self.patches = nn.Conv2d(channels, size, patch_size, patch_size)
        self.positions = _position_embeddings(self.grid, size)
        self.encoder = encoder(size)
        self.output_size = self.encoder.output_size

    def forward(self, images: Tensor) -> Tensor:
        return _encode_cells(self.encoder, self.patches(images).flatten(2).mT + self.positions)


class Backbone(ImageEncoder):
    """A network of torchvision up to one of its layers, with random or pretrained weights.

    Args:
        image_shape: (C, H, W); a single channel is repeated three times.
        name: name of the network, such as "resnet18".
        layer: the layer whose output is the grid.
        weights: "DEFAULT" downloads torchvision's best weights; None trains from scratch.
        trained_from: share of the training budget after which the network is trained, in [0, 1]; 1 keeps it frozen.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        name: str = "resnet18",
        layer: str = "layer4",
        weights: str | None = None,
        trained_from: float = 0.0,
    ) -> None:
        super().__init__(image_shape)
        from torchvision.models import get_model  # slow to import, and needed only here
        from torchvision.models.feature_extraction import create_feature_extractor

        if not 0 <= trained_from <= 1:
            raise InputError(f"image_encoder.trained_from must be in [0, 1], got {trained_from}.")
        try:
            network = get_model(name, weights=weights)
        except (ValueError, KeyError) as error:
            reason = f"there are no weights {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"image_encoder.name={name}, image_encoder.weights={weights}: {reason}.") from error
        except OSError as error:
            raise InputError(
                f"The weights of image_encoder.name={name} cannot be downloaded ({error}): set "
                "image_encoder.weights=null, or copy the file to torch's checkpoint folder."
            ) from error
        self.layer, self.trained_from, self.is_trained = layer, trained_from, trained_from == 0
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1), persistent=False)
        try:
            self.network = create_feature_extractor(network, [layer])
            with torch.no_grad():
                shape = self.network.eval()(torch.zeros(1, 3, *image_shape[1:]))[layer].shape
        except ValueError as error:
            raise InputError(f"image_encoder.layer={layer} is not a layer of {name}.") from error
        except (RuntimeError, AssertionError) as error:  # too small for its layers, or not of its fixed size
            height, width = image_shape[1:]
            raise InputError(
                f"image_encoder.name={name} does not accept images of {height} x {width} pixels."
            ) from error
        if len(shape) != 4:
            raise InputError(
                f"image_encoder.layer={layer} of {name} returns shape {tuple(shape[1:])}: choose a layer that returns "
                "(channels, rows, columns)."
            )
        self.output_size, self.grid = shape[1], (shape[2], shape[3])

    def anneal(self, progress: float) -> None:
        self.is_trained = progress >= self.trained_from
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        self.network.train(mode and self.is_trained)  # a frozen network keeps its batch statistics
        return self

    def forward(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.is_trained):
            grid = self.network((images.expand(-1, 3, -1, -1) - self.mean) / self.std)[self.layer]
        return grid.flatten(2).mT


class Pixels(ImageEncoder):
    """The image itself: every cell is a pixel. For decoders with a glimpse sensor.

    Args:
        image_shape: (C, H, W).
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__(image_shape)
        self.output_size, *sides = image_shape
        self.grid = sides[0], sides[1]

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).mT


def _encode_cells(encoder: Encoder, cells: Tensor) -> Tensor:
    """Applies a sequence encoder to all cells, (B, N, D)."""
    encoded = encoder(cells, torch.full((len(cells),), cells.shape[1], device=cells.device))
    if encoded.log_prob is not None:
        raise InputError(
            "image_encoder.encoder.select must be soft: hard attention in an image encoder is not trained."
        )
    return encoded.output


def _position_embeddings(grid: tuple[int, int], size: int) -> nn.Parameter:
    """Returns learned position embeddings, initialized to sinusoids of the row (first half) and column (second)."""
    if size % 4:
        raise InputError(
            f"image_encoder.size, or the last of image_encoder.widths, must be a multiple of 4, got {size}."
        )
    sinusoids = SinusoidalPositions(size // 2)
    row, column = (sinusoids(torch.zeros(1, count, size // 2))[0] for count in grid)
    shape = *grid, size // 2
    return nn.Parameter(torch.cat([row[:, None].expand(shape), column[None].expand(shape)], dim=-1).flatten(0, 1))
