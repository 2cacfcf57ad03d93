"""Captioners: what they see of an image, and that saying it step by step is saying it at once."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from envs.sensor import GlimpseSensor
from ram.attention.scores import Location
from ram.attention.selection import Hard
from ram.captioning.captioner import Captioner, GlimpseContext
from ram.captioning.image_encoders import Backbone, Convolutional, Patches, Pixels
from ram.networks import GlimpseNetwork, LocationNetwork
from ram.sequence import decoders, encoders
from ram.sequence.classifiers import TokenEmbedding
from ram.sequence.decoders import CrossAttention
from ram.sequence.search import beam_search, sample

SHAPE = (1, 16, 24)
small = partial(encoders.TransformerEncoder, size=8, num_heads=2, num_layers=1, dropout=0.0)
looks = partial(
    GlimpseContext,
    sensor=GlimpseSensor(4, 2),
    glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=8),
    policy=partial(LocationNetwork, std=0.3),
)
ENCODERS: dict[str, Any] = {
    "convolutional": partial(Convolutional, widths=(4, 8)),
    "contextual": partial(Convolutional, widths=(4, 8), encoder=small),
    "patches": partial(Patches, patch_size=8, size=8, encoder=small),
    "pixels": Pixels,
}
DECODERS: dict[str, Any] = {
    "luong": partial(decoders.RecurrentDecoder, size=8, bridge="network", context=CrossAttention),
    "gated": partial(
        decoders.RecurrentDecoder, size=8, bridge="none", attend="before", context=partial(CrossAttention, gated=True)
    ),
    "hard": partial(decoders.RecurrentDecoder, size=8, bridge="first", context=partial(CrossAttention, select=Hard)),
    "transformer": partial(decoders.TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0),
    "glimpse": partial(decoders.RecurrentDecoder, size=8, bridge="none", attend="before", context=looks),
}
INPUTS = torch.tensor([[2, 5, 6, 4], [2, 4, 4, 0]])


def build(encoder: str = "convolutional", decoder: str = "luong", **options: Any) -> Captioner:
    torch.manual_seed(0)
    encoder = "pixels" if decoder == "glimpse" else encoder
    return Captioner(7, SHAPE, partial(TokenEmbedding, size=6), ENCODERS[encoder], DECODERS[decoder], **options).eval()


def images(number: int = 2) -> Tensor:
    return torch.rand(number, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "grid", "width"),
    [("convolutional", (4, 6), 8), ("contextual", (4, 6), 8), ("patches", (2, 3), 8), ("pixels", (16, 24), 1)],
)
def test_an_encoder_makes_a_grid(name: str, grid: tuple[int, int], width: int) -> None:
    encoder = ENCODERS[name](SHAPE)
    assert (encoder.grid, encoder.output_size) == (grid, width)
    assert encoder(images(3)).shape == (3, grid[0] * grid[1], width)


def test_a_backbone_is_frozen_until_its_share_of_the_budget_has_come() -> None:
    encoder = Backbone((1, 32, 64), "resnet18", "layer2", trained_from=0.5)
    assert (encoder.grid, encoder.output_size) == ((4, 8), 128)
    encoder.train().anneal(0.4)
    image = torch.rand(2, 1, 32, 64)
    still = encoder(image)
    assert still.shape == (2, 32, 128) and not still.requires_grad and not encoder.network.training
    assert torch.equal(encoder(image), still)
    encoder.anneal(0.5)
    assert encoder.network.training and encoder(image).requires_grad
    encoder.eval()
    assert not encoder.network.training
    encoder.train()
    assert encoder.network.training


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "resnet5"}, r"^encoder\.name=resnet5, encoder\.weights=None: "),
        ({"weights": "BEST"}, r"^encoder\.name=resnet18, encoder\.weights=BEST: "),
        ({"layer": "layer9"}, r"^encoder\.layer=layer9 is no layer of resnet18\.$"),
        ({"layer": "fc"}, r"^encoder\.layer=fc of resnet18 tells \(1000,\), which is no grid of vectors\.$"),
        ({"name": "vit_b_16", "layer": "encoder"}, r"^encoder\.name=vit_b_16 cannot see images of 32 x 32 pixels\.$"),
        ({"trained_from": 2.0}, r"^encoder\.trained_from must be in \[0, 1\], got 2\.0\.$"),
    ],
)
def test_a_wrong_backbone_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Backbone((3, 32, 32), **options)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_cell_stands_where_its_part_of_the_image_does(name: str) -> None:
    """What changes in the right lower corner changes the last cell, and cells far from it by attention alone."""
    torch.manual_seed(0)
    encoder = ENCODERS[name]((1, 24, 32)).eval()
    image = torch.rand(1, 1, 24, 32)
    other = image.clone()
    other[..., -4:, -4:] = 1 - other[..., -4:, -4:]
    changed = (encoder(image) - encoder(other)).abs().amax(-1)[0].view(encoder.grid) > 1e-9
    assert changed[-1, -1]
    far = torch.cat([changed[0], changed[:, 0]])
    assert far.all() if name in ("contextual", "patches") else not far.any()


@pytest.mark.parametrize(("widths", "window"), [((4,), 8), ((4, 8), 22), ((4, 4, 8), 50)])
def test_what_a_cell_sees_lies_evenly_around_it(widths: tuple[int, ...], window: int) -> None:
    """A block of 4 x 4 and 3 x 3 widens a window of w pixels, cells of c, to w + 3c + 2 * 2c."""
    torch.manual_seed(0)
    encoder = Convolutional((1, 64, 128), widths).eval()
    image = torch.rand(4, 1, 64, 128, requires_grad=True)
    cell, (rows, columns) = 2 ** len(widths), encoder.grid
    place = rows // 2 * columns + columns // 2
    (change,) = torch.autograd.grad(encoder(image)[:, place].square().sum(), image)
    seen = change[:, 0].abs().amax(0) > 0
    beside = (window - cell) // 2
    for along, start in ((seen.any(1), rows // 2 * cell), (seen.any(0), columns // 2 * cell)):
        assert along.nonzero()[[0, -1], 0].tolist() == [start - beside, start + cell + beside - 1]


@pytest.mark.parametrize("decoder", DECODERS)
def test_word_by_word_is_all_at_once(decoder: str) -> None:
    model = build(decoder=decoder).double()
    whole = model(images().double(), INPUTS, need_weights=True)
    assert whole.logits.shape == (2, 4, 7)
    _, memory = model.begin(images().double())
    state, each = None, []
    for step in range(4):
        said = model.decode(INPUTS[:, step : step + 1], memory, state, need_weights=True)
        state = said.state
        each.append(said)
    torch.testing.assert_close(torch.cat([said.logits for said in each], dim=1), whole.logits)
    assert whole.weights is not None
    torch.testing.assert_close(torch.cat([said.weights for said in each], dim=1), whole.weights)  # type: ignore[misc]
    assert whole.weights.shape == (2, 4, model.encoder.grid[0] * model.encoder.grid[1])


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_image_is_described_alone_as_among_others(decoder: str) -> None:
    model = build(decoder=decoder).double()
    many = images(3).double()
    prefix, memory = model.begin(many)
    found = beam_search(model, prefix, 5, memory, 3)
    greedy = sample(model, prefix, 5, memory, temperature=0)
    for number in range(3):
        one, its_memory = model.begin(many[number : number + 1])
        assert beam_search(model, one, 5, its_memory, 3)[0][0].words == found[number][0].words
        assert sample(model, one, 5, its_memory, temperature=0)[0] == greedy[number]


def test_a_gate_scales_what_is_read() -> None:
    model = build(decoder="gated").double()
    gate = model.decoder.context.gate
    assert gate is not None
    first = model(images().double(), INPUTS).logits
    gate.weight.data.zero_()
    gate.bias.data.fill_(-100)  # nothing is read
    shut = model(images().double(), INPUTS).logits
    torch.testing.assert_close(shut[0, 0], shut[1, 0])  # of any image
    assert not torch.allclose(first[0, 0], first[1, 0])


def test_a_glimpse_sees_what_is_where_it_looks() -> None:
    model = build(decoder="glimpse")
    context = model.decoder.context
    assert isinstance(context, GlimpseContext)
    for parameter in context.location.parameters():
        parameter.data.zero_()
    context.location.mean[-2].bias.data = torch.tensor([0.0, 10.0])  # the middle of the lower border
    image = images(1)
    said = model(image, INPUTS[:1])
    assert said.weights is not None and said.weights.argmax(-1).tolist() == [[15 * 24 + 12] * 4]
    far, near = image.clone(), image.clone()
    far[..., 0, 0] = 1 - far[..., 0, 0]
    near[..., 15, 12] = 1 - near[..., 15, 12]
    assert torch.equal(model(far, INPUTS[:1]).logits, said.logits)
    assert not torch.equal(model(near, INPUTS[:1]).logits, said.logits)


def test_looks_are_sampled_in_training_with_their_log_probability() -> None:
    model = build(decoder="glimpse").train()
    torch.manual_seed(0)
    first = model(images(), INPUTS)
    second = model(images(), INPUTS)
    assert first.log_prob is not None and first.log_prob.shape == (2, 4) and first.log_prob.requires_grad
    assert second.weights is not None and first.weights is not None
    assert not torch.equal(first.weights, second.weights)
    model.anneal(1.0)
    model.eval()
    again = [model(images(), INPUTS).weights for _ in range(2)]
    assert torch.equal(*again)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build_it", "told"),
    [
        (
            lambda: Convolutional((1, 20, 24), widths=(4, 4, 4)),
            r"whose sides \[20, 24\] must be multiples of 8",
        ),
        (lambda: Convolutional(SHAPE, widths=()), r"^encoder\.widths=\[\]"),
        (
            lambda: Convolutional(SHAPE, (4, 8), encoder=partial(small, select=Hard))(images()),
            r"^encoder\.encoder\.select must be soft",
        ),
        (lambda: Patches(SHAPE, patch_size=5), r"^encoder\.patch_size=5 must divide the sides \[16, 24\]"),
        (
            lambda: Captioner(
                7,
                SHAPE,
                partial(TokenEmbedding, size=6),
                Pixels,
                partial(
                    decoders.RecurrentDecoder, size=8, context=partial(CrossAttention, score=Location), bridge="none"
                ),
            ),
            r"reads at most \d+ places, and the image encoder tells 384",
        ),
        (
            lambda: build(decoder="glimpse").decoder.context(torch.zeros(2, 3, 8), None, torch.arange(3)),
            r"^A glimpse is one look a word: set decoder\.attend=before\.$",
        ),
        (
            lambda: GlimpseContext(8, decoders.DecoderSizes(1, 1, 1, 1)),
            r"^A glimpse needs a source with rows and columns",
        ),
    ],
)
def test_wrong_parts_are_refused_by_name(build_it: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        build_it()
