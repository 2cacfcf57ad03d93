"""Language models with given transition probabilities, and learning of answers that need memory."""

import math
import random
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.baselines import NoBaseline
from ram.corpora import Examples
from ram.corpora.vocabulary import END, START, UNKNOWN
from ram.inference.text import TextGenerator
from ram.sequence import interfaces
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder
from ram.tasks.language_model import LanguageModelTask
from tests.ram.tasks.text_corpora import InMemoryCorpus, train

TRAIN = Examples((("one", "is", "two"), ("two", "is", "one"), ("is", "is")))
TEST = Examples((("one", "is", "two"), ("two", "is", "one")))
IS, ONE, TWO = range(4, 7)  # most frequent first
TRANSITIONS = {
    START: {ONE: 0.5, TWO: 0.5},
    ONE: {IS: 0.8, END: 0.2},
    IS: {ONE: 0.25, TWO: 0.75},
    TWO: {IS: 0.4, END: 0.6},
    UNKNOWN: {TWO: 1.0},
}
"""Probabilities of the next token after each."""


MODEL = partial(LanguageModel, embedding=partial(TokenEmbedding, size=7), encoder=interfaces.IdentityEncoder)


def build_task(
    test: Examples = TEST, transitions: dict[int, dict[int, float]] = TRANSITIONS, **options: Any
) -> LanguageModelTask:
    """Builds a task whose next token depends on the preceding one only."""
    task = LanguageModelTask(InMemoryCorpus(TRAIN, test, test), MODEL, NoBaseline, batch_size=3, **options)
    table = task.model.embedding.table.weight.data.fill_(-100)  # almost impossible, but finite
    task.model.out.weight.data, task.model.out.bias.data = torch.eye(7), torch.zeros(7)
    for token, probabilities in transitions.items():
        for next_token, probability in probabilities.items():
            table[token, next_token] = math.log(probability)
    return task


def restore(task: LanguageModelTask) -> TextGenerator:
    arguments = {"model": MODEL, "corpus": InMemoryCorpus(TRAIN, TEST, TEST), "device": "cpu"}
    return LanguageModelTask.restore(task.state_dict(), arguments)  # type: ignore[return-value]


def test_targets_are_the_next_words_and_the_end() -> None:
    token_ids, lengths, targets = build_task().make_batch(Examples((("one", "is", "strange"), ("two",))))
    assert token_ids.tolist() == [[START, ONE, IS, UNKNOWN], [START, TWO, 0, 0]]
    assert lengths.tolist() == [4, 2]
    assert targets.tolist() == [[ONE, IS, UNKNOWN, END], [TWO, END, -100, -100]]


@pytest.mark.parametrize("rows", [1, 256])
def test_perplexity_matches_manual_values(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.corpus.EVALUATION_BATCH_SIZE", rows)
    first, second = [0.5, 0.8, 0.75, 0.6], [0.5, 0.4, 0.25, 0.2]
    metrics = build_task().eval().evaluate("test")
    assert metrics == pytest.approx({"perplexity": math.prod(first + second) ** (-1 / 8)}, rel=1e-5)
    uneven = Examples((("one", "is", "two"), ("two",)))  # a mean over words, not over texts
    expected = math.prod([*first, 0.5, 0.6]) ** (-1 / 6)
    assert build_task(uneven).eval().evaluate("test")["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_perplexity_of_uniform_predictions_is_the_vocabulary_size() -> None:
    task = build_task().eval()
    task.model.embedding.table.weight.data.zero_()
    assert task.evaluate("test")["perplexity"] == pytest.approx(7)


def test_perplexity_overflows_to_infinity() -> None:
    task = build_task().eval()
    task.model.embedding.table.weight.data *= 1e4
    assert task.evaluate("test")["perplexity"] == math.inf


def test_loss_and_accuracy_of_a_step_match_manual_values() -> None:
    transitions = {
        **TRANSITIONS,
        START: {ONE: 0.5, TWO: 0.25, IS: 0.25},
        IS: {ONE: 0.25, TWO: 0.5, IS: 0.125, END: 0.125},
    }
    result = build_task(transitions=transitions)(0)
    probabilities = [*(0.5, 0.8, 0.5, 0.6), *(0.25, 0.4, 0.25, 0.2), *(0.25, 0.125, 0.125)]
    assert result.loss.item() == pytest.approx(-math.log(math.prod(probabilities)) / 11, rel=1e-5)
    # Predicted after each token: one, is, two, the end; correct are the four targets of "one is two" only.
    assert result.metrics()["train/accuracy"] == pytest.approx(100 * 4 / 11)


# Questions and answers.


def test_error_of_answers_matches_manual_values() -> None:
    task = build_task(answer_after="is").eval()
    assert task.evaluate("test")["error"] == 50  # the answer is always "two"
    mixed = Examples((("one", "is", "two"), ("one", "is", "two"), ("one",), ("two", "two"), ("two", "is", "one")))
    metrics = build_task(mixed, answer_after="is").eval().evaluate("test")  # texts without a question do not count
    assert metrics["error"] == pytest.approx(100 / 3)
    assert "error" not in build_task().eval().evaluate("test")


def test_answers_must_end_where_the_reference_ends() -> None:
    endless = {**TRANSITIONS, TWO: {IS: 1.0}}
    assert build_task(transitions=endless, answer_after="is").eval().evaluate("test")["error"] == 100
    short = {**TRANSITIONS, IS: {END: 1.0}}
    assert build_task(transitions=short, answer_after="is").eval().evaluate("test")["error"] == 100
    empty = Examples((("one", "is"),))
    assert (
        build_task(empty, transitions={**short, IS: {END: 0.9, TWO: 0.1}}, answer_after="is")
        .eval()
        .evaluate("test")["error"]
        == 0
    )


def test_first_occurrence_ends_the_question() -> None:
    twice = Examples((("one", "is", "two", "is", "two"),))
    assert build_task(twice, answer_after="is").eval().evaluate("test")["error"] == 100
    written = build_task(twice, answer_after="is").eval().pictures("test")["answers.txt"]
    assert written == "one is two   (reference: two is two)\n"


def test_questions_of_different_lengths_are_answered() -> None:
    several = Examples((("two", "is", "one"), ("is", "two"), ("one", "one", "one", "is", "two"), ("one", "is", "two")))
    assert build_task(several, answer_after="is").eval().evaluate("test")["error"] == 25


def test_answer_after_without_questions_is_refused() -> None:
    with pytest.raises(InputError, match=r"No text of the corpus contains task\.answer_after='equals': set it to null"):
        build_task(answer_after="equals").eval().evaluate("test")


# Pictures and samples.


def test_pictures_are_samples_and_answers() -> None:
    task = build_task(answer_after="is").eval()
    pictures = task.pictures("test")
    assert pictures["answers.txt"] == "one is two\ntwo is two   (reference: one)\n"
    lines = pictures["samples.txt"].splitlines()
    assert len(lines) == 12 and len(set(lines)) > 1
    for line in lines:
        words = [START, *task.vocabulary.encode(line.split()), END]
        assert all(following in TRANSITIONS[preceding] for preceding, following in pairwise(words))
    assert task.pictures("test") == pictures
    assert build_task().eval().pictures("test").keys() == {"samples.txt"}


def test_questions_after_the_first_texts_are_written() -> None:
    late = Examples((("one",),) * 24 + (("one", "is", "two"),))
    task = build_task(late, answer_after="is").eval()
    assert task.evaluate("test")["error"] == 0
    assert "one is two" in task.pictures("test")["answers.txt"]


def test_samples_stop_at_the_last_position() -> None:
    encoder = partial(
        TransformerEncoder, size=8, num_heads=2, causal=True, positions=partial(LearnedPositions, max_length=4)
    )
    model = partial(LanguageModel, embedding=partial(TokenEmbedding, size=8), encoder=encoder)
    task = LanguageModelTask(InMemoryCorpus(TRAIN, TEST, TEST), model, NoBaseline).eval()
    task.model.out.bias.data[END] = -50.0  # never generated
    assert math.isfinite(task.evaluate("test")["perplexity"])  # the texts fit
    task.pictures("test")


def test_samples_begin_with_the_prompt() -> None:
    model = restore(build_task())
    assert model.sample(prompt="two is", temperature=0) == ["two is two"]
    assert model.sample(2, "strange", temperature=0) == ["strange two"] * 2  # the unknown word is kept
    assert model.sample(prompt="one is", temperature=0, max_length=1) == ["one is two"]
    endless = restore(build_task(transitions={**TRANSITIONS, TWO: {IS: 1.0}}))
    assert endless.sample(temperature=0, prompt="two", max_length=3) == ["two is two is"]
    assert len(endless.sample(prompt="two", top_k=1)[0].split()) == 1 + 60


def test_samples_follow_the_seed_and_the_options() -> None:
    model = restore(build_task())
    texts = model.sample(2000, seed=1)
    torch.rand(5)
    assert model.sample(2000, seed=1) == texts
    assert model.sample(2000, seed=2) != texts
    assert sum(text == "one" for text in texts) / 2000 == pytest.approx(0.5 * 0.2, abs=0.02)
    words = [text.split()[1] for text in model.sample(2000, "is", max_length=1)]
    assert words.count("one") / 2000 == pytest.approx(0.25, abs=0.03)
    words = [text.split()[1] for text in model.sample(2000, "is", max_length=1, temperature=0.5)]
    assert words.count("one") / 2000 == pytest.approx(0.1, abs=0.02)  # 1 to 9
    assert set(model.sample(200, "is", max_length=1, top_k=1)) == {"is two"}
    assert set(model.sample(200, "is", max_length=1, top_p=0.7)) == {"is two"}
    assert set(model.sample(200, "is", max_length=1, top_p=0.8)) == {"is one", "is two"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "sample needs a count and a max_length of at least 1, got 0 and 60"),
        ({"max_length": 0}, "sample needs a count and a max_length of at least 1, got 1 and 0"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"top_p": 0.0}, "top_p must be"),
    ],
)
def test_invalid_options_of_samples_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        restore(build_task()).sample(**options)


def repetitions(count: int, seed: int) -> Examples:
    """Builds questions whose answer is the first word."""
    generator, texts = random.Random(seed), []
    for _ in range(count):
        first, *between = (generator.choice("abcd") for _ in range(generator.randint(2, 3)))
        texts.append((first, *between, "?", first))
    return Examples(tuple(texts))


def test_recurrent_encoder_learns_to_remember_the_answer() -> None:
    def error(encoder: Any) -> float:
        model = partial(LanguageModel, embedding=partial(TokenEmbedding, size=16), encoder=encoder)
        task = LanguageModelTask(
            InMemoryCorpus(repetitions(256, 0), test=repetitions(64, 1)), model, NoBaseline, answer_after="?", seed=1
        )
        train(task, range(150), torch.optim.Adam(task.parameters(), 0.05))
        return task.eval().evaluate("test")["error"]

    assert error(partial(RecurrentEncoder, cell="gru", size=24)) < 5
    assert error(interfaces.IdentityEncoder) > 50
