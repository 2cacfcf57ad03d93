"""Distributions: equality with torch.distributions and with values computed by hand."""

import math

import pytest
import torch

from ram.distributions import Categorical, Gaussian, GridCategorical, Uniform


def test_gaussian_density_and_entropy_equal_those_of_torch() -> None:
    mean, std, sample = torch.randn(5, 2), torch.tensor([0.1, 0.7]), torch.randn(5, 2)
    reference = torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)
    torch.testing.assert_close(Gaussian(mean, std).log_prob(sample), reference.log_prob(sample))
    torch.testing.assert_close(Gaussian(mean, std).entropy().expand(5), reference.entropy())


def test_gaussian_log_prob_of_an_example() -> None:
    density = Gaussian(torch.tensor([0.5, 0.0]), torch.tensor([0.5, 0.5])).log_prob(torch.tensor([1.0, 0.0]))
    assert density == pytest.approx(-0.5 - 2 * math.log(0.5 * math.sqrt(2 * math.pi)))


def test_log_prob_is_that_of_the_unclamped_sample() -> None:
    mean = torch.tensor([0.9, 0.0], requires_grad=True)
    policy = Gaussian(mean, torch.tensor([0.5, 0.5]))
    sample = policy.sample(torch.tensor([1.0, 0.0]))
    assert sample[0] == pytest.approx(1.4)  # samples may leave [-1, 1]
    policy.log_prob(sample).backward()
    assert mean.grad is not None
    assert mean.grad[0] == pytest.approx(0.5 / 0.25)


def test_samples_have_no_gradient() -> None:
    policy = Gaussian(torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True))
    assert not policy.sample(torch.ones(2)).requires_grad
    assert not policy.mode(torch.ones(2)).requires_grad


def test_uniform_samples_are_uniform() -> None:
    noise = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    sample = Uniform().sample(noise)
    assert sample.abs().max() <= 1
    frequency = torch.histc(sample, 10, -1, 1) / sample.numel()
    assert (frequency - 0.1).abs().max() < 0.01
    assert Uniform().log_prob(sample)[0] == pytest.approx(math.log(1 / 4))


def test_categorical_samples_follow_the_distribution() -> None:
    policy = Categorical(torch.tensor([0.2, 0.5, 0.0, 0.3]).log().expand(20_000, 4))
    sample = policy.sample(torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0)))
    frequency = sample.bincount(minlength=4) / len(sample)
    torch.testing.assert_close(frequency, torch.tensor([0.2, 0.5, 0.0, 0.3]), atol=0.02, rtol=0)
    reference = torch.distributions.Categorical(logits=policy.logits[0])
    assert policy.log_prob(torch.tensor([1]).expand(20_000))[0] == pytest.approx(
        float(reference.log_prob(torch.tensor(1)))
    )
    other = Categorical(torch.randn(5, 3))
    torch.testing.assert_close(other.entropy(), torch.distributions.Categorical(logits=other.logits).entropy())


def test_values_of_probability_zero_are_never_sampled() -> None:
    logits = torch.tensor([-math.inf, 0.0, 1.0, -math.inf]).expand(3, 4)
    chosen = Categorical(logits).sample(torch.tensor([[-9.0], [9.0], [math.inf]]))
    assert chosen.tolist() == [1, 2, 2]


def test_a_grid_has_the_distribution_of_its_indices() -> None:
    location = torch.tensor([[-1.0, 1.0], [0.0, 0.0], [1.0, 0.5]])
    grid = GridCategorical(Categorical(torch.tensor([0.2, 0.5, 0.3]).log().expand(3, 3)), location)
    noise = torch.tensor([[-9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    assert torch.equal(grid.sample(noise), location)
    assert torch.equal(grid.mode(noise), location[[1, 1, 1]])
    torch.testing.assert_close(grid.log_prob(location).exp(), torch.tensor([0.2, 0.5, 0.3]))
    assert float(grid.entropy()[0]) == pytest.approx(-0.2 * math.log(0.2) - 0.5 * math.log(0.5) - 0.3 * math.log(0.3))
