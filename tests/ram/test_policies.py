"""Policies: equality with their formulas, initial values, gradients, and invalid options."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch

from envs import InputError
from ram.agent import RecurrentAttention
from ram.attention.scores import Additive, Location
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Select,
    Soft,
    Uniform,
    Unnormalized,
)
from ram.networks import CoreNetwork
from ram.policies import ActionNetwork, BoxNetwork, GridLocation, LocationNetwork, RandomLocation, StopNetwork


def test_the_mean_location_is_bounded() -> None:
    network = LocationNetwork(4)
    torch.nn.init.normal_(network.mean[0].weight)
    mean = network(1e3 * torch.randn(50, 4)).mean
    assert 0.99 < mean.abs().max() <= 1


@pytest.mark.parametrize("hidden_size", [0, 5])
def test_the_location_policy_begins_as_a_path_that_covers_the_image(hidden_size: int) -> None:
    network, features = LocationNetwork(4, hidden_size, reach=0.8), torch.randn(16, 3, 4)
    mean = network(features, torch.arange(16)).mean
    assert mean.shape == (16, 3, 2)
    assert torch.equal(mean[:, 0], mean[:, 2])
    path = mean[:, 0] / 0.8
    assert path.abs().max() < 1
    # 1 / 1.3247 = 0.7549 and 0.7549^2 = 0.5698: the second point is (2 * 0.2549 - 1, 2 * 0.0698 - 1).
    torch.testing.assert_close(path[:2], torch.tensor([[0.0, 0.0], [-0.4902, -0.8603]]), rtol=0, atol=1e-4)
    cells = (2 * (path + 1)).long()  # of a 4 x 4 grid
    assert len({tuple(cell) for cell in cells.tolist()}) >= 13
    for step in (0, 7, 64 + 7):
        of_step = network(features[0], torch.tensor(step)).mean
        torch.testing.assert_close(of_step, mean[step % 64], rtol=0, atol=0)


def test_a_location_is_the_tanh_of_a_linear_function_and_the_path() -> None:
    network = LocationNetwork(2, reach=0.5).double()
    state = network.state_dict() | {"mean.0.weight": torch.tensor([[1.0, 2.0], [0.0, -1.0]])}
    network.load_state_dict(state | {"mean.0.bias": torch.tensor([0.1, 0.0])})
    # f(h) = (0.1 + 0.3 - 0.4, 0.2), and the first point of the path is 0.
    mean = network(torch.tensor([[0.3, -0.2]], dtype=torch.float64)).mean
    torch.testing.assert_close(mean, torch.tensor([[0.0, 0.2]], dtype=torch.float64).tanh(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("backprop_into_core", [False, True])
def test_the_policy_gradient_reaches_the_core_only_with_backprop_into_core(backprop_into_core: bool) -> None:
    features = torch.randn(3, 4, requires_grad=True)
    LocationNetwork(4, backprop_into_core=backprop_into_core)(features).log_prob(torch.zeros(3, 2)).sum().backward()
    assert (features.grad is not None) is backprop_into_core


def test_the_standard_deviation_is_fixed_scheduled_or_learned() -> None:
    fixed = LocationNetwork(2, std=0.2, final_std=None)
    fixed.anneal(1.0)
    assert fixed(torch.zeros(1, 2)).std.tolist() == pytest.approx([0.2, 0.2])
    assert not [name for name, _ in fixed.named_parameters() if "std" in name]
    fixed.load_state_dict(LocationNetwork(2, std=0.1).state_dict())  # the state of another run
    fixed.anneal(0.5)
    assert fixed.log_std.exp().tolist() == pytest.approx([0.2, 0.2])
    scheduled = LocationNetwork(2, std=0.4, final_std=0.1)
    values = []
    for progress in (0.0, 0.5, 1.0):
        scheduled.anneal(progress)
        values.append(float(scheduled(torch.zeros(1, 2)).std[0]))
    assert values == pytest.approx([0.4, 0.2, 0.1])
    early = LocationNetwork(2, std=0.4, final_std=0.1, anneal_fraction=0.25)
    values = []
    for progress in (0.0, 0.125, 0.25, 1.0):
        early.anneal(progress)
        values.append(float(early(torch.zeros(1, 2)).std[0]))
    assert values == pytest.approx([0.4, 0.2, 0.1, 0.1])
    learned = LocationNetwork(2, std=0.3, final_std=None, learn_std=True)
    learned(torch.zeros(1, 2)).log_prob(torch.ones(1, 2)).sum().backward()
    assert learned.log_std.grad is not None


def test_a_box_is_a_gaussian_with_four_bounded_means() -> None:
    network = BoxNetwork(2, std=0.5).double()
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    network.load_state_dict(
        {"mean.0.weight": weight, "mean.0.bias": torch.tensor([0.0, 0.5, 0.0, 9.0]), "log_std": network.log_std}
    )
    policy = network(torch.tensor([[0.25, -1.0]], dtype=torch.float64))
    mean = [math.tanh(value) for value in (0.25, -1.0 + 0.5, 0.25 - 1.0, -0.5 - 1.0 + 9.0)]
    assert policy.mean[0].tolist() == pytest.approx(mean)
    box = [-0.5, 0.0, 0.5, 1.0]
    log_probs = [
        -0.5 * ((side - center) / 0.5) ** 2 - math.log(0.5 * math.sqrt(2 * math.pi))
        for side, center in zip(box, mean, strict=True)
    ]
    assert policy.log_prob(torch.tensor([box], dtype=torch.float64)).tolist() == pytest.approx([sum(log_probs)])
    assert policy.entropy().item() == pytest.approx(4 * (math.log(0.5) + 0.5 * math.log(2 * math.pi * math.e)))


def test_a_box_network_may_have_a_hidden_layer() -> None:
    torch.manual_seed(0)
    network, features = BoxNetwork(3, hidden_size=5).double(), torch.randn(6, 3, dtype=torch.float64)
    first, last = network.mean[0], network.mean[2]
    torch.nn.init.normal_(last.weight)
    hidden = (features @ first.weight.T + first.bias).clamp(min=0)
    torch.testing.assert_close(network(features).mean, (hidden @ last.weight.T + last.bias).tanh())


def test_the_gradient_of_a_box_flows_into_the_features() -> None:
    features = torch.randn(3, 4, requires_grad=True)
    network = BoxNetwork(4)
    torch.nn.init.normal_(network.mean[0].weight)
    policy = network(features)
    policy.log_prob(torch.zeros(3, 4)).sum().backward()
    # d log N(0; m, s) / dm = -m / s^2 and d tanh(a) / da = 1 - tanh(a)^2, so through the weights:
    expected = (-policy.mean / 0.15**2 * (1 - policy.mean**2)) @ network.mean[0].weight
    assert features.grad is not None
    torch.testing.assert_close(features.grad, expected.detach())


@pytest.mark.parametrize(
    ("final_std", "expected"),
    [(None, [0.2, 0.2, 0.2, 0.2]), (0.05, [0.2, 0.2 / 2**0.5, 0.1, 0.05]), (0.8, [0.2, 0.2 * 2**0.5, 0.4, 0.8])],
)
def test_the_standard_deviation_of_a_box_changes_geometrically_over_the_budget(
    final_std: float | None, expected: list[float]
) -> None:
    box = partial(BoxNetwork, std=0.2, final_std=final_std)
    agent = RecurrentAttention((1, 1, 2, 2), answer="box", core=partial(CoreNetwork, size=4), box=box)
    assert not [name for name, _ in agent.action.named_parameters() if "std" in name]
    for progress, std in zip((0.0, 0.25, 0.5, 1.0), expected, strict=True):
        agent.anneal(progress)
        policy = agent.action(torch.randn(3, 4))
        assert policy.std.tolist() == pytest.approx([std] * 4)
        shifted = policy.sample(torch.tensor([1.0, -1.0, 2.0, 0.0]).expand(3, 4)) - policy.mean
        torch.testing.assert_close(shifted, std * torch.tensor([1.0, -1.0, 2.0, 0.0]).expand(3, 4))


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.93])
def test_the_initial_probability_of_a_stop_is_the_option_for_all_features(probability: float) -> None:
    policy = StopNetwork(4, probability)(10 * torch.randn(6, 4))
    stop = torch.ones(6, dtype=torch.long)
    assert policy.log_prob(stop).tolist() == pytest.approx([math.log(probability)] * 6)
    assert policy.log_prob(1 - stop).tolist() == pytest.approx([math.log(1 - probability)] * 6)
    entropy = -probability * math.log(probability) - (1 - probability) * math.log(1 - probability)
    assert policy.entropy().tolist() == pytest.approx([entropy] * 6)
    sample = StopNetwork(4, probability)(torch.zeros(20_000, 4)).sample(
        torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    )
    assert sample.float().mean().item() == pytest.approx(probability, abs=0.015)


def test_the_stop_probability_is_a_logistic_function_of_the_features() -> None:
    network = StopNetwork(2).double()
    weight = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
    network.load_state_dict({"logits.weight": weight, "logits.bias": torch.tensor([0.0, -1.0])})
    policy = network(torch.tensor([[2.0, 0.25], [0.0, 0.0]], dtype=torch.float64))
    # The logits of going on are 2 and 0, those of stopping 1 + 0.5 - 1 = 0.5 and -1.
    expected = [1 / (1 + math.exp(2 - 0.5)), 1 / (1 + math.exp(1))]
    stop = torch.ones(2, dtype=torch.long)
    assert policy.log_prob(stop).exp().tolist() == pytest.approx(expected)
    assert policy.log_prob(1 - stop).exp().tolist() == pytest.approx([1 - value for value in expected])


def test_a_stop_has_no_gradient_into_the_features() -> None:
    features, network = torch.ones(3, 4, requires_grad=True), StopNetwork(4, 0.25)
    network(features).log_prob(torch.ones(3, dtype=torch.long)).sum().backward()
    assert features.grad is None
    # d log softmax(z)_1 / dz = (0, 1) - (0.75, 0.25), in each of three rows; all features are 1.
    assert network.logits.bias.grad.tolist() == pytest.approx([-2.25, 2.25])
    assert network.logits.weight.grad.tolist() == [pytest.approx([-2.25] * 4), pytest.approx([2.25] * 4)]


def test_grid_logits_are_the_scores_of_learned_keys() -> None:
    policy = GridLocation(4, size=3)
    features = torch.randn(5, 2, 4)
    grid = policy(features)
    assert grid.location.tolist() == [[x, y] for y in (-1, 0, 1) for x in (-1, 0, 1)]
    torch.testing.assert_close(grid.categorical.logits, features @ policy.keys.T / 2)
    sample = grid.sample(torch.randn(5, 2, 2))
    assert sample.shape == (5, 2, 2)
    log_prob = grid.log_prob(sample)
    assert log_prob.shape == (5, 2)
    index = (sample[..., 0] + 1) + 3 * (sample[..., 1] + 1)
    torch.testing.assert_close(log_prob, grid.categorical.log_prob(index.long()))


@pytest.mark.parametrize("backprop_into_core", [False, True])
def test_the_grid_gradient_reaches_the_core_only_with_backprop_into_core(backprop_into_core: bool) -> None:
    features = torch.randn(5, 4, requires_grad=True)
    policy = GridLocation(4, size=3, score=Additive, backprop_into_core=backprop_into_core)
    grid = policy(features)
    grid.log_prob(grid.sample(torch.randn(5, 2))).sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert (features.grad is not None) == backprop_into_core


@pytest.mark.parametrize(
    "select",
    [
        Soft,
        Uniform,
        Diagonal,
        partial(LocalMonotonic, half_width=2),
        partial(LocalMonotonic, half_width=2, gaussian=True),
        partial(LocalPredictive, half_width=2),
    ],
    ids=["soft", "uniform", "diagonal", "local_m", "local_m_gaussian", "local_p"],
)
def test_grid_probabilities_are_the_normalized_weights_of_the_selection(select: Callable[[int], Select]) -> None:
    torch.manual_seed(0)
    policy = GridLocation(4, size=3, score=Additive, select=select)
    features = torch.randn(3, 5, 4)  # three looks at five images
    probabilities = policy(features, torch.arange(3)).categorical.logits.softmax(-1)
    for look in range(3):
        scores = policy.score(features[look][None], policy.keys[None])
        weights = policy.select(scores, None, features[look][None], torch.full((5,), look)).weights[0]
        torch.testing.assert_close(probabilities[look], weights / weights.sum(-1, keepdim=True))
        alone = policy(features[look], torch.tensor(look))
        torch.testing.assert_close(alone.categorical.logits.softmax(-1), probabilities[look])


def test_a_local_window_restricts_the_sampled_locations() -> None:
    torch.manual_seed(0)
    policy = GridLocation(4, size=3, select=partial(LocalMonotonic, half_width=1))
    grid = policy(torch.randn(2000, 4), torch.tensor(4))
    sample = grid.sample(torch.randn(2000, 2))
    assert {tuple(location) for location in sample.tolist()} == {(-1.0, 0.0), (0.0, 0.0), (1.0, 0.0)}  # the middle row
    log_prob = grid.log_prob(sample)
    assert log_prob.min() > math.log(1e-3) and grid.entropy().max() <= math.log(3) + 1e-6
    log_prob.sum().backward()
    assert policy.keys.grad is not None
    assert policy.keys.grad[3:6].abs().min() > 0 and not policy.keys.grad[[0, 1, 2, 6, 7, 8]].any()
    default = policy(torch.randn(1, 4)).categorical.logits.softmax(-1)
    assert default[0, :2].sum().item() == pytest.approx(1)  # look 0


@pytest.mark.parametrize("select", [Soft, Hard, GumbelSoftmax, partial(GumbelSoftmax, temperature=0.2)])
def test_soft_hard_and_gumbel_selections_sample_from_the_same_grid_distribution(
    select: Callable[[int], Select],
) -> None:
    torch.manual_seed(0)
    policy, features = GridLocation(4, size=3, select=select), torch.randn(5, 4)
    assert torch.equal(policy(features).categorical.logits, policy.score(features[None], policy.keys[None])[0])


def test_the_random_policy_has_no_parameters() -> None:
    assert not list(RandomLocation(4).parameters())


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: GridLocation(4, size=1), "policy.size"),
        (lambda: GridLocation(4, size=3, select=Unnormalized), "policy.select=Unnormalized gives no probabilities"),
        (
            lambda: GridLocation(4, size=3, score=partial(Location, max_length=8)),
            "policy.score.max_length must be at least 9",
        ),
        (lambda: LocationNetwork(4, std=0.0), "policy.std"),
        (lambda: LocationNetwork(4, std=-0.1), "policy.std"),
        (lambda: LocationNetwork(4, final_std=0.0), "policy.final_std"),
        (lambda: LocationNetwork(4, anneal_fraction=0.0), "policy.anneal_fraction"),
        (lambda: LocationNetwork(4, anneal_fraction=1.5), "policy.anneal_fraction"),
        (lambda: LocationNetwork(4, lr_scale=0.0), "policy.lr_scale"),
        (lambda: LocationNetwork(4, reach=1.0), "policy.reach"),
        (lambda: LocationNetwork(4, reach=-0.1), "policy.reach"),
        (lambda: GridLocation(4, lr_scale=0.0), "policy.lr_scale"),
        (lambda: LocationNetwork(4, final_std=0.1, learn_std=True), "policy.learn_std"),
        (lambda: LocationNetwork(4, hidden_size=-1), "policy.hidden_size"),
        (lambda: BoxNetwork(4, std=0.0), "task.agent.box.std"),
        (lambda: BoxNetwork(4, hidden_size=-1), "task.agent.box.hidden_size"),
        (lambda: ActionNetwork(4, 2, hidden_size=-1), "task.agent.action.hidden_size"),
        (lambda: StopNetwork(4, probability=0.0), "task.agent.stop.probability"),
        (lambda: StopNetwork(4, probability=1.0), "task.agent.stop.probability"),
    ],
)
def test_invalid_options_are_refused(build: object, name: str) -> None:
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        build()  # type: ignore[operator]
