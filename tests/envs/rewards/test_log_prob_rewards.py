"""LogProbGain, NegativeCrossEntropy and InformationGain: values worked out by hand, and episodes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import InputError
from envs.images import ImageSet
from envs.rewards import Reward, Transition
from envs.rewards.log_probs import InformationGain, LogProbGain, NegativeCrossEntropy
from envs.splits import IGNORE_INDEX
from tests.envs.rewards.helpers import IMAGES, INF, LN2, assert_pays, episode_rewards, flags, log_probabilities

# In turn: p(label) rises; p(label) falls; p(label) from 0 to 1; unchanged, and no answer is due.
PREDICTIONS = Transition(
    log_probs=log_probabilities((0.5, 0.25, 0.25), (0.1, 0.8, 0.1), (0, 0, 1), (0.5, 0.5, 0)),
    previous_log_probs=log_probabilities((0.25, 0.25, 0.5), (0.4, 0.4, 0.2), (1, 0, 0), (0.5, 0.5, 0)),
    label=torch.tensor([0, 2, 2, IGNORE_INDEX]),
    due=flags(1, 0, 1, 0),
)
# Four classes, of which the first is correct, with two answers and with one.
TWO_ANSWERS = ImageSet(IMAGES.images[:1], torch.tensor([[0, 0]]), tuple("abcd"))
ONE_ANSWER = ImageSet(IMAGES.images[:1], torch.tensor([0]), tuple("abcd"))


def test_log_prob_gain_is_the_logarithm_of_the_ratio_of_probabilities() -> None:
    assert_pays(LogProbGain(floor=-20), PREDICTIONS, [math.log(2), math.log(0.5), 20, 0])
    assert_pays(LogProbGain(floor=-3), PREDICTIONS, [math.log(2), math.log(0.5), 3, 0])


def test_negative_cross_entropy_rewards_answers_that_are_due() -> None:
    assert_pays(NegativeCrossEntropy(), PREDICTIONS, [math.log(0.5), 0, 0, 0])


def test_a_class_of_probability_zero_costs_the_floor() -> None:
    certain = Transition(log_probs=log_probabilities((1, 0)), label=torch.tensor([1]), due=flags(1))
    assert_pays(NegativeCrossEntropy(), certain, [-4])
    assert_pays(NegativeCrossEntropy(floor=-1.5), certain, [-1.5])


@pytest.mark.parametrize("reward", [LogProbGain, NegativeCrossEntropy])
@pytest.mark.parametrize("floor", [0.0, -INF])
def test_an_invalid_floor_is_refused(reward: type[LogProbGain], floor: float) -> None:
    with pytest.raises(InputError, match=rf"reward\.floor must be a finite number below 0, got {floor}"):
        reward(floor)


def test_information_gain_is_the_decrease_of_the_entropy() -> None:
    before = -0.8 * math.log(0.4) - 0.2 * math.log(0.2)
    after = -0.8 * math.log(0.8) - 0.2 * math.log(0.1)
    # (1/4, 1/4, 1/2) and (1/2, 1/4, 1/4) have equal entropies; those of (1, 0, 0) and (0, 0, 1) are 0.
    assert_pays(InformationGain(), PREDICTIONS, [0, before - after, 0, 0])
    certain = Transition(
        log_probs=log_probabilities((1, 0, 0, 0)), previous_log_probs=log_probabilities((0.25, 0.25, 0.25, 0.25))
    )
    assert_pays(InformationGain(), certain, [2 * LN2])
    uncertain = Transition(
        log_probs=log_probabilities((0.5, 0.5, 0, 0)), previous_log_probs=log_probabilities((0, 1, 0, 0))
    )
    assert_pays(InformationGain(), uncertain, [-LN2])


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-200, 200, width=32)] * 4), min_size=1, max_size=6),
    st.integers(0, 3),
)
def test_gains_telescope_to_the_final_log_probability_and_entropy(logits: list[tuple[float, ...]], label: int) -> None:
    log_probs = [torch.full((1, 4), -math.log(4)), *torch.tensor(logits).log_softmax(-1)[:, None]]
    totals = [torch.zeros(1), torch.zeros(1)]
    for previous, current in pairwise(log_probs):
        step = Transition(log_probs=current, previous_log_probs=previous, label=torch.tensor([label]), due=flags(1))
        for number, reward in enumerate((LogProbGain(floor=-500), InformationGain())):
            totals[number] = totals[number] + reward(step)
    last = log_probs[-1][0].double()
    assert totals[0].item() == pytest.approx(float(last[label]) + math.log(4), abs=1e-3)
    assert totals[1].item() == pytest.approx(math.log(4) + float((last.exp() * last).sum()), abs=1e-4)


@pytest.mark.parametrize("reward", [LogProbGain(), NegativeCrossEntropy(), InformationGain()], ids=repr)
@given(values=st.lists(st.tuples(*[st.sampled_from([-INF, -3e38, -1.0, 0.0, INF])] * 6), min_size=1, max_size=4))
def test_rewards_are_finite_for_any_log_probabilities(reward: Reward, values: list[tuple[float, ...]]) -> None:
    log_probs = torch.tensor(values)
    count = len(values)
    value = reward(
        Transition(
            log_probs=log_probs[:, :3],
            previous_log_probs=log_probs[:, 3:],
            label=torch.arange(count) % 3,
            due=torch.ones(count, dtype=torch.bool),
        )
    )
    assert value.shape == (count,)
    assert value.dtype == torch.float32
    assert value.isfinite().all()


# Episodes.


@pytest.mark.parametrize(
    ("reward", "two_answers", "one_answer"),
    [
        # In units of log 2; p(label) is 1/4 at first, then 1/2, 1, 1 and 1/2.
        (LogProbGain(), [1, 1, 2, -1], [1, 1, 0, -1]),
        # The entropies are 2 at first, then 3/2, 0, 0 and 1.
        (InformationGain(), [0.5, 1.5, 2, -1], [0.5, 1.5, 0, -1]),
    ],
    ids=["LogProbGain", "InformationGain"],
)
def test_gains_restart_from_the_uniform_distribution_with_every_answer(
    reward: Reward, two_answers: list[float], one_answer: list[float]
) -> None:
    log_probs = log_probabilities((0.5, 0.25, 0.25, 0), (1, 0, 0, 0), (1, 0, 0, 0), (0.5, 0.5, 0, 0))[:, None]
    for images, expected in [(TWO_ANSWERS, two_answers), (ONE_ANSWER, one_answer)]:
        rewards = episode_rewards(reward, log_probs, images=images, glimpses_per_answer=2)
        assert rewards == pytest.approx([LN2 * value for value in expected], abs=1e-6)


@pytest.mark.parametrize("reward", [LogProbGain(), InformationGain()], ids=["LogProbGain", "InformationGain"])
def test_every_correct_answer_of_an_episode_earns_its_gain(reward: Reward) -> None:
    correct = log_probabilities((1, 0, 0, 0), (1, 0, 0, 0))[:, None]
    rewards = episode_rewards(reward, correct, images=TWO_ANSWERS, glimpses_per_answer=1)
    assert rewards == pytest.approx([2 * LN2, 2 * LN2])
    rewards = episode_rewards(reward, correct, images=ONE_ANSWER, glimpses_per_answer=1)
    assert rewards == pytest.approx([2 * LN2, 0])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 5), st.integers(0, 2**31))
def test_the_gains_of_every_answer_sum_to_its_log_probability(
    answers: int, glimpses: int, classes: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(classes, (1, answers), generator=generator)
    images = ImageSet(IMAGES.images[:1], label, tuple("abcde"[:classes]))
    log_probs = torch.randn(answers * glimpses, 2, classes, generator=generator).log_softmax(-1)
    due = log_probs[glimpses - 1 :: glimpses]  # (answers, 2, classes)
    log_prob = due.gather(-1, label.view(-1, 1, 1).expand(-1, 2, 1))[..., 0]
    information = math.log(classes) + (due.exp() * due).sum(-1)
    for reward, expected in [(LogProbGain(-20.0), log_prob + math.log(classes)), (InformationGain(), information)]:
        rewards = torch.tensor(episode_rewards(reward, log_probs, images=images, glimpses_per_answer=glimpses))
        torch.testing.assert_close(rewards.view(answers, glimpses, 2).sum(1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 5.0, -5.0])
def test_equal_logits_of_any_value_are_rewarded_as_the_uniform_distribution(value: float) -> None:
    equal = torch.full((2, 1, 4), value)
    for reward, expected in [(LogProbGain(), 0), (InformationGain(), 0), (NegativeCrossEntropy(), -2 * LN2)]:
        rewards = episode_rewards(reward, equal, images=ONE_ANSWER, glimpses_per_answer=1)
        assert rewards == pytest.approx([expected] * 2, abs=1e-6)


def test_log_probabilities_are_normalized_before_they_are_rewarded() -> None:
    log_probs = log_probabilities((0.5, 0.25, 0.25, 0), (0.125, 0.875, 0, 0))[:, None]
    for shift in (0.0, 5.0):
        rewards = episode_rewards(NegativeCrossEntropy(), log_probs + shift, images=ONE_ANSWER, glimpses_per_answer=1)
        assert rewards == pytest.approx([-LN2, -3 * LN2], abs=1e-6)
