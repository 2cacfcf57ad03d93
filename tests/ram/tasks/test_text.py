"""Tasks on texts: steps, hard attention, resuming, vocabularies, and figures of attention weights."""

import io
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from envs import InputError
from ram.attention import record_weights
from ram.attention.positions import LearnedPositions, NoPositions
from ram.attention.selection import Hard
from ram.baselines import LearnedBaseline, MovingAverageBaseline, NoBaseline
from ram.corpora import Examples
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence import interfaces
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.classifiers import Classifier, Tagger
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.pooling import AttentionPooling, LastState, SumPooling
from ram.sequence.recurrent import AttentiveRecurrentEncoder, RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder
from ram.tasks.classify_text import ClassifyTextTask
from ram.tasks.language_model import LanguageModelTask
from ram.tasks.tag import TagTask
from ram.tasks.text import TextTask
from ram.training import checkpoint
from ram.training.averaging import WeightAverage
from tests.ram.tasks.text_corpora import InMemoryCorpus, labelled, tagged, train

SIGNS = labelled(
    "plus: one two two", "minus: three", "plus: two four one one one", "minus: three four two", "plus: five two one"
)
embedding = partial(TokenEmbedding, size=6)
STOCHASTIC = {
    "embedding": partial(TokenEmbedding, size=6, dropout=0.2, word_dropout=0.2),
    "encoder": partial(AttentiveRecurrentEncoder, size=6, select=Hard),
    "pooling": partial(AttentionPooling, select=Hard),
    "dropout": 0.2,
}


def classify(
    corpus: Examples | InMemoryCorpus = SIGNS,
    baseline: Any = NoBaseline,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> ClassifyTextTask:
    parts = {"embedding": embedding, "encoder": interfaces.IdentityEncoder, "pooling": SumPooling} | (model or {})
    corpus = InMemoryCorpus(corpus) if isinstance(corpus, Examples) else corpus
    return ClassifyTextTask(corpus, partial(Classifier, **parts), baseline, **({"batch_size": 2} | options))


# Steps.


@pytest.mark.parametrize("kind", ["classify", "tag", "language"])
def test_a_step_is_a_function_of_seed_and_step(kind: str) -> None:
    parts = {name: STOCHASTIC[name] for name in ("embedding", "encoder", "dropout")}

    def build(seed: int) -> TextTask:
        if kind == "classify":
            return classify(model=STOCHASTIC, seed=seed)
        if kind == "language":
            return LanguageModelTask(InMemoryCorpus(SIGNS), partial(LanguageModel, **parts), NoBaseline, 2, seed=seed)
        tags = tagged("one/a two/b", "two/b two/b one/a", "three/a", "four/a one/b")
        return TagTask(InMemoryCorpus(tags), partial(Tagger, **parts), NoBaseline, 2, seed=seed)

    torch.manual_seed(1)
    task = build(3)
    torch.manual_seed(2)  # neither weights nor noise depend on the global state
    again, other = build(3), build(4)
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
    classify(seed=7)
    assert torch.equal(torch.rand(3), expected)


def test_steps_per_epoch_cover_all_examples() -> None:
    task = classify(batch_size=2)
    assert (task.steps_per_epoch, task.examples_per_step) == (3, 2)
    assert classify(batch_size=5).steps_per_epoch == 1
    assert classify(batch_size=6).steps_per_epoch == 1


def test_terms_of_the_loss_are_logged_and_sum_to_the_loss() -> None:
    task = classify(model=STOCHASTIC, baseline=LearnedBaseline, policy_weight=0.5)
    result = task(0)
    metrics = result.metrics()
    assert metrics.keys() == {"loss/answer", "loss/policy", "loss/baseline", "train/accuracy"}
    terms = [value for name, value in metrics.items() if name.startswith("loss/")]
    assert result.loss.item() == pytest.approx(sum(terms), rel=1e-5)
    assert classify()(0).metrics().keys() == {"loss/answer", "train/accuracy"}  # without hard attention


# Hard attention.


@pytest.mark.parametrize("policy_weight", [1.0, 0.25])
def test_return_of_hard_attention_sums_log_probabilities_of_later_targets(policy_weight: float) -> None:
    tags = tagged("one/a two/b", "two/b two/b one/a", "three/a", "four/a one/b")
    parts = {"embedding": embedding, "encoder": STOCHASTIC["encoder"]}
    task = TagTask(
        InMemoryCorpus(tags), partial(Tagger, **parts), MovingAverageBaseline, 4, policy_weight=policy_weight, seed=2
    )
    assert isinstance(task.baseline, MovingAverageBaseline)
    task.baseline.mean.fill_(-0.5)
    task.baseline.weight.fill_(0.25)  # a mean of -2
    metrics = task(1).metrics()
    mean = float(task.baseline.mean)

    torch.manual_seed((2 << 32) + 1)
    token_ids, lengths, targets = task.make_batch(tags.select(task._batches(1)))
    output = task.model(token_ids, lengths)
    assert output.log_prob is not None
    assert task.model.encoder.causal
    rewards, returns, terms = [], [], []
    for row, length in enumerate(lengths.tolist()):
        probabilities = output.logits[row, :length].softmax(-1).gather(1, targets[row, :length, None])
        row_rewards = [math.log(probability) for probability in probabilities.flatten().tolist()]
        row_returns = [sum(row_rewards[step:]) for step in range(length)]
        log_probs = output.log_prob[row, :length].tolist()
        terms += [log_prob * (total + 2) for log_prob, total in zip(log_probs, row_returns, strict=True)]
        rewards += row_rewards
        returns += row_returns
    assert metrics["loss/policy"] == pytest.approx(-policy_weight * sum(terms) / 8, rel=1e-5)  # 8 words
    assert metrics["loss/answer"] == pytest.approx(-sum(rewards) / 8, rel=1e-5)
    assert metrics["loss/baseline"] == 0
    assert mean == pytest.approx(0.95 * -0.5 + 0.05 * sum(returns) / 8, rel=1e-5)


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline])
def test_policy_gradient_matches_the_gradient_of_the_expected_reward(baseline: Any) -> None:
    texts = ["plus: one two three", "minus: four one"]
    task = classify(
        labelled(*(10_000 * texts)), baseline, {"pooling": partial(AttentionPooling, select=Hard)}, batch_size=20_000
    )
    query = task.model.pooling.attention.query
    task.model.out[0].weight.data *= 10  # the reward depends clearly on the choice
    token_ids, lengths, targets = task.make_batch(labelled(*texts))
    expected = torch.zeros(())
    for text, length, label in zip(token_ids, lengths.tolist(), targets, strict=True):
        words = task.model.embedding.table.weight[text[:length]]
        probabilities = (query @ words.T)[0].softmax(-1)
        rewards = task.model.out(words).log_softmax(-1)[:, label].detach()
        expected = expected + (probabilities * rewards).sum() / 2
    (exact,) = torch.autograd.grad(-expected, query)
    task(0)  # initializes the moving average
    (estimated,) = torch.autograd.grad(task(1).loss, query)
    assert float((estimated - exact).norm() / exact.norm()) < 0.05


def test_baseline_loss_trains_only_the_baseline() -> None:
    gradients = []
    for baseline in (NoBaseline, LearnedBaseline):
        task = classify(model=STOCHASTIC, baseline=baseline, policy_weight=0.0)
        task(0).loss.backward()
        gradients.append({name: value.grad for name, value in task.named_parameters() if value.grad is not None})
    without, learned = gradients
    assert learned.keys() - without.keys() == {"baseline.head.weight", "baseline.head.bias"}
    assert learned["baseline.head.weight"].any()
    assert all(torch.equal(value, learned[name]) for name, value in without.items())


def noisy(count: int, seed: int, end: tuple[str, ...] = ()) -> Examples:
    """Builds texts with one word of six that determines the label."""
    generator, texts = random.Random(seed), []
    for number in range(count):
        words = [f"noise{generator.randrange(20)}" for _ in range(5)]
        words.insert(generator.randrange(6), "yes" if number % 2 else "no")
        texts.append((*words, *end))
    return Examples(tuple(texts), tuple("yes" if number % 2 else "no" for number in range(count)))


def error_after_training(policy_weight: float, steps: int, lr: float, **parts: Any) -> float:
    """Returns the error with untrained embeddings, which depends on the trained choice only."""
    end = ("?",) if "encoder" in parts else ()
    corpus = InMemoryCorpus(noisy(256, 0, end), test=noisy(256, 1, end))
    model = {"embedding": partial(TokenEmbedding, size=16), "pooling": LastState} | parts
    task = classify(corpus, MovingAverageBaseline, model, batch_size=32, policy_weight=policy_weight, seed=1)
    for name, value in task.named_parameters():
        value.requires_grad_("embedding" not in name and "attention_norm" not in name)
    group = task.parameter_groups()
    train(task, range(steps), torch.optim.Adam(group[0]["params"], lr))
    task.eval()
    return task.evaluate("test")["error"]


def test_hard_pooling_learns_the_position_of_the_informative_word() -> None:
    pooling = partial(AttentionPooling, select=Hard)
    assert error_after_training(1.0, 200, 0.03, pooling=pooling) == 0
    assert error_after_training(0.0, 200, 0.03, pooling=pooling) > 25


def test_hard_self_attention_learns_the_position_of_the_informative_word() -> None:
    encoder = partial(
        TransformerEncoder, size=16, num_layers=1, num_heads=1, dropout=0.0, positions=NoPositions, select=Hard
    )
    assert error_after_training(1.0, 300, 0.01, encoder=encoder) == 0
    assert error_after_training(0.0, 300, 0.01, encoder=encoder) > 25


# Resuming.


@pytest.mark.parametrize("baseline", [MovingAverageBaseline, LearnedBaseline])
def test_resumed_training_equals_uninterrupted_training(baseline: Any) -> None:
    def build() -> tuple[ClassifyTextTask, torch.optim.Optimizer]:
        task = classify(baseline=baseline, model=STOCHASTIC, seed=5)
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
    "other",
    [
        labelled("plus: one two two", "minus: three", "plus: six four one", "minus: five"),  # equally many words
        labelled("plus: one two two", "minus: three", "plus: one four one one", "minus: five two one six"),
        labelled("plus: one two two", "times: three", "plus: two four one one", "times: five two one"),
        labelled("plus: one two two", "minus: three", "plus: two four one one", "times: five two one"),
    ],
    ids=["words", "more words", "labels", "more labels"],
)
def test_states_with_other_words_or_labels_are_refused(other: Examples) -> None:
    state = classify(SIGNS).state_dict()
    assert classify(SIGNS).load_state_dict(state).missing_keys == []
    with pytest.raises(InputError, match=r"here\.pt does not fit: the (words|classes) of the corpus differ from those"):
        checkpoint.load_state(classify(other), state, Path("here.pt"))


# Tied embeddings.


def tied_task() -> LanguageModelTask:
    parts = {"embedding": embedding, "encoder": partial(RecurrentEncoder, size=6), "tie_embeddings": True}
    return LanguageModelTask(InMemoryCorpus(SIGNS), partial(LanguageModel, **parts), NoBaseline, 2)


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    checkpoint.save_weights(tmp_path / "best.safetensors", tied_task())
    assert (tmp_path / "best.safetensors").stat().st_size > 0


def test_averaged_weights_of_a_tied_model_are_loaded() -> None:
    task = tied_task()
    average = WeightAverage(task, 0.9)
    for step in range(3):
        train(task, range(step, step + 1), torch.optim.SGD(task.parameters(), 0.5))
        average.update(step)
    loaded = tied_task()
    state = {"task": task.state_dict(), "average": average.state_dict()}
    checkpoint.load_weights(loaded, state, Path("best.pt"))
    with average.applied():
        assert torch.equal(loaded.model.embedding.table.weight, task.model.embedding.table.weight)


# Vocabularies and labels.


def test_words_below_the_minimum_count_are_unknown() -> None:
    task = classify(min_count=3)
    assert task.vocabulary.tokens == ("one", "two")
    token_ids, lengths, targets = task.make_batch(SIGNS.select([0, 1]))
    one, two = task.vocabulary.encode(["one", "two"])
    assert token_ids.tolist() == [[one, two, two], [UNKNOWN, 0, 0]]
    assert lengths.tolist() == [3, 1]
    assert targets.tolist() == [1, 0]


def test_vocabulary_is_built_from_the_training_split() -> None:
    later = labelled("plus: six one", "minus: seven")
    task = classify(InMemoryCorpus(SIGNS, validation=later, test=later))
    assert {"six", "seven"}.isdisjoint(task.vocabulary.all_tokens)
    assert math.isfinite(task.eval().evaluate("test")["loss"])


def test_empty_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match=r"task\.min_count"):
        classify(min_count=99)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_labels_missing_from_training_are_refused(split: str) -> None:
    other = labelled("plus: one", "times: two")
    with pytest.raises(InputError, match="The label 'times' of validation or test is not in training"):
        classify(InMemoryCorpus(SIGNS, **{split: other}))
    corpus = InMemoryCorpus(tagged("one/a two/b"), **{split: tagged("one/a two/c")})
    with pytest.raises(InputError, match="The label 'c' of validation or test is not in training"):
        TagTask(corpus, partial(Tagger, embedding=embedding, encoder=interfaces.IdentityEncoder), NoBaseline)


def test_corpora_without_the_targets_of_the_task_are_refused() -> None:
    unlabelled, tags = Examples((("one",), ("two", "one"))), tagged("one/a two/b", "one/a")
    for corpus in (unlabelled, tags):
        with pytest.raises(InputError, match=r"^task=classify_text needs a corpus with one label per text[^.]*[.]$"):
            classify(corpus)
    tagger = partial(Tagger, embedding=embedding, encoder=interfaces.IdentityEncoder)
    for corpus in (unlabelled, SIGNS):
        with pytest.raises(InputError, match=r"^task=tag needs a corpus with one label per word"):
            TagTask(InMemoryCorpus(corpus), tagger, NoBaseline)
    with pytest.raises(InputError, match="All texts of the corpus have the label 'plus': there must be another"):
        classify(labelled("plus: one", "plus: two"))
    uneven = Examples((("one", "two"), ("one", "two", "two")), (("a", "b"), ("a", "b")))
    with pytest.raises(InputError, match="A text of 3 words has 2 labels: one two two"):
        TagTask(InMemoryCorpus(uneven), tagger, NoBaseline)
    with pytest.raises(InputError, match="A text of 3 words has 2 labels: one two two"):
        TagTask(InMemoryCorpus(tags, validation=uneven), tagger, NoBaseline)


@pytest.mark.parametrize("option", ["batch_size", "min_count"])
def test_invalid_options_are_refused_by_name(option: str) -> None:
    with pytest.raises(InputError, match=rf"task\.{option} must be at least 1, got 0"):
        classify(**{option: 0})


def test_texts_longer_than_the_positions_are_refused() -> None:
    encoder = partial(TransformerEncoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=4))
    message = r"A text in the train split has 5 tokens, but the model has 4 positions: raise its max_length"
    with pytest.raises(InputError, match=message):
        classify(model={"encoder": encoder}, batch_size=5)


# Figures of attention weights.


Drawn = dict[str, tuple[torch.Tensor, list[str], list[str]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Records weights, queries and keys of every alignment figure by title."""
    calls: Drawn = {}

    def record(weights: Tensor, queries: list[str], keys: list[str], title: str) -> str:
        calls[title] = (weights, queries, keys)
        return title

    monkeypatch.setattr("ram.plots.alignment.alignment", record)
    return calls


def test_self_attention_is_drawn_for_every_head(drawn: Drawn) -> None:
    encoder = partial(TransformerEncoder, size=6, num_layers=2, num_heads=3, causal=True)
    task = LanguageModelTask(
        InMemoryCorpus(SIGNS), partial(LanguageModel, embedding=embedding, encoder=encoder), NoBaseline, 2
    ).eval()
    pictures = task.pictures("test")
    assert pictures["weights_encoder.layers.1.png"] == "encoder.layers.1.self_attention"
    weights, queries, keys = drawn["encoder.layers.0.self_attention"]
    words = ["<start>", "three", "four", "two"]  # the median of 3, 1, 5, 3 and 3 words
    assert queries == keys == words
    assert weights.shape == (3, 4, 4)
    assert torch.equal(weights, weights.tril())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    with record_weights(task.model) as records:
        task.model(*task.make_batch(Examples((tuple(words[1:]),)))[:2])
    torch.testing.assert_close(weights, records["encoder.layers.0.self_attention"][0][0])


def test_attention_computed_step_by_step_is_drawn_in_one_figure(drawn: Drawn) -> None:
    parts = {"encoder": partial(AttentiveRecurrentEncoder, size=6), "pooling": partial(AttentionPooling, num_queries=2)}
    task = classify(model=parts).eval()
    assert {"weights_encoder.png", "weights_pooling.attention.png"} <= task.pictures("test").keys()
    weights, queries, keys = drawn["encoder.attention"]
    assert queries == keys and weights.shape == (3, 3)
    torch.testing.assert_close(weights.sum(-1), torch.tensor([0.0, 1.0, 1.0]))  # no past at the first step
    assert torch.equal(weights, weights.tril(-1))
    weights, queries, _ = drawn["pooling.attention.attention"]
    assert queries == ["query 1", "query 2"] and weights.shape == (2, 3)


def test_models_without_attention_draw_no_weights(drawn: Drawn) -> None:
    classify().eval().pictures("test")
    assert not drawn
