"""Baselines against numbers worked out by hand."""

import pytest
import torch

from envs import InputError
from ram.baselines import LearnedBaseline, LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.reinforce import Rollout


def _rollout(features: torch.Tensor, rollouts: int = 1, active: torch.Tensor | None = None) -> Rollout:
    empty = torch.zeros(*features.shape[:2])
    group = torch.arange(features.shape[1]) // rollouts
    mask = empty.bool()
    return Rollout(features, empty, ~mask if active is None else active, mask, empty, group)


def test_none_is_zero_and_learns_nothing() -> None:
    returns = torch.rand(2, 3)
    estimate = NoBaseline(4, 1)(_rollout(torch.zeros(2, 3, 4)), returns)
    assert torch.equal(estimate.value, torch.zeros(2, 3))
    assert estimate.loss == 0


def test_moving_average_judges_a_batch_by_earlier_ones() -> None:
    baseline = MovingAverageBaseline(1, 1, decay=0.5)
    rollout = _rollout(torch.zeros(1, 2, 1))
    first = baseline(rollout, torch.tensor([[2.0, 4.0]])).value
    second = baseline(rollout, torch.tensor([[9.0, 9.0]])).value
    third = baseline(rollout, torch.tensor([[0.0, 0.0]])).value
    assert torch.equal(first, torch.zeros(1, 2))
    assert torch.equal(second, torch.full((1, 2), 3.0))  # the first batch's mean, not held back by the zero start
    assert torch.equal(third, torch.full((1, 2), (0.25 * 3 + 0.5 * 9) / 0.75))


def test_moving_average_does_not_move_in_evaluation() -> None:
    baseline = MovingAverageBaseline(1, 1).eval()
    before = {name: value.clone() for name, value in baseline.state_dict().items()}
    baseline(_rollout(torch.zeros(1, 2, 1)), torch.ones(1, 2))
    assert all(torch.equal(value, before[name]) for name, value in baseline.state_dict().items())


def test_learned_is_trained_by_squared_error_and_sends_nothing_back() -> None:
    baseline = LearnedBaseline(2, 1)
    with torch.no_grad():
        baseline.head.weight.copy_(torch.tensor([[1.0, -1.0]]))
        baseline.head.bias.fill_(0.5)
    features = torch.tensor([[[3.0, 1.0], [0.0, 0.0]]], requires_grad=True)
    estimate = baseline(_rollout(features), torch.tensor([[2.0, 0.0]]))
    assert torch.equal(estimate.value, torch.tensor([[2.5, 0.5]]))
    assert estimate.loss.item() == pytest.approx((0.5**2 + 0.5**2) / 2)
    assert not estimate.value.requires_grad
    estimate.loss.backward()
    assert features.grad is None
    assert baseline.head.bias.grad is not None


def test_leave_one_out_is_the_mean_of_the_others_of_the_same_image() -> None:
    returns = torch.tensor([[1.0, 2.0, 6.0, 10.0, 20.0, 60.0]])
    value = LeaveOneOutBaseline(1, 3)(_rollout(torch.zeros(1, 6, 1), rollouts=3), returns).value
    assert torch.equal(value, torch.tensor([[4.0, 3.5, 1.5, 40.0, 35.0, 15.0]]))


def test_leave_one_out_needs_others() -> None:
    with pytest.raises(InputError, match=r"task\.rollouts_per_image"):
        LeaveOneOutBaseline(1, 1)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_moving_average_refuses_a_decay_outside_its_range(decay: float) -> None:
    with pytest.raises(InputError, match=r"baseline\.decay"):
        MovingAverageBaseline(1, 1, decay=decay)


def test_rows_that_have_ended_teach_a_baseline_nothing() -> None:
    active = torch.tensor([[True, True, True, True], [True, False, True, True]])
    rollout = _rollout(torch.ones(2, 4, 1), rollouts=2, active=active)
    returns = torch.tensor([[1.0, 3.0, 5.0, 7.0], [2.0, 0.0, 6.0, 8.0]])
    others = LeaveOneOutBaseline(1, 2)(rollout, returns).value
    assert others[0].tolist() == [3, 1, 7, 5]
    assert others[1, 0] == 0  # the other rollout of its image has ended
    assert others[1, 2:].tolist() == [8, 6]
    average = MovingAverageBaseline(1, 1, decay=0.0)
    average(rollout, returns)
    assert average.mean == returns[active].mean()
    learned = LearnedBaseline(1, 1)
    value = learned(rollout, returns).value
    torch.testing.assert_close(learned(rollout, returns).loss, (value - returns)[active].square().mean())
