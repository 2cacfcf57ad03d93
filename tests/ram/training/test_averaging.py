"""The moving average of the weights against values computed by hand."""

import pytest
import torch

from envs import InputError
from ram.training.averaging import WeightAverage


def _module(value: float) -> torch.nn.Module:
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, value)
    return module


def test_the_average_follows_with_its_decay() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.9)
    torch.nn.init.constant_(module.weight, 2.0)
    average.update(10_000)
    assert average.state_dict()["weight"].item() == pytest.approx(0.9 * 1 + 0.1 * 2)


def test_the_first_decays_are_smaller() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.999)
    torch.nn.init.constant_(module.weight, 2.0)
    average.update(0)
    assert average.state_dict()["weight"].item() == pytest.approx(0.1 * 1 + 0.9 * 2)


def test_without_decay_the_average_equals_the_weights() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.0)
    torch.nn.init.constant_(module.weight, 2.0)
    average.update(5)
    assert average.state_dict()["weight"].item() == 2.0


def test_applied_restores_the_weights_after_an_exception() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.5)
    torch.nn.init.constant_(module.weight, 3.0)
    with pytest.raises(RuntimeError), average.applied():
        assert module.weight.item() == 1.0
        raise RuntimeError
    assert module.weight.item() == 3.0
    assert average.state_dict()["weight"].item() == 1.0


def test_state_is_restored() -> None:
    average, other = WeightAverage(_module(1.0), 0.5), WeightAverage(_module(7.0), 0.5)
    other.load_state_dict(average.state_dict())
    assert other.state_dict()["weight"].item() == 1.0


class Normalized(torch.nn.Module):
    """A training step normalizes the step and the next integer, times a trained weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.norm, self.other = torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1, eps=0.0).eval()
        self.again = self.norm
        self.register_buffer("calls", torch.tensor(0))

    def train(self, mode: bool = True) -> "Normalized":
        super().train(mode)
        self.other.eval()  # frozen
        return self

    def forward(self, step: int) -> torch.Tensor:
        self.calls += 1
        return self.norm(self.other(self.weight * torch.tensor([[step], [step + 1.0]])))


def test_batch_statistics_of_the_average_leave_the_module_unchanged() -> None:
    module = Normalized()
    average = WeightAverage(module, 0.5)
    torch.nn.init.constant_(module.weight, 5.0)
    average.update(10_000)  # the average is 3
    module.train()
    module(100)
    torch.nn.init.constant_(module.other.running_mean, 7.0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    average.gather_statistics(range(2, 4))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training and module.norm.momentum == 0.1
    with average.applied():
        # 3 times 2, 3 and 3, 4, less 7: means 0.5 and 3.5, variance 4.5 of both
        assert module.norm.running_mean.item() == pytest.approx(2.0)
        assert module.norm.running_var.item() == pytest.approx(4.5)
        assert module.other.running_mean.item() == 7.0, "a frozen norm keeps its statistics"
    state = average.state_dict()
    assert {"weight", "norm.weight", "norm.running_mean", "other.running_var"} < state.keys()
    assert state["norm.running_mean"].item() == state["again.running_mean"].item() == pytest.approx(2.0)
    with pytest.raises(InputError, match=r"has no average of norm\.running_var: it belongs to another version"):
        average.load_state_dict({name: value for name, value in state.items() if name != "norm.running_var"})
    restored = WeightAverage(Normalized(), 0.5)
    restored.load_state_dict(state)
    assert restored.state_dict()["norm.running_var"].item() == pytest.approx(4.5)
