"""Translation tasks: scheduled sampling and REINFORCE for hard attention."""

import math
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from ram.attention.selection import Hard
from ram.baselines import Baseline, LearnedBaseline, MovingAverageBaseline, NoBaseline
from ram.corpora import Examples
from ram.corpora.vocabulary import END, START, UNKNOWN
from ram.reinforce import BaselineOutput, Rollout
from ram.sequence import interfaces
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import RecurrentDecoder
from ram.tasks.translate import Batch, TranslateTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, parallel
from tests.ram.tasks.translation_models import (
    ANIMALS,
    HARD,
    A,
    B,
    MarkovDecoder,
    build_task,
    markov_task,
    set_transitions,
)

# Scheduled sampling.


def deterministic(**options: Any) -> TranslateTask:
    """Builds a task that generates b after the start, and c after a, b and c."""
    corpus = InMemoryCorpus(parallel("x: a b c c", "y: a b c"))
    model = {
        "embedding": partial(TokenEmbedding, size=7),
        "encoder": interfaces.IdentityEncoder,
        "decoder": MarkovDecoder,
    }
    task = build_task(corpus, **model, **options)
    assert task.vocabularies.target.ids_to_tokens([4, 5, 6]) == ["c", "a", "b"]
    set_transitions(task.model.embedding, task.model.out, {START: {6: 1.0}, 5: {4: 1.0}, 6: {4: 1.0}, 4: {4: 1.0}})
    return task


def sampled_inputs(task: TranslateTask, examples: Examples) -> tuple[Batch, Tensor]:
    batch = task.make_batch(examples)
    return batch, task._sampled_inputs(batch)


def test_scheduled_sampling_replaces_all_inputs_at_probability_one() -> None:
    task = deterministic(scheduled_sampling=1.0)
    task.progress = 1.0
    batch, sampled = sampled_inputs(task, parallel("x: a b a"))
    assert batch.decoder_inputs.tolist() == [[START, 5, 6, 5]]
    assert sampled.tolist() == [[START, 6, 4, 4]]  # b after the start, c after a, c after b
    assert batch.targets.tolist() == [[5, 6, 5, END]]


def test_scheduled_sampling_replaces_nothing_at_probability_zero() -> None:
    for probability, progress in [(1.0, 0.0), (0.0, 1.0)]:
        task = deterministic(scheduled_sampling=probability)
        task.progress = progress
        batch, sampled = sampled_inputs(task, parallel("x: a b a", "y: a"))
        assert torch.equal(sampled, batch.decoder_inputs)


@pytest.mark.parametrize(("probability", "progress"), [(0.5, 1.0), (1.0, 0.25), (0.8, 0.5)])
def test_scheduled_sampling_probability_grows_with_progress(probability: float, progress: float) -> None:
    task = deterministic(scheduled_sampling=probability)
    task.progress = progress
    torch.manual_seed(0)
    batch, sampled = sampled_inputs(task, parallel(*["x: a b a b a b a b a b a"] * 400))
    assert (sampled[:, 0] == START).all()
    replaced = (sampled != batch.decoder_inputs)[:, 1:].double()
    assert sampled[:, 1:][replaced.bool()].unique().tolist() == [4, 6]
    expected = probability * progress
    assert replaced.mean().item() == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4400))
    assert replaced.mean(0).std() < 0.05, "the probability does not depend on the position"


def test_scheduled_sampling_does_not_replace_padding() -> None:
    task = deterministic(scheduled_sampling=1.0)
    task.progress = 1.0
    _, sampled = sampled_inputs(task, parallel("x: a b a b", "y: a", "x: a b"))
    assert sampled.tolist() == [[START, 6, 4, 4, 4], [START, 6, 0, 0, 0], [START, 6, 4, 0, 0]]


def test_scheduled_sampling_draws_no_special_tokens() -> None:
    task = markov_task(
        transitions={START: {0: 0.3, UNKNOWN: 0.3, START: 0.3, B: 0.1}, A: {B: 1.0}}, scheduled_sampling=1.0
    )
    task.progress = 1.0
    torch.manual_seed(0)
    _, sampled = sampled_inputs(task, parallel(*["x: a b"] * 100))
    assert sampled.tolist() == [[START, B, B]] * 100


def test_scheduled_sampling_keeps_the_targets() -> None:
    task = build_task(
        parallel("x: a b", "y: c"),
        embedding=partial(TokenEmbedding, size=7),
        encoder=interfaces.IdentityEncoder,
        decoder=MarkovDecoder,
        scheduled_sampling=1.0,
        batch_size=2,
    )
    a, b, c = 4, 5, 6
    transitions = {START: {b: 1.0}, a: {c: 1.0}, b: {a: 0.25, b: 0.25, END: 0.5}, c: {c: 0.8, END: 0.2}}
    set_transitions(task.model.embedding, task.model.out, transitions)
    task.progress = 1.0
    # Targets a, b and the end follow the inputs start, b and c; targets c and the end follow start and b.
    losses = [100, -math.log(0.25), -math.log(0.2), 100, -math.log(0.5)]
    assert task(0).loss.item() == pytest.approx(sum(losses) / 5, rel=1e-5)


# Hard attention.


class RecordingBaseline(Baseline):
    """Predicts -0.5 and records its inputs."""

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__(feature_size, rollouts_per_image)
        self.feature_size, self.calls = feature_size, list[tuple[Rollout, Tensor]]()

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        self.calls.append((rollout, returns))
        return BaselineOutput(torch.full_like(returns, -0.5), returns.new_tensor(0.25))


@pytest.mark.parametrize(("gamma", "policy_weight"), [(1.0, 1.0), (0.5, 0.25), (0.0, 1.0)])
def test_return_of_hard_attention_discounts_log_probabilities_of_later_targets(
    gamma: float, policy_weight: float
) -> None:
    task = build_task(
        ANIMALS, RecordingBaseline, gamma=gamma, policy_weight=policy_weight, batch_size=4, seed=2, **HARD
    )
    result = task(1)
    ((_, returns),) = task.baseline.calls

    torch.manual_seed((2 << 32) + 1)
    batch = task.make_batch(ANIMALS.select(task._batches(1)))
    output = task.model(batch.sources.token_ids, batch.sources.lengths, batch.decoder_inputs)
    assert output.log_prob is not None
    policy, rewards = 0.0, []
    for row, targets in enumerate(batch.targets.tolist()):
        targets = [target for target in targets if target != -100]
        probabilities = [output.logits[row, step].softmax(-1)[target].item() for step, target in enumerate(targets)]
        rewards.append([math.log(probability) for probability in probabilities])
        for step in range(len(targets)):
            expected = sum(gamma**later * reward for later, reward in enumerate(rewards[-1][step:]))
            assert returns[step, row].item() == pytest.approx(expected, rel=1e-5)
            policy -= output.log_prob[row, step].item() * (expected + 0.5)
    lengths = [len(row) for row in rewards]
    assert sorted(lengths) == [2, 3, 4, 4]
    metrics = result.metrics()
    assert metrics["loss/policy"] == pytest.approx(
        policy_weight * policy / 13, rel=1e-5
    )  # a mean over targets like the cross-entropy
    assert metrics["loss/answer"] == pytest.approx(-sum(map(sum, rewards)) / 13, rel=1e-5)
    assert metrics["loss/baseline"] == 0.25
    assert metrics.keys() == {"loss/answer", "loss/policy", "loss/baseline", "train/accuracy"}
    terms = [value for name, value in metrics.items() if name.startswith("loss/")]
    assert result.loss.item() == pytest.approx(sum(terms), rel=1e-5)


def test_baseline_receives_the_features_before_each_choice() -> None:
    """The features are time-major and do not depend on the choice of the same step."""
    task = build_task(ANIMALS, RecordingBaseline, batch_size=4, seed=2, **HARD)
    task(1)
    ((rollout, returns),) = task.baseline.calls
    assert task.baseline.feature_size == 8
    assert rollout.features.shape == (4, 4, 8) and returns.shape == (4, 4)
    assert not rollout.features[0].any()  # zero before the first step
    assert rollout.features[1:].flatten(0, 1).any(-1).all()
    batch = task.make_batch(ANIMALS.select(task._batches(1)))
    assert torch.equal(rollout.mask, (batch.targets != -100).mT)
    assert torch.equal(rollout.active, rollout.mask)
    assert rollout.group.tolist() == [0, 1, 2, 3]
    assert not rollout.reward.requires_grad and not rollout.reward[~rollout.mask].any()
    other = build_task(ANIMALS, RecordingBaseline, batch_size=4, seed=2, **HARD)
    other.model.out.weight.data.zero_()  # the output layer does not affect the features
    other(1)
    assert torch.equal(other.baseline.calls[0][0].features, rollout.features)


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline])
def test_policy_gradient_matches_the_gradient_of_the_expected_reward(baseline: Any) -> None:
    """Two choices at each of two steps; the state of the second step depends on the first choice."""
    decoder = partial(RecurrentDecoder, size=4, bridge="state", context=partial(CrossAttention, select=Hard))
    parts = {"encoder": interfaces.IdentityEncoder, "embedding": partial(TokenEmbedding, size=4), "decoder": decoder}
    task = build_task(parallel(*["x y: a"] * 5_000), baseline, batch_size=5_000, gamma=1.0, seed=1, **parts)
    task.model.source_embedding.table.weight.data *= 6  # the reward depends clearly on the choice
    task.model.out.weight.data *= 6
    score = task.model.decoder.context.attention.score.weight.weight
    torch.manual_seed(0)
    batch = task.make_batch(task.split("train").select(range(500)))
    output = task.model(batch.sources.token_ids, batch.sources.lengths, batch.decoder_inputs)
    assert output.log_prob is not None and output.weights is not None
    choices = output.weights.argmax(-1).tolist()
    rewards = output.logits.log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0].sum(1).detach()
    expected, total = torch.zeros(()), 0.0
    for choice in product([0, 1], repeat=2):
        row = choices.index(list(choice))
        probability = output.log_prob[row].sum().exp()
        total += probability.item()
        expected = expected + probability * rewards[row]
    assert total == pytest.approx(1, rel=1e-5)
    (exact,) = torch.autograd.grad(-expected / 2, score)  # per target
    task(0)  # initializes the moving average
    (estimated,) = torch.autograd.grad(task(1).loss, score)
    assert float((estimated - exact).norm() / exact.norm()) < 0.12


def test_baseline_loss_trains_only_the_baseline() -> None:
    gradients = []
    for baseline in (NoBaseline, LearnedBaseline):
        task = build_task(ANIMALS, baseline, policy_weight=0.0, **HARD)
        task(0).loss.backward()
        gradients.append({name: value.grad for name, value in task.named_parameters() if value.grad is not None})
    without, learned = gradients
    assert learned.keys() - without.keys() == {"baseline.head.weight", "baseline.head.bias"}
    assert learned["baseline.head.weight"].any()
    assert all(torch.equal(value, learned[name]) for name, value in without.items())
