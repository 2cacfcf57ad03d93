"""Gradients of whole episodes: those of all looks at once equal those of automatic differentiation."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from ram.agent import RecurrentAttention
from ram.networks import CoreNetwork, GlimpseNetwork, PatchConvolutions
from ram.policies import LocationNetwork
from ram.unroll import BatchedUnroll, Unroll

LOOKS, ROWS, PATCH = 5, 3, (2, 1, 4, 3)


def make_agent(**options: object) -> RecurrentAttention:
    torch.manual_seed(0)
    agent = RecurrentAttention(
        PATCH,
        num_classes=3,
        glimpse=partial(GlimpseNetwork, patch_features=6, location_features=5, output_size=8),
        core=partial(CoreNetwork, size=7),
        **options,  # type: ignore[arg-type]
    )
    agent.glimpse.input_scale.rms.copy_(torch.tensor([0.5, 0.25]).view(2, 1, 1, 1))
    return agent.double()


def observations() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "patches": torch.rand(ROWS, *PATCH, generator=generator, dtype=torch.float64),
            "location": torch.rand(ROWS, 2, generator=generator, dtype=torch.float64) * 2 - 1,
        }
        for _ in range(LOOKS)
    ]


def run(agent: RecurrentAttention, unroll: Unroll, looks: int, uses_patches: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The features of an episode, and the gradients of a function of all of them, and of the patch features if used."""
    steps = [unroll.step(observation).features.detach().clone() for observation in observations()[:looks]]
    features, action_features, patch_features = unroll.features()
    assert torch.equal(features, torch.stack(steps))
    assert torch.equal(action_features, features)
    generator = torch.Generator().manual_seed(2)
    of_features, of_patches = (
        (each.sin() * torch.randn(each.shape, generator=generator, dtype=torch.float64)).sum()
        for each in (features, patch_features)
    )
    agent.zero_grad()
    (of_features + of_patches if uses_patches else of_features).backward()
    return features.detach(), {
        name: value.grad.clone() for name, value in agent.named_parameters() if value.grad is not None
    }


@pytest.mark.parametrize("uses_patches", [False, True])
@pytest.mark.parametrize("looks", [1, 2, LOOKS])  # an episode may end before its last look
def test_gradients_of_all_looks_at_once_equal_those_of_every_step(looks: int, uses_patches: bool) -> None:
    agent = make_agent()
    unroll = agent.unroll(LOOKS)
    assert isinstance(unroll, BatchedUnroll)
    features, gradients = run(agent, unroll, looks, uses_patches)
    expected_features, expected = run(agent, Unroll(agent.step), looks, uses_patches)
    torch.testing.assert_close(features, expected_features)
    recurrent = {"core.layers.0.hidden.weight"}  # is not used by the first look
    assert gradients.keys() - recurrent == expected.keys() - recurrent
    assert len(gradients) == 9
    for name in expected:
        torch.testing.assert_close(gradients[name], expected[name])


def test_a_policy_loss_may_flow_into_the_core() -> None:
    gradients = []
    for batched in (True, False):
        agent = make_agent(policy=partial(LocationNetwork, backprop_into_core=True))
        torch.nn.init.constant_(agent.location.mean[0].weight, 0.1)  # it begins at 0
        unroll = agent.unroll(LOOKS) if batched else Unroll(agent.step)
        for observation in observations():
            unroll.step(observation)
        features, _, _ = unroll.features()
        agent.location(features, torch.arange(LOOKS)).log_prob(
            torch.zeros(LOOKS, ROWS, 2, dtype=torch.float64)
        ).sum().backward()
        gradients.append([value.grad for value in agent.glimpse.parameters()])
    for batched_gradient, gradient in zip(*gradients, strict=True):
        assert gradient.count_nonzero()
        torch.testing.assert_close(batched_gradient, gradient)


def test_other_networks_are_differentiated_step_by_step() -> None:
    for options in (
        {"core": partial(CoreNetwork, cell="gru", size=7)},
        {"core": partial(CoreNetwork, cell="lstm", size=7)},
        {"core": partial(CoreNetwork, num_layers=2, size=7)},
        {"glimpse": partial(GlimpseNetwork, convolutions=PatchConvolutions)},
        {"num_goals": 3},
        {"context_shape": (1, 4, 4)},
    ):
        agent = RecurrentAttention(PATCH, num_classes=3, **options)  # type: ignore[arg-type]
        assert type(agent.unroll(LOOKS)) is Unroll
    agent = make_agent()
    with torch.autocast("cpu", torch.bfloat16):
        assert type(agent.unroll(LOOKS)) is Unroll
