"""Networks: equality with their formulas, gradients, and invalid options."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import InputError
from ram.agent import RecurrentAttention
from ram.networks import ContextNetwork, CoreNetwork, GlimpseNetwork, PatchConvolutions, SharedConvolutions
from ram.policies import ActionNetwork, LocationNetwork

SMALL_CORE = partial(CoreNetwork, size=4)


def test_glimpse_network_equals_the_formula_of_the_paper() -> None:
    torch.manual_seed(0)
    network = GlimpseNetwork((2, 1, 3, 3), patch_features=5, location_features=4, output_size=6)
    patches, location = torch.randn(7, 2, 1, 3, 3), torch.randn(7, 2)
    patch_features = (patches.flatten(1) @ network.patch.weight.T + network.patch.bias).clamp(min=0)
    location_features = (location @ network.location.weight.T + network.location.bias).clamp(min=0)
    from_patch, from_location = network.merge.weight.split([5, 4], dim=1)
    expected = (patch_features @ from_patch.T + location_features @ from_location.T + network.merge.bias).clamp(min=0)
    torch.testing.assert_close(network(patches, location), (expected, patch_features))


def test_patches_are_divided_by_the_root_mean_square_of_their_scale() -> None:
    plain, network = GlimpseNetwork((3, 1, 2, 2)), GlimpseNetwork((3, 1, 2, 2))
    network.load_state_dict(plain.state_dict())
    network.input_scale.fit(torch.tensor([0.5, 0.0, 0.02])[:, None, None, None] * torch.ones(7, 3, 1, 2, 2))
    patches, location = torch.randn(5, 3, 1, 2, 2), torch.randn(5, 2)
    scaled = torch.stack([2 * patches[:, 0], patches[:, 1], 50 * patches[:, 2]], dim=1)  # a black scale stays
    torch.testing.assert_close(network(patches, location), plain(scaled, location))


def test_convolutions_see_the_scales_as_channels() -> None:
    torch.manual_seed(0)
    network = GlimpseNetwork((2, 3, 6, 5), patch_features=4, convolutions=partial(PatchConvolutions, channels=(5, 7)))
    patches, location = torch.randn(3, 2, 3, 6, 5), torch.randn(3, 2)
    first, second = (layer for layer in network.convolutions.layers if isinstance(layer, torch.nn.Conv2d))
    expected = torch.zeros(3, 5, 3, 2)  # 4 x 4 windows, two pixels apart, of images with a border of zeros
    padded = torch.nn.functional.pad(patches.view(3, 6, 6, 5), (1, 1, 1, 1))
    for row, column in ((row, column) for row in range(3) for column in range(2)):
        window = padded[:, :, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4]
        expected[:, :, row, column] = (window[:, None] * first.weight).sum((2, 3, 4)) + first.bias
    expected = second(expected.clamp(min=0)).clamp(min=0)
    # Maxima of 2 x 2 blocks; the last row of blocks has one row.
    expected = torch.stack([expected[:, :, :2].amax((2, 3)), expected[:, :, 2:].amax((2, 3))], dim=2).flatten(1)
    torch.testing.assert_close(network.convolutions(patches), expected)
    inputs = torch.cat([network.patch(expected), network.location(location)], dim=1).clamp(min=0)
    glimpse, patch_features = network(patches, location)
    torch.testing.assert_close(glimpse, network.merge(inputs).clamp(min=0))
    torch.testing.assert_close(patch_features, inputs[:, :4])


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 13), st.integers(2, 13))
@settings(max_examples=20, deadline=None)
def test_convolutions_accept_every_patch(scales: int, channels: int, height: int, width: int) -> None:
    layers = PatchConvolutions((scales, channels, height, width), channels=(2, 3))
    assert layers(torch.rand(2, scales, channels, height, width)).shape == (2, layers.output_size)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(4, 9), st.integers(4, 9))
def test_shared_convolutions_encode_each_scale_alike(scales: int, channels: int, height: int, width: int) -> None:
    layers = SharedConvolutions((scales, channels, height, width), widths=(3, 5)).eval()
    patches = torch.rand(2, scales, channels, height, width)
    separate = [layers.blocks(patches[:, scale]).flatten(1) for scale in range(scales)]
    features = layers(patches)
    assert features.shape == (2, layers.output_size)
    torch.testing.assert_close(features, torch.cat(separate, dim=1))


def test_the_goal_embedding_is_added_inside_the_last_relu() -> None:
    network = GlimpseNetwork((1, 1, 1, 1), num_goals=2, patch_features=1, location_features=1, output_size=2)
    weights = {
        "patch.weight": [[2.0]],
        "patch.bias": [0.0],
        "location.weight": [[1.0, -1.0]],
        "location.bias": [0.5],
        "merge.weight": [[1.0, 1.0], [1.0, -1.0]],
        "merge.bias": [0.25, -1.0],
        "goal.weight": [[0.5, 2.0], [-4.0, 1.0]],
        "input_scale.rms": [[[[1.0]]]],
    }
    network.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    patches, location = torch.full((3, 1, 1, 1, 1), 0.5), torch.tensor([[0.5, 0.25]] * 2 + [[-1.0, 0.0]])
    # h_g = 2 / 2 = 1 in all rows; h_l = 0.5 - 0.25 + 0.5 = 0.75, and ReLU(-1 + 0.5) = 0 in the last row. The merged
    # features are (1.75 + 0.25, 0.25 - 1) = (2, -0.75), and (1.25, 0) in the last row.
    # Goal 0 adds (0.5, 2), goal 1 (-4, 1).
    expected = torch.tensor([[2.5, 1.25], [0.0, 0.25], [0.0, 1.0]])
    torch.testing.assert_close(network(patches, location, torch.tensor([0, 1, 1])), (expected, torch.ones(3, 1)))


def test_the_agent_uses_the_goal_of_every_observation() -> None:
    torch.manual_seed(0)
    agent = RecurrentAttention(
        (1, 1, 2, 2), answer=None, num_goals=3, glimpse=partial(GlimpseNetwork, output_size=5), core=SMALL_CORE
    )
    assert agent.action is None
    observation = {"patches": torch.rand(4, 1, 1, 2, 2), "location": torch.rand(4, 2)}
    goal = torch.tensor([0, 1, 2, 1])
    state = None
    hidden = torch.zeros(4, 4)
    for _ in range(2):
        features, _, state, _ = agent.step({**observation, "goal": goal}, state)
        inputs = torch.cat(
            [agent.glimpse.patch(observation["patches"].flatten(1)), agent.glimpse.location(observation["location"])], 1
        )
        embedding = torch.stack([agent.glimpse.goal.weight[number] for number in goal.tolist()])
        glimpse = (agent.glimpse.merge(inputs.clamp(min=0)) + embedding).clamp(min=0)
        hidden = (agent.core.layers[0].glimpse(glimpse) + agent.core.layers[0].hidden(hidden)).clamp(min=0)
        torch.testing.assert_close(features, hidden)


def _convolved(image: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Computes a 3 x 3 convolution with zero padding pixel by pixel: (C, h, w) -> (D, ceil(h / s), ceil(w / s))."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2, width + 2, dtype=image.dtype)
    padded[:, 1:-1, 1:-1] = image
    rows, columns = range(0, height, stride), range(0, width, stride)
    # Pixel (row, column) is the center of the window that starts at (row, column) of the padded image.
    windows = [[padded[:, row : row + 3, column : column + 3] for column in columns] for row in rows]
    return torch.stack(
        [
            torch.stack([torch.stack([(kernel * window).sum() + offset for window in line]) for line in windows])
            for kernel, offset in zip(weight, bias, strict=True)
        ]
    )


@pytest.mark.parametrize("size", [(5, 7), (8, 8), (1, 2)])
def test_context_network_is_three_convolutions_and_a_linear_layer_with_tanh(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    network = ContextNetwork((2, *size), output_size=3, channels=2).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    (w1, b1), (w2, b2), (w3, b3), (weight, bias) = [
        (layer.weight.detach(), layer.bias.detach()) for layer in network.layers if hasattr(layer, "weight")
    ]
    assert [tuple(w.shape) for w in (w1, w2, w3)] == [(2, 2, 3, 3), (4, 2, 3, 3), (4, 4, 3, 3)]
    context = torch.rand(3, 2, *size, dtype=torch.float64)
    expected = []
    for image in context:
        whole = _convolved(image, w1, b1, stride=1).clamp(min=0)
        half = _convolved(whole, w2, b2, stride=2).clamp(min=0)
        quarter = _convolved(half, w3, b3, stride=2).clamp(min=0)
        expected.append((weight @ quarter.flatten() + bias).tanh())
    torch.testing.assert_close(network(context), torch.stack(expected))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_context_is_the_initial_state_of_the_upper_layer_and_not_used_later(cell: str, num_layers: int) -> None:
    torch.manual_seed(0)
    agent = RecurrentAttention(
        (1, 1, 2, 2),
        num_classes=2,
        context_shape=(1, 4, 4),
        glimpse=partial(GlimpseNetwork, output_size=5),
        core=partial(CoreNetwork, cell=cell, size=4, num_layers=num_layers),
        context=partial(ContextNetwork, channels=2),
    )
    observation = {"patches": torch.rand(3, 1, 1, 2, 2), "location": torch.rand(3, 2)}
    context = torch.rand(3, 1, 4, 4)
    first = agent.step({**observation, "context": context})

    initial, zeros = agent.context.layers(context), torch.zeros(3, 4)
    glimpse, _ = agent.glimpse(**observation)
    lower = None
    if num_layers == 2:
        lower = agent.core.layers[0](glimpse, (zeros, zeros) if cell == "lstm" else zeros)
        glimpse = lower[0] if cell == "lstm" else lower
    upper = agent.core.layers[-1](glimpse, (initial, zeros) if cell == "lstm" else initial)
    torch.testing.assert_close(first.features, upper[0] if cell == "lstm" else upper)
    torch.testing.assert_close(first.action_features, glimpse if num_layers == 2 else first.features)
    torch.testing.assert_close(first.state, (upper,) if lower is None else (lower, upper))

    second, other = (agent.step({**observation, "context": each}, first.state) for each in (context, 1 - context))
    assert torch.equal(second.features, other.features)


def test_relu_core_equals_the_formula_of_the_paper() -> None:
    core = CoreNetwork(3, "rnn", 4)
    glimpse, hidden = torch.randn(2, 3), torch.randn(2, 4)
    inputs = glimpse @ core.layers[0].glimpse.weight.T + core.layers[0].glimpse.bias
    expected = (inputs + hidden @ core.layers[0].hidden.weight.T).clamp(min=0)
    torch.testing.assert_close(core(glimpse, (hidden,))[0], expected)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_initial_state_is_zero(cell: str) -> None:
    core = CoreNetwork(3, cell, 4)
    glimpse, zeros = torch.randn(2, 3), torch.zeros(2, 4)
    state = (zeros, zeros) if cell == "lstm" else zeros
    torch.testing.assert_close(core(glimpse, None)[0], core(glimpse, (state,))[0])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 4), scales=st.integers(1, 3), channels=st.sampled_from([1, 3]), classes=st.integers(2, 5))
def test_sizes_can_be_combined_freely(cell: str, batch: int, scales: int, channels: int, classes: int) -> None:
    agent = RecurrentAttention(
        (scales, channels, 3, 5),
        num_classes=classes,
        glimpse=partial(GlimpseNetwork, patch_features=7, location_features=3, output_size=11),
        core=partial(CoreNetwork, cell=cell, size=13),
        policy=partial(LocationNetwork, hidden_size=2),
        action=partial(ActionNetwork, hidden_size=9),
    )
    observation = {"patches": torch.rand(batch, scales, channels, 3, 5), "location": torch.zeros(batch, 2)}
    features, action_features, *_ = agent.step(observation, agent.step(observation).state)
    assert features.shape == (batch, 13)
    assert agent.location(features).sample(torch.zeros(batch, 2)).shape == (batch, 2)
    assert agent.action(action_features).logits.shape == (batch, classes)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: CoreNetwork(4, "tanh"), "core.cell"),
        (lambda: CoreNetwork(4, size=0), "core.size"),
        (lambda: GlimpseNetwork((1, 1, 2, 2), patch_features=-3), "glimpse.patch_features"),
        (lambda: PatchConvolutions((1, 1, 1, 8)), "sensor.patch_size"),
        (lambda: PatchConvolutions((1, 1, 8, 8), channels=(4,)), "glimpse.convolutions.channels"),
        (lambda: PatchConvolutions((1, 1, 8, 8), channels=(4, 0)), "glimpse.convolutions.channels"),
        (lambda: PatchConvolutions((1, 1, 8, 8), channels=24), "glimpse.convolutions.channels"),
        (lambda: PatchConvolutions((1, 1, 8, 8), channels=[2.5, 3]), "glimpse.convolutions.channels"),
        (lambda: SharedConvolutions((1, 1, 7, 8), widths=(4, 4, 4)), "sensor.patch_size=8"),
        (lambda: SharedConvolutions((1, 1, 8, 8), widths=[]), "glimpse.convolutions.widths"),
        (lambda: SharedConvolutions((1, 1, 8, 8), dropout=2), "glimpse.convolutions.dropout"),
        (lambda: ContextNetwork((1, 4, 4), 4, channels=0), "task.agent.context.channels"),
    ],
)
def test_invalid_options_are_refused(build: object, name: str) -> None:
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        build()  # type: ignore[operator]
