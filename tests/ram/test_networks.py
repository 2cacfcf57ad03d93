"""The networks against plain formulas, and what they refuse."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import InputError
from ram.agent import RecurrentAttention
from ram.attention.scores import Additive
from ram.networks import (
    ActionNetwork,
    BoxNetwork,
    ContextNetwork,
    CoreNetwork,
    GlimpseNetwork,
    GridLocation,
    LocationNetwork,
    RandomLocation,
    StopNetwork,
)

SMALL_CORE = partial(CoreNetwork, size=4)


def test_glimpse_network_is_the_papers_formula() -> None:
    torch.manual_seed(0)
    network = GlimpseNetwork((2, 1, 3, 3), patch_features=5, location_features=4, output_size=6)
    patches, location = torch.randn(7, 2, 1, 3, 3), torch.randn(7, 2)
    seen = (patches.flatten(1) @ network.patch.weight.T + network.patch.bias).clamp(min=0)
    where = (location @ network.location.weight.T + network.location.bias).clamp(min=0)
    from_patch, from_location = network.merge.weight.split([5, 4], dim=1)
    expected = (seen @ from_patch.T + where @ from_location.T + network.merge.bias).clamp(min=0)
    torch.testing.assert_close(network(patches, location), expected)


def test_contrast_brings_out_the_wider_scales() -> None:
    plain, network = GlimpseNetwork((3, 1, 2, 2)), GlimpseNetwork((3, 1, 2, 2), contrast=4)
    network.load_state_dict(plain.state_dict())
    patches, location = torch.randn(5, 3, 1, 2, 2), torch.randn(5, 2)
    brought_out = torch.stack([patches[:, 0], 4 * patches[:, 1], 16 * patches[:, 2]], dim=1)
    torch.testing.assert_close(network(patches, location), plain(brought_out, location))


def test_the_goal_adds_its_vector_within_the_last_relu() -> None:
    network = GlimpseNetwork((1, 1, 1, 1), num_goals=2, patch_features=1, location_features=1, output_size=2)
    by_hand = {
        "patch.weight": [[2.0]],
        "patch.bias": [0.0],
        "location.weight": [[1.0, -1.0]],
        "location.bias": [0.5],
        "merge.weight": [[1.0, 1.0], [1.0, -1.0]],
        "merge.bias": [0.25, -1.0],
        "goal.weight": [[0.5, 2.0], [-4.0, 1.0]],
    }
    network.load_state_dict({name: torch.tensor(values) for name, values in by_hand.items()})
    patches, location = torch.full((3, 1, 1, 1, 1), 0.5), torch.tensor([[0.5, 0.25]] * 2 + [[-1.0, 0.0]])
    # h_g = 2 / 2 = 1 in all rows; h_l = 0.5 - 0.25 + 0.5 = 0.75, and in the last row ReLU(-1 + 0.5) = 0. So their
    # map is (1.75 + 0.25, 0.25 - 1) = (2, -0.75), and in the last row (1.25, 0). Goal 0 adds (0.5, 2), goal 1 (-4, 1).
    expected = torch.tensor([[2.5, 1.25], [0.0, 0.25], [0.0, 1.0]])
    torch.testing.assert_close(network(patches, location, torch.tensor([0, 1, 1])), expected)


def test_the_agent_looks_for_the_goal_it_sees_at_every_look() -> None:
    torch.manual_seed(0)
    agent = RecurrentAttention(
        (1, 1, 2, 2), answer=None, num_goals=3, glimpse=partial(GlimpseNetwork, output_size=5), core=SMALL_CORE
    )
    assert agent.action is None
    look = {"patches": torch.rand(4, 1, 1, 2, 2), "location": torch.rand(4, 2)}
    goal = torch.tensor([0, 1, 2, 1])
    state = None
    hidden = torch.zeros(4, 4)
    for _ in range(2):
        features, _, state = agent.step({**look, "goal": goal}, state)
        seen = torch.cat([agent.glimpse.patch(look["patches"].flatten(1)), agent.glimpse.location(look["location"])], 1)
        vector = torch.stack([agent.glimpse.goal.weight[number] for number in goal.tolist()])
        glimpse = (agent.glimpse.merge(seen.clamp(min=0)) + vector).clamp(min=0)
        hidden = (agent.core.layers[0].glimpse(glimpse) + agent.core.layers[0].hidden(hidden)).clamp(min=0)
        torch.testing.assert_close(features, hidden)


def _convolved(image: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """A convolution of 3 x 3 with a border of zeros, pixel by pixel: (C, h, w) -> (D, ceil(h / s), ceil(w / s))."""
    channels, height, width = image.shape
    framed = torch.zeros(channels, height + 2, width + 2, dtype=image.dtype)
    framed[:, 1:-1, 1:-1] = image
    rows, columns = range(0, height, stride), range(0, width, stride)
    # The pixel (row, column) is the middle of the window that begins at (row, column) of the framed image.
    windows = [[framed[:, row : row + 3, column : column + 3] for column in columns] for row in rows]
    return torch.stack(
        [
            torch.stack([torch.stack([(kernel * window).sum() + own for window in line]) for line in windows])
            for kernel, own in zip(weight, bias, strict=True)
        ]
    )


@pytest.mark.parametrize("size", [(5, 7), (8, 8), (1, 2)])
def test_context_network_is_three_convolutions_and_a_bounded_linear_map(size: tuple[int, int]) -> None:
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
def test_the_context_is_the_upper_layers_memory_before_the_first_look_and_nothing_later(
    cell: str, num_layers: int
) -> None:
    torch.manual_seed(0)
    agent = RecurrentAttention(
        (1, 1, 2, 2),
        num_classes=2,
        context_shape=(1, 4, 4),
        glimpse=partial(GlimpseNetwork, output_size=5),
        core=partial(CoreNetwork, cell=cell, size=4, num_layers=num_layers),
        context=partial(ContextNetwork, channels=2),
    )
    look = {"patches": torch.rand(3, 1, 1, 2, 2), "location": torch.rand(3, 2)}
    context = torch.rand(3, 1, 4, 4)
    first = agent.step({**look, "context": context})

    memory, zeros = agent.context.layers(context), torch.zeros(3, 4)
    glimpse = agent.glimpse(**look)
    lower = None
    if num_layers == 2:
        lower = agent.core.layers[0](glimpse, (zeros, zeros) if cell == "lstm" else zeros)
        glimpse = lower[0] if cell == "lstm" else lower
    upper = agent.core.layers[-1](glimpse, (memory, zeros) if cell == "lstm" else memory)
    torch.testing.assert_close(first.features, upper[0] if cell == "lstm" else upper)
    torch.testing.assert_close(first.answering, glimpse if num_layers == 2 else first.features)
    torch.testing.assert_close(first.state, (upper,) if lower is None else (lower, upper))

    second, other = (agent.step({**look, "context": each}, first.state) for each in (context, 1 - context))
    assert torch.equal(second.features, other.features)


def test_relu_core_is_the_papers_formula() -> None:
    core = CoreNetwork(3, "rnn", 4)
    glimpse, hidden = torch.randn(2, 3), torch.randn(2, 4)
    into = glimpse @ core.layers[0].glimpse.weight.T + core.layers[0].glimpse.bias
    expected = (into + hidden @ core.layers[0].hidden.weight.T).clamp(min=0)
    torch.testing.assert_close(core(glimpse, (hidden,))[0], expected)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_no_state_stands_for_zeros(cell: str) -> None:
    core = CoreNetwork(3, cell, 4)
    glimpse, zeros = torch.randn(2, 3), torch.zeros(2, 4)
    state = (zeros, zeros) if cell == "lstm" else zeros
    torch.testing.assert_close(core(glimpse, None)[0], core(glimpse, (state,))[0])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 4), scales=st.integers(1, 3), channels=st.sampled_from([1, 3]), classes=st.integers(2, 5))
def test_sizes_are_independent(cell: str, batch: int, scales: int, channels: int, classes: int) -> None:
    agent = RecurrentAttention(
        (scales, channels, 3, 5),
        num_classes=classes,
        glimpse=partial(GlimpseNetwork, patch_features=7, location_features=3, output_size=11),
        core=partial(CoreNetwork, cell=cell, size=13),
        policy=partial(LocationNetwork, hidden_size=2),
        action=partial(ActionNetwork, hidden_size=9),
    )
    observation = {"patches": torch.rand(batch, scales, channels, 3, 5), "location": torch.zeros(batch, 2)}
    features, answering, _ = agent.step(observation, agent.step(observation).state)
    assert features.shape == (batch, 13)
    assert agent.location(features).sample(torch.zeros(batch, 2)).shape == (batch, 2)
    assert agent.action(answering).logits.shape == (batch, classes)


def test_the_mean_is_bounded() -> None:
    mean = LocationNetwork(4)(1e3 * torch.randn(50, 4)).mean
    assert mean.abs().max() <= 1


@pytest.mark.parametrize("backprop_into_core", [False, True])
def test_the_policy_reaches_the_core_only_on_request(backprop_into_core: bool) -> None:
    features = torch.randn(3, 4, requires_grad=True)
    LocationNetwork(4, backprop_into_core=backprop_into_core)(features).log_prob(torch.zeros(3, 2)).sum().backward()
    assert (features.grad is not None) is backprop_into_core


def test_the_deviation_is_fixed_scheduled_or_learned() -> None:
    fixed = LocationNetwork(2, std=0.2)
    fixed.anneal(1.0)
    assert fixed(torch.zeros(1, 2)).std.tolist() == pytest.approx([0.2, 0.2])
    assert not [name for name, _ in fixed.named_parameters() if "std" in name]
    fixed.load_state_dict(LocationNetwork(2, std=0.1).state_dict())  # as another run has left it
    fixed.anneal(0.5)
    assert fixed.log_std.exp().tolist() == pytest.approx([0.2, 0.2])
    scheduled = LocationNetwork(2, std=0.4, final_std=0.1)
    values = []
    for progress in (0.0, 0.5, 1.0):
        scheduled.anneal(progress)
        values.append(float(scheduled(torch.zeros(1, 2)).std[0]))
    assert values == pytest.approx([0.4, 0.2, 0.1])
    learned = LocationNetwork(2, std=0.3, learn_std=True)
    learned(torch.zeros(1, 2)).log_prob(torch.ones(1, 2)).sum().backward()
    assert learned.log_std.grad is not None


def test_a_box_is_four_bounded_means_read_from_the_features() -> None:
    network = BoxNetwork(2, std=0.5).double()
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    network.load_state_dict(
        {"mean.0.weight": weight, "mean.0.bias": torch.tensor([0.0, 0.5, 0.0, 9.0]), "log_std": network.log_std}
    )
    said = network(torch.tensor([[0.25, -1.0]], dtype=torch.float64))
    mean = [math.tanh(value) for value in (0.25, -1.0 + 0.5, 0.25 - 1.0, -0.5 - 1.0 + 9.0)]
    assert said.mean[0].tolist() == pytest.approx(mean)
    box = [-0.5, 0.0, 0.5, 1.0]
    by_side = [
        -0.5 * ((side - centre) / 0.5) ** 2 - math.log(0.5 * math.sqrt(2 * math.pi))
        for side, centre in zip(box, mean, strict=True)
    ]
    assert said.log_prob(torch.tensor([box], dtype=torch.float64)).tolist() == pytest.approx([sum(by_side)])
    assert said.entropy().item() == pytest.approx(4 * (math.log(0.5) + 0.5 * math.log(2 * math.pi * math.e)))


def test_a_box_may_be_read_through_a_hidden_layer() -> None:
    torch.manual_seed(0)
    network, features = BoxNetwork(3, hidden_size=5).double(), torch.randn(6, 3, dtype=torch.float64)
    into, out = network.mean[0], network.mean[2]
    hidden = (features @ into.weight.T + into.bias).clamp(min=0)
    torch.testing.assert_close(network(features).mean, (hidden @ out.weight.T + out.bias).tanh())


def test_a_box_teaches_what_it_is_read_from() -> None:
    features = torch.randn(3, 4, requires_grad=True)
    network = BoxNetwork(4)
    said = network(features)
    said.log_prob(torch.zeros(3, 4)).sum().backward()
    # d log N(0; m, s) / dm = -m / s^2 and d tanh(a) / da = 1 - tanh(a)^2, so along the weights:
    expected = (-said.mean / 0.15**2 * (1 - said.mean**2)) @ network.mean[0].weight
    assert features.grad is not None
    torch.testing.assert_close(features.grad, expected.detach())


@pytest.mark.parametrize(
    ("final_std", "expected"),
    [(None, [0.2, 0.2, 0.2, 0.2]), (0.05, [0.2, 0.2 / 2**0.5, 0.1, 0.05]), (0.8, [0.2, 0.2 * 2**0.5, 0.4, 0.8])],
)
def test_a_boxs_deviation_changes_geometrically_over_the_agents_budget(
    final_std: float | None, expected: list[float]
) -> None:
    box = partial(BoxNetwork, std=0.2, final_std=final_std)
    agent = RecurrentAttention((1, 1, 2, 2), answer="box", core=SMALL_CORE, box=box)
    assert not [name for name, _ in agent.action.named_parameters() if "std" in name]
    shares = (0.0, 0.25, 0.5, 1.0)
    for share, std in zip(shares, expected, strict=True):
        agent.anneal(share)
        said = agent.action(torch.randn(3, 4))
        assert said.std.tolist() == pytest.approx([std] * 4)
        shifted = said.sample(torch.tensor([1.0, -1.0, 2.0, 0.0]).expand(3, 4)) - said.mean
        torch.testing.assert_close(shifted, std * torch.tensor([1.0, -1.0, 2.0, 0.0]).expand(3, 4))


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.93])
def test_before_anything_is_learnt_a_stop_is_as_likely_as_set_whatever_is_seen(probability: float) -> None:
    said = StopNetwork(4, probability)(10 * torch.randn(6, 4))
    stop = torch.ones(6, dtype=torch.long)
    assert said.log_prob(stop).tolist() == pytest.approx([math.log(probability)] * 6)
    assert said.log_prob(1 - stop).tolist() == pytest.approx([math.log(1 - probability)] * 6)
    entropy = -probability * math.log(probability) - (1 - probability) * math.log(1 - probability)
    assert said.entropy().tolist() == pytest.approx([entropy] * 6)
    drawn = StopNetwork(4, probability)(torch.zeros(20_000, 4)).sample(
        torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    )
    assert drawn.float().mean().item() == pytest.approx(probability, abs=0.015)


def test_a_stop_is_a_logistic_function_of_the_features() -> None:
    network = StopNetwork(2).double()
    weight = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
    network.load_state_dict({"logits.weight": weight, "logits.bias": torch.tensor([0.0, -1.0])})
    said = network(torch.tensor([[2.0, 0.25], [0.0, 0.0]], dtype=torch.float64))
    # The logits of going on are 2 and 0, those of stopping 1 + 0.5 - 1 = 0.5 and -1.
    expected = [1 / (1 + math.exp(2 - 0.5)), 1 / (1 + math.exp(1))]
    stop = torch.ones(2, dtype=torch.long)
    assert said.log_prob(stop).exp().tolist() == pytest.approx(expected)
    assert said.log_prob(1 - stop).exp().tolist() == pytest.approx([1 - value for value in expected])


def test_a_stop_is_learnt_without_a_gradient_into_the_features() -> None:
    features, network = torch.ones(3, 4, requires_grad=True), StopNetwork(4, 0.25)
    network(features).log_prob(torch.ones(3, dtype=torch.long)).sum().backward()
    assert features.grad is None
    # d log softmax(z)_1 / dz = (0, 1) - (0.75, 0.25), in each of three rows; the weights see features of 1.
    assert network.logits.bias.grad.tolist() == pytest.approx([-2.25, 2.25])
    assert network.logits.weight.grad.tolist() == [pytest.approx([-2.25] * 4), pytest.approx([2.25] * 4)]


def test_the_grid_is_attention_from_the_features_to_learned_keys_of_its_places() -> None:
    policy = GridLocation(4, size=3)
    features = torch.randn(5, 2, 4)
    places = policy(features)
    assert places.location.tolist() == [[x, y] for y in (-1, 0, 1) for x in (-1, 0, 1)]
    torch.testing.assert_close(places.choice.logits, features @ policy.keys.T / 2)
    sample = places.sample(torch.randn(5, 2, 2))
    assert sample.shape == (5, 2, 2)
    log_prob = places.log_prob(sample)
    assert log_prob.shape == (5, 2)
    chosen = (sample[..., 0] + 1) + 3 * (sample[..., 1] + 1)
    torch.testing.assert_close(log_prob, places.choice.log_prob(chosen.long()))


@pytest.mark.parametrize("backprop_into_core", [False, True])
def test_the_grid_teaches_the_core_only_on_request(backprop_into_core: bool) -> None:
    features = torch.randn(5, 4, requires_grad=True)
    policy = GridLocation(4, size=3, score=Additive, backprop_into_core=backprop_into_core)
    places = policy(features)
    places.log_prob(places.sample(torch.randn(5, 2))).sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert (features.grad is not None) == backprop_into_core


def test_the_random_policy_has_nothing_to_learn() -> None:
    assert not list(RandomLocation(4).parameters())


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: CoreNetwork(4, "tanh"), "core.cell"),
        (lambda: CoreNetwork(4, size=0), "core.size"),
        (lambda: GridLocation(4, size=1), "policy.size"),
        (lambda: LocationNetwork(4, std=0.0), "policy.std"),
        (lambda: LocationNetwork(4, std=-0.1), "policy.std"),
        (lambda: LocationNetwork(4, final_std=0.0), "policy.final_std"),
        (lambda: LocationNetwork(4, final_std=0.1, learn_std=True), "policy.learn_std"),
        (lambda: LocationNetwork(4, hidden_size=-1), "policy.hidden_size"),
        (lambda: BoxNetwork(4, std=0.0), "task.agent.box.std"),
        (lambda: BoxNetwork(4, hidden_size=-1), "task.agent.box.hidden_size"),
        (lambda: ActionNetwork(4, 2, hidden_size=-1), "task.agent.action.hidden_size"),
        (lambda: GlimpseNetwork((1, 1, 2, 2), patch_features=-3), "glimpse.patch_features"),
        (lambda: GlimpseNetwork((1, 1, 2, 2), contrast=0), "task.agent.glimpse.contrast"),
        (lambda: ContextNetwork((1, 4, 4), 4, channels=0), "task.agent.context.channels"),
        (lambda: StopNetwork(4, probability=0.0), "task.agent.stop.probability"),
        (lambda: StopNetwork(4, probability=1.0), "task.agent.stop.probability"),
    ],
)
def test_wrong_options_are_refused_by_name(build: object, name: str) -> None:
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        build()  # type: ignore[operator]
