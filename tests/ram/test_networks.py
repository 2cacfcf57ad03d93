"""The networks against plain formulas, and what they refuse."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import InputError
from ram.agent import RecurrentAttention
from ram.networks import ActionNetwork, CoreNetwork, Gaussian, GlimpseNetwork, LocationNetwork, RandomLocation, Uniform


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


def test_gaussian_density_and_entropy_are_those_of_torch() -> None:
    mean, std, sample = torch.randn(5, 2), torch.tensor([0.1, 0.7]), torch.randn(5, 2)
    reference = torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)
    torch.testing.assert_close(Gaussian(mean, std).log_prob(sample), reference.log_prob(sample))
    torch.testing.assert_close(Gaussian(mean, std).entropy().expand(5), reference.entropy())


def test_gaussian_log_prob_by_hand() -> None:
    density = Gaussian(torch.tensor([0.5, 0.0]), torch.tensor([0.5, 0.5])).log_prob(torch.tensor([1.0, 0.0]))
    assert density == pytest.approx(-0.5 - 2 * math.log(0.5 * math.sqrt(2 * math.pi)))


def test_the_score_is_of_the_sample_before_clamping() -> None:
    mean = torch.tensor([0.9, 0.0], requires_grad=True)
    policy = Gaussian(mean, torch.tensor([0.5, 0.5]))
    sample = policy.sample(torch.tensor([1.0, 0.0]))
    assert sample[0] == pytest.approx(1.4)  # the mean is bounded, the sample is not
    policy.log_prob(sample).backward()
    assert mean.grad is not None
    assert mean.grad[0] == pytest.approx(0.5 / 0.25)


def test_samples_carry_no_gradient() -> None:
    policy = Gaussian(torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True))
    assert not policy.sample(torch.ones(2)).requires_grad
    assert not policy.preferred(torch.ones(2)).requires_grad


def test_uniform_samples_are_uniform() -> None:
    noise = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    sample = Uniform().sample(noise)
    assert sample.abs().max() <= 1
    share = torch.histc(sample, 10, -1, 1) / sample.numel()
    assert (share - 0.1).abs().max() < 0.01
    assert Uniform().log_prob(sample)[0] == pytest.approx(math.log(1 / 4))


def test_the_mean_is_bounded() -> None:
    mean = LocationNetwork(4)(1e3 * torch.randn(50, 4)).mean
    assert mean.abs().max() <= 1


@pytest.mark.parametrize("through_core", [False, True])
def test_the_policy_reaches_the_core_only_on_request(through_core: bool) -> None:
    features = torch.randn(3, 4, requires_grad=True)
    LocationNetwork(4, through_core=through_core)(features).log_prob(torch.zeros(3, 2)).sum().backward()
    assert (features.grad is not None) is through_core


def test_the_deviation_is_fixed_scheduled_or_learned() -> None:
    fixed = LocationNetwork(2, std=0.2)
    fixed.anneal(1.0)
    assert fixed(torch.zeros(1, 2)).std.tolist() == pytest.approx([0.2, 0.2])
    assert not [name for name, _ in fixed.named_parameters() if "std" in name]
    scheduled = LocationNetwork(2, std=0.4, final_std=0.1)
    values = []
    for progress in (0.0, 0.5, 1.0):
        scheduled.anneal(progress)
        values.append(float(scheduled(torch.zeros(1, 2)).std[0]))
    assert values == pytest.approx([0.4, 0.2, 0.1])
    learned = LocationNetwork(2, std=0.3, learn_std=True)
    learned(torch.zeros(1, 2)).log_prob(torch.ones(1, 2)).sum().backward()
    assert learned.log_std.grad is not None


def test_the_random_policy_has_nothing_to_learn() -> None:
    assert not list(RandomLocation(4).parameters())


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: CoreNetwork(4, "tanh"), "core.cell"),
        (lambda: CoreNetwork(4, size=0), "core.size"),
        (lambda: LocationNetwork(4, std=0.0), "policy.std"),
        (lambda: LocationNetwork(4, std=-0.1), "policy.std"),
        (lambda: LocationNetwork(4, final_std=0.0), "policy.final_std"),
        (lambda: LocationNetwork(4, final_std=0.1, learn_std=True), "policy.learn_std"),
        (lambda: LocationNetwork(4, hidden_size=-1), "policy.hidden_size"),
        (lambda: ActionNetwork(4, 2, hidden_size=-1), "action.hidden_size"),
        (lambda: GlimpseNetwork((1, 1, 2, 2), patch_features=-3), "glimpse.patch_features"),
        (lambda: GlimpseNetwork((1, 1, 2, 2), contrast=0), "glimpse.contrast"),
    ],
)
def test_wrong_options_are_refused_by_name(build: object, name: str) -> None:
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        build()  # type: ignore[operator]
