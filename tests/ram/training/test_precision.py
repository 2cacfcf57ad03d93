"""Training in bfloat16: what stays float32, and which precisions are refused."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ram
from envs import InputError
from ram import evaluate, train
from ram.baselines import LearnedBaseline
from ram.policies import GridLocation, LocationNetwork
from ram.reinforce import reinforce
from ram.rollout import run_episode
from ram.tasks import Task
from ram.tasks.glimpse import GlimpseTask
from ram.training import precision
from ram.training.precision import autocast
from tests.ram.glimpse_tasks import build_task as build_glimpse_task
from tests.ram.tasks.test_caption import MODELS as CAPTIONERS
from tests.ram.tasks.test_caption import build as build_caption_task
from tests.ram.tasks.translation_models import ANIMALS, HARD
from tests.ram.tasks.translation_models import MODELS as TRANSLATORS
from tests.ram.tasks.translation_models import build_task as build_translate_task

SMALL = [
    *("images.size=16", "images.num_train=64", "images.num_validation=32", "images.num_test=32"),
    *("task.batch_size=16", "core.size=16", "env.num_glimpses=2", "trainer.max_epochs=3", "trainer.picture_every=0"),
]


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permits bfloat16 on every device; without instructions for it PyTorch emulates most operations."""
    monkeypatch.setattr(precision, "_computes_bfloat16", lambda device: True)


@pytest.mark.parametrize("name", ["half", "bfloat16", None, 16])
def test_an_unknown_precision_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match=f"^precision must be one of float32, bf16, got {name!r}.$"):
        autocast(name, "cpu")


def test_bf16_is_refused_where_the_device_has_none(
    refusal: Callable[..., str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    message = refusal(train, *SMALL, "hydra.run.dir=runs/a", "precision=bf16")
    assert "precision=bf16 needs a processor with AVX-512 BF16 or AMX" in message
    assert message.endswith("device=cpu has none: set precision=float32.")
    assert "precision must be one of float32, bf16, got 'half'" in refusal(
        train, *SMALL, "hydra.run.dir=runs/b", "precision=half"
    )


@pytest.mark.parametrize("instructions", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"])
def test_bf16_is_accepted_where_the_processor_has_it(instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name == instructions)
    layer = nn.Linear(2, 3)
    with autocast("bf16", "cpu"):
        assert layer(torch.ones(1, 2)).dtype == torch.bfloat16
    with autocast("float32", "cpu"):
        assert layer(torch.ones(1, 2)).dtype == torch.float32


def test_a_weight_first_used_without_gradient_has_one_later(bf16: None) -> None:
    layer = nn.Linear(2, 3)
    with autocast("bf16", "cpu"):
        with torch.no_grad():
            layer(torch.ones(1, 2))
        layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.parametrize("policy", [LocationNetwork, partial(GridLocation, size=3)], ids=["gaussian", "grid"])
def test_locations_and_log_probabilities_stay_float32(policy: Any, bf16: None) -> None:
    task = build_glimpse_task(policy=policy, baseline=LearnedBaseline)
    with autocast("bf16", "cpu"):
        rollout = run_episode(task.agent, task.env, task._noise(0), {"index": task._batches(0), "episode": 0})
        estimate = reinforce(rollout, task.baseline)
    assert rollout.features.dtype == torch.bfloat16
    names = ("location", "sample", "log_prob", "reward", "logits")
    assert {getattr(rollout, name).dtype for name in names} == {torch.float32}
    assert rollout.entropy().dtype == torch.float32
    assert all(value.dtype == torch.float32 for action in rollout.actions for value in [action["location"]])
    names = ("policy_loss", "baseline_loss", "returns", "value", "advantage")
    assert {getattr(estimate, name).dtype for name in names} == {torch.float32}
    # The samples have more digits than bfloat16 has.
    assert not torch.equal(rollout.log_prob, rollout.log_prob.bfloat16().float())


TASKS: dict[str, Callable[[], Task]] = {
    "glimpse": lambda: build_glimpse_task(baseline=LearnedBaseline),
    **{f"caption_{name}": partial(build_caption_task, name) for name in CAPTIONERS},
    **{f"translate_{name}": partial(build_translate_task, ANIMALS, **TRANSLATORS[name]) for name in TRANSLATORS},
    "translate_hard": partial(build_translate_task, ANIMALS, LearnedBaseline, **HARD),
}


def _has_bfloat16_lstm() -> bool:
    """Returns whether the processor computes an LSTM in bfloat16, which PyTorch does not emulate without AVX-512."""
    layer, inputs = nn.LSTM(2, 2), torch.zeros(1, 1, 2)
    try:
        with autocast("bf16", "cpu"):
            layer(inputs)
    except RuntimeError:
        return False
    return True


def step(task: Task, name: str) -> tuple[Tensor, dict[str, Tensor], float]:
    with autocast(name, "cpu"):
        result = task(0)
    result.loss.backward()
    gradients = {key: value.grad.clone() for key, value in task.named_parameters() if value.grad is not None}
    task.zero_grad()
    return result.loss.detach(), gradients, result.metrics()["loss/answer"]


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_and_the_gradient_are_close_to_those_of_float32(name: str, bf16: None) -> None:
    task = TASKS[name]().train()
    if any(isinstance(module, nn.LSTM) for module in task.modules()) and not _has_bfloat16_lstm():
        pytest.skip("this processor has no LSTM in bfloat16")
    (expected, exact, expected_answer), (loss, gradients, answer) = step(task, "float32"), step(task, "bf16")
    assert loss.dtype == torch.float32
    assert answer == pytest.approx(expected_answer, rel=0.03, abs=0.03)
    if name != "glimpse":  # a sampled location may be in the next pixel, which changes rewards
        torch.testing.assert_close(loss, expected, rtol=0.03, atol=0.03)
    assert gradients.keys() == exact.keys()
    assert {value.dtype for value in gradients.values()} == {torch.float32}
    if not name.endswith(("hard", "glimpse")):  # their samples may differ
        first, second = (torch.cat([value.flatten() for value in each.values()]) for each in (gradients, exact))
        assert torch.cosine_similarity(first, second, dim=0) > 0.99
    task.eval()
    with torch.no_grad():
        exact_metrics = task.evaluate("validation")
        with autocast("bf16", "cpu"):
            metrics = task.evaluate("validation")
    assert metrics.keys() == exact_metrics.keys()


def test_a_resumed_run_in_bf16_equals_an_uninterrupted_one(
    command: Callable[..., None], empty_folder: Path, bf16: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(train, *SMALL, "hydra.run.dir=runs/whole", "precision=bf16")
    forward = GlimpseTask.forward

    def interrupted(self: GlimpseTask, at: int) -> object:
        assert torch.is_autocast_enabled("cpu")
        if at == 5:
            os.kill(os.getpid(), 2)
        return forward(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(GlimpseTask, "forward", interrupted)
        with pytest.raises(SystemExit, match="Interrupted after step 6"):
            command(train, *SMALL, "hydra.run.dir=runs/cut", "precision=bf16")
    command(train, "resume=runs/cut")
    whole, cut = (torch.load(f"runs/{run}/checkpoints/last.pt") for run in ("whole", "cut"))
    for name, value in whole["task"].items():
        if name != "_extra_state":
            assert torch.equal(value, cut["task"][name])
    assert all(value.dtype != torch.bfloat16 for value in whole["task"].values() if isinstance(value, Tensor))


def test_a_run_in_bf16_is_evaluated_and_loaded_in_float32(
    command: Callable[..., None], refusal: Callable[..., str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(precision, "_computes_bfloat16", lambda device: True)
        command(train, *SMALL, "hydra.run.dir=runs/a", "precision=bf16")
    monkeypatch.setattr(precision, "_computes_bfloat16", lambda device: False)
    assert "set precision=float32" in refusal(evaluate, "run=runs/a")
    command(evaluate, "run=runs/a", "precision=float32")
    command(train, "resume=runs/a", "precision=float32", "trainer.max_epochs=4")
    assert json.loads(Path("runs/a/metrics.json").read_text())["epochs"] == 4
    assert ram.load("runs/a").predict(torch.zeros(2, 1, 16, 16)).probability.dtype == torch.float32
