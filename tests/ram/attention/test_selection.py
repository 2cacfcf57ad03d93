"""The selections against their formulas, in plain Python, and against numbers worked out by hand."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.errors import InputError
from ram.attention import Attention, MultiHeadAttention, causal_mask, padding_mask
from ram.attention.scores import Dot
from ram.attention.selection import (
    Diagonal,
    GumbelSoftmax,
    Hard,
    Local,
    LocalMonotonic,
    LocalPredictive,
    Select,
    Soft,
    Uniform,
    Unnormalised,
)
from ram.reinforce import policy_gradient_loss

SHARES = [0.1, 0.4, 0.3, 0.2]
SCORES = torch.tensor([[[math.log(share) + 3 for share in SHARES]]])


def softmax(scores: list[float], visible: list[bool]) -> list[float]:
    """Of those visible; zeros where none is."""
    most = max((score for score, seen in zip(scores, visible, strict=True) if seen), default=0.0)
    powers = [math.exp(score - most) if seen else 0.0 for score, seen in zip(scores, visible, strict=True)]
    return [power / (sum(powers) or 1.0) for power in powers]


def random_problem(seed: int, batch: int, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Scores, and a mask that may hide everything from a query."""
    torch.manual_seed(seed)
    return 3 * torch.randn(batch, queries, keys, dtype=torch.float64), torch.rand(batch, queries, keys) < 0.6


PROBLEMS = {
    "seed": st.integers(0, 2**32 - 1),
    "batch": st.integers(1, 3),
    "queries": st.integers(1, 3),
    "keys": st.integers(1, 6),
}


def shares(weights: Tensor) -> Tensor:
    """How often each key was chosen: (1, Q, N) one-hot -> (N,)."""
    return weights[0].mean(0)


# Soft.


def test_soft_by_hand() -> None:
    scores = torch.tensor([[[0.0, math.log(2), math.log(5)]]])
    torch.testing.assert_close(Soft()(scores).weights, torch.tensor([[[1 / 8, 2 / 8, 5 / 8]]]))
    weights = Soft()(scores, torch.tensor([[[True, True, False]]])).weights
    torch.testing.assert_close(weights, torch.tensor([[[1 / 3, 2 / 3, 0]]]))
    assert weights[0, 0, 2] == 0
    assert Soft()(scores).log_prob is None


@settings(max_examples=30, deadline=None)
@given(**PROBLEMS)
def test_soft_is_the_softmax_of_what_is_visible(seed: int, batch: int, queries: int, keys: int) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    expected = [[softmax(scores[b, q].tolist(), mask[b, q].tolist()) for q in range(queries)] for b in range(batch)]
    weights = Soft()(scores, mask).weights
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert not weights[~mask].any()


def test_soft_stands_large_scores() -> None:
    scores = torch.tensor([[[1e4, 1e4 + 1, -1e30, 3e38]]])
    weights = Soft()(scores, torch.tensor([True, True, True, False])).weights
    torch.testing.assert_close(weights, torch.tensor([[[1 / (1 + math.e), math.e / (1 + math.e), 0, 0]]]))


# Without normalisation.


def test_unnormalised_weights_are_the_scores() -> None:
    scores = torch.tensor([[[2.0, -3.0, 0.5]]])
    assert torch.equal(Unnormalised()(scores).weights, scores)
    weights = Unnormalised()(scores, torch.tensor([[[True, True, False]]])).weights
    assert weights.tolist() == [[[2, -3, 0]]]
    assert Unnormalised()(scores).log_prob is None


# Controls, whatever the scores.

CONTROLS = {"uniform": Uniform(), "diagonal": Diagonal(), "from_end": Diagonal(from_end=True)}


def test_uniform_by_hand() -> None:
    scores = torch.tensor([[[5.0, -3.0, 0.0, 9.0], [0.0, 0.0, 0.0, 1e30]]])
    assert Uniform()(scores).weights.tolist() == [[[1 / 4] * 4] * 2]
    mask = torch.tensor([[[True, False, True, False], [False, False, True, False]]])
    assert Uniform()(scores, mask).weights.tolist() == [[[1 / 2, 0, 1 / 2, 0], [0, 0, 1, 0]]]


def test_diagonal_by_hand() -> None:
    scores = torch.tensor([5.0, -3.0, 9.0]).expand(2, 4, 3)
    weights = Diagonal()(scores).weights
    assert weights.argmax(-1).tolist() == [[0, 1, 2, 2]] * 2  # the last query has no key of its own
    assert weights.sum(-1).tolist() == [[1] * 4] * 2 and weights.dtype == scores.dtype
    weights = Diagonal(from_end=True)(scores).weights
    assert weights.tolist() == [[[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 0]]] * 2


def test_diagonal_counts_what_is_visible() -> None:
    scores, mask = torch.zeros(3, 4, 5), padding_mask(torch.tensor([5, 3, 1]), 5)
    assert Diagonal()(scores, mask).weights.argmax(-1).tolist() == [[0, 1, 2, 3], [0, 1, 2, 2], [0, 0, 0, 0]]
    weights = Diagonal(from_end=True)(scores, mask).weights
    assert weights.argmax(-1).tolist() == [[4, 3, 2, 1], [2, 1, 0, 0], [0, 0, 0, 0]]
    assert torch.equal(weights.sum(-1), torch.ones(3, 4))


def test_diagonal_follows_the_step_and_stays_at_the_last() -> None:
    scores, step = torch.zeros(2, 3, 4), torch.tensor([1, 3, 90])
    mask = padding_mask(torch.tensor([4, 3]), 4)
    assert Diagonal()(scores, mask, None, step).weights.argmax(-1).tolist() == [[1, 3, 3], [1, 2, 2]]
    assert Diagonal(from_end=True)(scores, mask, None, step).weights.argmax(-1).tolist() == [[2, 0, 0], [1, 0, 0]]


def test_in_self_attention_the_diagonal_is_the_word_itself_and_from_its_end_the_first() -> None:
    scores, mask = torch.randn(1, 4, 4), causal_mask(4)
    assert torch.equal(Diagonal()(scores, mask).weights[0], torch.eye(4))
    assert Diagonal(from_end=True)(scores, mask).weights[0].argmax(-1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CONTROLS)
@settings(max_examples=20, deadline=None)
@given(**PROBLEMS, first=st.integers(0, 8))
def test_controls_are_their_formula(
    name: str, training: bool, seed: int, batch: int, queries: int, keys: int, first: int
) -> None:
    scores, _ = random_problem(seed, batch, queries, keys)
    lengths = torch.randint(0, keys + 1, (batch,))
    step = torch.arange(first, first + queries)
    weights = CONTROLS[name].train(training)(scores, padding_mask(lengths, keys), None, step).weights
    for b, q in product(range(batch), range(queries)):
        length = int(lengths[b])
        expected = [0.0] * keys
        if length and name == "uniform":
            expected[:length] = [1 / length] * length
        elif length:
            place = min(first + q, length - 1)
            expected[place if name == "diagonal" else length - 1 - place] = 1
        assert weights[b, q].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_have_nothing_to_learn_and_choose_nothing(name: str) -> None:
    select = CONTROLS[name]
    selection = select(torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3, 4) < 0.7)
    assert not list(select.parameters())
    assert not selection.weights.requires_grad
    assert selection.log_prob is None


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_that_sees_nothing_weighs_nothing(name: str) -> None:
    mask = torch.tensor([[[True, True, False], [False, False, False]], [[False] * 3] * 2])
    weights = CONTROLS[name](torch.randn(2, 2, 3), mask).weights
    assert weights.sum(-1).tolist() == [[1, 0], [0, 0]]
    assert not weights[~mask].any()


# Hard.


def test_hard_takes_the_likeliest_in_evaluation() -> None:
    select = Hard().eval()
    selection = select(SCORES.expand(2, 3, 4), torch.tensor([[[True] * 4], [[True, False, True, True]]]))
    assert selection.weights.tolist() == [[[0, 1, 0, 0]] * 3, [[0, 0, 1, 0]] * 3]
    assert selection.log_prob is not None
    expected = torch.tensor([[math.log(0.4)] * 3, [math.log(0.3 / 0.6)] * 3])
    torch.testing.assert_close(selection.log_prob, expected)


def test_hard_samples_follow_the_softmax_in_training() -> None:
    torch.manual_seed(0)
    selection = Hard()(SCORES.expand(1, 20_000, 4))
    assert torch.equal(selection.weights.sum(-1), torch.ones(1, 20_000))
    assert set(selection.weights.unique().tolist()) == {0, 1}
    torch.testing.assert_close(shares(selection.weights), torch.tensor(SHARES), atol=0.015, rtol=0)
    # Every log-probability is that of the key that was chosen.
    assert selection.log_prob is not None
    expected = selection.weights @ torch.tensor(SHARES).log()
    torch.testing.assert_close(selection.log_prob, expected)


def test_a_share_of_hard_choices_is_soft_in_training_alone() -> None:
    torch.manual_seed(0)
    select = Hard(soft_share=0.3)
    selection = select(SCORES.expand(1, 20_000, 4))
    soft = (selection.weights - torch.tensor(SHARES)).abs().amax(-1) < 1e-6
    assert soft.float().mean().item() == pytest.approx(0.3, abs=0.015)
    assert selection.log_prob is not None
    assert not selection.log_prob[soft].any() and (selection.log_prob[~soft] < 0).all()
    assert set(selection.weights[~soft].unique().tolist()) == {0, 1}
    assert set(select.eval()(SCORES.expand(1, 10, 4)).weights.unique().tolist()) == {0, 1}
    with pytest.raises(InputError, match=r"^The soft_share of Hard must be in \[0, 1\)"):
        Hard(soft_share=1.0)


def test_hard_never_chooses_what_is_hidden() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([False, True, False, True])
    selection = Hard()(SCORES.expand(1, 20_000, 4), mask)
    torch.testing.assert_close(shares(selection.weights), torch.tensor([0, 2 / 3, 0, 1 / 3]), atol=0.015, rtol=0)
    assert not selection.weights[..., ~mask].any()
    assert selection.log_prob is not None
    expected = selection.weights @ torch.tensor([0, 2 / 3, 0, 1 / 3]).clamp(min=1e-9).log()
    torch.testing.assert_close(selection.log_prob, expected)


def test_what_a_hard_choice_is_drawn_from() -> None:
    choices = Hard().choices(SCORES, torch.tensor([False, True, False, True]))
    log_prob = choices.log_prob(torch.tensor([[3]]))
    torch.testing.assert_close(log_prob, torch.tensor([[math.log(1 / 3)]]))
    entropy = -2 / 3 * math.log(2 / 3) - 1 / 3 * math.log(1 / 3)  # of what is visible alone
    torch.testing.assert_close(choices.entropy(), torch.tensor([[entropy]]))


def test_the_score_function_of_a_hard_choice_is_one_hot_less_softmax() -> None:
    torch.manual_seed(0)
    scores = SCORES.repeat(1, 50, 1).requires_grad_()
    selection = Hard()(scores)
    assert not selection.weights.requires_grad  # no gradient but through the log-probability
    assert selection.log_prob is not None
    (gradient,) = torch.autograd.grad(selection.log_prob.sum(), scores)
    torch.testing.assert_close(gradient, selection.weights - torch.tensor(SHARES))


def test_samples_repeat_with_the_seed() -> None:
    for select in (Hard(), GumbelSoftmax()):
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(select(SCORES.expand(1, 50, 4)).weights)
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])


REWARD = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.5], [0.25, 1.0, 0.0]], dtype=torch.float64)  # by both choices
KEYS = torch.tensor([[0.5, -1.0], [1.0, 0.25], [-0.75, 0.5]], dtype=torch.float64)


@pytest.mark.parametrize("baseline", [0.0, 0.8])
def test_the_mean_of_reinforce_over_hard_choices_is_the_exact_gradient(baseline: float) -> None:
    torch.manual_seed(0)
    query = torch.tensor(
        [[0.3, -0.6], [-1.0, 0.4]], dtype=torch.float64, requires_grad=True
    )  # two steps, one choice each
    many = 2000
    keys, values = KEYS.expand(many, -1, -1), torch.eye(3, dtype=torch.float64).expand(many, -1, -1)
    read = Attention(Dot(2, 2), Hard())(query.expand(many, -1, -1), keys, values)
    assert read.log_prob is not None
    chosen = [tuple(row) for row in read.context.argmax(-1).tolist()]

    # By hand: p = softmax(q . k), J = sum_ij p1_i p2_j r_ij, dJ/ds1_i = p1_i (sum_j p2_j r_ij - J), ds1_i/dq1 = k_i.
    first, second = (
        softmax([sum(a * b for a, b in zip(q, k, strict=True)) for k in KEYS.tolist()], [True] * 3)
        for q in query.tolist()
    )
    worth = sum(first[i] * second[j] * float(REWARD[i, j]) for i, j in product(range(3), repeat=2))
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for i in range(3):
        expected[0] += first[i] * (sum(second[j] * float(REWARD[i, j]) for j in range(3)) - worth) * KEYS[i]
        expected[1] += second[i] * (sum(first[j] * float(REWARD[j, i]) for j in range(3)) - worth) * KEYS[i]

    # The estimate of one episode of each kind, weighted with its probability.
    mean = torch.zeros(2, 2, dtype=torch.float64)
    for choices in product(range(3), repeat=2):
        episode = chosen.index(choices)
        log_prob = read.log_prob[episode, :, None]  # (T, 1)
        advantage = (REWARD[choices] - baseline).expand(2, 1)
        loss = policy_gradient_loss(log_prob, advantage, torch.ones(2, 1, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(-loss, query, retain_graph=True)
        mean += first[choices[0]] * second[choices[1]] * gradient
    torch.testing.assert_close(mean, expected)


def test_reinforce_trains_all_heads_by_their_common_log_probability() -> None:
    torch.manual_seed(3)
    many, reward = 500, torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 0.0, 0.25]], dtype=torch.float64)
    attention = MultiHeadAttention(4, num_heads=2, score=Dot, select=Hard).double()
    query, keys = torch.randn(1, 1, 4, dtype=torch.float64), torch.randn(1, 3, 4, dtype=torch.float64)
    weight = attention.query.weight

    # The exact gradient: of the sum over both heads' choices, with each head's softmax written out.
    q, k = query[0, 0] @ weight.T, keys[0] @ attention.key.weight.T
    powers = [(k[:, head : head + 2] @ q[head : head + 2]).exp() for head in (0, 2)]
    first, second = (power / power.sum() for power in powers)
    (expected,) = torch.autograd.grad((first[:, None] * second * reward).sum(), weight)

    read = attention(query.expand(many, -1, -1), keys.expand(many, -1, -1), keys.expand(many, -1, -1))
    assert read.weights is not None and read.log_prob is not None
    assert read.log_prob.shape == (many, 1)
    chosen = [tuple(row) for row in read.weights[:, :, 0].argmax(-1).tolist()]  # (B, H)
    mean = torch.zeros_like(weight)
    for i, j in product(range(3), repeat=2):
        log_prob = read.log_prob[chosen.index((i, j))][None]
        loss = policy_gradient_loss(log_prob, reward[i, j].expand(1, 1), torch.ones(1, 1, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(-loss, weight, retain_graph=True)
        mean += (first[i] * second[j]).detach() * gradient
    torch.testing.assert_close(mean, expected)


# Gumbel-softmax.


@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0])
def test_gumbel_samples_follow_the_softmax_at_any_temperature(temperature: float) -> None:
    torch.manual_seed(0)
    weights = GumbelSoftmax(temperature=temperature)(SCORES.expand(1, 20_000, 4)).weights
    torch.testing.assert_close(shares(weights), torch.tensor(SHARES), atol=0.015, rtol=0)
    mask = torch.tensor([False, True, False, True])
    weights = GumbelSoftmax(temperature=temperature)(SCORES.expand(1, 20_000, 4), mask).weights
    torch.testing.assert_close(shares(weights), torch.tensor([0, 2 / 3, 0, 1 / 3]), atol=0.015, rtol=0)
    assert not weights[..., ~mask].any()


@pytest.mark.parametrize("training", [True, False])
def test_a_gumbel_choice_is_one_key_alone(training: bool) -> None:
    torch.manual_seed(0)
    selection = GumbelSoftmax().train(training)(torch.randn(1, 1000, 7))
    assert set(selection.weights.unique().tolist()) == {0, 1}  # exactly, for what is read is to be one value
    assert (selection.weights.sum(-1) == 1).all()
    assert selection.log_prob is None


def test_gumbel_takes_the_likeliest_in_evaluation() -> None:
    torch.manual_seed(0)
    weights = GumbelSoftmax().eval()(SCORES.expand(1, 50, 4)).weights
    torch.testing.assert_close(weights, torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(1, 50, 4))


def _jacobian(select: GumbelSoftmax, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The weights (N,) of scores (N,), and their derivatives (N, N)."""
    scores = scores.clone().requires_grad_()
    weights = select(scores[None, None], mask).weights[0, 0]
    rows = [torch.autograd.grad(weight, scores, retain_graph=True)[0] for weight in weights]
    return weights.detach(), torch.stack(rows)


def test_the_gradient_of_a_gumbel_choice_is_that_of_the_soft_one() -> None:
    temperature = 0.7
    scores = torch.tensor([0.3, -0.2, 0.9, 5.0], dtype=torch.float64)
    mask = torch.tensor([True, True, True, False])
    _, jacobian = _jacobian(GumbelSoftmax(temperature=temperature).eval(), scores, mask)
    soft = softmax([score / temperature for score in scores.tolist()], mask.tolist())
    expected = [[soft[i] * ((i == j) - soft[j]) / temperature for j in range(4)] for i in range(4)]
    torch.testing.assert_close(jacobian, torch.tensor(expected, dtype=torch.float64))
    assert not jacobian[3].any() and not jacobian[:, 3].any()


def test_in_training_it_is_the_gradient_of_the_disturbed_soft_choice() -> None:
    temperature, select = 0.7, GumbelSoftmax(temperature=0.7)
    seen = []
    for seed in range(20):
        torch.manual_seed(seed)
        weights, jacobian = _jacobian(select, torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64))
        # Off the diagonal of a softmax's derivatives stand -p_i p_j / temperature; from them, p itself.
        products = -temperature * jacobian
        ab, bc, ac = (float(products[i, j]) for i, j in ((0, 1), (1, 2), (0, 2)))
        soft = [math.sqrt(ab * ac / bc), math.sqrt(ab * bc / ac), math.sqrt(ac * bc / ab)]
        assert sum(soft) == pytest.approx(1)
        for i in range(3):
            assert float(jacobian[i, i]) == pytest.approx(soft[i] * (1 - soft[i]) / temperature)
        assert weights.argmax() == soft.index(max(soft))
        seen.append(tuple(round(share, 6) for share in soft))
    assert len(set(seen)) == 20  # noise of its own every time


# Local windows.


def window(scores: list[float], visible: list[bool], centre: float, half_width: int, gaussian: bool) -> list[float]:
    """Luong et al. 2015, section 3.2 and equation 10, with sigma = D / 2."""
    within = [seen and abs(place - centre) <= half_width for place, seen in enumerate(visible)]
    sigma = half_width / 2
    return [
        weight * (math.exp(-((place - centre) ** 2) / (2 * sigma**2)) if gaussian else 1)
        for place, weight in enumerate(softmax(scores, within))
    ]


def test_local_m_by_hand() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).log().expand(1, 5, 6)
    weights = LocalMonotonic(half_width=1)(scores, step=torch.tensor([0, 1, 3, 5, 9])).weights
    expected = [
        [1 / 3, 2 / 3, 0, 0, 0, 0],  # at the start the window is cut off
        [1 / 6, 2 / 6, 3 / 6, 0, 0, 0],
        [0, 0, 3 / 12, 4 / 12, 5 / 12, 0],
        [0, 0, 0, 0, 5 / 11, 6 / 11],  # so it is at the end
        [0, 0, 0, 0, 5 / 11, 6 / 11],  # where it stays
    ]
    torch.testing.assert_close(weights, torch.tensor([expected]))


def test_local_m_with_its_gaussian_by_hand() -> None:
    select = LocalMonotonic(half_width=2, gaussian=True)
    weights = select(torch.zeros(1, 1, 7), step=torch.tensor([3])).weights
    one, two = math.exp(-1 / 2), math.exp(-4 / 2)  # of one and of two places, the deviation being 1
    torch.testing.assert_close(weights, torch.tensor([[[0, two / 5, one / 5, 1 / 5, one / 5, two / 5, 0]]]))


def test_local_m_stays_at_the_end_of_what_is_visible() -> None:
    mask = padding_mask(torch.tensor([4, 1]), 6)
    weights = LocalMonotonic(half_width=1)(torch.zeros(2, 1, 6), mask, step=torch.tensor([5])).weights
    assert weights.tolist() == [[[0, 0, 0.5, 0.5, 0, 0]], [[1, 0, 0, 0, 0, 0]]]


def test_steps_count_from_0_unless_told_otherwise() -> None:
    scores = torch.zeros(2, 3, 6)
    select = LocalMonotonic(half_width=1)
    assert torch.equal(select(scores).weights, select(scores, step=torch.tensor([0, 1, 2])).weights)
    assert not torch.equal(select(scores).weights, select(scores, step=torch.tensor([1, 2, 3])).weights)


def test_a_window_of_luongs_width_is_the_default() -> None:
    weights = LocalMonotonic()(torch.zeros(1, 1, 50), step=torch.tensor([25])).weights[0, 0]
    assert weights.nonzero().flatten().tolist() == list(range(15, 36))


@settings(max_examples=40, deadline=None)
@given(**PROBLEMS, half_width=st.integers(1, 3), gaussian=st.booleans(), first=st.integers(0, 8), prefix=st.booleans())
def test_local_m_is_its_formula(
    seed: int, batch: int, queries: int, keys: int, half_width: int, gaussian: bool, first: int, prefix: bool
) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    if prefix:
        mask = padding_mask(mask.sum((1, 2)) % (keys + 1), keys).expand(batch, queries, keys)
    step = torch.arange(first, first + queries)
    expected = torch.zeros(batch, queries, keys, dtype=torch.float64)
    for b, q in product(range(batch), range(queries)):
        centre = max(0, min(first + q, int(mask[b, q].sum()) - 1))
        row = window(scores[b, q].tolist(), mask[b, q].tolist(), centre, half_width, gaussian)
        expected[b, q] = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(LocalMonotonic(None, half_width, gaussian)(scores, mask, None, step).weights, expected)


def _predicting(logit: float, half_width: int) -> LocalPredictive:
    """A centre at S sigmoid(logit) for the query (1,)."""
    select = LocalPredictive(1, half_width)
    with torch.no_grad():
        select.position[0].weight.fill_(0.5)
        select.position[2].weight.fill_(logit / math.tanh(0.5))
    return select


def test_local_p_by_hand() -> None:
    # sigmoid(-log 3) = 1/4, so the centre of 10 places is 2.5; within 2 of it lie 1 to 4; the deviation is 1.
    query = torch.ones(1, 1, 1)
    weights = _predicting(-math.log(3), half_width=2)(torch.zeros(1, 1, 10), None, query).weights
    near, far = math.exp(-(0.5**2) / 2), math.exp(-(1.5**2) / 2)
    expected = [0, far / 4, near / 4, near / 4, far / 4, 0, 0, 0, 0, 0]
    torch.testing.assert_close(weights, torch.tensor([[expected]]))


def test_local_p_between_two_places_by_hand() -> None:
    # The centre of 6 visible places of 8 is 1.5: within 1 of it lie 1 and 2, half a place from it; deviation 1/2.
    query, mask = torch.ones(1, 1, 1), padding_mask(torch.tensor([6]), 8)
    scores = torch.tensor([[[9.0, math.log(1), math.log(3), 9, 9, 9, 9, 9]]])
    weights = _predicting(-math.log(3), half_width=1)(scores, mask, query).weights
    near = math.exp(-(0.5**2) / (2 * 0.5**2))
    torch.testing.assert_close(weights, torch.tensor([[[0, near / 4, near * 3 / 4, 0, 0, 0, 0, 0]]]))


def test_local_p_at_both_ends() -> None:
    query, scores = torch.ones(1, 1, 1), torch.zeros(1, 1, 6)
    one, two = math.exp(-1 / 2), math.exp(-4 / 2)
    start = _predicting(-100, half_width=2)(scores, None, query).weights
    torch.testing.assert_close(start, torch.tensor([[[1 / 3, one / 3, two / 3, 0, 0, 0]]]))
    end = _predicting(100, half_width=2)(scores, None, query).weights  # the centre is S, a place past the last
    torch.testing.assert_close(end, torch.tensor([[[0, 0, 0, 0, two / 2, one / 2]]]))


@settings(max_examples=40, deadline=None)
@given(**PROBLEMS, half_width=st.integers(1, 3), width=st.integers(1, 3), hidden_size=st.sampled_from([None, 1, 4]))
def test_local_p_is_its_formula(
    seed: int, batch: int, queries: int, keys: int, half_width: int, width: int, hidden_size: int | None
) -> None:
    scores, mask = random_problem(seed, batch, queries, keys)
    query = 3 * torch.randn(batch, queries, width, dtype=torch.float64)
    select = LocalPredictive(width, half_width, hidden_size).double()
    inner, outer = select.position[0].weight, select.position[2].weight
    assert inner.shape == (hidden_size or width, width)
    expected = torch.zeros(batch, queries, keys, dtype=torch.float64)
    for b, q in product(range(batch), range(queries)):
        hidden = [
            math.tanh(sum(w * x for w, x in zip(row, query[b, q].tolist(), strict=True))) for row in inner.tolist()
        ]
        logit = sum(v * h for v, h in zip(outer[0].tolist(), hidden, strict=True))
        centre = int(mask[b, q].sum()) / (1 + math.exp(-logit))
        row = window(scores[b, q].tolist(), mask[b, q].tolist(), centre, half_width, gaussian=True)
        expected[b, q] = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(select(scores, mask, query).weights, expected)


def test_the_gradient_of_the_predicted_centre_comes_through_the_gaussian() -> None:
    select = _predicting(-math.log(3), half_width=1)
    query, scores = torch.ones(1, 1, 1, requires_grad=True), torch.zeros(1, 1, 6)
    weights = select(scores, None, query).weights[0, 0]
    (gradient,) = torch.autograd.grad(weights[2], query)
    # p = 6 sigmoid(logit) = 1.5, w = exp(-2 d^2) / 2 with d = 2 - p = 1/2, so dw/dp = 4 d w; dp/dlogit = 6 / 4 * 3 / 4;
    # logit = c tanh(q / 2) with c = -log 3 / tanh(1 / 2), so dlogit/dq = c (1 - tanh^2(1 / 2)) / 2.
    tanh = math.tanh(0.5)
    slope = -math.log(3) / tanh * (1 - tanh**2) / 2
    assert gradient.item() == pytest.approx(4 * 0.5 * math.exp(-0.5) / 2 * (6 / 4 * 3 / 4) * slope, rel=1e-5)


def test_windows_are_exact_in_half_precision() -> None:
    select, scores, step = LocalMonotonic(half_width=2, gaussian=True), torch.zeros(1, 1, 1000), torch.tensor([901])
    weights = select(scores.bfloat16(), step=step).weights
    assert weights.dtype == torch.bfloat16
    assert weights.nonzero()[:, 2].tolist() == [899, 900, 901, 902, 903]
    torch.testing.assert_close(weights.float(), select(scores, step=step).weights, rtol=0.01, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "select", [Soft(), Uniform(), Diagonal(), Unnormalised(), Hard(), GumbelSoftmax(), LocalMonotonic()]
)
def test_of_no_keys_none_is_selected(select: Select, training: bool) -> None:
    selection = select.train(training)(torch.zeros(2, 3, 0))
    assert selection.weights.shape == (2, 3, 0)
    if selection.log_prob is not None:
        assert torch.equal(selection.log_prob, torch.zeros(2, 3))


# What they refuse.


def test_wrong_options_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="temperature of GumbelSoftmax must be positive and finite, got 0"):
        GumbelSoftmax(temperature=0)
    with pytest.raises(InputError, match="temperature of GumbelSoftmax must be positive and finite, got nan"):
        GumbelSoftmax(temperature=math.nan)
    with pytest.raises(InputError, match="half_width of a local window must be at least 1, got 0"):
        LocalMonotonic(half_width=0)
    with pytest.raises(InputError, match="half_width of a local window must be at least 1, got -1"):
        LocalPredictive(3, half_width=-1)
    with pytest.raises(InputError, match=r"LocalPredictive .* must be told their width, query_size"):
        LocalPredictive()


@pytest.mark.parametrize("hidden_size", [0, -1])
def test_a_prediction_without_a_hidden_layer_is_refused(hidden_size: int) -> None:
    with pytest.raises(InputError, match=f"hidden_size .*, got {hidden_size}"):
        LocalPredictive(3, hidden_size=hidden_size)


def test_a_selection_without_a_rule_says_so() -> None:
    class Wordless(Select):
        pass

    class Nowhere(Local):
        pass

    with pytest.raises(TypeError, match="Wordless does not say how it selects"):
        Wordless()(torch.zeros(1, 1, 2))
    with pytest.raises(TypeError, match="Nowhere does not say where its window is"):
        Nowhere(None, 1, False)(torch.zeros(1, 1, 2))
