"""REINFORCE: values computed by hand, and exact gradients of enumerable problems."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet
from envs.rewards.answers import EarlyAnswer
from envs.rewards.log_probs import NegativeCrossEntropy
from envs.rewards.weighted_sum import WeightedSum
from ram.agent import RecurrentAttention
from ram.baselines import Baseline, LearnedBaseline, LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.distributions import Categorical
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.reinforce import (
    BaselineOutput,
    Rollout,
    discounted_returns,
    estimator_variances,
    policy_gradient_loss,
    reinforce,
)
from ram.rollout import GlimpseRollout, run_episode

STEPS, CHOICES = 2, 3
REWARD = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.5], [0.25, 1.0, 0.0]])  # at the end, by both choices
FIRST_REWARD = torch.tensor([0.5, 0.0, -1.0])  # immediately, by the first choice


def test_returns_are_discounted_sums_of_the_following_rewards() -> None:
    reward = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]])
    expected = torch.tensor([[1 + 0.5 * 2 + 0.25 * 4, 0.25 * 8], [2 + 0.5 * 4, 0.5 * 8], [4.0, 8.0]])
    assert torch.equal(discounted_returns(reward, 0.5), expected)


def test_returns_without_discount_are_sums() -> None:
    assert torch.equal(discounted_returns(torch.tensor([[1.0], [2.0], [4.0]])), torch.tensor([[7.0], [6.0], [4.0]]))


def test_loss_sums_over_steps_and_averages_over_episodes() -> None:
    log_prob = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    advantage = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    mask = torch.tensor([[True, True], [True, False]])
    assert policy_gradient_loss(log_prob, advantage, mask) == pytest.approx((1 + 300 + 20) / 2)


def test_the_variance_is_compared_with_that_of_the_best_constant_baseline() -> None:
    without_baseline = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])  # deviations -2, -1, 3 and 0, 0, 0
    score = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    # The best constant is -5/2, which leaves 1/2, -1, 1/2.
    gradient = torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 3.0]])  # variances 3 and 1
    assert estimator_variances(gradient, without_baseline, score, 1) == pytest.approx((4.0, 0.75))


def test_the_variance_of_rollouts_of_an_image_is_that_of_their_mean() -> None:
    gradient = torch.tensor([[1.0], [3.0], [5.0], [7.0]])  # means 2 and 6
    without_baseline = torch.tensor([[0.0], [0.0], [3.0], [3.0]])  # deviations -1.5, -1.5, 1.5, 1.5
    no_effect = torch.ones(4, 1)
    assert estimator_variances(gradient, without_baseline, no_effect, 2) == pytest.approx((16.0, 3.0))
    assert all(map(math.isnan, estimator_variances(gradient, without_baseline, no_effect, 4)))


def test_log_probabilities_outside_the_mask_are_ignored() -> None:
    log_prob = torch.tensor([[-1.0], [float("nan")]], requires_grad=True)
    loss = policy_gradient_loss(log_prob, torch.ones(2, 1), torch.tensor([[True], [False]]))
    loss.backward()
    assert log_prob.grad is not None
    assert torch.equal(log_prob.grad, torch.tensor([[-1.0], [0.0]]))


def test_the_advantage_has_no_gradient() -> None:
    advantage = torch.ones(1, 1, requires_grad=True)
    log_prob = torch.zeros(1, 1, requires_grad=True)
    policy_gradient_loss(log_prob, advantage, torch.ones(1, 1, dtype=torch.bool)).backward()
    assert advantage.grad is None


def _policy(parameters: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities of the first choice (3,), and of the second after each first (B, 3)."""
    return parameters[0].log_softmax(-1), parameters[1:][first].log_softmax(-1)


def _rollout(parameters: Tensor, trajectories: list[tuple[int, int]]) -> Rollout:
    first, second = torch.tensor(trajectories).T
    log_first, log_second = _policy(parameters, first)
    log_prob = torch.stack([log_first[first], log_second.gather(1, second[:, None])[:, 0]])
    reward = torch.stack([FIRST_REWARD[first], REWARD[first, second]]).double()
    # The features are zero before the first choice, and encode the first before the second.
    features = torch.stack([torch.zeros(len(first), CHOICES), torch.nn.functional.one_hot(first, CHOICES).float()])
    return Rollout(
        features=features.double(),
        log_prob=log_prob,
        active=torch.ones(STEPS, len(first), dtype=torch.bool),
        mask=torch.ones(STEPS, len(first), dtype=torch.bool),
        reward=reward,
        group=torch.zeros(len(first), dtype=torch.long),  # one image
    )


def _exact_gradient(parameters: Tensor, gamma: float) -> Tensor:
    parameters = parameters.clone().requires_grad_()
    trajectories = list(product(range(CHOICES), repeat=2))
    rollout = _rollout(parameters, trajectories)
    probability = rollout.log_prob.sum(0).exp()
    # Choice t is trained by the rewards from t on, discounted from t.
    returns = discounted_returns(rollout.reward, gamma)
    objective_first = (rollout.log_prob[0].exp() * rollout.log_prob[1].exp().detach() * returns[0]).sum()
    objective_second = (rollout.log_prob[0].exp().detach() * rollout.log_prob[1].exp() * returns[1]).sum()
    assert float(probability.sum().detach()) == pytest.approx(1)
    (gradient,) = torch.autograd.grad(objective_first + objective_second, parameters)
    return gradient


def _mean_estimate(parameters: Tensor, baseline: Baseline, rollouts: int, gamma: float) -> Tensor:
    """Computes the mean of the estimator over all combinations of trajectories, weighted with their probabilities."""
    mean = torch.zeros_like(parameters)
    single = list(product(range(CHOICES), repeat=2))
    for trajectories in product(single, repeat=rollouts):
        leaf = parameters.clone().requires_grad_()
        rollout = _rollout(leaf, list(trajectories))
        (gradient,) = torch.autograd.grad(-reinforce(rollout, baseline, gamma).policy_loss, leaf)
        mean += rollout.log_prob.detach().sum().exp() * gradient
    return mean


def _moving_average() -> Baseline:
    baseline = MovingAverageBaseline(CHOICES, 1).double()
    baseline.mean, baseline.weight = torch.tensor(0.4), torch.tensor(0.5)
    return baseline.eval()  # does not change during the test


@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize(
    ("build", "rollouts"),
    [
        (lambda: NoBaseline(CHOICES, 1), 1),
        (_moving_average, 1),
        (lambda: LearnedBaseline(CHOICES, 1).double(), 1),
        (lambda: LeaveOneOutBaseline(CHOICES, 2), 2),
        (lambda: LeaveOneOutBaseline(CHOICES, 3), 3),
    ],
    ids=["none", "moving_average", "learned", "leave_one_out_2", "leave_one_out_3"],
)
def test_the_mean_estimate_is_the_exact_gradient(build: Callable[[], Baseline], rollouts: int, gamma: float) -> None:
    torch.manual_seed(0)
    parameters = torch.randn(1 + CHOICES, CHOICES, dtype=torch.float64)
    exact = _exact_gradient(parameters, gamma)
    mean = _mean_estimate(parameters, build(), rollouts, gamma)
    torch.testing.assert_close(mean, exact, rtol=1e-5, atol=1e-7)


def test_without_discount_the_exact_gradient_is_that_of_the_expected_return() -> None:
    torch.manual_seed(1)
    parameters = torch.randn(1 + CHOICES, CHOICES, dtype=torch.float64, requires_grad=True)
    rollout = _rollout(parameters, list(product(range(CHOICES), repeat=2)))
    expected_return = (rollout.log_prob.sum(0).exp() * rollout.reward.sum(0)).sum()
    (gradient,) = torch.autograd.grad(expected_return, parameters)
    torch.testing.assert_close(_exact_gradient(parameters.detach(), 1.0), gradient)


def test_a_baseline_that_uses_the_return_of_the_choice_is_biased() -> None:
    class BiasedBaseline(Baseline):
        def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
            return BaselineOutput(0.5 * returns, returns.new_zeros(()))

    parameters = torch.randn(1 + CHOICES, CHOICES, dtype=torch.float64)
    difference = _mean_estimate(parameters, BiasedBaseline(CHOICES, 1), 1, 1.0) - _exact_gradient(parameters, 1.0)
    assert difference.abs().max() > 1e-2


# An agent that may stop, in an environment: at each of two looks it stops, or continues to the left or the right; the
# episode ends after the third look.

PATHS = ["s", "ls", "rs", "ll", "lr", "rl", "rr"]
LOOKS, SIZE = 3, 4


@dataclass(frozen=True)
class Side:
    """A distribution of two locations, left and right, so that all paths can be enumerated."""

    categorical: Categorical

    def sample(self, noise: Tensor) -> Tensor:
        x = 1.2 * self.categorical.sample(noise[..., :1]) - 0.6
        return torch.stack([x, torch.zeros_like(x)], dim=-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        return self.categorical.log_prob((sample[..., 0] > 0).long())

    def entropy(self) -> Tensor:
        return self.categorical.entropy().mean()


class SideNetwork(nn.Module):
    """A location network that chooses between left and right."""

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.logits = nn.Linear(feature_size, 2)

    def forward(self, features: Tensor, step: Tensor) -> Side:
        return Side(Categorical(self.logits(features.detach())))


def _agent_that_may_stop(rows: int, rollouts: int) -> tuple[RecurrentAttention, GlimpseVectorEnv]:
    generator = torch.Generator().manual_seed(0)
    env = GlimpseVectorEnv(
        ImageSet(torch.rand(1, 1, 6, 6, generator=generator), torch.tensor([1]), ("a", "b", "c")),
        GlimpseSensor(3),
        WeightedSum({"answer": NegativeCrossEntropy(floor=-20.0), "haste": EarlyAnswer(0.3)}),
        num_envs=rows,
        num_glimpses=LOOKS,
        answer="log_probs",
        stop=True,
        rollouts_per_image=rollouts,
        first_location="center",
        output="torch",
        autoreset_mode="Disabled",
    )
    env.reset(seed=0)
    agent = RecurrentAttention(
        **env.interface,
        glimpse=partial(GlimpseNetwork, patch_features=8, location_features=8, output_size=8),
        core=partial(CoreNetwork, cell="gru", size=SIZE),
        policy=SideNetwork,
    )
    for parameter in agent.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    agent.action.logits[0].weight.data *= 5  # answers depend on what was seen
    return agent, env


def _follow(agent: RecurrentAttention, env: GlimpseVectorEnv, paths: list[str]) -> GlimpseRollout:
    """Returns a rollout whose rows take the given paths, by extreme noise."""
    stop, side = torch.zeros(LOOKS, len(paths), 1), torch.zeros(LOOKS, len(paths), 2)
    for row, path in enumerate(paths):
        for look, choice in enumerate(path):
            stop[look, row] = 9.0 if choice == "s" else -9.0
            side[look, row] = {"l": -9.0, "r": 9.0, "s": 0.0}[choice]
    index = torch.zeros(len(paths) // env.rollouts_per_image, dtype=torch.long)
    rollout = run_episode(agent, env, {"stop": stop, "location": side}, {"index": index})
    taken = [""] * len(paths)
    for row, look in product(range(len(paths)), range(LOOKS)):
        if rollout.moved[look, row]:
            taken[row] += "r" if rollout.location[look + 1, row, 0] > 0 else "l"
        elif rollout.active[look, row] and look < LOOKS - 1:
            taken[row] += "s"
    assert taken == paths
    return rollout


def _policy_parameters(agent: RecurrentAttention) -> list[Tensor]:
    return [agent.stop.logits.weight, agent.stop.logits.bias, agent.location.logits.weight, agent.location.logits.bias]


def _path_probabilities(agent: RecurrentAttention) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns the probability and return of every path, and the policy's parameters, in double precision.

    The features are constants: they do not depend on the policy's parameters.
    """
    rollout = _follow(agent, _agent_that_may_stop(len(PATHS), 1)[1], PATHS)
    features = rollout.features.detach().double()
    parameters = [parameter.detach().double().requires_grad_() for parameter in _policy_parameters(agent)]
    stop_weight, stop_bias, side_weight, side_bias = parameters
    probabilities = []
    for row, path in enumerate(PATHS):
        probability = torch.ones((), dtype=torch.float64)
        for look, choice in enumerate(path):
            going_on, stopping = (stop_weight @ features[look, row] + stop_bias).softmax(0)
            left, right = (side_weight @ features[look, row] + side_bias).softmax(0)
            probability = probability * {"s": stopping, "l": going_on * left, "r": going_on * right}[choice]
        probabilities.append(probability)
    return torch.stack(probabilities), rollout.reward.sum(0).double(), parameters


@pytest.mark.parametrize(
    ("build", "rollouts"),
    [
        (NoBaseline, 1),
        (MovingAverageBaseline, 1),
        (LearnedBaseline, 1),
        (LeaveOneOutBaseline, 2),
        (LeaveOneOutBaseline, 3),
    ],
    ids=["none", "moving_average", "learned", "leave_one_out_2", "leave_one_out_3"],
)
def test_the_mean_estimate_is_the_exact_gradient_where_the_agent_may_stop(build: type[Baseline], rollouts: int) -> None:
    combinations = list(product(range(len(PATHS)), repeat=rollouts))  # paths of the rollouts of one image
    agent, env = _agent_that_may_stop(rollouts * len(combinations), rollouts)
    probabilities, returns, parameters = _path_probabilities(agent)
    assert probabilities.sum().item() == pytest.approx(1)
    assert len(returns.unique()) == len(PATHS)
    exact = torch.autograd.grad((probabilities * returns).sum(), parameters)

    baseline = build(SIZE, rollouts).eval()
    if isinstance(baseline, MovingAverageBaseline):
        baseline.mean, baseline.weight = torch.tensor(-0.4), torch.tensor(0.5)
    rollout = _follow(agent, env, [PATHS[number] for numbers in combinations for number in numbers])
    advantage = reinforce(rollout, baseline).advantage
    mean = torch.zeros((), dtype=torch.float64)
    for image, numbers in enumerate(combinations):
        rows = slice(rollouts * image, rollouts * (image + 1))
        loss = policy_gradient_loss(rollout.log_prob[:, rows], advantage[:, rows], rollout.mask[:, rows])
        mean = mean - probabilities.detach()[list(numbers)].prod() * loss
    estimate = torch.autograd.grad(mean, _policy_parameters(agent))
    for ours, theirs in zip(estimate, exact, strict=True):
        assert theirs.abs().max() > 1e-2
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)
