"""The estimator against numbers worked out by hand and against the exact gradient of an enumerable problem."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet
from envs.rewards.cross_entropy import NegativeCrossEntropy
from envs.rewards.early_answer import EarlyAnswer
from envs.rewards.weighted_sum import WeightedSum
from ram.agent import RecurrentAttention
from ram.baselines import Baseline, LearnedBaseline, LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.distributions import Categorical
from ram.networks import CoreNetwork, GlimpseNetwork
from ram.reinforce import BaselineOutput, Rollout, discounted_returns, policy_gradient_loss
from ram.rollout import GlimpseRollout, run_episode

STEPS, CHOICES = 2, 3
REWARD = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.5], [0.25, 1.0, 0.0]])  # at the end, by both choices
FIRST_REWARD = torch.tensor([0.5, 0.0, -1.0])  # at once, by the first choice


def test_returns_are_discounted_sums_of_what_follows() -> None:
    reward = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]])
    expected = torch.tensor([[1 + 0.5 * 2 + 0.25 * 4, 0.25 * 8], [2 + 0.5 * 4, 0.5 * 8], [4.0, 8.0]])
    assert torch.equal(discounted_returns(reward, 0.5), expected)


def test_returns_without_discount_are_plain_sums() -> None:
    assert torch.equal(discounted_returns(torch.tensor([[1.0], [2.0], [4.0]])), torch.tensor([[7.0], [6.0], [4.0]]))


def test_loss_sums_over_steps_and_averages_over_episodes() -> None:
    log_prob = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    advantage = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    mask = torch.tensor([[True, True], [True, False]])
    assert policy_gradient_loss(log_prob, advantage, mask) == pytest.approx((1 + 300 + 20) / 2)


def test_unscored_choices_may_hold_anything() -> None:
    log_prob = torch.tensor([[-1.0], [float("nan")]], requires_grad=True)
    loss = policy_gradient_loss(log_prob, torch.ones(2, 1), torch.tensor([[True], [False]]))
    loss.backward()
    assert log_prob.grad is not None
    assert torch.equal(log_prob.grad, torch.tensor([[-1.0], [0.0]]))


def test_the_advantage_is_detached() -> None:
    advantage = torch.ones(1, 1, requires_grad=True)
    log_prob = torch.zeros(1, 1, requires_grad=True)
    policy_gradient_loss(log_prob, advantage, torch.ones(1, 1, dtype=torch.bool)).backward()
    assert advantage.grad is None


def _policy(parameters: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the first choice (3,), and of the second after each first (B, 3)."""
    return parameters[0].log_softmax(-1), parameters[1:][first].log_softmax(-1)


def _rollout(parameters: Tensor, trajectories: list[tuple[int, int]]) -> Rollout:
    first, second = torch.tensor(trajectories).T
    log_first, log_second = _policy(parameters, first)
    log_prob = torch.stack([log_first[first], log_second.gather(1, second[:, None])[:, 0]])
    reward = torch.stack([FIRST_REWARD[first], REWARD[first, second]]).double()
    # Before the first choice nothing is known; before the second, the first.
    known = torch.stack([torch.zeros(len(first), CHOICES), torch.nn.functional.one_hot(first, CHOICES).float()])
    return Rollout(
        features=known.double(),
        log_prob=log_prob,
        active=torch.ones(STEPS, len(first), dtype=torch.bool),
        mask=torch.ones(STEPS, len(first), dtype=torch.bool),
        reward=reward,
        group=torch.zeros(len(first), dtype=torch.long),  # one image
    )


def _exact_gradient(parameters: Tensor, gamma: float) -> Tensor:
    parameters = parameters.clone().requires_grad_()
    every = list(product(range(CHOICES), repeat=2))
    rollout = _rollout(parameters, every)
    probability = rollout.log_prob.sum(0).exp()
    # The gradient that rewards from t on give choice t, each discounted from t: what the estimator is an estimate of.
    returns = discounted_returns(rollout.reward, gamma)
    objective_first = (rollout.log_prob[0].exp() * rollout.log_prob[1].exp().detach() * returns[0]).sum()
    objective_second = (rollout.log_prob[0].exp().detach() * rollout.log_prob[1].exp() * returns[1]).sum()
    assert float(probability.sum().detach()) == pytest.approx(1)
    (gradient,) = torch.autograd.grad(objective_first + objective_second, parameters)
    return gradient


def _mean_estimate(parameters: Tensor, baseline: Baseline, rollouts: int, gamma: float) -> Tensor:
    """The estimator's mean over all combinations of trajectories, each weighted with its probability."""
    mean = torch.zeros_like(parameters)
    every = list(product(range(CHOICES), repeat=2))
    for trajectories in product(every, repeat=rollouts):
        free = parameters.clone().requires_grad_()
        rollout = _rollout(free, list(trajectories))
        returns = discounted_returns(rollout.reward, gamma)
        advantage = returns - baseline(rollout, returns).value
        loss = policy_gradient_loss(rollout.log_prob, advantage, rollout.mask)
        (gradient,) = torch.autograd.grad(-loss, free)
        mean += rollout.log_prob.detach().sum().exp() * gradient
    return mean


def _moving_average() -> Baseline:
    baseline = MovingAverageBaseline(CHOICES, 1).double()
    baseline.mean, baseline.weight = torch.tensor(0.4), torch.tensor(0.5)
    return baseline.eval()  # as it stands before a batch


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


def test_a_baseline_that_saw_the_choices_own_return_would_be_caught() -> None:
    class Cheat(Baseline):
        def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
            return BaselineOutput(0.5 * returns, returns.new_zeros(()))

    parameters = torch.randn(1 + CHOICES, CHOICES, dtype=torch.float64)
    difference = _mean_estimate(parameters, Cheat(CHOICES, 1), 1, 1.0) - _exact_gradient(parameters, 1.0)
    assert difference.abs().max() > 1e-2


# An agent that may stop, in the environment itself: at each of two looks it stops, or goes on to the left or the right;
# after the third look it must answer.

WAYS = ["s", "ls", "rs", "ll", "lr", "rl", "rr"]
LOOKS, SIZE = 3, 4


@dataclass(frozen=True)
class Side:
    """The left or the right of the image, so that all ways can be counted up."""

    choice: Categorical

    def sample(self, noise: Tensor) -> Tensor:
        x = 1.2 * self.choice.sample(noise[..., :1]) - 0.6
        return torch.stack([x, torch.zeros_like(x)], dim=-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        return self.choice.log_prob((sample[..., 0] > 0).long())

    def entropy(self) -> Tensor:
        return self.choice.entropy().mean()


class SideNetwork(nn.Module):
    """Chooses the side, in place of the location network."""

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.logits = nn.Linear(feature_size, 2)

    def forward(self, features: Tensor) -> Side:
        return Side(Categorical(self.logits(features.detach())))


def _agent_that_may_stop(rows: int, rollouts: int) -> tuple[RecurrentAttention, GlimpseVectorEnv]:
    generator = torch.Generator().manual_seed(0)
    env = GlimpseVectorEnv(
        ImageSet(torch.rand(1, 1, 6, 6, generator=generator), torch.tensor([1]), ("a", "b", "c")),
        GlimpseSensor(3),
        WeightedSum({"answer": NegativeCrossEntropy(), "haste": EarlyAnswer(0.3)}),
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
    agent.action.logits[0].weight.data *= 5  # so that it matters what was seen
    return agent, env


def _go(agent: RecurrentAttention, env: GlimpseVectorEnv, ways: list[str]) -> GlimpseRollout:
    """A rollout whose rows go the given ways, for their noise lies far out on the one side or the other."""
    stop, side = torch.zeros(LOOKS, len(ways), 1), torch.zeros(LOOKS, len(ways), 2)
    for row, way in enumerate(ways):
        for look, choice in enumerate(way):
            stop[look, row] = 9.0 if choice == "s" else -9.0
            side[look, row] = {"l": -9.0, "r": 9.0, "s": 0.0}[choice]
    index = torch.zeros(len(ways) // env.rollouts_per_image, dtype=torch.long)
    rollout = run_episode(agent, env, {"stop": stop, "location": side}, {"index": index})
    gone = [""] * len(ways)
    for row, look in product(range(len(ways)), range(LOOKS)):
        if rollout.moved[look, row]:
            gone[row] += "r" if rollout.location[look + 1, row, 0] > 0 else "l"
        elif rollout.active[look, row] and look < LOOKS - 1:
            gone[row] += "s"
    assert gone == ways
    return rollout


def _policy_of(agent: RecurrentAttention) -> list[Tensor]:
    return [agent.stop.logits.weight, agent.stop.logits.bias, agent.location.logits.weight, agent.location.logits.bias]


def _chances(agent: RecurrentAttention) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The probability and the return of every way, and the policy's parameters, in double precision.

    What is known after a look is given: nothing that the policy's parameters could change.
    """
    rollout = _go(agent, _agent_that_may_stop(len(WAYS), 1)[1], WAYS)
    known = rollout.features.detach().double()
    parameters = [parameter.detach().double().requires_grad_() for parameter in _policy_of(agent)]
    stop_weight, stop_bias, side_weight, side_bias = parameters
    chances = []
    for row, way in enumerate(WAYS):
        chance = torch.ones((), dtype=torch.float64)
        for look, choice in enumerate(way):
            going_on, stopping = (stop_weight @ known[look, row] + stop_bias).softmax(0)
            left, right = (side_weight @ known[look, row] + side_bias).softmax(0)
            chance = chance * {"s": stopping, "l": going_on * left, "r": going_on * right}[choice]
        chances.append(chance)
    return torch.stack(chances), rollout.reward.sum(0).double(), parameters


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
    together = list(product(range(len(WAYS)), repeat=rollouts))  # of the rollouts of one image
    agent, env = _agent_that_may_stop(rollouts * len(together), rollouts)
    chances, returns, parameters = _chances(agent)
    assert chances.sum().item() == pytest.approx(1)
    assert len(returns.unique()) == len(WAYS)
    exact = torch.autograd.grad((chances * returns).sum(), parameters)

    baseline = build(SIZE, rollouts).eval()
    if isinstance(baseline, MovingAverageBaseline):
        baseline.mean, baseline.weight = torch.tensor(-0.4), torch.tensor(0.5)
    rollout = _go(agent, env, [WAYS[number] for numbers in together for number in numbers])
    following = discounted_returns(rollout.reward)
    advantage = following - baseline(rollout, following).value
    mean = torch.zeros((), dtype=torch.float64)
    for image, numbers in enumerate(together):
        rows = slice(rollouts * image, rollouts * (image + 1))
        loss = policy_gradient_loss(rollout.log_prob[:, rows], advantage[:, rows], rollout.mask[:, rows])
        mean = mean - chances.detach()[list(numbers)].prod() * loss
    estimate = torch.autograd.grad(mean, _policy_of(agent))
    for ours, theirs in zip(estimate, exact, strict=True):
        assert theirs.abs().max() > 1e-2
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)
