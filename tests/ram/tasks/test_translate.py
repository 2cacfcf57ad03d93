"""Translation tasks: batches, losses, resuming, and the options and corpora they refuse."""

import io
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from envs import InputError
from ram.baselines import LearnedBaseline, MovingAverageBaseline, NoBaseline
from ram.corpora import Examples, multi30k
from ram.corpora.vocabulary import END, START, UNKNOWN
from ram.sequence import interfaces
from ram.sequence.search import Search
from ram.sequence.seq2seq import DecoderOnly
from ram.tasks.translate import TranslateTask
from ram.training import checkpoint
from tests.ram.tasks.text_corpora import parallel, train
from tests.ram.tasks.translation_models import (
    ANIMALS,
    MODELS,
    STOCHASTIC,
    TRANSITIONS,
    A,
    B,
    build_task,
    markov_task,
    repeating_task,
    set_transitions,
)

# Batches.


def test_targets_are_the_words_and_the_end_and_decoder_inputs_start_with_the_start_symbol() -> None:
    batch = markov_task().make_batch(parallel("y x: a b", "z: a c a"))
    assert batch.sources.token_ids.tolist() == [[4, 5], [UNKNOWN, 0]]  # y three times, x twice
    assert batch.sources.lengths.tolist() == [2, 1]
    assert batch.decoder_inputs.tolist() == [[START, A, B, 0], [START, A, UNKNOWN, A]]
    assert batch.targets.tolist() == [[A, B, END, -100], [A, UNKNOWN, A, END]]
    assert batch.sources.copy_ids is None


def test_unknown_source_words_get_token_ids_of_their_own_for_copying() -> None:
    task = repeating_task(parallel("i am x: hello x", "i am y: hello y"), copy=True, min_count=2)
    ids = {word: index for index, word in enumerate(task.vocabularies.target.ids_to_tokens(range(9)))}
    assert ids.keys() == {"<padding>", "<unknown>", "<start>", "<end>", "am", "hello", "i", "x", "y"}
    batch = task.make_batch(parallel("i am zorblo: hello zorblo gnu", "x: x"))
    assert batch.sources.unknown == (("zorblo",), ())
    assert batch.sources.copy_ids is not None
    assert batch.sources.copy_ids.tolist() == [[ids["i"], ids["am"], 9], [ids["x"], 0, 0]]
    assert batch.targets.tolist() == [[ids["hello"], 9, UNKNOWN, END], [ids["x"], END, -100, -100]]


# Losses.


def test_loss_and_accuracy_of_a_step_match_manual_values() -> None:
    """The targets are a b, b, b a and a, each with the end."""
    result = markov_task(batch_size=4)(0)
    probabilities = [*(0.6, 0.5, 0.9), *(0.4, 0.9), *(0.4, 0.1, 0.25), *(0.6, 0.25)]
    assert result.loss.item() == pytest.approx(-math.log(math.prod(probabilities)) / 10, rel=1e-5)
    # Predicted are a at the start, b after a and the end after b: three, one, none and one are correct.
    assert result.metrics() == pytest.approx({"loss/answer": result.loss.item(), "train/accuracy": 50}, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_label_smoothing_matches_manual_values(smoothing: float) -> None:
    """The probability mass is spread over all six tokens."""
    task = markov_task(batch_size=4, label_smoothing=smoothing)
    generator = random.Random(0)
    logits = [[generator.uniform(-2, 2) for _ in range(6)] for _ in range(6)]
    task.model.embedding.table.weight.data = torch.tensor(logits)

    def loss(preceding: int, target: int) -> float:
        log_normalizer = math.log(sum(map(math.exp, logits[preceding])))
        losses = [log_normalizer - logit for logit in logits[preceding]]
        return (1 - smoothing) * losses[target] + smoothing * sum(losses) / 6

    pairs = [(START, A), (A, B), (B, END), (START, B), (B, END), (START, B), (B, A), (A, END), (START, A), (A, END)]
    result = task(0)
    assert result.loss.item() == pytest.approx(sum(loss(*pair) for pair in pairs) / 10, rel=1e-5)
    assert result.metrics()["loss/answer"] == pytest.approx(result.loss.item())


def test_label_smoothing_of_a_copying_model_spreads_over_the_vocabulary() -> None:
    """The model copies with probability 0.5, and else generates its five tokens with equal probability."""
    corpus = parallel("b zorblo: b zorblo", "b: b", "b: a")
    task = repeating_task(corpus, copy=True, min_count=3, label_smoothing=0.2, batch_size=3).train()
    assert len(task.vocabularies.target) == 5  # b and the special tokens
    for module in (task.model.out, task.model.gate):
        module.weight.data.zero_()
        module.bias.data.zero_()
    at_b, at_zorblo, at_end = [0.1] * 4 + [0.6], [0.1] * 5, [0.2] * 5  # copied zorblo: 0.5; no copy at the end

    def loss(target: float, vocabulary: list[float]) -> float:
        return -0.8 * math.log(target) - 0.2 * sum(map(math.log, vocabulary)) / 5

    losses = [loss(0.6, at_b), loss(0.5, at_zorblo), loss(0.2, at_end)]  # b zorblo
    losses += [loss(0.6, at_b), loss(0.2, at_end)]  # b
    losses += [loss(0.1, at_b), loss(0.2, at_end)]  # a is unknown and not in the source
    assert task(0).loss.item() == pytest.approx(sum(losses) / 7, rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_padding_does_not_change_the_loss(name: str) -> None:
    """The loss of a batch is the mean over the targets of its texts, computed one by one."""
    task = build_task(ANIMALS, batch_size=4, **MODELS[name])
    losses = []
    for row in range(4):
        batch = task.make_batch(ANIMALS.select([row]))
        sources = batch.sources
        output = task.model(sources.token_ids, sources.lengths, batch.decoder_inputs, sources.copy_ids)
        log_probs = output.logits[0].log_softmax(-1).gather(1, batch.targets[0, :, None])
        losses += (-log_probs[:, 0]).tolist()
    assert len(losses) == 4 + 3 + 2 + 4
    assert task(0).loss.item() == pytest.approx(sum(losses) / 13, rel=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_source_loss_has_its_weight(weight: float) -> None:
    """The next token depends on the preceding one only."""
    corpus = parallel("a b: b", "b: a a")
    task = build_task(
        corpus,
        kind=DecoderOnly,
        encoder=interfaces.IdentityEncoder,
        shared_vocabulary=True,
        source_weight=weight,
        batch_size=2,
    )
    set_transitions(task.model.model.embedding, task.model.model.out, TRANSITIONS)
    metrics = task(0).metrics()
    targets = [*(0.4, 0.9), *(0.6, 0.25, 0.25)]  # b and the end; a, a and the end
    sources = [*(0.6, 0.5), 0.4]  # a and b; b: without the end
    assert metrics["loss/answer"] == pytest.approx(-math.log(math.prod(targets)) / 5, rel=1e-5)
    assert metrics["loss/source"] == pytest.approx(-weight * math.log(math.prod(sources)) / 3, rel=1e-5)
    assert task(0).loss.item() == pytest.approx(metrics["loss/answer"] + metrics["loss/source"], rel=1e-5)


def test_source_weight_needs_a_model_of_the_source() -> None:
    with pytest.raises(InputError, match=r"^task\.source_weight=0\.5 needs a model of the source"):
        build_task(ANIMALS, **MODELS["luong"], source_weight=0.5)
    assert "loss/source" not in build_task(ANIMALS, **MODELS["decoder_only"])(0).metrics()


@pytest.mark.parametrize("baseline", [NoBaseline, LearnedBaseline])
def test_a_step_is_a_function_of_seed_and_step(baseline: Any) -> None:
    torch.manual_seed(1)
    task = build_task(ANIMALS, baseline, batch_size=2, seed=3, **STOCHASTIC)
    torch.manual_seed(2)  # neither weights nor noise depend on the global state
    again, other = (build_task(ANIMALS, baseline, batch_size=2, seed=seed, **STOCHASTIC) for seed in (3, 4))
    for built in (task, again, other):
        built.progress = 0.5
    for step in (0, 1, 0):
        task(step)  # preceding steps have no effect
    torch.rand(7)
    assert torch.equal(task(5).loss, again(5).loss)
    assert not torch.equal(task(5).loss, other(5).loss)
    assert not torch.equal(task(5).loss, task(5 + task.steps_per_epoch).loss)


def test_building_a_task_preserves_the_global_random_state() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    build_task(ANIMALS, seed=7, **MODELS["luong"])
    assert torch.equal(torch.rand(3), expected)


def test_steps_per_epoch_cover_all_examples() -> None:
    task = build_task(ANIMALS, batch_size=3, **MODELS["luong"])
    assert (task.steps_per_epoch, task.examples_per_step, task.unit) == (2, 3, "texts")


# Resuming.


@pytest.mark.parametrize("baseline", [MovingAverageBaseline, LearnedBaseline])
@pytest.mark.parametrize("subwords", [None, 24])
def test_resumed_training_equals_uninterrupted_training(baseline: Any, subwords: int | None) -> None:
    def build() -> tuple[TranslateTask, torch.optim.Optimizer]:
        task = build_task(ANIMALS, baseline, batch_size=2, subwords=subwords, seed=5, **STOCHASTIC)
        task.progress = 0.5
        return task, torch.optim.Adam(task.parameters(), 0.01)

    task, optimizer = build()
    expected = train(task, range(8), optimizer)

    first, first_optimizer = build()
    losses = train(first, range(4), first_optimizer)
    file = io.BytesIO()
    torch.save([first.state_dict(), first_optimizer.state_dict()], file)
    file.seek(0)
    state, optimizer_state = torch.load(file, weights_only=True)
    second, second_optimizer = build()
    second.load_state_dict(state)
    second_optimizer.load_state_dict(optimizer_state)
    assert losses + train(second, range(4, 8), second_optimizer) == expected
    for name, value in task.state_dict().items():
        assert name == "_extra_state" or torch.equal(value, second.state_dict()[name])


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        (parallel("x y: a b", "y: d a"), {}, "target words .* differ from those of training, for example 'c'"),
        (parallel("x z: a b", "z: c a"), {}, "source words .* differ from those of training, for example 'y'"),
        (parallel("x y: a b", "y: c c"), {}, "target words .* differ from those of training: "),  # another order
        (parallel("x y: a b", "y: c a d"), {}, "target words .* differ from those of training, for example 'd'"),
        (parallel("x y: a b", "y: c a"), {"shared_vocabulary": True}, ""),
        (parallel("x y: a b", "y: c a"), {"subwords": 8}, ""),
    ],
)
def test_states_with_other_vocabularies_are_refused(other: Examples, options: dict[str, Any], message: str) -> None:
    own = parallel("x y: a b", "y: c a")
    state = build_task(own, **MODELS["luong"]).state_dict()
    assert build_task(own, **MODELS["luong"]).load_state_dict(state).missing_keys == []
    with pytest.raises(InputError, match=rf"^here\.pt does not fit.*{message}") as refused:
        checkpoint.load_state(build_task(other, **MODELS["luong"], **options), state, Path("here.pt"))
    assert "\n" not in str(refused.value)


# Options and corpora.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"^task\.batch_size must be at least 1, got 0\.$"),
        ({"min_count": 0}, r"^task\.min_count must be at least 1, got 0\.$"),
        ({"min_count": 9}, r"^No word occurs task\.min_count=9 times: lower it\.$"),
        ({"label_smoothing": 1.0}, r"^task\.label_smoothing must be in \[0, 1\), got 1\.0\.$"),
        ({"label_smoothing": math.nan}, r"^task\.label_smoothing must be in \[0, 1\), got nan\.$"),
        ({"scheduled_sampling": 1.1}, r"^task\.scheduled_sampling must be in \[0, 1\], got 1\.1\.$"),
        ({"gamma": -0.1}, r"^task\.gamma must be in \[0, 1\], got -0\.1\.$"),
        ({"monitor": "chrf"}, r"^task\.monitor must be exact, perplexity, or bleu with task\.bleu=true; got 'chrf'\.$"),
        ({"monitor": "bleu", "bleu": False}, r"^task\.monitor must be exact, .*; got 'bleu'\.$"),
        ({"subwords": 1000}, r"^task\.subwords=1000 is too large for the corpus"),
    ],
)
def test_invalid_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_task(ANIMALS, **MODELS["luong"], **options)


def test_search_checks_the_maximum_length() -> None:
    with pytest.raises(InputError, match=r"^task\.search\.max_length must be at least 1, got 0\.$"):
        Search(max_length=0)


@pytest.mark.parametrize("penalty", [-1.0, 11.0, math.nan])
def test_search_checks_beam_size_and_length_penalty(penalty: float) -> None:
    with pytest.raises(InputError, match=r"^task\.search\.length_penalty must be in \[0, 10\], got"):
        Search(length_penalty=penalty)
    with pytest.raises(InputError, match=r"^task\.search\.beam_size must be at least 1, got 0"):
        Search(beam_size=0)


@pytest.mark.parametrize(("monitor", "maximize"), [("exact", True), ("bleu", True), ("perplexity", False)])
def test_monitor_is_measured_and_has_its_direction(monitor: str, maximize: bool) -> None:
    task = markov_task(monitor=monitor).eval()
    assert (task.monitor, task.maximize) == (monitor, maximize)
    assert monitor in task.evaluate("validation")


def test_corpora_without_target_texts_are_refused() -> None:
    message = r"^task=translate needs a corpus of pairs of texts, such as corpus=reversal\.$"
    for targets in (None, ("plus", "minus", "plus", "minus")):
        with pytest.raises(InputError, match=message):
            build_task(Examples(ANIMALS.texts, targets), **MODELS["luong"])


def test_corpora_without_a_detokenizer_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = Examples((("two", "dogs"), ("dogs",)), (("Aa", "aa."), ("Aa",)))
    monkeypatch.setattr(multi30k.Multi30k, "load", lambda source, split: tags)
    with pytest.raises(InputError, match=r"^task=translate needs a corpus with a detokenizer, such"):
        build_task(multi30k.Multi30k(targets="tags"), **MODELS["luong"])
