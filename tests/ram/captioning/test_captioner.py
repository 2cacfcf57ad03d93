"""Captioners: incremental decoding, independence of the batch, gates, glimpses, and refused parts."""

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
from ram.image_encoders import Convolutional, Pixels
from ram.networks import GlimpseNetwork
from ram.policies import LocationNetwork
from ram.sequence import interfaces, recurrent, transformer
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.search import beam_search, sample

SHAPE = (1, 16, 24)
glimpses = partial(
    GlimpseContext,
    sensor=GlimpseSensor(4, 2),
    glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=8),
    policy=partial(LocationNetwork, std=0.3),
)
DECODERS: dict[str, Any] = {
    "luong": partial(recurrent.RecurrentDecoder, size=8, bridge="network", context=CrossAttention),
    "gated": partial(
        recurrent.RecurrentDecoder, size=8, bridge="none", attend="before", context=partial(CrossAttention, gated=True)
    ),
    "hard": partial(recurrent.RecurrentDecoder, size=8, bridge="first", context=partial(CrossAttention, select=Hard)),
    "transformer": partial(transformer.TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0),
    "glimpse": partial(recurrent.RecurrentDecoder, size=8, bridge="none", attend="before", context=glimpses),
}
INPUTS = torch.tensor([[2, 5, 6, 4], [2, 4, 4, 0]])


def build(decoder: str = "luong", **options: Any) -> Captioner:
    torch.manual_seed(0)
    encoder: Any = Pixels if decoder == "glimpse" else partial(Convolutional, widths=(4, 8))
    return Captioner(7, SHAPE, partial(TokenEmbedding, size=6), encoder, DECODERS[decoder], **options).eval()


def random_images(count: int = 2) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("decoder", DECODERS)
def test_incremental_decoding_equals_decoding_at_once(decoder: str) -> None:
    model, images = build(decoder).double(), random_images().double()
    at_once = model(images, INPUTS, need_weights=True)
    assert at_once.logits.shape == (2, 4, 7)
    _, memory = model.start_decoding(images)
    state, outputs = None, []
    for step in range(4):
        output = model.decode(INPUTS[:, step : step + 1], memory, state, need_weights=True)
        state = output.state
        outputs.append(output)
    torch.testing.assert_close(torch.cat([output.logits for output in outputs], dim=1), at_once.logits)
    assert at_once.weights is not None
    weights = torch.cat([output.weights for output in outputs], dim=1)  # type: ignore[misc]
    torch.testing.assert_close(weights, at_once.weights)
    assert weights.shape == (2, 4, model.image_encoder.grid[0] * model.image_encoder.grid[1])


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_caption_does_not_depend_on_the_other_images_of_the_batch(decoder: str) -> None:
    model, images = build(decoder).double(), random_images(3).double()
    prefix, memory = model.start_decoding(images)
    found = beam_search(model, prefix, 5, memory, 3)
    greedy = sample(model, prefix, 5, memory, temperature=0)
    for row in range(3):
        prefix, memory = model.start_decoding(images[row : row + 1])
        assert beam_search(model, prefix, 5, memory, 3)[0][0].token_ids == found[row][0].token_ids
        assert sample(model, prefix, 5, memory, temperature=0)[0] == greedy[row]


def test_a_closed_gate_hides_the_image() -> None:
    model, images = build("gated").double(), random_images().double()
    gate = model.decoder.context.gate
    assert gate is not None
    opened = model(images, INPUTS).logits
    gate.weight.data.zero_()
    gate.bias.data.fill_(-100)
    closed = model(images, INPUTS).logits
    torch.testing.assert_close(closed[0, 0], closed[1, 0])
    assert not torch.allclose(opened[0, 0], opened[1, 0])


def test_only_pixels_inside_the_glimpse_change_the_output() -> None:
    model = build("glimpse")
    context = model.decoder.context
    assert isinstance(context, GlimpseContext)
    for parameter in context.location.parameters():
        parameter.data.zero_()
    context.location.path.zero_()
    context.location.mean[-1].bias.data = torch.tensor([0.0, 10.0])  # the center of the lower border
    image = random_images(1)
    output = model(image, INPUTS[:1])
    assert output.weights is not None and output.weights.argmax(-1).tolist() == [[15 * 24 + 12] * 4]
    outside, inside = image.clone(), image.clone()
    outside[..., 0, 0] = 1 - outside[..., 0, 0]
    inside[..., 15, 12] = 1 - inside[..., 15, 12]
    assert torch.equal(model(outside, INPUTS[:1]).logits, output.logits)
    assert not torch.equal(model(inside, INPUTS[:1]).logits, output.logits)


def test_glimpse_locations_are_sampled_in_training_and_fixed_in_evaluation() -> None:
    model, images = build("glimpse").train(), random_images()
    torch.manual_seed(0)
    first, second = model(images, INPUTS), model(images, INPUTS)
    assert first.log_prob is not None and first.log_prob.shape == (2, 4) and first.log_prob.requires_grad
    assert second.weights is not None and first.weights is not None
    assert not torch.equal(first.weights, second.weights)
    model.anneal(1.0)
    model.eval()
    repeated = [model(images, INPUTS).weights for _ in range(2)]
    assert torch.equal(*repeated)  # type: ignore[arg-type]


def test_the_sensor_of_a_glimpse_decoder_is_available() -> None:
    assert build("glimpse").sensor is glimpses.keywords["sensor"] and build().sensor is None


@pytest.mark.parametrize(
    ("build_part", "message"),
    [
        (
            lambda: Captioner(
                7,
                SHAPE,
                partial(TokenEmbedding, size=6),
                Pixels,
                partial(
                    recurrent.RecurrentDecoder, size=8, context=partial(CrossAttention, score=Location), bridge="none"
                ),
            ),
            r"at most 64 positions, and the grid of image_encoder has 384: raise decoder\.context\.score\.max_length",
        ),
        (
            lambda: build("glimpse").decoder.context(torch.zeros(2, 3, 8), None, torch.arange(3)),
            r"^decoder=glimpse looks once per token: set decoder\.attend=before\.$",
        ),
        (
            lambda: GlimpseContext(8, interfaces.DecoderSizes(1, 1, 1, 1)),
            r"^decoder=glimpse needs an image as its source: set image_encoder=pixels\.$",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(build_part: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_part()
