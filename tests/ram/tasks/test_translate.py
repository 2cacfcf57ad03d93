"""Turning one sequence into another: steps, search and measures worked out by hand, and what is learnt."""

import io
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from torch import Tensor

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.attention.selection import Diagonal, Hard
from ram.baselines import Baseline, LearnedBaseline, MovingAverageBaseline, NoBaseline
from ram.corpora import Examples, Tokens, multi30k, parallel_files, reversal
from ram.corpora.vocabulary import END, START, UNKNOWN, Vocabulary
from ram.reinforce import BaselineOutput, Rollout
from ram.sequence import encoders, recurrent
from ram.sequence.context import CrossAttention
from ram.sequence.decoders import Decoder, DecoderOutput, DecoderSizes, Memory
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.output import ModelOutput
from ram.sequence.recurrent import RecurrentEncoder
from ram.sequence.seq2seq import DecoderOnly, EncoderDecoder, Seq2SeqModel
from ram.sequence.transformer import TransformerDecoder, TransformerEncoder
from ram.inference.translation import TextTranslator
from ram.metrics.translation import bleu_and_chrf
from ram.sequence.search import Search
from ram.tasks.translate import Batch, TranslateTask, copied_share
from ram.training import checkpoint


@dataclass(frozen=True)
class Given:
    """A corpus in memory; what is not given is as in training."""

    train: Examples
    validation: Examples | None = None
    test: Examples | None = None

    def load(self, split: str) -> Examples:
        return getattr(self, split) or self.train

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)


def pairs(*lines: str, **more: Any) -> Examples:
    """Of lines such as "ein hund: a dog"."""
    sides = zip(*(line.split(": ") for line in lines), strict=True)
    texts, targets = (tuple(tuple(side.split()) for side in each) for each in sides)
    return Examples(texts, targets, **more)


def translate(
    corpus: Examples | Given | Any,
    baseline: Any = NoBaseline,
    kind: type[Seq2SeqModel] = EncoderDecoder,
    **options: Any,
) -> TranslateTask:
    """A task; what is no option of it is one of the model."""
    corpus = Given(corpus) if isinstance(corpus, Examples) else corpus
    own = TranslateTask.__init__.__annotations__
    parts = {name: options.pop(name) for name in [*options] if name not in own}
    return TranslateTask(corpus, partial(kind, **({"embedding": vectors} | parts)), baseline, **options)


def train(task: TranslateTask, steps: range, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in steps:
        loss = task(step).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


vectors = partial(TokenEmbedding, size=6)
bilstm = partial(RecurrentEncoder, size=4, bidirectional=True)
luong = partial(recurrent.RecurrentDecoder, size=8, bridge="state", context=CrossAttention)
bahdanau = partial(
    recurrent.RecurrentDecoder, cell="gru", size=8, bridge="state", attend="before", context=CrossAttention
)
transformer = partial(TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0)
MODELS: dict[str, dict[str, Any]] = {
    "luong": {"encoder": bilstm, "decoder": luong},
    "bahdanau": {"encoder": bilstm, "decoder": bahdanau},
    "bottleneck": {"encoder": bilstm, "decoder": partial(recurrent.RecurrentDecoder, cell="gru", size=8, bridge="state")},
    "transformer": {
        "encoder": partial(TransformerEncoder, size=8, num_heads=2, num_layers=1, dropout=0.0),
        "decoder": transformer,
    },
    "copy": {"encoder": bilstm, "decoder": luong, "copy": True},
    "continuation": {"kind": DecoderOnly, "encoder": partial(RecurrentEncoder, size=8), "shared_vocabulary": True},
    "causal": {
        "kind": DecoderOnly,
        "encoder": partial(TransformerEncoder, size=8, num_heads=2, num_layers=1, causal=True, dropout=0.0),
        "shared_vocabulary": True,
    },
}
everything_random: dict[str, Any] = {
    "embedding": partial(TokenEmbedding, size=6, dropout=0.2, word_dropout=0.2),
    "encoder": bilstm,
    "decoder": partial(recurrent.RecurrentDecoder, size=8, context=partial(CrossAttention, select=Hard), dropout=0.2),
    "dropout": 0.2,
    "scheduled_sampling": 0.5,
}
ANIMALS = pairs("der hund rennt: the dog runs", "eine katze: a cat", "hunde: dogs", "der hund schläft: the dog sleeps")


# Models whose every word is known.


class Chain(Decoder):
    """Says what follows the word before, whatever the source."""

    def __init__(self, widths: DecoderSizes) -> None:
        super().__init__(widths)
        self.output_size = widths.inputs

    def forward(self, vectors: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        return DecoderOutput(vectors, state)


class Echo(Decoder):
    """Says the source word by word, then the end, and looks at what it says."""

    def __init__(self, widths: DecoderSizes) -> None:
        super().__init__(widths)
        self.output_size = widths.vectors

    def forward(self, vectors: Tensor, memory: Memory, state: Any = None, need_weights: bool = False) -> DecoderOutput:
        before = 0 if state is None else state
        steps = torch.arange(before, before + vectors.shape[1]).expand(len(vectors), -1)
        within = steps < memory.lengths[:, None]
        place = steps.minimum(memory.lengths[:, None] - 1)
        rows = torch.arange(len(vectors))[:, None]
        end = F.one_hot(torch.tensor(END), memory.vectors.shape[-1]).float()
        weights = F.one_hot(place, memory.vectors.shape[1]) * within[..., None]
        said = torch.where(within[..., None], memory.vectors[rows, place], end)
        return DecoderOutput(said, before + vectors.shape[1], weights.float())


A, B = 4, 5  # of the targets' words, as often: in the order of the alphabet
SOURCES = pairs("x: a b", "x y: b", "y: b a", "y y: a")
ASKED = pairs("x: a b", "x y: b", "y: b a", "y y: b")
NEXT = {START: {A: 0.6, B: 0.4}, A: {A: 0.25, B: 0.5, END: 0.25}, B: {A: 0.1, END: 0.9}}
"""Of every word, what may follow and how likely. The likeliest word first says "a b", of 0.27; but "b" has 0.36."""


def by_hand(test: Examples = ASKED, following: dict[int, dict[int, float]] = NEXT, **options: Any) -> TranslateTask:
    """The vector of a word holds the logarithms of what may follow."""
    model = {"embedding": partial(TokenEmbedding, size=6), "encoder": encoders.IdentityEncoder, "decoder": Chain}
    task = translate(Given(SOURCES, test, test), **model, **options)
    table = task.model.embedding.table.weight.data.fill_(-100)  # never, but finite
    task.model.out.weight.data, task.model.out.bias.data = torch.eye(6), torch.zeros(6)
    for word, shares in following.items():
        for after, share in shares.items():
            table[word, after] = math.log(share)
    return task


def echo(corpus: Any, **options: Any) -> TranslateTask:
    """Says every word of the source that it knows, and <unknown> for others unless it copies."""
    train = corpus.train if isinstance(corpus, Given) else corpus if isinstance(corpus, Examples) else None
    train = train or corpus.load("train")
    size = len(Vocabulary.from_texts(train.texts + train.targets, options.get("min_count", 1)))
    model = {"embedding": partial(TokenEmbedding, size=size), "encoder": encoders.IdentityEncoder, "decoder": Echo}
    task = translate(corpus, shared_vocabulary=True, **model, **options)
    for module in (task.model.embedding.table, task.model.out):
        module.weight.data = torch.eye(size)
    task.model.out.weight.data *= 50
    task.model.out.bias.data.zero_()
    if task.model.gate is not None:  # its own word where it knows one, else that of the source
        task.model.gate.weight.data.zero_()
        task.model.gate.weight.data[0, UNKNOWN] = -100
        task.model.gate.bias.data.fill_(50)
    return task.eval()


def restored(task: TranslateTask, corpus: Any = None, search: Search | None = None, **parts: Any) -> TextTranslator:
    """From the state alone, as it is written to a file."""
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    kind = parts.pop("kind", EncoderDecoder)
    arguments = {
        "model": partial(kind, **({"embedding": vectors} | parts)),
        "corpus": corpus or Given(ANIMALS),
        "search": search or Search(),
        "device": "cpu",
    }
    return TranslateTask.restore(torch.load(file, weights_only=True), arguments)


def spoken(task: TranslateTask, *texts: str, **options: Any) -> list[list[str]]:
    """What is said of every text, the best first."""
    found = task.generate(Examples(tuple(tuple(text.split()) for text in texts)), **options)
    return [[" ".join(words) for words, _ in each] for each in found]


# What is asked.


def test_every_word_is_asked_for_from_the_source_and_those_before_it_and_so_is_the_end() -> None:
    asked = by_hand().make_batch(pairs("y x: a b", "z: a c a"))
    assert asked.sources.token_ids.tolist() == [[4, 5], [UNKNOWN, 0]]  # y three times, x twice
    assert asked.sources.lengths.tolist() == [2, 1]
    assert asked.decoder_inputs.tolist() == [[START, A, B, 0], [START, A, UNKNOWN, A]]
    assert asked.targets.tolist() == [[A, B, END, -100], [A, UNKNOWN, A, END]]
    assert asked.sources.copy_ids is None


def test_words_that_are_copied_are_asked_for_by_numbers_of_their_own() -> None:
    task = echo(pairs("i am x: hello x", "i am y: hello y"), copy=True, min_count=2)
    known = {word: number for number, word in enumerate(task.vocabularies.target.ids_to_tokens(range(9)))}
    assert known.keys() == {"<padding>", "<unknown>", "<start>", "<end>", "am", "hello", "i", "x", "y"}
    asked = task.make_batch(pairs("i am zorblo: hello zorblo gnu", "x: x"))
    assert asked.sources.unknown == (("zorblo",), ())
    assert asked.sources.copy_ids is not None
    assert asked.sources.copy_ids.tolist() == [[known["i"], known["am"], 9], [known["x"], 0, 0]]
    assert asked.targets.tolist() == [[known["hello"], 9, UNKNOWN, END], [known["x"], END, -100, -100]]


# A step.


def test_the_loss_of_a_step_by_hand() -> None:
    """SOURCES ask for a b, b, b a and a, each with the end."""
    result = by_hand(batch_size=4)(0)
    shares = [*(0.6, 0.5, 0.9), *(0.4, 0.9), *(0.4, 0.1, 0.25), *(0.6, 0.25)]
    assert result.loss.item() == pytest.approx(-math.log(math.prod(shares)) / 10, rel=1e-5)
    # Likeliest: a at the start, b after a, the end after b. Right are all of the first, one of the second and fourth.
    assert result.metrics() == pytest.approx({"loss/answer": result.loss.item(), "train/accuracy": 50}, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_a_smoothed_loss_by_hand(smoothing: float) -> None:
    """A share of every answer is spread over all six words."""
    task = by_hand(batch_size=4, label_smoothing=smoothing)
    chance = random.Random(0)
    logits = [[chance.uniform(-2, 2) for _ in range(6)] for _ in range(6)]
    task.model.embedding.table.weight.data = torch.tensor(logits)

    def cost(before: int, right: int) -> float:
        total = math.log(sum(map(math.exp, logits[before])))
        costs = [total - logit for logit in logits[before]]
        return (1 - smoothing) * costs[right] + smoothing * sum(costs) / 6

    said = [(START, A), (A, B), (B, END), (START, B), (B, END), (START, B), (B, A), (A, END), (START, A), (A, END)]
    result = task(0)
    assert result.loss.item() == pytest.approx(sum(cost(*each) for each in said) / 10, rel=1e-5)
    assert result.metrics()["loss/answer"] == pytest.approx(result.loss.item())


def test_where_words_are_copied_a_smoothed_share_goes_to_those_that_are_known() -> None:
    """Half of the time it copies what it looks at, else all of its own five words are as likely."""
    corpus = pairs("b zorblo: b zorblo", "b: b", "b: a")
    task = echo(corpus, copy=True, min_count=3, label_smoothing=0.2, batch_size=3).train()
    assert len(task.vocabularies.target) == 5  # b and the special ones
    for module in (task.model.out, task.model.gate):
        module.weight.data.zero_()
        module.bias.data.zero_()
    at_b, at_zorblo, at_end = [0.1] * 4 + [0.6], [0.1] * 5, [0.2] * 5  # of zorblo itself 0.5; at the end no copy

    def cost(right: float, known: list[float]) -> float:
        return -0.8 * math.log(right) - 0.2 * sum(map(math.log, known)) / 5

    costs = [cost(0.6, at_b), cost(0.5, at_zorblo), cost(0.2, at_end)]  # b zorblo
    costs += [cost(0.6, at_b), cost(0.2, at_end)]  # b
    costs += [cost(0.1, at_b), cost(0.2, at_end)]  # a, which is unknown and nowhere to copy from
    assert task(0).loss.item() == pytest.approx(sum(costs) / 7, rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_fills_a_batch_up_changes_nothing(name: str) -> None:
    """The loss is the mean over all words of texts that are asked for one by one."""
    task = translate(ANIMALS, batch_size=4, **MODELS[name])
    costs = []
    for row in range(4):
        asked = task.make_batch(ANIMALS.select([row]))
        sources = asked.sources
        said = task.model(sources.token_ids, sources.lengths, asked.decoder_inputs, sources.copy_ids)
        costs += [-said.logits[0, at].log_softmax(-1)[word].item() for at, word in enumerate(asked.targets[0].tolist())]
    assert len(costs) == 4 + 3 + 2 + 4
    assert task(0).loss.item() == pytest.approx(sum(costs) / 13, rel=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_the_words_of_the_source_are_asked_for_with_their_weight(weight: float) -> None:
    """A language model whose next word depends on the one before alone."""
    corpus = pairs("a b: b", "b: a a")
    task = translate(
        corpus,
        kind=DecoderOnly,
        encoder=encoders.IdentityEncoder,
        shared_vocabulary=True,
        source_weight=weight,
        batch_size=2,
    )
    model = task.model.model
    table = model.embedding.table.weight.data.fill_(-100)
    model.out.weight.data, model.out.bias.data = torch.eye(6), torch.zeros(6)
    for word, shares in NEXT.items():
        for after, share in shares.items():
            table[word, after] = math.log(share)
    metrics = task(0).metrics()
    answers = [*(0.4, 0.9), *(0.6, 0.25, 0.25)]  # b and the end; a, a and the end
    sources = [*(0.6, 0.5), 0.4]  # a and b; b: the end of a source is asked of nobody
    assert metrics["loss/answer"] == pytest.approx(-math.log(math.prod(answers)) / 5, rel=1e-5)
    assert metrics["loss/source"] == pytest.approx(-weight * math.log(math.prod(sources)) / 3, rel=1e-5)
    assert task(0).loss.item() == pytest.approx(metrics["loss/answer"] + metrics["loss/source"], rel=1e-5)


def test_a_model_that_does_not_say_the_source_has_no_loss_of_it() -> None:
    with pytest.raises(InputError, match=r"^task\.source_weight=0\.5 needs a model of the source"):
        translate(ANIMALS, **MODELS["luong"], source_weight=0.5)
    assert "loss/source" not in translate(ANIMALS, **MODELS["continuation"])(0).metrics()


@pytest.mark.parametrize("baseline", [NoBaseline, LearnedBaseline])
def test_a_step_is_a_function_of_seed_and_step(baseline: Any) -> None:
    torch.manual_seed(1)
    task = translate(ANIMALS, baseline, batch_size=2, seed=3, **everything_random)
    torch.manual_seed(2)  # neither the weights nor the noise come from here
    again, other = (translate(ANIMALS, baseline, batch_size=2, seed=seed, **everything_random) for seed in (3, 4))
    for each in (task, again, other):
        each.progress = 0.5
    for step in (0, 1, 0):
        task(step)  # what happened before does not matter
    torch.rand(7)
    assert torch.equal(task(5).loss, again(5).loss)
    assert not torch.equal(task(5).loss, other(5).loss)
    assert not torch.equal(task(5).loss, task(5 + task.steps_per_epoch).loss)


def test_building_a_task_disturbs_nobodys_random_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    translate(ANIMALS, seed=7, **MODELS["luong"])
    assert torch.equal(torch.rand(3), expected)


def test_an_epoch_is_as_many_steps_as_it_takes() -> None:
    task = translate(ANIMALS, batch_size=3, **MODELS["luong"])
    assert (task.steps_per_epoch, task.examples_per_step, task.unit) == (2, 3, "texts")


# Words of its own in place of the right ones.


def deterministic(**options: Any) -> TranslateTask:
    """After the start b, after a and b the word c, which stands nowhere in ASKED."""
    corpus = Given(pairs("x: a b c c", "y: a b c"))
    model = {"embedding": partial(TokenEmbedding, size=7), "encoder": encoders.IdentityEncoder, "decoder": Chain}
    task = translate(corpus, **model, **options)
    assert task.vocabularies.target.ids_to_tokens([4, 5, 6]) == ["c", "a", "b"]
    task.model.embedding.table.weight.data = torch.full((7, 7), -100.0)
    for word, after in [(START, 6), (5, 4), (6, 4), (4, 4)]:
        task.model.embedding.table.weight.data[word, after] = 0
    task.model.out.weight.data, task.model.out.bias.data = torch.eye(7), torch.zeros(7)
    return task


def inputs(task: TranslateTask, examples: Examples) -> tuple[Batch, Tensor]:
    asked = task.make_batch(examples)
    return asked, task._sampled_inputs(asked)


def test_all_words_are_replaced_by_what_the_model_says_in_their_place() -> None:
    task = deterministic(scheduled_sampling=1.0)
    task.progress = 1.0
    asked, given = inputs(task, pairs("x: a b a"))
    assert asked.decoder_inputs.tolist() == [[START, 5, 6, 5]]
    # Told from the right words: b at the start, c after a, c after b.
    assert given.tolist() == [[START, 6, 4, 4]]
    assert asked.targets.tolist() == [[5, 6, 5, END]]  # what is right is as it was


def test_at_the_start_of_training_and_without_the_option_no_word_is_replaced() -> None:
    for share, progress in [(1.0, 0.0), (0.0, 1.0)]:
        task = deterministic(scheduled_sampling=share)
        task.progress = progress
        asked, given = inputs(task, pairs("x: a b a", "y: a"))
        assert torch.equal(given, asked.decoder_inputs)


@pytest.mark.parametrize(("share", "progress"), [(0.5, 1.0), (1.0, 0.25), (0.8, 0.5)])
def test_the_share_of_replaced_words_rises_with_the_progress(share: float, progress: float) -> None:
    task = deterministic(scheduled_sampling=share)
    task.progress = progress
    torch.manual_seed(0)
    asked, given = inputs(task, pairs(*["x: a b a b a b a b a b a"] * 400))
    assert (given[:, 0] == START).all()
    replaced = (given != asked.decoder_inputs)[:, 1:].double()
    assert given[:, 1:][replaced.bool()].unique().tolist() == [4, 6]
    expected = share * progress
    assert replaced.mean().item() == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4400))
    assert replaced.mean(0).std() < 0.05, "every place alike"


def test_nothing_is_replaced_after_the_end_of_a_row() -> None:
    task = deterministic(scheduled_sampling=1.0)
    task.progress = 1.0
    _, given = inputs(task, pairs("x: a b a b", "y: a", "x: a b"))
    assert given.tolist() == [[START, 6, 4, 4, 4], [START, 6, 0, 0, 0], [START, 6, 4, 0, 0]]


def test_what_it_says_in_place_of_a_right_word_is_a_word() -> None:
    task = by_hand(following={START: {0: 0.3, UNKNOWN: 0.3, START: 0.3, B: 0.1}, A: {B: 1.0}}, scheduled_sampling=1.0)
    task.progress = 1.0
    torch.manual_seed(0)
    _, given = inputs(task, pairs(*["x: a b"] * 100))
    assert given.tolist() == [[START, B, B]] * 100


def test_the_loss_is_that_of_the_right_words_after_those_of_its_own() -> None:
    task = translate(
        pairs("x: a b", "y: c"),
        embedding=partial(TokenEmbedding, size=7),
        encoder=encoders.IdentityEncoder,
        decoder=Chain,
        scheduled_sampling=1.0,
        batch_size=2,
    )
    a, b, c = 4, 5, 6
    table = task.model.embedding.table.weight.data.fill_(-100)
    task.model.out.weight.data, task.model.out.bias.data = torch.eye(7), torch.zeros(7)
    table[START, b] = table[a, c] = 0  # for certain
    for after, share in [(a, 0.25), (b, 0.25), (END, 0.5)]:
        table[b, after] = math.log(share)
    for after, share in [(c, 0.8), (END, 0.2)]:
        table[c, after] = math.log(share)
    task.progress = 1.0
    # a, b and the end are told after the start, b and c; c and the end after the start and b.
    costs = [100, -math.log(0.25), -math.log(0.2), 100, -math.log(0.5)]
    assert task(0).loss.item() == pytest.approx(sum(costs) / 5, rel=1e-5)


# Hard choices.


class Remembering(Baseline):
    """Expects half a nat less than nothing, and keeps what it has judged."""

    def __init__(self, feature_size: int, rollouts_per_image: int) -> None:
        super().__init__(feature_size, rollouts_per_image)
        self.feature_size, self.seen = feature_size, list[tuple[Rollout, Tensor]]()

    def forward(self, rollout: Rollout, returns: Tensor) -> BaselineOutput:
        self.seen.append((rollout, returns))
        return BaselineOutput(torch.full_like(returns, -0.5), returns.new_tensor(0.25))


HARD = {
    "encoder": bilstm,
    "decoder": partial(recurrent.RecurrentDecoder, size=8, context=partial(CrossAttention, select=Hard)),
}


@pytest.mark.parametrize(("gamma", "policy_weight"), [(1.0, 1.0), (0.5, 0.25), (0.0, 1.0)])
def test_a_choice_is_paid_with_the_log_probability_of_its_word_and_of_those_after_it(
    gamma: float, policy_weight: float
) -> None:
    task = translate(ANIMALS, Remembering, gamma=gamma, policy_weight=policy_weight, batch_size=4, seed=2, **HARD)
    result = task(1)
    ((_, returns),) = task.baseline.seen

    torch.manual_seed((2 << 32) + 1)
    asked = task.make_batch(ANIMALS.select(task._batches(1)))
    said = task.model(asked.sources.token_ids, asked.sources.lengths, asked.decoder_inputs)
    assert said.log_prob is not None
    policy, rewards = 0.0, []
    for row, right in enumerate(asked.targets.tolist()):
        words = [word for word in right if word != -100]
        shares = [said.logits[row, step].softmax(-1)[word].item() for step, word in enumerate(words)]
        rewards.append([math.log(share) for share in shares])
        for step in range(len(words)):
            earned = sum(gamma**later * reward for later, reward in enumerate(rewards[-1][step:]))
            assert returns[step, row].item() == pytest.approx(earned, rel=1e-5)
            policy -= said.log_prob[row, step].item() * (earned + 0.5)
    lengths = [len(row) for row in rewards]
    assert sorted(lengths) == [2, 3, 4, 4]
    metrics = result.metrics()
    assert metrics["loss/policy"] == pytest.approx(policy_weight * policy / 13, rel=1e-5)  # for each word, as the next
    assert metrics["loss/answer"] == pytest.approx(-sum(map(sum, rewards)) / 13, rel=1e-5)
    assert metrics["loss/baseline"] == 0.25
    assert metrics.keys() == {"loss/answer", "loss/policy", "loss/baseline", "train/accuracy"}
    terms = [value for name, value in metrics.items() if name.startswith("loss/")]
    assert result.loss.item() == pytest.approx(sum(terms), rel=1e-5)


def test_a_baseline_is_told_what_was_known_before_each_choice() -> None:
    """Steps first, rows second; and nothing of the choice of the same step."""
    task = translate(ANIMALS, Remembering, batch_size=4, seed=2, **HARD)
    task(1)
    ((rollout, returns),) = task.baseline.seen
    assert task.baseline.feature_size == 8
    assert rollout.features.shape == (4, 4, 8) and returns.shape == (4, 4)
    assert not rollout.features[0].any()  # before the first step nothing has been read
    assert rollout.features[1:].flatten(0, 1).any(-1).all()
    asked = task.make_batch(ANIMALS.select(task._batches(1)))
    assert torch.equal(rollout.mask, (asked.targets != -100).mT)
    assert torch.equal(rollout.active, rollout.mask)
    assert rollout.group.tolist() == [0, 1, 2, 3]
    assert not rollout.reward.requires_grad and not rollout.reward[~rollout.mask].any()
    other = translate(ANIMALS, Remembering, batch_size=4, seed=2, **HARD)
    other.model.out.weight.data.zero_()  # what is said of a word does not matter to what was known before it
    other(1)
    assert torch.equal(other.baseline.seen[0][0].features, rollout.features)


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline])
def test_the_gradient_of_the_choices_is_that_of_the_expected_reward(baseline: Any) -> None:
    """Two words to read at each of two steps, of which the second knows what was read at the first."""
    decoder = partial(recurrent.RecurrentDecoder, size=4, context=partial(CrossAttention, select=Hard))
    parts = {"encoder": encoders.IdentityEncoder, "embedding": partial(TokenEmbedding, size=4), "decoder": decoder}
    task = translate(pairs(*["x y: a"] * 5_000), baseline, batch_size=5_000, seed=1, **parts)
    task.model.source_embedding.table.weight.data *= 6  # so that it matters what is read
    task.model.out.weight.data *= 6
    score = task.model.decoder.context.attention.score.weight.weight
    torch.manual_seed(0)
    asked = task.make_batch(task.split("train").select(range(500)))
    said = task.model(asked.sources.token_ids, asked.sources.lengths, asked.decoder_inputs)
    assert said.log_prob is not None and said.weights is not None
    ways = said.weights.argmax(-1).tolist()
    rewards = said.logits.log_softmax(-1).gather(-1, asked.targets[..., None])[..., 0].sum(1).detach()
    expected, total = torch.zeros(()), 0.0
    for way in product([0, 1], repeat=2):
        row = ways.index(list(way))
        chance = said.log_prob[row].sum().exp()
        total += chance.item()
        expected = expected + chance * rewards[row]
    assert total == pytest.approx(1, rel=1e-5)
    (exact,) = torch.autograd.grad(-expected / 2, score)  # for each of two words
    task(0)  # so that the moving average has seen something
    (estimated,) = torch.autograd.grad(task(1).loss, score)
    assert float((estimated - exact).norm() / exact.norm()) < 0.12


def test_the_loss_of_a_baseline_trains_the_baseline_alone() -> None:
    gradients = []
    for baseline in (NoBaseline, LearnedBaseline):
        task = translate(ANIMALS, baseline, policy_weight=0.0, **HARD)
        task(0).loss.backward()
        gradients.append({name: value.grad for name, value in task.named_parameters() if value.grad is not None})
    plain, judged = gradients
    assert judged.keys() - plain.keys() == {"baseline.head.weight", "baseline.head.bias"}
    assert judged["baseline.head.weight"].any()
    assert all(torch.equal(value, judged[name]) for name, value in plain.items())


# What is measured.


def test_perplexity_and_accuracy_by_hand() -> None:
    """ASKED are a b, b, b a and b; the likeliest are a at the start, b after a and the end after b."""
    shares = [*(0.6, 0.5, 0.9), *(0.4, 0.9), *(0.4, 0.1, 0.25), *(0.4, 0.9)]
    measured = by_hand(bleu=False).eval().evaluate("test")
    assert measured.keys() == {"perplexity", "accuracy", "exact"}
    assert measured["perplexity"] == pytest.approx(math.prod(shares) ** (-1 / 10), rel=1e-5)
    assert measured["accuracy"] == pytest.approx(50)  # three, one, none and one


@pytest.mark.parametrize("name", [*MODELS, "everything"])
def test_the_measures_do_not_depend_on_how_batches_are_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS.get(name, everything_random)
    aligned = Examples(ANIMALS.texts, ANIMALS.targets, alignments=((0, 1, 2), (0, 1), (0,), (0, -1, 2)))
    task = translate(Given(ANIMALS, test=aligned), **model).eval()
    measured = task.evaluate("test")
    weighs = name not in ("bottleneck", "continuation", "causal")
    assert ("alignment_error" in measured) == weighs
    for module in ("ram.tasks.corpus", "ram.inference.translation"):
        monkeypatch.setattr(f"{module}.EVALUATION_BATCH_SIZE", 1)
    assert task.evaluate("test") == pytest.approx(measured, rel=1e-4)
    assert task.evaluate("validation").keys() == measured.keys() - {"alignment_error"}


def test_it_says_the_likeliest_word_by_word_or_by_the_beam_that_was_asked_for() -> None:
    assert by_hand().eval().evaluate("test")["exact"] == 25  # a b
    wide = by_hand(search=Search(beam_size=2, length_penalty=0.0)).eval()
    assert wide.evaluate("test")["exact"] == 50  # b
    assert spoken(wide, "x") == [["b"]]
    assert spoken(wide, "x", beam_size=1) == [["a b"]]
    assert spoken(wide, "x", "y x", n_best=2) == [["b", "a b"]] * 2
    ((_, best), (_, second)) = wide.generate(pairs("x: b"), n_best=2)[0]
    assert best.log_prob == pytest.approx(math.log(0.36), rel=1e-5)
    assert second.log_prob == pytest.approx(math.log(0.27), rel=1e-5)
    mean = by_hand(search=Search(beam_size=2)).eval()  # over the words: 0.6 = 0.36^(1/2) against 0.646 = 0.27^(1/3)
    assert spoken(mean, "x") == [["a b"]]


def test_it_says_no_more_than_it_may() -> None:
    endless = by_hand(following={**NEXT, B: {A: 1.0}}).eval()
    assert spoken(endless, "x")[0][0].split() == ["a", "b"] * 6  # twice the source and ten
    assert len(spoken(endless, "x y x y x")[0][0].split()) == 20
    short = by_hand(following={**NEXT, B: {A: 1.0}}, search=Search(max_length=3)).eval()
    assert spoken(short, "x", "x y x y x") == [["a b a"]] * 2


FOUND = pairs(
    "the cat sat on the mat: the cat sat on the mat",
    "a dog runs far away: a dog runs far off",
    "two men: two men are here",
    "no: yes",
    "A tall WOMAN sings songs: a tall woman sings songs",
)


def test_bleu_and_chrf_are_those_of_sacrebleu_on_what_is_said() -> None:
    task = echo(FOUND)
    assert FOUND.targets is not None
    said, right = ([" ".join(words) for words in side] for side in (FOUND.texts, FOUND.targets))
    assert spoken(task, *said) == [[text] for text in said]
    measured = task.evaluate("test")
    assert measured["bleu"] == pytest.approx(sacrebleu.corpus_bleu(said, [right], lowercase=True).score)
    lower = [[text.lower() for text in side] for side in (said, right)]
    assert measured["chrf"] == pytest.approx(sacrebleu.corpus_chrf(lower[0], [lower[1]]).score)
    assert measured["exact"] == 20
    assert 0 < measured["bleu"] < 100 and 0 < measured["chrf"] < 100


def test_bleu_by_hand() -> None:
    """Of the words 4/5 are right, of the pairs 3/4, then 2/3 and 1/2; nothing is too short."""
    one = FOUND.select([1])
    measured = echo(Given(FOUND, test=one)).evaluate("test")
    assert measured["bleu"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    short = bleu_and_chrf(["a b c d"], [["a b c d e"]])["bleu"]
    assert short == pytest.approx(100 * math.exp(1 - 5 / 4))
    assert bleu_and_chrf(["A b C d"], [["a B c D"]]) == pytest.approx({"bleu": 100, "chrf": 100})


def test_any_of_several_right_answers_is_right() -> None:
    several = Examples(
        FOUND.texts[:3],
        (FOUND.texts[0], ("a", "dog", "flees"), ("two", "men", "are")),
        (("a cat sat", "the cat sat on the mat"), ("a dog runs far off", "a dog runs off"), ("two men",)),
    )
    task = echo(Given(FOUND, test=several))
    measured = task.evaluate("test")
    assert measured["exact"] == pytest.approx(100 * 2 / 3)
    said = [" ".join(text) for text in several.texts]
    streams: list[Any] = [
        ["a cat sat", "a dog runs far off", "two men"],
        ["the cat sat on the mat", "a dog runs off", None],
    ]
    assert measured["bleu"] == pytest.approx(sacrebleu.corpus_bleu(said, streams, lowercase=True).score)
    assert measured["chrf"] == pytest.approx(sacrebleu.corpus_chrf(said, streams).score)
    first = bleu_and_chrf(said, [each[:1] for each in several.references or ()])["bleu"]
    assert measured["bleu"] > first


def test_what_is_said_in_small_letters_may_be_exact(tmp_path: Path) -> None:
    path = tmp_path / "sentences"
    path.write_text("A man runs.\nTwo dogs sleep!\nA cat, tired, sits.\n" * 4)
    task = echo(parallel_files.ParallelFiles(str(path), str(path)))
    assert task.evaluate("test")["bleu"] == pytest.approx(100)
    assert task.evaluate("test")["exact"] == 100


# Alignments.


BACKWARDS = reversal.Reversal(max_length=6, size=60)


@pytest.mark.parametrize("decoder", ["luong", "bahdanau", "transformer"])
def test_alignments_by_hand(decoder: str) -> None:
    """Who looks from the end is always right in a reversal; who does not, in the middle of odd lengths alone."""

    def error(select: Any, corpus: Any) -> float:
        if decoder == "transformer":
            parts = {"encoder": encoders.IdentityEncoder, "decoder": partial(transformer, select=select)}
        else:
            read = "after" if decoder == "luong" else "before"
            context = partial(CrossAttention, select=select)
            parts = {
                "encoder": bilstm,
                "decoder": partial(recurrent.RecurrentDecoder, size=8, context=context, attend=read),
            }
        return translate(corpus, **parts).eval().evaluate("validation")["alignment_error"]

    lengths = [len(text) for text in BACKWARDS.load("validation").texts]
    assert error(partial(Diagonal, from_end=True), BACKWARDS) == 0
    wrong = sum(length - length % 2 for length in lengths) / sum(lengths)
    assert error(Diagonal, BACKWARDS) == pytest.approx(100 * wrong, rel=1e-5)
    # Words that stand for none do not count, nor does the end.
    some = pairs("hund der: the dog", "die katze: a cat sleeps", alignments=((1, 0), (-1, 1, 0)))
    assert error(Diagonal, Given(some)) == pytest.approx(75)
    assert error(partial(Diagonal, from_end=True), Given(some)) == pytest.approx(25)


def test_where_nothing_is_weighed_nothing_is_misaligned() -> None:
    assert "alignment_error" not in translate(BACKWARDS, **MODELS["bottleneck"]).eval().evaluate("validation")


def test_alignments_of_words_are_not_those_of_pieces() -> None:
    texts = pairs("lupum puella timet: the girl fears the wolf", alignments=((-1, 1, 2, -1, 0),))
    task = translate(texts, subwords=30, shared_vocabulary=True, **MODELS["luong"]).eval()
    measured = task.evaluate("test")
    assert math.isfinite(measured["perplexity"]) and "alignment_error" not in measured


# By itself.


@pytest.mark.parametrize("name", [name for name in MODELS if name != "bottleneck"])
def test_the_order_of_the_texts_is_kept_and_each_is_spoken_as_if_alone(name: str) -> None:
    texts = ["der hund rennt", "eine", "hunde schläft", "katze", "der hund rennt schläft eine", "rennt hunde", "der"]
    task = translate(ANIMALS, seed=4, **MODELS[name]).eval()
    for value in task.parameters():
        value.data *= 3  # so that what is said differs
    said = spoken(task, *texts, beam_size=3, n_best=2)
    assert len({best for best, _ in said}) > 3
    assert [spoken(task, text, beam_size=3, n_best=2)[0] for text in texts] == said
    assert spoken(task, *texts[::-1], beam_size=3, n_best=2) == said[::-1]


def test_more_texts_than_are_spoken_together_are_spoken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.inference.translation.EVALUATION_BATCH_SIZE", 2)
    texts = ["no", "two", "cat", "dog", "a cat", "yes", "on the mat"]
    assert spoken(echo(FOUND), *texts) == [[text] for text in texts]


SHORT = partial(
    TransformerEncoder, size=8, num_heads=2, num_layers=1, positions=partial(LearnedPositions, max_length=3)
)


def test_a_text_longer_than_the_positions_is_refused_before_training_and_when_it_is_spoken() -> None:
    parts = {"encoder": SHORT, "decoder": luong}
    fits = pairs("a b c: a", "b: b")
    for split in ("train", "validation", "test"):
        long = {split: pairs("b: b", "a b c a: a")}
        told = rf"^A text in the {split} split has 4 tokens, but the model has 3 positions: .*\(a b c a "
        with pytest.raises(InputError, match=told):
            translate(Given(**({"train": fits, "validation": fits, "test": fits} | long)), **parts)
    task = translate(fits, **parts).eval()
    told = r"^A text to translate has 4 tokens, but the model has 3 positions: .* \(c b a b \.\.\.\)\.$"
    with pytest.raises(InputError, match=told):
        spoken(task, "a", "c b a b", "b")
    with pytest.raises(InputError, match=told):
        restored(task, **parts).translate(["a", "c b a b"])


def test_a_target_longer_than_the_positions_is_refused_before_training() -> None:
    decoder = partial(transformer, positions=partial(LearnedPositions, max_length=3))
    parts = {"encoder": bilstm, "decoder": decoder}
    fits = pairs("a: b b", "b: b")  # with the start symbol three
    translate(fits, **parts)(0)
    told = r"^A text to generate in the train split has 4 tokens, but the model has 3 positions"
    with pytest.raises(InputError, match=told):
        translate(pairs("a: b b b", "b: b"), **parts)


def test_positions_are_counted_in_pieces_and_the_line_is_told(tmp_path: Path) -> None:
    """The text of more words has fewer pieces."""
    (tmp_path / "a").write_text("a a\na a a a\nzyxwvut zyxwvu\n" * 4)
    (tmp_path / "b").write_text("b\nb\nb\n" * 4)
    files = [str(tmp_path / name) for name in ("a", "b")]
    test = parallel_files.ParallelFiles(*files).load("test")
    corpus = parallel_files.ParallelFiles(*files, *files, *files)
    long = partial(
        TransformerEncoder, size=8, num_heads=2, num_layers=1, positions=partial(LearnedPositions, max_length=6)
    )
    with pytest.raises(
        InputError, match=r"^A text in .*/a, line 3, has \d+ tokens, but the model has 6 positions"
    ):
        translate(corpus, encoder=long, decoder=luong, subwords=20, shared_vocabulary=True)
    assert test.lines is not None and all(" line " in line for line in test.lines)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_target_of_another_split_longer_than_the_positions_is_refused_before_training(split: str) -> None:
    decoder = partial(transformer, positions=partial(LearnedPositions, max_length=3))
    fits = pairs("a: b b", "b: b")
    corpus = Given(**({"train": fits, "validation": fits, "test": fits} | {split: pairs("a: b b b")}))
    with pytest.raises(InputError, match=f"in the {split} split"):
        translate(corpus, encoder=bilstm, decoder=decoder)


@pytest.mark.parametrize("kind", ["transformer", "causal"])
def test_what_is_said_up_to_the_last_position_is_drawn_too(kind: str) -> None:
    corpus = pairs("a b: a b", "b: b")
    positions = partial(LearnedPositions, max_length=8)
    if kind == "transformer":
        parts = {"encoder": bilstm, "decoder": partial(transformer, positions=positions)}
        task = translate(corpus, **parts).eval()
        end = task.model.out.bias
    else:
        parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
        task = translate(corpus, **parts).eval()
        end = task.model.model.out.bias
    end.data[END] = -50  # not learnt yet
    assert math.isfinite(task.evaluate("test")["perplexity"])  # the texts themselves are short enough
    assert "translations.txt" in task.pictures("test")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_pair_longer_than_the_positions_of_a_continuation_is_refused_before_training(split: str) -> None:
    """Source and target have five words together, and there are two start symbols."""
    positions = partial(LearnedPositions, max_length=7)
    parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
    fits, long = pairs("a b a: b a", "a: b"), pairs("a b a: b a b", "a: b")
    task = translate(fits, **parts)
    assert math.isfinite(task(0).loss.item()) and math.isfinite(task.eval().evaluate("test")["perplexity"])
    told = rf"^A text to generate in the {split} split has 8 tokens, but the model has 7 positions"
    with pytest.raises(InputError, match=told):
        translate(Given(**({"train": fits, "validation": fits, "test": fits} | {split: long})), **parts)


def test_pairs_that_fit_the_positions_of_a_continuation_fit_together() -> None:
    """Source and target of either have five words, and there are two start symbols."""
    positions = partial(LearnedPositions, max_length=7)
    parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
    long, short = "a b a b: a", "a: b a b a"
    for corpus in (pairs(long), pairs(short), pairs(long, short)):
        assert math.isfinite(translate(corpus, **parts)(0).loss.item())


# Copying.

NAMES = Given(
    pairs("my name is x: hello x", "my name is y: hello y", "i am x: hello x"),
    test=pairs("my name is zorblo: my name is zorblo", "am gnu: am gnu", "hello: gnu"),
)


def test_names_never_heard_are_said_with_their_own_spelling_and_marked() -> None:
    task = echo(NAMES, copy=True)
    assert spoken(task, "my name is zorblo", "i am gnu gnat") == [["my name is zorblo"], ["i am gnu gnat"]]
    assert task.evaluate("test")["exact"] == pytest.approx(100 * 2 / 3)
    drawn = task.pictures("test")
    assert drawn["translations.txt"] == (
        "source      my name is zorblo\nreference   my name is zorblo\nprediction  my name is [zorblo]\n\n"
        "source      am gnu\nreference   am gnu\nprediction  am [gnu]\n\n"
        "source      hello\nreference   gnu\nprediction  hello\n"
    )
    model = restored(
        task,
        NAMES,
        encoder=encoders.IdentityEncoder,
        decoder=Echo,
        copy=True,
        embedding=partial(TokenEmbedding, size=12),
    )
    assert model.translate(["my name is gnu gnat"]) == ["my name is gnu gnat"]
    assert model.sample(["my name is gnu gnat", "am gnu"], seed=3) == ["my name is gnu gnat", "am gnu"]


def test_of_a_word_is_copied_what_the_source_adds_to_its_share() -> None:
    """Of the first 0.4 * 0.25 of its 0.5, of the second nothing; of the third, twice in the source, all."""
    weights = torch.tensor([[[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.2, 0.0, 0.3]]])
    shares = torch.tensor([[[0.0, 0.5, 0.5], [0.0, 0.2, 0.8], [0.0, 0.1, 0.9]]])
    said = ModelOutput(shares.log(), torch.zeros(1, 3, 1), weights=weights, copied=torch.tensor([[0.4, 0.4, 0.1]]))
    copied = copied_share(said, torch.tensor([[1, 2, 1]]), torch.tensor([[1, 0, 1]]))
    torch.testing.assert_close(copied, torch.tensor([[0.2, 0.0, 1.0]]))


def test_saying_that_a_word_is_unknown_is_no_hit() -> None:
    task = echo(NAMES)  # says <unknown> for names, as the targets are numbered
    asked = Examples((("am", "gnu"),), (("am", "gnu"),))
    task._splits["test"] = asked
    assert task.make_batch(asked).targets.tolist() == [[task.vocabularies.target.encode(["am"])[0], UNKNOWN, END]]
    assert task.evaluate("test")["accuracy"] == pytest.approx(100 * 2 / 3)


def test_the_same_text_made_of_other_pieces_is_told_once() -> None:
    short = Search(max_length=2)
    task = translate(ANIMALS, subwords=40, shared_vocabulary=True, search=short, **MODELS["luong"]).eval()
    found = spoken(task, "katze", beam_size=900, n_best=900)[0]
    told = restored(task, search=short, **MODELS["luong"]).n_best(["katze"], 900)[0]
    assert told == list(dict.fromkeys(found)) != found


def test_without_copying_names_never_heard_are_not_said() -> None:
    task = echo(NAMES)
    assert "zorblo" not in spoken(task, "my name is zorblo")[0][0]
    assert task.evaluate("test")["exact"] == 0
    assert "[" not in task.pictures("test")["translations.txt"]


def test_of_pieces_whole_words_are_marked() -> None:
    corpus = pairs("aa bb: aa bb", "bb aa: bb aa")
    parts = {
        "encoder": encoders.IdentityEncoder,
        "decoder": Echo,
        "copy": True,
        "embedding": partial(TokenEmbedding, size=7),
    }
    task = translate(corpus, subwords=7, shared_vocabulary=True, **parts).eval()
    subwords = task.vocabularies.target.ids_to_tokens(range(7))
    assert sorted(subwords[4:]) == ["_", "a", "b"]  # every word has three
    for module in (task.model.embedding.table, task.model.out):
        module.weight.data = torch.eye(7)
    task.model.out.weight.data *= 50
    task.model.out.bias.data.zero_()
    task.model.gate.weight.data.zero_()
    task.model.gate.weight.data[0, subwords.index("b")] = -100  # it copies b alone
    task.model.gate.bias.data.fill_(50)
    lines = task.pictures("test")["translations.txt"].splitlines()
    assert lines[2] == "prediction  aa [bb]" and lines[6] == "prediction  [bb] aa"


def test_pieces_are_copied_from_pieces_of_the_same_kind_alone() -> None:
    told = r"^task\.model\.copy=true with task\.subwords needs task\.shared_vocabulary=true\.$"
    with pytest.raises(InputError, match=told):
        translate(ANIMALS, subwords=24, **MODELS["copy"])
    translate(ANIMALS, subwords=30, shared_vocabulary=True, **MODELS["copy"])(0)


# Pictures.

Drawn = list[tuple[Tensor, list[str], list[str]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Weights, queries and keys of every alignment that is drawn."""
    seen: Drawn = []

    def keep(weights: Tensor, queries: list[str], keys: list[str]) -> str:
        seen.append((weights, queries, keys))
        return f"{len(seen)}"

    monkeypatch.setattr("ram.tasks.translate.alignment", keep)
    return seen


def test_the_pictures_are_texts_alignments_and_lengths() -> None:
    pictures = echo(NAMES, copy=True).pictures("test")
    images = {"alignment_1.png", "alignment_2.png", "alignment_3.png", "lengths.png"}
    assert pictures.keys() == images | {"translations.txt", "bleu.txt", "lengths.csv"}
    assert str(pictures["bleu.txt"]).startswith("BLEU  nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")
    for name in images:
        image = pictures[name]
        assert isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.std() > 1
    blind = translate(ANIMALS, **MODELS["bottleneck"], bleu=False).eval().pictures("test")
    assert blind.keys() == {"translations.txt", "lengths.png", "lengths.csv"}


def test_an_alignment_is_of_what_was_said_and_read(drawn: Drawn) -> None:
    """Three texts, from short to long: what is said with its end, and where it looks."""
    echo(NAMES, copy=True).pictures("test")
    assert [queries for _, queries, _ in drawn] == [
        ["hello", "<end>"],
        ["am", "[gnu]", "<end>"],
        ["my", "name", "is", "[zorblo]", "<end>"],
    ]
    assert [" ".join(keys) for _, _, keys in drawn] == ["hello", "am gnu", "my name is zorblo"]
    for weights, queries, keys in drawn:
        assert weights.shape == (len(queries), len(keys))
        assert torch.equal(weights[:-1], torch.eye(len(keys))) and not weights[-1].any()


def test_right_texts_are_counted_by_their_length() -> None:
    test = pairs("no: no", "yes: no", "yes: yes", "a cat: a cat", "two men sat: two men are here")
    task = echo(Given(FOUND, test=test))
    assert task.pictures("test")["lengths.csv"] == "length,correct,texts\n1,2,3\n2,1,1\n3,0,1\n"


def test_only_some_texts_are_written() -> None:
    assert FOUND.targets is not None
    many = Examples(FOUND.texts * 10, FOUND.targets * 10)
    told = echo(Given(FOUND, test=many)).pictures("test")["translations.txt"]
    assert told.count("source      ") == told.count("reference   ") == told.count("prediction  ") == 24


def test_nothing_said_is_drawn_too() -> None:
    task = by_hand(following={**NEXT, START: {END: 1.0}}).eval()
    assert spoken(task, "x") == [[""]]
    assert task.evaluate("test")["exact"] == 0
    assert "prediction  \n" in task.pictures("test")["translations.txt"]
    silent = echo(NAMES, copy=True)
    silent.model.out.bias.data[END], silent.model.gate.bias.data[0] = 1000, 1000
    assert spoken(silent, "am gnu") == [[""]]
    assert "prediction  \n" in silent.pictures("test")["translations.txt"]


# Going on.


@pytest.mark.parametrize("baseline", [MovingAverageBaseline, LearnedBaseline])
@pytest.mark.parametrize("subwords", [None, 24])
def test_resuming_equals_going_on(baseline: Any, subwords: int | None) -> None:
    def build() -> tuple[TranslateTask, torch.optim.Optimizer]:
        task = translate(ANIMALS, baseline, batch_size=2, subwords=subwords, seed=5, **everything_random)
        task.progress = 0.5
        return task, torch.optim.Adam(task.parameters(), 0.01)

    task, optimizer = build()
    expected = train(task, range(8), optimizer)

    first, its_optimizer = build()
    prefix = train(first, range(4), its_optimizer)
    file = io.BytesIO()
    torch.save([first.state_dict(), its_optimizer.state_dict()], file)
    file.seek(0)
    state, optimizer_state = torch.load(file, weights_only=True)
    second, its_optimizer = build()
    second.load_state_dict(state)
    its_optimizer.load_state_dict(optimizer_state)
    assert prefix + train(second, range(4, 8), its_optimizer) == expected
    for name, value in task.state_dict().items():
        assert name == "_extra_state" or torch.equal(value, second.state_dict()[name])


@pytest.mark.parametrize(
    ("other", "options", "told"),
    [
        (pairs("x y: a b", "y: d a"), {}, "the target words of the corpus differ from those of training, for example 'c'"),
        (pairs("x z: a b", "z: c a"), {}, "the source words of the corpus differ from those of training, for example 'y'"),
        (
            pairs("x y: a b", "y: c c"),
            {},
            "the target words of the corpus differ from those of training: ",
        ),  # another order
        (pairs("x y: a b", "y: c a d"), {}, "the target words of the corpus differ from those of training, for example 'd'"),
        (pairs("x y: a b", "y: c a"), {"shared_vocabulary": True}, ""),
        (pairs("x y: a b", "y: c a"), {"subwords": 8}, ""),
    ],
)
def test_the_state_of_other_words_is_refused(other: Examples, options: dict[str, Any], told: str) -> None:
    own = pairs("x y: a b", "y: c a")
    state = translate(own, **MODELS["luong"]).state_dict()
    assert translate(own, **MODELS["luong"]).load_state_dict(state).missing_keys == []
    with pytest.raises(InputError, match=rf"^here\.pt does not fit.*{told}") as refused:
        checkpoint.load_state(translate(other, **MODELS["luong"], **options), state, Path("here.pt"))
    assert "\n" not in str(refused.value)


# What is restored.


@pytest.mark.parametrize("subwords", [None, 30])
@pytest.mark.parametrize("name", ["luong", "copy", "transformer", "causal"])
def test_what_is_restored_is_the_trained_model_without_its_corpus(name: str, subwords: int | None) -> None:
    class Absent(Given):
        def load(self, split: str) -> Examples:
            raise AssertionError("The data are not needed.")

    parts = {key: value for key, value in MODELS[name].items() if key != "shared_vocabulary"}
    task = translate(ANIMALS, subwords=subwords, shared_vocabulary=True, seed=3, **parts).eval()
    model = restored(task, Absent(ANIMALS), Search(beam_size=2), **parts)
    assert isinstance(model, TextTranslator) and not model.model.training
    weights = model.model.state_dict()
    assert weights.keys() == task.model.state_dict().keys()
    assert all(torch.equal(value, weights[key]) for key, value in task.model.state_dict().items())
    texts = ["der hund rennt", "katze", "eine katze"]
    expected = spoken(task, *texts, beam_size=3, n_best=3)
    assert model.n_best(texts, 3) == expected
    assert model.translate(texts, beam_size=1) == [best for (best,) in spoken(task, *texts)]
    assert model.translate(texts) == [best for (best,) in spoken(task, *texts, beam_size=2)]


def test_the_search_of_the_run_is_taken_unless_told_otherwise() -> None:
    parts = {"embedding": partial(TokenEmbedding, size=6), "encoder": encoders.IdentityEncoder, "decoder": Chain}
    model = restored(by_hand(), search=Search(beam_size=2, length_penalty=0.0), **parts)
    assert model.translate(["x", "y"]) == ["b", "b"]
    assert model.translate(["x"], beam_size=1) == ["a b"]
    assert model.n_best(["x"], 2) == [["b", "a b"]]
    assert model.n_best(["x"], 1, beam_size=1) == [["a b"]]
    assert restored(by_hand(), **parts).translate(["x"]) == ["a b"]
    assert len(restored(by_hand(), **parts).n_best(["x"], 3)[0]) == 3  # as many hypotheses as are asked for


def test_translations_are_sampled_with_their_probabilities() -> None:
    parts = {"embedding": partial(TokenEmbedding, size=6), "encoder": encoders.IdentityEncoder, "decoder": Chain}
    model = restored(by_hand(), **parts)
    sampled = Counter(model.sample(["x"] * 4000))
    for said, share in {"b": 0.4 * 0.9, "a": 0.6 * 0.25, "a b": 0.6 * 0.5 * 0.9}.items():
        assert sampled[said] / 4000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))
    assert model.sample(["x"] * 40) == model.sample(["x"] * 40) != model.sample(["x"] * 40, seed=1)
    for likeliest in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.3}):
        assert model.sample(["x", "y x"], **likeliest) == ["a b", "a b"]
    with pytest.raises(InputError, match="temperature must be"):
        model.sample(["x"], temperature=-1)
    with pytest.raises(InputError, match="at least one text"):
        model.sample([])


def test_texts_that_cannot_be_translated_are_refused_in_a_sentence() -> None:
    model = restored(translate(ANIMALS, **MODELS["luong"]), **MODELS["luong"])
    for texts in ([], (), "der hund"):
        with pytest.raises(InputError, match=r"^The model needs a list of at least one text\.$"):
            model.translate(texts)
    with pytest.raises(InputError, match=r"^Text 1 has no words: '  '\.$"):
        model.translate(["der", "  "])
    assert len(model.translate(["nie gehört"])) == 1
    with pytest.raises(InputError, match=r"^n_best must be in 1 \.\. beam_size \(2\), got 3\.$"):
        model.n_best(["der"], 3, beam_size=2)
    for number in (0, -1):
        with pytest.raises(InputError, match=rf"^n_best must be in 1 \.\. beam_size \(1\), got {number}\.$"):
            model.n_best(["der"], number)


def test_a_run_without_a_search_is_used_too() -> None:
    task = by_hand(search=None)
    model = partial(
        EncoderDecoder, embedding=partial(TokenEmbedding, size=6), encoder=encoders.IdentityEncoder, decoder=Chain
    )
    arguments = {"model": model, "corpus": Given(SOURCES), "search": None, "device": "cpu"}
    assert TranslateTask.restore(task.state_dict(), arguments).translate(["x"]) == ["a b"]


def test_a_beam_of_none_is_refused() -> None:
    model = restored(translate(ANIMALS, **MODELS["luong"]), **MODELS["luong"])
    with pytest.raises(InputError, match=r"^beam_size must be at least 1, got 0\.$"):
        model.translate(["der"], beam_size=0)


# What is refused.


@pytest.mark.parametrize(
    ("options", "told"),
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
def test_wrong_options_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        translate(ANIMALS, **MODELS["luong"], **options)


def test_the_search_is_checked_on_construction() -> None:
    with pytest.raises(InputError, match=r"^task\.search\.max_length must be at least 1, got 0\.$"):
        Search(max_length=0)


@pytest.mark.parametrize("penalty", [-1.0, 11.0, math.nan])
def test_the_beam_is_checked_on_construction(penalty: float) -> None:
    with pytest.raises(InputError, match=r"^task\.search\.length_penalty must be in \[0, 10\], got"):
        Search(length_penalty=penalty)
    with pytest.raises(InputError, match=r"^task\.search\.beam_size must be at least 1, got 0"):
        Search(beam_size=0)


@pytest.mark.parametrize(("monitor", "maximize"), [("exact", True), ("bleu", True), ("perplexity", False)])
def test_what_chooses_the_best_checkpoint_is_measured(monitor: str, maximize: bool) -> None:
    task = by_hand(monitor=monitor).eval()
    assert (task.monitor, task.maximize) == (monitor, maximize)
    assert monitor in task.evaluate("validation")


def test_a_corpus_without_words_to_say_is_refused() -> None:
    told = r"^task=translate needs a corpus of pairs of texts, such as corpus=reversal\.$"
    for targets in (None, ("plus", "minus", "plus", "minus")):
        with pytest.raises(InputError, match=told):
            translate(Examples(ANIMALS.texts, targets), **MODELS["luong"])


def test_a_corpus_that_cannot_write_its_targets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = Examples((("two", "dogs"), ("dogs",)), (("Aa", "aa."), ("Aa",)))
    monkeypatch.setattr(multi30k.Multi30k, "load", lambda source, split: tags)
    with pytest.raises(InputError, match=r"^task=translate needs a corpus with a detokenizer, such"):
        translate(multi30k.Multi30k(targets="tags"), **MODELS["luong"])


# What is learnt.


def backwards(count: int, seed: int) -> Examples:
    """Four letters, from one to four of them."""
    chance = random.Random(seed)
    texts = tuple(tuple(chance.choice("abcd") for _ in range(chance.randint(1, 4))) for _ in range(count))
    return Examples(texts, tuple(text[::-1] for text in texts))


def learn(
    corpus: Given, steps: int, rate: float, baseline: Any = NoBaseline, fixed: str = "none", **options: Any
) -> float:
    """How many are right in percent when the rate has fallen to nothing; parameters of some names stay as they are."""
    task = translate(corpus, baseline, batch_size=32, seed=1, bleu=False, **options)
    for name, value in task.named_parameters():
        value.requires_grad_(fixed not in name)
    optimizer = torch.optim.Adam(task.parameter_groups()[0]["params"], rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        train(task, range(step, step + 1), optimizer)
    return task.eval().evaluate("test")["exact"]


LEARNT = Given(backwards(640, 0), test=backwards(100, 1))
LEARNERS: dict[str, dict[str, Any]] = {
    "luong": {
        "encoder": partial(RecurrentEncoder, cell="gru", size=16, bidirectional=True),
        "decoder": partial(recurrent.RecurrentDecoder, cell="gru", size=32, context=CrossAttention),
    },
    "continuation": {
        "kind": DecoderOnly,
        "encoder": partial(RecurrentEncoder, cell="gru", size=48),
        "shared_vocabulary": True,
    },
}


@pytest.mark.parametrize("name", LEARNERS)
def test_letters_are_said_backwards(name: str) -> None:
    parts = {"embedding": partial(TokenEmbedding, size=16)} | LEARNERS[name]
    assert learn(LEARNT, 150, 0.02, **parts) > 75
    assert learn(LEARNT, 0, 0.02, **parts) < 10


def greetings(count: int, seed: int) -> Examples:
    """Names of three letters, never the same in another half of the alphabet of seeds."""
    chance, letters = random.Random(seed), "bdfgklmnprst"[seed % 2 :: 2]
    texts, targets = [], []
    for _ in range(count):
        name = "".join(chance.choice(letters) + chance.choice("aeiou") for _ in range(3))
        said, answer = chance.choice([("i am {}", "hello {}"), ("{} is here", "{} , welcome"), ("this is {}", "oh {}")])
        texts.append(tuple(said.format(name).split()))
        targets.append(tuple(answer.format(name).split()))
    return Examples(tuple(texts), tuple(targets))


def test_names_never_heard_are_repeated_by_copying_alone() -> None:
    corpus = Given(greetings(320, 0), test=greetings(100, 1))
    parts = {"embedding": partial(TokenEmbedding, size=16), "min_count": 20} | LEARNERS["luong"]
    assert learn(corpus, 80, 0.02, **parts, copy=True) > 80
    assert learn(corpus, 80, 0.02, **parts) == 0


def capitals(count: int) -> Examples:
    """One word in four is to be said."""
    chance, texts, targets = random.Random(0), [], []
    for _ in range(count):
        words = [chance.choice("abcdef") for _ in range(3)]
        answer = chance.choice("ABCDEF")
        words.insert(chance.randrange(4), answer)
        texts.append(tuple(words))
        targets.append((answer,))
    return Examples(tuple(texts), tuple(targets))


def test_the_word_that_is_to_be_said_is_learnt_to_be_chosen() -> None:
    """The vectors of words stay as they are, so that what is read depends on the trained choice alone."""
    decoder = partial(
        recurrent.RecurrentDecoder, cell="gru", size=16, bridge="none", context=partial(CrossAttention, select=Hard)
    )
    parts = {
        "embedding": partial(TokenEmbedding, size=16),
        "encoder": encoders.IdentityEncoder,
        "decoder": decoder,
        "fixed": "words",
    }
    corpus = Given(capitals(320))
    assert learn(corpus, 120, 0.03, MovingAverageBaseline, **parts) > 90
    assert learn(corpus, 120, 0.03, MovingAverageBaseline, **parts, policy_weight=0.0) < 75
