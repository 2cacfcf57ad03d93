"""Image encoders: of an image they make a grid of vectors, which attention reads as keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive_integers, check_probability
from ram.attention.positions import SinusoidalPositions
from ram.sequence import encoders


class ImageEncoder(nn.Module):
    """Makes a grid of vectors, row after row.

    Args:
        image_shape: (C, H, W).

    Attributes:
        grid: its rows and columns; a cell is that part of the image which lies at its place.
        output_size: width D of a vector.
    """

    grid: tuple[int, int]
    output_size: int

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()

    def anneal(self, progress: float) -> None:
        """Sets what is scheduled when a share of the budget, in [0, 1], is spent."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) in [0, 1] -> (B, rows * columns, D)."""
        raise TypeError(f"{type(self).__name__} does not say how it sees.")


class Convolutional(ImageEncoder):
    """Blocks of two convolutions, 4 x 4 to halve the sides and 3 x 3, and a learned vector for every place.

    What a place sees lies evenly around its cell: with 3 x 3 to halve them it would lie around the cell's corner, and
    attention that has found something small would stand beside it.

    Args:
        image_shape: (C, H, W), H and W multiples of 2 to the number of blocks.
        widths: channels of every block.
        dropout: share of the channels that is dropped after every block in training.
        encoder: builds what lets the places read in one another, from their width.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        widths: Sequence[int] = (32, 64, 128),
        dropout: float = 0.0,
        encoder: Callable[[int], encoders.Encoder] = encoders.IdentityEncoder,
    ) -> None:
        super().__init__(image_shape)
        check_probability("encoder.dropout", dropout)
        channels, *sides = image_shape
        side = 2 ** len(widths)
        if not widths or min(widths) < 1 or any(each % side for each in sides):
            raise InputError(
                f"encoder.widths={list(widths)} halves images {len(widths)} times, whose sides {sides} must be "
                f"multiples of {side}."
            )
        layers: list[nn.Module] = []
        for width in widths:
            for inputs, kernel, stride in ((channels, 4, 2), (width, 3, 1)):
                layers.append(nn.Conv2d(inputs, width, kernel, stride, padding=1, bias=False))
                layers += [nn.BatchNorm2d(width), nn.ReLU()]
            layers.append(nn.Dropout2d(dropout))
            channels = width
        self.layers = nn.Sequential(*layers)
        self.grid = sides[0] // side, sides[1] // side
        self.places = _places(self.grid, channels)
        self.encoder = encoder(channels)
        self.output_size = self.encoder.output_size

    def forward(self, images: Tensor) -> Tensor:
        return _encoded(self.encoder, self.layers(images).flatten(2).mT + self.places)


class Patches(ImageEncoder):
    """Square patches side by side, each mapped to a vector, that attend to one another (Dosovitskiy et al. 2021).

    Args:
        image_shape: (C, H, W), H and W multiples of ``patch_size``.
        patch_size: pixels a side.
        size: width D of a vector.
        encoder: builds what lets the patches read in one another, from their width.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: int = 8,
        size: int = 128,
        encoder: Callable[[int], encoders.Encoder] = encoders.TransformerEncoder,
    ) -> None:
        super().__init__(image_shape)
        check_positive_integers("encoder", patch_size=patch_size, size=size)
        channels, *sides = image_shape
        if any(side % patch_size for side in sides):
            raise InputError(f"encoder.patch_size={patch_size} must divide the sides {sides} of the images.")
        self.grid = sides[0] // patch_size, sides[1] // patch_size
        self.patches = nn.Conv2d(channels, size, patch_size, patch_size)
        self.places = _places(self.grid, size)
        self.encoder = encoder(size)
        self.output_size = self.encoder.output_size

    def forward(self, images: Tensor) -> Tensor:
        return _encoded(self.encoder, self.patches(images).flatten(2).mT + self.places)


class Backbone(ImageEncoder):
    """A network of torchvision up to one of its layers, perhaps with weights learned on ImageNet.

    Args:
        image_shape: (C, H, W); grey is repeated as red, green and blue.
        name: of the network, such as "resnet18".
        layer: whose output is the grid.
        weights: "DEFAULT" downloads torchvision's best; None trains from scratch.
        trained_from: share of the budget after which the network is trained too, in [0, 1]; 1 keeps it as it is.
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
            raise InputError(f"encoder.trained_from must be in [0, 1], got {trained_from}.")
        try:
            network = get_model(name, weights=weights)
        except (ValueError, KeyError) as error:
            told = f"no weights {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"encoder.name={name}, encoder.weights={weights}: {told}.") from error
        except OSError as error:
            raise InputError(
                f"The weights of encoder.name={name} cannot be downloaded ({error}): set encoder.weights=null, or put "
                "the file into torch's folder of checkpoints."
            ) from error
        self.layer, self.trained_from, self.is_trained = layer, trained_from, trained_from == 0
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1), persistent=False)
        try:
            self.network = create_feature_extractor(network, [layer])
            with torch.no_grad():
                shape = self.network.eval()(torch.zeros(1, 3, *image_shape[1:]))[layer].shape
        except ValueError as error:
            raise InputError(f"encoder.layer={layer} is no layer of {name}.") from error
        except (RuntimeError, AssertionError) as error:  # too small for its layers, or not of the size it insists on
            height, width = image_shape[1:]
            raise InputError(f"encoder.name={name} cannot see images of {height} x {width} pixels.") from error
        if len(shape) != 4:
            raise InputError(f"encoder.layer={layer} of {name} tells {tuple(shape[1:])}, which is no grid of vectors.")
        self.output_size, self.grid = shape[1], (shape[2], shape[3])

    def anneal(self, progress: float) -> None:
        self.is_trained = progress >= self.trained_from
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        self.network.train(mode and self.is_trained)  # else the statistics of its batches would change
        return self

    def forward(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.is_trained):
            grid = self.network((images.expand(-1, 3, -1, -1) - self.mean) / self.std)[self.layer]
        return grid.flatten(2).mT


class Pixels(ImageEncoder):
    """The image itself: a cell is a pixel. For what looks at it through a sensor.

    Args:
        image_shape: (C, H, W).
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__(image_shape)
        self.output_size, *sides = image_shape
        self.grid = sides[0], sides[1]

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).mT


def _encoded(encoder: encoders.Encoder, grid: Tensor) -> Tensor:
    """What an encoder of sequences makes of all places, (B, N, D), which all count."""
    encoded = encoder(grid, torch.full((len(grid),), grid.shape[1], device=grid.device))
    if encoded.log_prob is not None:
        raise InputError(
            "encoder.encoder.select must be soft: hard choices among the places of an image are not trained."
        )
    return encoded.output


def _places(grid: tuple[int, int], size: int) -> nn.Parameter:
    """Learned vectors of all places, which begin as sinusoids of the row, one half, and of the column, the other."""
    if size % 4:
        raise InputError(f"encoder.size, or the last of encoder.widths, must be a multiple of 4, got {size}.")
    code = SinusoidalPositions(size // 2)
    row, column = (code(torch.zeros(1, count, size // 2))[0] for count in grid)
    shape = *grid, size // 2
    together = torch.cat([row[:, None].expand(shape), column[None].expand(shape)], dim=-1)
    return nn.Parameter(together.flatten(0, 1))
