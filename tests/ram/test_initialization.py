"""Initial weights keep the scale of signals; inputs are brought to unit scale."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images import ImageSet
from ram.agent import RecurrentAttention
from ram.baselines import NoBaseline
from ram.initialization import InputScale, initialize_relu
from ram.networks import ContextNetwork, CoreNetwork, GlimpseNetwork
from ram.policies import BoxNetwork, LocationNetwork
from ram.sequence.recurrent import RecurrentEncoder
from ram.tasks.glimpse import GlimpseTask
from ram.training import checkpoint
from tests.ram.glimpse_tasks import build_task, random_images


def _rms(values: Tensor) -> float:
    return values.detach().square().mean().sqrt().item()


def test_the_scale_of_patches_is_kept_by_glimpse_network_and_relu_core() -> None:
    torch.manual_seed(0)
    patches, location = 0.05 * torch.randn(500, 3, 1, 12, 12), 2 * torch.rand(500, 2) - 1
    network, core = GlimpseNetwork((3, 1, 12, 12)), CoreNetwork(256, "rnn")
    network.input_scale.fit(patches)
    features = network.patch(network.input_scale(patches).flatten(1)).relu()
    assert _rms(features) == pytest.approx(1, rel=0.15)
    g, _ = network(patches, location)
    # g has as many inputs from the location, whose mean square is 1/3.
    assert _rms(g) == pytest.approx(math.sqrt((1 + 1 / 3) / 2), rel=0.15)
    state = None
    for look in range(1, 31):
        _, _, state = core(g, state)
        # Half of the mean square of h_t is that of g, half that of h_{t-1}; h_0 is 0.
        assert _rms(state[0]) == pytest.approx(_rms(g) * math.sqrt(1 - 0.5**look), rel=0.25)


@pytest.mark.parametrize("layer", [nn.Linear(600, 500), nn.Conv2d(24, 40, 5)])
def test_a_relu_layer_keeps_the_mean_square(layer: nn.Linear | nn.Conv2d) -> None:
    torch.manual_seed(0)
    initialize_relu(layer)
    inputs = torch.randn(100, 600) if isinstance(layer, nn.Linear) else torch.randn(10, 24, 9, 9)
    assert _rms(layer(inputs).relu()) == pytest.approx(1, rel=0.1)
    assert not layer.bias.any()


def test_hidden_layers_before_outputs_keep_the_mean_square() -> None:
    torch.manual_seed(0)
    network = LocationNetwork(400, hidden_size=300)
    assert _rms(network.mean[:2](torch.randn(100, 400))) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("hidden_size", [0, 256])
def test_the_sides_of_a_box_begin_near_the_center(hidden_size: int) -> None:
    torch.manual_seed(0)
    assert 0 < _rms(BoxNetwork(256, hidden_size)(torch.randn(100, 256)).mean) < 0.2


def test_the_context_keeps_its_scale_up_to_the_tanh() -> None:
    torch.manual_seed(0)
    context = 0.1 * torch.rand(50, 1, 20, 20)
    network = ContextNetwork((1, 20, 20), 256)
    network.input_scale.fit(context)
    assert _rms(network.input_scale(context)) == pytest.approx(1)
    assert 0.3 < _rms(network(context)) < 0.9


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_recurrent_matrices_of_gates_are_orthogonal_and_the_forget_gate_is_open(cell: str) -> None:
    for layer in CoreNetwork(7, cell, 5, num_layers=2).layers:
        for gate in layer.weight_hh.detach().split(5):
            torch.testing.assert_close(gate @ gate.T, torch.eye(5))
        forget = torch.zeros(len(layer.bias_ih))
        forget[5:10] = cell == "lstm"
        torch.testing.assert_close((layer.bias_ih + layer.bias_hh).detach(), forget)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_every_layer_and_direction_of_a_sequence_model_is_initialized_gate_by_gate(cell: str) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(6, cell, 4, num_layers=2, bidirectional=True)
    weights = {name: value.detach() for name, value in encoder.layers.named_parameters()}
    assert len(weights) == 16
    for name, value in weights.items():
        for number, gate in enumerate(value.split(4)):
            if name.startswith("weight_hh"):
                torch.testing.assert_close(gate @ gate.T, torch.eye(4))
            elif name.startswith("bias"):
                is_forget = cell == "lstm" and number == 1 and "_ih" in name
                assert gate.tolist() == [float(is_forget)] * 4
            else:
                assert 0 < gate.abs().max() <= math.sqrt(6 / (4 + gate.shape[1]))


def test_every_scale_is_divided_by_its_root_mean_square_unless_it_is_black() -> None:
    scale = InputScale(3)
    images = torch.randn(40, 3, 2, 5, 4)
    assert torch.equal(scale(images), images)
    scale.fit(images * torch.tensor([0.5, 0.0, 0.02]).view(3, 1, 1, 1))
    expected = torch.tensor([0.5 * _rms(images[:, 0]), 1.0, 0.02 * _rms(images[:, 2])])
    torch.testing.assert_close(scale.rms.flatten(), expected)
    torch.testing.assert_close(scale(images), images / expected.view(3, 1, 1, 1))


def _rms_of(**options: object) -> Tensor:
    return build_task(**options).agent.glimpse.input_scale.rms


def test_a_task_fits_the_scale_to_its_images_whatever_its_batch_size() -> None:
    images = random_images()
    assert torch.equal(_rms_of(seed=3), _rms_of(seed=3, batch_size=5, rollouts_per_image=2))
    assert not torch.equal(_rms_of(seed=3), _rms_of(seed=4))  # other locations
    torch.testing.assert_close(
        _rms_of(images=ImageSet(0.25 * images.images, images.labels, images.classes)), _rms_of() / 4
    )
    bright = ImageSet(torch.full_like(images.images, 0.5), images.labels, images.classes)
    inside = partial(GlimpseVectorEnv, images=bright, sensor=GlimpseSensor(2, 2), num_glimpses=2, context_size=4)
    task = GlimpseTask(inside, RecurrentAttention, NoBaseline, batch_size=8)
    assert task.agent.context.input_scale.rms.flatten().tolist() == pytest.approx([0.5])
    assert 0.35 < task.agent.glimpse.input_scale.rms.min() <= task.agent.glimpse.input_scale.rms.max() <= 0.5


def test_a_trained_agent_keeps_the_scale_of_its_training_images() -> None:
    images = random_images()
    dark = ImageSet(0.1 * images.images, images.labels, images.classes)
    first, other = build_task(), build_task(images=dark, seed=1)
    state = {"task": first.state_dict(), "average": {}}
    checkpoint.load_weights(other, state, "first")
    assert torch.equal(other.agent.glimpse.input_scale.rms, first.agent.glimpse.input_scale.rms)
    index = torch.arange(8)
    observation = first.env.reset(options={"index": index, "location": torch.zeros(8, 2)})[0]
    for task in (first, other):
        torch.testing.assert_close(task.agent.step(observation).features, first.agent.step(observation).features)
