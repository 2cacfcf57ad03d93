"""The moving average of the weights, by hand."""

import pytest
import torch

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


def test_early_on_the_average_is_short() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.999)
    torch.nn.init.constant_(module.weight, 2.0)
    average.update(0)
    assert average.state_dict()["weight"].item() == pytest.approx(0.1 * 1 + 0.9 * 2)


def test_without_decay_it_is_the_weights_themselves() -> None:
    module = _module(1.0)
    average = WeightAverage(module, 0.0)
    torch.nn.init.constant_(module.weight, 2.0)
    average.update(5)
    assert average.state_dict()["weight"].item() == 2.0


def test_applied_exchanges_and_gives_back_whatever_happens() -> None:
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
