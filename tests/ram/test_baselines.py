"""Baselines: values and losses computed by hand."""

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


def test_no_baseline_is_zero_and_has_no_loss() -> None:
    returns = torch.rand(2, 3)
    output = NoBaseline(4, 1)(_rollout(torch.zeros(2, 3, 4)), returns)
    assert torch.equal(output.value, torch.zeros(2, 3))
    assert output.loss == 0


def test_moving_average_is_the_mean_of_earlier_batches() -> None:
    baseline = MovingAverageBaseline(1, 1, decay=0.5)
    rollout = _rollout(torch.zeros(1, 2, 1))
    first = baseline(rollout, torch.tensor([[2.0, 4.0]])).value
    second = baseline(rollout, torch.tensor([[9.0, 9.0]])).value
    third = baseline(rollout, torch.tensor([[0.0, 0.0]])).value
    assert torch.equal(first, torch.zeros(1, 2))
    assert torch.equal(second, torch.full((1, 2), 3.0))  # corrected for the initial zero
    assert torch.equal(third, torch.full((1, 2), (0.25 * 3 + 0.5 * 9) / 0.75))


def test_moving_average_does_not_change_in_evaluation() -> None:
    baseline = MovingAverageBaseline(1, 1).eval()
    before = {name: value.clone() for name, value in baseline.state_dict().items()}
    baseline(_rollout(torch.zeros(1, 2, 1)), torch.ones(1, 2))
    assert all(torch.equal(value, before[name]) for name, value in baseline.state_dict().items())


def test_learned_baseline_has_the_squared_error_as_loss_and_no_gradient_into_the_features() -> None:
    baseline = LearnedBaseline(2, 1)
    with torch.no_grad():
        baseline.head.weight.copy_(torch.tensor([[1.0, -1.0]]))
        baseline.head.bias.fill_(0.5)
    features = torch.tensor([[[3.0, 1.0], [0.0, 0.0]]], requires_grad=True)
    output = baseline(_rollout(features), torch.tensor([[2.0, 0.0]]))
    assert torch.equal(output.value, torch.tensor([[2.5, 0.5]]))
    assert output.loss.item() == pytest.approx((0.5**2 + 0.5**2) / 2)
    assert not output.value.requires_grad
    output.loss.backward()
    assert features.grad is None
    assert baseline.head.bias.grad is not None


def test_leave_one_out_is_the_mean_of_the_other_rollouts_of_the_image() -> None:
    returns = torch.tensor([[1.0, 2.0, 6.0, 10.0, 20.0, 60.0]])
    value = LeaveOneOutBaseline(1, 3)(_rollout(torch.zeros(1, 6, 1), rollouts=3), returns).value
    assert torch.equal(value, torch.tensor([[4.0, 3.5, 1.5, 40.0, 35.0, 15.0]]))


def test_leave_one_out_refuses_one_rollout_per_image() -> None:
    with pytest.raises(InputError, match=r"task\.rollouts_per_image"):
        LeaveOneOutBaseline(1, 1)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_moving_average_refuses_a_decay_outside_its_range(decay: float) -> None:
    with pytest.raises(InputError, match=r"baseline\.decay"):
        MovingAverageBaseline(1, 1, decay=decay)


def test_baselines_use_active_steps_only() -> None:
    active = torch.tensor([[True, True, True, True], [True, False, True, True]])
    rollout = _rollout(torch.ones(2, 4, 1), rollouts=2, active=active)
    returns = torch.tensor([[1.0, 3.0, 5.0, 7.0], [2.0, 0.0, 6.0, 8.0]])
    value = LeaveOneOutBaseline(1, 2)(rollout, returns).value
    assert value[0].tolist() == [3, 1, 7, 5]
    assert value[1, 0] == 0  # the other rollout of its image has ended
    assert value[1, 2:].tolist() == [8, 6]
    average = MovingAverageBaseline(1, 1, decay=0.0)
    average(rollout, returns)
    assert average.mean == returns[active].mean()
    learned = LearnedBaseline(1, 1)
    value = learned(rollout, returns).value
    torch.testing.assert_close(learned(rollout, returns).loss, (value - returns)[active].square().mean())
