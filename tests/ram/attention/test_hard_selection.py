"""Selections of one key: samples, their log-probabilities, and gradients."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from envs.errors import InputError
from ram.attention import Attention, MultiHeadAttention
from ram.attention.scores import Dot
from ram.attention.selection import (
    GumbelSoftmax,
    Hard,
)
from ram.distributions import Categorical
from ram.reinforce import policy_gradient_loss
from tests.ram.attention.helpers import softmax

PROBABILITIES = [0.1, 0.4, 0.3, 0.2]
SCORES = torch.tensor([[[math.log(probability) + 3 for probability in PROBABILITIES]]])


def frequencies(weights: Tensor) -> Tensor:
    """Returns how often each key is chosen: (1, Q, N) one-hot -> (N,)."""
    return weights[0].mean(0)


def test_hard_is_the_most_probable_key_in_evaluation() -> None:
    select = Hard().eval()
    selection = select(SCORES.expand(2, 3, 4), torch.tensor([[[True] * 4], [[True, False, True, True]]]))
    assert selection.weights.tolist() == [[[0, 1, 0, 0]] * 3, [[0, 0, 1, 0]] * 3]
    assert selection.log_prob is not None
    expected = torch.tensor([[math.log(0.4)] * 3, [math.log(0.3 / 0.6)] * 3])
    torch.testing.assert_close(selection.log_prob, expected)


def test_hard_samples_from_the_softmax_in_training() -> None:
    torch.manual_seed(0)
    selection = Hard()(SCORES.expand(1, 20_000, 4))
    assert torch.equal(selection.weights.sum(-1), torch.ones(1, 20_000))
    assert set(selection.weights.unique().tolist()) == {0, 1}
    torch.testing.assert_close(frequencies(selection.weights), torch.tensor(PROBABILITIES), atol=0.015, rtol=0)
    assert selection.log_prob is not None
    expected = selection.weights @ torch.tensor(PROBABILITIES).log()
    torch.testing.assert_close(selection.log_prob, expected)


def test_soft_share_replaces_samples_by_the_softmax_in_training_only() -> None:
    torch.manual_seed(0)
    select = Hard(soft_share=0.3)
    selection = select(SCORES.expand(1, 20_000, 4))
    soft = (selection.weights - torch.tensor(PROBABILITIES)).abs().amax(-1) < 1e-6
    assert soft.float().mean().item() == pytest.approx(0.3, abs=0.015)
    assert selection.log_prob is not None
    assert not selection.log_prob[soft].any() and (selection.log_prob[~soft] < 0).all()
    assert set(selection.weights[~soft].unique().tolist()) == {0, 1}
    assert set(select.eval()(SCORES.expand(1, 10, 4)).weights.unique().tolist()) == {0, 1}
    with pytest.raises(InputError, match=r"^The soft_share of Hard must be in \[0, 1\)"):
        Hard(soft_share=1.0)


def test_hard_never_samples_a_masked_key() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([False, True, False, True])
    selection = Hard()(SCORES.expand(1, 20_000, 4), mask)
    torch.testing.assert_close(frequencies(selection.weights), torch.tensor([0, 2 / 3, 0, 1 / 3]), atol=0.015, rtol=0)
    assert not selection.weights[..., ~mask].any()
    assert selection.log_prob is not None
    expected = selection.weights @ torch.tensor([0, 2 / 3, 0, 1 / 3]).clamp(min=1e-9).log()
    torch.testing.assert_close(selection.log_prob, expected)


def test_the_distribution_of_hard_is_the_softmax_over_visible_keys() -> None:
    distribution = Categorical(Hard().logits(SCORES, torch.tensor([False, True, False, True]), None, None))
    log_prob = distribution.log_prob(torch.tensor([[3]]))
    torch.testing.assert_close(log_prob, torch.tensor([[math.log(1 / 3)]]))
    entropy = -2 / 3 * math.log(2 / 3) - 1 / 3 * math.log(1 / 3)
    torch.testing.assert_close(distribution.entropy(), torch.tensor([[entropy]]))


def test_the_gradient_of_the_log_probability_is_one_hot_minus_softmax() -> None:
    torch.manual_seed(0)
    scores = SCORES.repeat(1, 50, 1).requires_grad_()
    selection = Hard()(scores)
    assert not selection.weights.requires_grad  # only the log-probability has a gradient
    assert selection.log_prob is not None
    (gradient,) = torch.autograd.grad(selection.log_prob.sum(), scores)
    torch.testing.assert_close(gradient, selection.weights - torch.tensor(PROBABILITIES))


def test_samples_are_determined_by_the_seed() -> None:
    for select in (Hard(), GumbelSoftmax()):
        samples = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            samples.append(select(SCORES.expand(1, 50, 4)).weights)
        assert torch.equal(samples[0], samples[1])
        assert not torch.equal(samples[0], samples[2])


REWARD = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.5], [0.25, 1.0, 0.0]], dtype=torch.float64)  # of both choices
KEYS = torch.tensor([[0.5, -1.0], [1.0, 0.25], [-0.75, 0.5]], dtype=torch.float64)


@pytest.mark.parametrize("baseline", [0.0, 0.8])
def test_the_mean_reinforce_estimate_over_hard_choices_is_the_exact_gradient(baseline: float) -> None:
    torch.manual_seed(0)
    query = torch.tensor(
        [[0.3, -0.6], [-1.0, 0.4]], dtype=torch.float64, requires_grad=True
    )  # two steps, one choice each
    rows = 2000
    keys, values = KEYS.expand(rows, -1, -1), torch.eye(3, dtype=torch.float64).expand(rows, -1, -1)
    output = Attention(Dot(2, 2), Hard())(query.expand(rows, -1, -1), keys, values)
    assert output.log_prob is not None
    chosen = [tuple(row) for row in output.context.argmax(-1).tolist()]

    # By hand: p = softmax(q . k), J = sum_ij p1_i p2_j r_ij, dJ/ds1_i = p1_i (sum_j p2_j r_ij - J), ds1_i/dq1 = k_i.
    first, second = (
        softmax([sum(a * b for a, b in zip(q, k, strict=True)) for k in KEYS.tolist()], [True] * 3)
        for q in query.tolist()
    )
    expected_reward = sum(first[i] * second[j] * float(REWARD[i, j]) for i, j in product(range(3), repeat=2))
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for i in range(3):
        expected[0] += first[i] * (sum(second[j] * float(REWARD[i, j]) for j in range(3)) - expected_reward) * KEYS[i]
        expected[1] += second[i] * (sum(first[j] * float(REWARD[j, i]) for j in range(3)) - expected_reward) * KEYS[i]

    # The mean of the estimates of all pairs of choices, weighted with their probabilities.
    mean = torch.zeros(2, 2, dtype=torch.float64)
    for choices in product(range(3), repeat=2):
        row = chosen.index(choices)
        log_prob = output.log_prob[row, :, None]  # (T, 1)
        advantage = (REWARD[choices] - baseline).expand(2, 1)
        loss = policy_gradient_loss(log_prob, advantage, torch.ones(2, 1, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(-loss, query, retain_graph=True)
        mean += first[choices[0]] * second[choices[1]] * gradient
    torch.testing.assert_close(mean, expected)


def test_reinforce_trains_all_heads_by_the_sum_of_their_log_probabilities() -> None:
    torch.manual_seed(3)
    rows, reward = 500, torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 0.0, 0.25]], dtype=torch.float64)
    attention = MultiHeadAttention(4, num_heads=2, score=Dot, select=Hard).double()
    query, keys = torch.randn(1, 1, 4, dtype=torch.float64), torch.randn(1, 3, 4, dtype=torch.float64)
    weight = attention.query.weight

    # The gradient of the expected reward over the choices of both heads, with the softmax of each head written out.
    q, k = query[0, 0] @ weight.T, keys[0] @ attention.key.weight.T
    powers = [(k[:, head : head + 2] @ q[head : head + 2]).exp() for head in (0, 2)]
    first, second = (power / power.sum() for power in powers)
    (expected,) = torch.autograd.grad((first[:, None] * second * reward).sum(), weight)

    output = attention(query.expand(rows, -1, -1), keys.expand(rows, -1, -1), keys.expand(rows, -1, -1))
    assert output.weights is not None and output.log_prob is not None
    assert output.log_prob.shape == (rows, 1)
    chosen = [tuple(row) for row in output.weights[:, :, 0].argmax(-1).tolist()]  # (B, H)
    mean = torch.zeros_like(weight)
    for i, j in product(range(3), repeat=2):
        log_prob = output.log_prob[chosen.index((i, j))][None]
        loss = policy_gradient_loss(log_prob, reward[i, j].expand(1, 1), torch.ones(1, 1, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(-loss, weight, retain_graph=True)
        mean += (first[i] * second[j]).detach() * gradient
    torch.testing.assert_close(mean, expected)


# Gumbel-softmax.


@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0])
def test_gumbel_samples_from_the_softmax_at_any_temperature(temperature: float) -> None:
    torch.manual_seed(0)
    weights = GumbelSoftmax(temperature=temperature)(SCORES.expand(1, 20_000, 4)).weights
    torch.testing.assert_close(frequencies(weights), torch.tensor(PROBABILITIES), atol=0.015, rtol=0)
    mask = torch.tensor([False, True, False, True])
    weights = GumbelSoftmax(temperature=temperature)(SCORES.expand(1, 20_000, 4), mask).weights
    torch.testing.assert_close(frequencies(weights), torch.tensor([0, 2 / 3, 0, 1 / 3]), atol=0.015, rtol=0)
    assert not weights[..., ~mask].any()


@pytest.mark.parametrize("training", [True, False])
def test_gumbel_weights_are_exactly_one_hot(training: bool) -> None:
    torch.manual_seed(0)
    selection = GumbelSoftmax().train(training)(torch.randn(1, 1000, 7))
    assert set(selection.weights.unique().tolist()) == {0, 1}
    assert (selection.weights.sum(-1) == 1).all()
    assert selection.log_prob is None


def test_gumbel_is_the_most_probable_key_in_evaluation() -> None:
    torch.manual_seed(0)
    weights = GumbelSoftmax().eval()(SCORES.expand(1, 50, 4)).weights
    torch.testing.assert_close(weights, torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(1, 50, 4))


def _jacobian(select: GumbelSoftmax, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the weights (N,) of scores (N,) and their Jacobian (N, N)."""
    scores = scores.clone().requires_grad_()
    weights = select(scores[None, None], mask).weights[0, 0]
    rows = [torch.autograd.grad(weight, scores, retain_graph=True)[0] for weight in weights]
    return weights.detach(), torch.stack(rows)


def test_the_gradient_of_gumbel_is_that_of_the_softmax() -> None:
    temperature = 0.7
    scores = torch.tensor([0.3, -0.2, 0.9, 5.0], dtype=torch.float64)
    mask = torch.tensor([True, True, True, False])
    _, jacobian = _jacobian(GumbelSoftmax(temperature=temperature).eval(), scores, mask)
    soft = softmax([score / temperature for score in scores.tolist()], mask.tolist())
    expected = [[soft[i] * ((i == j) - soft[j]) / temperature for j in range(4)] for i in range(4)]
    torch.testing.assert_close(jacobian, torch.tensor(expected, dtype=torch.float64))
    assert not jacobian[3].any() and not jacobian[:, 3].any()


def test_the_gradient_of_gumbel_in_training_is_that_of_the_softmax_with_noise() -> None:
    temperature, select = 0.7, GumbelSoftmax(temperature=0.7)
    samples = []
    for seed in range(20):
        torch.manual_seed(seed)
        weights, jacobian = _jacobian(select, torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64))
        # The entries of a softmax's Jacobian off the diagonal are -p_i p_j / temperature, which determine p.
        products = -temperature * jacobian
        ab, bc, ac = (float(products[i, j]) for i, j in ((0, 1), (1, 2), (0, 2)))
        soft = [math.sqrt(ab * ac / bc), math.sqrt(ab * bc / ac), math.sqrt(ac * bc / ab)]
        assert sum(soft) == pytest.approx(1)
        for i in range(3):
            assert float(jacobian[i, i]) == pytest.approx(soft[i] * (1 - soft[i]) / temperature)
        assert weights.argmax() == soft.index(max(soft))
        samples.append(tuple(round(probability, 6) for probability in soft))
    assert len(set(samples)) == 20  # new noise in every call
