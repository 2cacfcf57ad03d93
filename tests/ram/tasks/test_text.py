"""What the tasks on texts share: steps, choices and their reward, resuming, what is refused, what is restored."""

import io
import math
import random
from dataclasses import dataclass
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
from ram.corpora import Examples, Tokens
from ram.corpora.vocabulary import UNKNOWN
from ram.sequence import encoders
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


def labelled(*lines: str) -> Examples:
    """Of lines such as "label: some words"."""
    labels, texts = zip(*(line.split(": ") for line in lines), strict=True)
    return Examples(tuple(tuple(text.split()) for text in texts), labels)


def tagged(*lines: str) -> Examples:
    """Of lines such as "word/label word/label"."""
    pairs = [[word.split("/") for word in line.split()] for line in lines]
    return Examples(
        tuple(tuple(word for word, _ in text) for text in pairs),
        tuple(tuple(label for _, label in text) for text in pairs),
    )


SIGNS = labelled(
    "plus: one two two", "minus: three", "plus: two four one one one", "minus: three four two", "plus: five two one"
)
vectors = partial(TokenEmbedding, size=6)
everything_random = {
    "embedding": partial(TokenEmbedding, size=6, dropout=0.2, word_dropout=0.2),
    "encoder": partial(AttentiveRecurrentEncoder, size=6, select=Hard),
    "pooling": partial(AttentionPooling, select=Hard),
    "dropout": 0.2,
}


def classify(
    corpus: Examples | Given = SIGNS, baseline: Any = NoBaseline, model: dict[str, Any] | None = None, **options: Any
) -> ClassifyTextTask:
    parts = {"embedding": vectors, "encoder": encoders.IdentityEncoder, "pooling": SumPooling} | (model or {})
    corpus = Given(corpus) if isinstance(corpus, Examples) else corpus
    return ClassifyTextTask(corpus, partial(Classifier, **parts), baseline, **({"batch_size": 2} | options))


def train(task: TextTask, steps: range, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in steps:
        loss = task(step).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# A step.


@pytest.mark.parametrize("kind", ["classify", "tag", "language"])
def test_a_step_is_a_function_of_seed_and_step(kind: str) -> None:
    parts = {name: everything_random[name] for name in ("embedding", "encoder", "dropout")}

    def build(seed: int) -> TextTask:
        if kind == "classify":
            return classify(model=everything_random, seed=seed)
        if kind == "language":
            return LanguageModelTask(Given(SIGNS), partial(LanguageModel, **parts), NoBaseline, 2, seed=seed)
        tags = tagged("one/a two/b", "two/b two/b one/a", "three/a", "four/a one/b")
        return TagTask(Given(tags), partial(Tagger, **parts), NoBaseline, 2, seed=seed)

    torch.manual_seed(1)
    task = build(3)
    torch.manual_seed(2)  # neither the weights nor the noise come from here
    again, other = build(3), build(4)
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
    classify(seed=7)
    assert torch.equal(torch.rand(3), expected)


def test_an_epoch_is_as_many_steps_as_it_takes() -> None:
    task = classify(batch_size=2)
    assert (task.steps_per_epoch, task.examples_per_step) == (3, 2)
    assert classify(batch_size=5).steps_per_epoch == 1
    assert classify(batch_size=6).steps_per_epoch == 1


def test_the_terms_of_the_loss_are_told_and_add_up() -> None:
    task = classify(model=everything_random, baseline=LearnedBaseline, policy_weight=0.5)
    result = task(0)
    metrics = result.metrics()
    assert metrics.keys() == {"loss/answer", "loss/policy", "loss/baseline", "train/accuracy"}
    terms = [value for name, value in metrics.items() if name.startswith("loss/")]
    assert result.loss.item() == pytest.approx(sum(terms), rel=1e-5)
    assert classify()(0).metrics().keys() == {"loss/answer", "train/accuracy"}  # nothing is chosen


# Hard choices.


@pytest.mark.parametrize("policy_weight", [1.0, 0.25])
def test_choices_are_paid_with_the_log_probability_of_the_right_answer(policy_weight: float) -> None:
    tags = tagged("one/a two/b", "two/b two/b one/a", "three/a", "four/a one/b")
    parts = {"embedding": vectors, "encoder": everything_random["encoder"]}
    task = TagTask(Given(tags), partial(Tagger, **parts), MovingAverageBaseline, 4, policy_weight=policy_weight, seed=2)
    assert isinstance(task.baseline, MovingAverageBaseline)
    task.baseline.mean.fill_(-0.5)
    task.baseline.weight.fill_(0.25)  # a mean of -2
    metrics = task(1).metrics()
    mean = float(task.baseline.mean)

    torch.manual_seed((2 << 32) + 1)
    numbers, lengths, right = task.make_batch(tags.select(task._batches(1)))
    said = task.model(numbers, lengths)
    assert said.log_prob is not None
    assert task.model.encoder.causal
    rewards, returns, scored = [], [], []
    for row, length in enumerate(lengths.tolist()):
        shares = said.logits[row, :length].softmax(-1).gather(1, right[row, :length, None])
        logs = [math.log(share) for share in shares.flatten().tolist()]
        after = [sum(logs[place:]) for place in range(length)]  # of its own word and those that follow
        scored += [chosen * (each + 2) for chosen, each in zip(said.log_prob[row].tolist(), after, strict=False)]
        rewards += logs
        returns += after
    assert metrics["loss/policy"] == pytest.approx(-policy_weight * sum(scored) / 8, rel=1e-5)  # 8 words
    assert metrics["loss/answer"] == pytest.approx(-sum(rewards) / 8, rel=1e-5)
    assert metrics["loss/baseline"] == 0
    assert mean == pytest.approx(0.95 * -0.5 + 0.05 * sum(returns) / 8, rel=1e-5)


@pytest.mark.parametrize("baseline", [NoBaseline, MovingAverageBaseline, LearnedBaseline])
def test_the_gradient_of_the_choices_is_that_of_the_expected_reward(baseline: Any) -> None:
    texts = ["plus: one two three", "minus: four one"]
    task = classify(
        labelled(*(10_000 * texts)), baseline, {"pooling": partial(AttentionPooling, select=Hard)}, batch_size=20_000
    )
    query = task.model.pooling.attention.query
    task.model.out[0].weight.data *= 10  # so that it matters which word is chosen
    numbers, lengths, right = task.make_batch(labelled(*texts))
    expected = torch.zeros(())
    for text, length, label in zip(numbers, lengths.tolist(), right, strict=True):
        words = task.model.embedding.table.weight[text[:length]]
        chances = (query @ words.T)[0].softmax(-1)
        rewards = task.model.out(words).log_softmax(-1)[:, label].detach()
        expected = expected + (chances * rewards).sum() / 2
    (exact,) = torch.autograd.grad(-expected, query)
    task(0)  # so that the moving average has seen something
    (estimated,) = torch.autograd.grad(task(1).loss, query)
    assert float((estimated - exact).norm() / exact.norm()) < 0.05


def test_the_loss_of_a_baseline_trains_the_baseline_alone() -> None:
    gradients = []
    for baseline in (NoBaseline, LearnedBaseline):
        task = classify(model=everything_random, baseline=baseline, policy_weight=0.0)
        task(0).loss.backward()
        gradients.append({name: value.grad for name, value in task.named_parameters() if value.grad is not None})
    plain, judged = gradients
    assert judged.keys() - plain.keys() == {"baseline.head.weight", "baseline.head.bias"}
    assert judged["baseline.head.weight"].any()
    assert all(torch.equal(value, judged[name]) for name, value in plain.items())


def noisy(count: int, seed: int, end: tuple[str, ...] = ()) -> Examples:
    """One word in six says what the text is."""
    chance, texts = random.Random(seed), []
    for number in range(count):
        words = [f"noise{chance.randrange(20)}" for _ in range(5)]
        words.insert(chance.randrange(6), "yes" if number % 2 else "no")
        texts.append((*words, *end))
    return Examples(tuple(texts), tuple("yes" if number % 2 else "no" for number in range(count)))


def error_after_training(policy_weight: float, steps: int, rate: float, **parts: Any) -> float:
    """With word vectors that stay as they are: what is chosen depends on the trained choice alone."""
    end = ("?",) if "encoder" in parts else ()
    corpus = Given(noisy(256, 0, end), test=noisy(256, 1, end))
    model = {"embedding": partial(TokenEmbedding, size=16), "pooling": LastState} | parts
    task = classify(corpus, MovingAverageBaseline, model, batch_size=32, policy_weight=policy_weight, seed=1)
    for name, value in task.named_parameters():
        value.requires_grad_("embedding" not in name and "attention_norm" not in name)
    group = task.parameter_groups()
    train(task, range(steps), torch.optim.Adam(group[0]["params"], rate))
    task.eval()
    return task.evaluate("test")["error"]


def test_a_reader_learns_to_choose_the_word_that_decides() -> None:
    pooling = partial(AttentionPooling, select=Hard)
    assert error_after_training(1.0, 200, 0.03, pooling=pooling) == 0
    assert error_after_training(0.0, 200, 0.03, pooling=pooling) > 25


def test_an_encoder_learns_to_choose_the_word_that_decides() -> None:
    encoder = partial(
        TransformerEncoder, size=16, num_layers=1, num_heads=1, dropout=0.0, positions=NoPositions, select=Hard
    )
    assert error_after_training(1.0, 300, 0.01, encoder=encoder) == 0
    assert error_after_training(0.0, 300, 0.01, encoder=encoder) > 25


# Going on.


@pytest.mark.parametrize("baseline", [MovingAverageBaseline, LearnedBaseline])
def test_resuming_equals_going_on(baseline: Any) -> None:
    def build() -> tuple[ClassifyTextTask, torch.optim.Optimizer]:
        task = classify(baseline=baseline, model=everything_random, seed=5)
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
    "other",
    [
        labelled("plus: one two two", "minus: three", "plus: six four one", "minus: five"),  # as many words
        labelled("plus: one two two", "minus: three", "plus: one four one one", "minus: five two one six"),
        labelled("plus: one two two", "times: three", "plus: two four one one", "times: five two one"),
        labelled("plus: one two two", "minus: three", "plus: two four one one", "times: five two one"),
    ],
    ids=["words", "more words", "labels", "more labels"],
)
def test_the_state_of_other_words_or_labels_is_refused(other: Examples) -> None:
    state = classify(SIGNS).state_dict()
    assert classify(SIGNS).load_state_dict(state).missing_keys == []
    with pytest.raises(InputError, match=r"here\.pt does not fit: the (words|classes) of the corpus differ from those"):
        checkpoint.load_state(classify(other), state, Path("here.pt"))


# Tied weights.


def tie_embeddings() -> LanguageModelTask:
    parts = {"embedding": vectors, "encoder": partial(RecurrentEncoder, size=6), "tie_embeddings": True}
    return LanguageModelTask(Given(SIGNS), partial(LanguageModel, **parts), NoBaseline, 2)


def test_the_weights_of_a_tied_model_can_be_saved(tmp_path: Path) -> None:
    checkpoint.save_weights(tmp_path / "best.safetensors", tie_embeddings())
    assert (tmp_path / "best.safetensors").stat().st_size > 0


def test_a_tied_model_is_judged_with_its_averaged_weights() -> None:
    task = tie_embeddings()
    average = WeightAverage(task, 0.9)
    for step in range(3):
        train(task, range(step, step + 1), torch.optim.SGD(task.parameters(), 0.5))
        average.update(step)
    judged = tie_embeddings()
    state = {"task": task.state_dict(), "average": average.state_dict()}
    checkpoint.load_weights(judged, state, Path("best.pt"))
    with average.applied():
        assert torch.equal(judged.model.embedding.table.weight, task.model.embedding.table.weight)


# Words and labels.


def test_words_that_come_up_too_seldom_are_unknown() -> None:
    task = classify(min_count=3)
    assert task.vocabulary.tokens == ("one", "two")
    numbers, lengths, right = task.make_batch(SIGNS.select([0, 1]))
    one, two = task.vocabulary.encode(["one", "two"])
    assert numbers.tolist() == [[one, two, two], [UNKNOWN, 0, 0]]
    assert lengths.tolist() == [3, 1]
    assert right.tolist() == [1, 0]


def test_words_are_known_from_training_alone() -> None:
    later = labelled("plus: six one", "minus: seven")
    task = classify(Given(SIGNS, validation=later, test=later))
    assert {"six", "seven"}.isdisjoint(task.vocabulary.all_tokens)
    assert math.isfinite(task.eval().evaluate("test")["loss"])


def test_a_model_that_would_know_no_word_is_refused() -> None:
    with pytest.raises(InputError, match=r"task\.min_count"):
        classify(min_count=99)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_labels_that_are_not_in_training_are_refused(split: str) -> None:
    strange = labelled("plus: one", "times: two")
    with pytest.raises(InputError, match="The label 'times' of validation or test is not in training"):
        classify(Given(SIGNS, **{split: strange}))
    corpus = Given(tagged("one/a two/b"), **{split: tagged("one/a two/c")})
    with pytest.raises(InputError, match="The label 'c' of validation or test is not in training"):
        TagTask(corpus, partial(Tagger, embedding=vectors, encoder=encoders.IdentityEncoder), NoBaseline)


def test_what_a_corpus_does_not_ask_for_is_refused() -> None:
    bare, tags = Examples((("one",), ("two", "one"))), tagged("one/a two/b", "one/a")
    for corpus in (bare, tags):
        with pytest.raises(InputError, match=r"^task=classify_text needs a corpus with one label per text[^.]*[.]$"):
            classify(corpus)
    tagger = partial(Tagger, embedding=vectors, encoder=encoders.IdentityEncoder)
    for corpus in (bare, SIGNS):
        with pytest.raises(InputError, match=r"^task=tag needs a corpus with one label per word"):
            TagTask(Given(corpus), tagger, NoBaseline)
    with pytest.raises(InputError, match="All texts of the corpus have the label 'plus': there must be another"):
        classify(labelled("plus: one", "plus: two"))
    uneven = Examples((("one", "two"), ("one", "two", "two")), (("a", "b"), ("a", "b")))
    with pytest.raises(InputError, match="A text of 3 words has 2 labels: one two two"):
        TagTask(Given(uneven), tagger, NoBaseline)
    with pytest.raises(InputError, match="A text of 3 words has 2 labels: one two two"):
        TagTask(Given(tags, validation=uneven), tagger, NoBaseline)


@pytest.mark.parametrize("option", ["batch_size", "min_count"])
def test_wrong_options_are_refused_by_name(option: str) -> None:
    with pytest.raises(InputError, match=rf"task\.{option} must be at least 1, got 0"):
        classify(**{option: 0})


def test_a_text_longer_than_the_positions_is_refused() -> None:
    encoder = partial(TransformerEncoder, size=6, num_heads=2, positions=partial(LearnedPositions, max_length=4))
    told = r"A text in the train split has 5 tokens, but the model has 4 positions: raise its max_length"
    with pytest.raises(InputError, match=told):
        classify(model={"encoder": encoder}, batch_size=5)


# What is restored.


def restore(task: TextTask, model: Any, corpus: Any = None) -> Any:
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    arguments = {"model": model, "corpus": corpus or Given(SIGNS), "device": "cpu"}
    return type(task).restore(torch.load(file, weights_only=True), arguments)


def test_what_is_restored_is_the_trained_model_without_its_corpus() -> None:
    class Absent(Given):
        def load(self, split: str) -> Examples:
            raise AssertionError("The data are not needed.")

    task = classify(model=everything_random)
    parts = {"embedding": vectors, "encoder": encoders.IdentityEncoder, "pooling": SumPooling} | everything_random
    model = restore(task, partial(Classifier, **parts), Absent(SIGNS))
    assert model.vocabulary.all_tokens == task.vocabulary.all_tokens
    assert model.classes == ("minus", "plus")
    assert not model.model.training
    weights = model.model.state_dict()
    assert weights.keys() == task.model.state_dict().keys()
    assert all(torch.equal(value, weights[name]) for name, value in task.model.state_dict().items())


def test_unknown_words_are_one_word_and_texts_without_words_are_refused() -> None:
    parts = {"embedding": vectors, "encoder": encoders.IdentityEncoder}
    tags = tagged("one/a two/b", "one/a")
    tagger = restore(TagTask(Given(tags), partial(Tagger, **parts), NoBaseline), partial(Tagger, **parts), Given(tags))
    classifier = restore(classify(), partial(Classifier, **parts, pooling=SumPooling))
    words, numbers, lengths = classifier.encode(["one seven", "two", "eight eight one one"])
    assert words == (("one", "seven"), ("two",), ("eight", "eight", "one", "one"))
    one, two = classifier.vocabulary.encode(["one", "two"])
    assert numbers.tolist() == [[one, UNKNOWN, 0, 0], [two, 0, 0, 0], [UNKNOWN, UNKNOWN, one, one]]
    assert lengths.tolist() == [2, 1, 4]
    said: Tensor = classifier.predict(["seven", "eight"]).probability
    assert torch.equal(said[0], said[1])
    for model in (classifier, tagger):
        assert len(model.predict(["seven"])) == 1 if model is tagger else model.predict(["seven"]).label
        with pytest.raises(InputError, match=r"^Text 1 has no words: '  '\.$"):
            model.predict(["one", "  "])
        for texts in ([], (), "one"):
            with pytest.raises(InputError, match="The model needs a list of at least one text"):
                model.predict(texts)


# What is weighed.


Drawn = dict[str, tuple[torch.Tensor, list[str], list[str]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Weights, queries and keys of every alignment that is drawn, by its title."""
    seen: Drawn = {}

    def keep(weights: Tensor, queries: list[str], keys: list[str], title: str) -> str:
        seen[title] = (weights, queries, keys)
        return title

    monkeypatch.setattr("ram.plots.alignment.alignment", keep)
    return seen


def test_an_attention_over_a_text_is_drawn_head_by_head(drawn: Drawn) -> None:
    encoder = partial(TransformerEncoder, size=6, num_layers=2, num_heads=3, causal=True)
    task = LanguageModelTask(Given(SIGNS), partial(LanguageModel, embedding=vectors, encoder=encoder), NoBaseline, 2).eval()
    pictures = task.pictures("test")
    assert pictures["weights_encoder.layers.1.png"] == "encoder.layers.1.self_attention"
    weights, queries, keys = drawn["encoder.layers.0.self_attention"]
    words = ["<start>", "three", "four", "two"]  # of 3, 1, 5, 3 and 3 words, in the order of length the middle one
    assert queries == keys == words
    assert weights.shape == (3, 4, 4)
    assert torch.equal(weights, weights.tril())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    with record_weights(task.model) as records:
        task.model(*task.make_batch(Examples((tuple(words[1:]),)))[:2])
    torch.testing.assert_close(weights, records["encoder.layers.0.self_attention"][0][0])


def test_what_is_weighed_step_by_step_is_drawn_together(drawn: Drawn) -> None:
    parts = {"encoder": partial(AttentiveRecurrentEncoder, size=6), "pooling": partial(AttentionPooling, num_queries=2)}
    task = classify(model=parts).eval()
    assert {"weights_encoder.png", "weights_pooling.attention.png"} <= task.pictures("test").keys()
    weights, queries, keys = drawn["encoder.attention"]
    assert queries == keys and weights.shape == (3, 3)
    torch.testing.assert_close(weights.sum(-1), torch.tensor([0.0, 1.0, 1.0]))  # the first step has no past
    assert torch.equal(weights, weights.tril(-1))
    weights, queries, _ = drawn["pooling.attention.attention"]
    assert queries == ["query 1", "query 2"] and weights.shape == (2, 3)


def test_where_nothing_is_weighed_nothing_is_drawn(drawn: Drawn) -> None:
    classify().eval().pictures("test")
    assert not drawn
