"""Image encoders: shapes, receptive fields, freezing of pretrained networks, and refused options."""

from functools import partial
from typing import Any

import pytest
import torch

from envs import InputError
from ram.attention.selection import Hard
from ram.image_encoders import Backbone, Convolutional, FullyConnected, ImageEncoder, Patches, Pixels
from ram.sequence import transformer

SHAPE = (1, 16, 24)
self_attention = partial(transformer.TransformerEncoder, size=8, num_heads=2, num_layers=1, dropout=0.0)
ENCODERS: dict[str, Any] = {
    "convolutional": partial(Convolutional, widths=(4, 8)),
    "contextual": partial(Convolutional, widths=(4, 8), encoder=self_attention),
    "patches": partial(Patches, patch_size=8, size=8, encoder=self_attention),
    "pixels": Pixels,
}


@pytest.mark.parametrize(
    ("name", "grid", "size"),
    [("convolutional", (4, 6), 8), ("contextual", (4, 6), 8), ("patches", (2, 3), 8), ("pixels", (16, 24), 1)],
)
def test_the_output_shape_is_that_of_the_grid(name: str, grid: tuple[int, int], size: int) -> None:
    encoder = ENCODERS[name](SHAPE)
    assert (encoder.grid, encoder.output_size) == (grid, size)
    assert encoder(torch.rand(3, *SHAPE)).shape == (3, grid[0] * grid[1], size)


def test_a_convolutional_encoder_sees_every_pixel_of_odd_images() -> None:
    torch.manual_seed(0)
    encoder = Convolutional((1, 21, 27), widths=(4, 4, 8)).eval()
    assert encoder.grid == (2, 3)
    image = torch.rand(1, 1, 21, 27, requires_grad=True)
    encoder(image).square().sum().backward()
    assert image.grad is not None and image.grad.count_nonzero() > 0.95 * image.numel()
    assert image.grad[0, 0, -1].any() and image.grad[0, 0, :, -1].any()


def test_the_network_of_the_paper_equals_its_formula() -> None:
    torch.manual_seed(0)
    encoder = FullyConnected((2, 9, 14), sizes=(6, 3), num_filters=4, filter_size=4, stride=5)
    images = torch.rand(5, 2, 9, 14)
    encoder.input_scale.fit(images)
    convolution, first, second = (layer for layer in encoder.layers if hasattr(layer, "weight"))
    scaled = images / images.square().mean().sqrt()
    windows = [
        scaled[:, :, 5 * row : 5 * row + 4, 5 * column : 5 * column + 4] for row in (0, 1) for column in (0, 1, 2)
    ]
    seen = torch.stack([(each[:, None] * convolution.weight).sum((2, 3, 4)) + convolution.bias for each in windows], -1)
    hidden = first(seen.clamp(min=0).flatten(1)).clamp(min=0)
    assert (encoder.grid, encoder.output_size) == ((1, 1), 3)
    torch.testing.assert_close(encoder(images), second(hidden).clamp(min=0)[:, None])


def test_a_backbone_is_frozen_until_trained_from() -> None:
    encoder = Backbone((1, 32, 64), "resnet18", "layer2", trained_from=0.5)
    assert (encoder.grid, encoder.output_size) == ((4, 8), 128)
    encoder.train().anneal(0.4)
    image = torch.rand(2, 1, 32, 64)
    frozen = encoder(image)
    assert frozen.shape == (2, 32, 128) and not frozen.requires_grad and not encoder.network.training
    assert torch.equal(encoder(image), frozen)
    encoder.anneal(0.5)
    assert encoder.network.training and encoder(image).requires_grad
    encoder.eval()
    assert not encoder.network.training
    encoder.train()
    assert encoder.network.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet5"}, r"^image_encoder\.name=resnet5, image_encoder\.weights=None: "),
        ({"weights": "BEST"}, r"^image_encoder\.name=resnet18, image_encoder\.weights=BEST: "),
        ({"layer": "layer9"}, r"^image_encoder\.layer=layer9 is not a layer of resnet18\.$"),
        ({"layer": "fc"}, r"^image_encoder\.layer=fc of resnet18 returns shape \(1000,\): choose a layer"),
        (
            {"name": "vit_b_16", "layer": "encoder"},
            r"^image_encoder\.name=vit_b_16 does not accept images of 32 x 32 pixels\.$",
        ),
        ({"trained_from": 2.0}, r"^image_encoder\.trained_from must be in \[0, 1\], got 2\.0\.$"),
    ],
)
def test_invalid_backbones_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Backbone((3, 32, 32), **options)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_cell_encodes_its_part_of_the_image(name: str) -> None:
    """A change of the lower right corner changes the last cell, and distant cells only through self-attention."""
    torch.manual_seed(0)
    encoder = ENCODERS[name]((1, 24, 32)).eval()
    image = torch.rand(1, 1, 24, 32)
    other = image.clone()
    other[..., -4:, -4:] = 1 - other[..., -4:, -4:]
    changed = (encoder(image) - encoder(other)).abs().amax(-1)[0].view(encoder.grid) > 1e-9
    assert changed[-1, -1]
    distant = torch.cat([changed[0], changed[:, 0]])
    assert distant.all() if name in ("contextual", "patches") else not distant.any()


@pytest.mark.parametrize(("widths", "size"), [((4,), 8), ((4, 8), 22), ((4, 4, 8), 50)])
def test_the_receptive_field_is_centered_on_the_cell(widths: tuple[int, ...], size: int) -> None:
    """A block of 4 x 4 and 3 x 3 kernels widens a receptive field of w pixels, cells of c, to w + 3c + 2 * 2c."""
    torch.manual_seed(0)
    encoder = Convolutional((1, 64, 128), widths).eval()
    image = torch.rand(4, 1, 64, 128, requires_grad=True)
    cell, (rows, columns) = 2 ** len(widths), encoder.grid
    index = rows // 2 * columns + columns // 2
    (gradient,) = torch.autograd.grad(encoder(image)[:, index].square().sum(), image)
    field = gradient[:, 0].abs().amax(0) > 0
    border = (size - cell) // 2
    for pixels, start in ((field.any(1), rows // 2 * cell), (field.any(0), columns // 2 * cell)):
        assert pixels.nonzero()[[0, -1], 0].tolist() == [start - border, start + cell + border - 1]


def test_position_embeddings_start_as_sinusoids_of_row_and_column() -> None:
    positions = Convolutional((1, 32, 48), widths=(4, 8)).positions.unflatten(0, (8, 12))
    rows, columns = positions.chunk(2, dim=-1)
    assert torch.equal(rows, rows[:, :1].expand_as(rows)) and not torch.equal(rows[0], rows[1])
    assert torch.equal(columns, columns[:1].expand_as(columns)) and not torch.equal(columns[:, 0], columns[:, 1])
    assert torch.equal(rows[:, 0], columns[0, :8])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Convolutional((1, 7, 24), widths=(4, 4, 4)),
            r"^image_encoder\.widths=\[4, 4, 4\] needs images of at least 8 x 8 pixels, got \[7, 24\]\.$",
        ),
        (
            lambda: FullyConnected(SHAPE, sizes=()),
            r"^image_encoder\.sizes must be a list of positive integers, got \[\]",
        ),
        (
            lambda: FullyConnected(SHAPE, sizes=256),
            r"^image_encoder\.sizes must be a list of positive integers, got 256",
        ),
        (lambda: FullyConnected(SHAPE, num_filters=-1), r"^image_encoder\.num_filters"),
        (lambda: FullyConnected(SHAPE, num_filters=2, stride=0), r"^image_encoder\.stride"),
        (
            lambda: FullyConnected(SHAPE, num_filters=2, filter_size=17),
            r"^image_encoder\.filter_size=17 is larger than the images of 16 x 24 pixels\.$",
        ),
        (
            lambda: Convolutional(SHAPE, widths=()),
            r"^image_encoder\.widths must be a list of positive integers, got \[\]",
        ),
        (lambda: Convolutional(SHAPE, widths=(4, 6)), r"last of image_encoder\.widths, must be a multiple of 4, got 6"),
        (lambda: Convolutional(SHAPE, dropout=1.0), r"^image_encoder\.dropout must be in \[0, 1\), got 1\.0\.$"),
        (
            lambda: Convolutional(SHAPE, (4, 8), encoder=partial(self_attention, select=Hard))(torch.rand(2, *SHAPE)),
            r"^image_encoder\.encoder\.select must be soft",
        ),
        (lambda: Patches(SHAPE, patch_size=5), r"^image_encoder\.patch_size=5 must divide .* \[16, 24\]"),
        (lambda: Patches(SHAPE, patch_size=0), r"^image_encoder\.patch_size must be at least 1, got 0\.$"),
    ],
)
def test_invalid_options_are_refused_by_name(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_an_encoder_without_forward_names_its_class() -> None:
    class Incomplete(ImageEncoder):
        pass

    with pytest.raises(NotImplementedError, match="Incomplete does not implement forward"):
        Incomplete(SHAPE)(torch.rand(1, *SHAPE))
