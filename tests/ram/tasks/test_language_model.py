"""The next word, of models whose every probability is known, and an answer that must be remembered."""

import math
import random
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.baselines import NoBaseline
from ram.corpora import Examples, Tokens
from ram.corpora.vocabulary import END, START, UNKNOWN
from ram.inference.text import TextGenerator
from ram.sequence import encoders
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import RecurrentEncoder
from ram.sequence.transformer import TransformerEncoder
from ram.tasks.language_model import LanguageModelTask

TRAIN = Examples((("one", "is", "two"), ("two", "is", "one"), ("is", "is")))
TEST = Examples((("one", "is", "two"), ("two", "is", "one")))
IS, ONE, TWO = range(4, 7)  # the commonest first
NEXT = {
    START: {ONE: 0.5, TWO: 0.5},
    ONE: {IS: 0.8, END: 0.2},
    IS: {ONE: 0.25, TWO: 0.75},
    TWO: {IS: 0.4, END: 0.6},
    UNKNOWN: {TWO: 1.0},
}
"""Of every word, what may follow and how likely."""


@dataclass(frozen=True)
class Given:
    train: Examples
    test: Examples

    def load(self, split: str) -> Examples:
        return self.train if split == "train" else self.test

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())


MODEL = partial(LanguageModel, embedding=partial(TokenEmbedding, size=7), encoder=encoders.IdentityEncoder)


def by_hand(test: Examples = TEST, following: dict[int, dict[int, float]] = NEXT, **options: Any) -> LanguageModelTask:
    """A next word depends on the one before alone: its vector holds the logarithms of what may follow."""
    task = LanguageModelTask(Given(TRAIN, test), MODEL, NoBaseline, batch_size=3, **options)
    table = task.model.embedding.table.weight.data.fill_(-100)  # never, but finite
    task.model.out.weight.data, task.model.out.bias.data = torch.eye(7), torch.zeros(7)
    for word, shares in following.items():
        for after, share in shares.items():
            table[word, after] = math.log(share)
    return task


def restored(task: LanguageModelTask) -> TextGenerator:
    arguments = {"model": MODEL, "corpus": Given(TRAIN, TEST), "device": "cpu"}
    return LanguageModelTask.restore(task.state_dict(), arguments)  # type: ignore[return-value]


def test_every_word_is_asked_for_from_those_before_it_and_so_is_the_end() -> None:
    numbers, lengths, right = by_hand().make_batch(Examples((("one", "is", "strange"), ("two",))))
    assert numbers.tolist() == [[START, ONE, IS, UNKNOWN], [START, TWO, 0, 0]]
    assert lengths.tolist() == [4, 2]
    assert right.tolist() == [[ONE, IS, UNKNOWN, END], [TWO, END, -100, -100]]


@pytest.mark.parametrize("rows", [1, 256])
def test_perplexity_by_hand(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.tasks.corpus.EVALUATION_BATCH_SIZE", rows)
    first, second = [0.5, 0.8, 0.75, 0.6], [0.5, 0.4, 0.25, 0.2]
    measured = by_hand().eval().evaluate("test")
    assert measured == pytest.approx({"perplexity": math.prod(first + second) ** (-1 / 8)}, rel=1e-5)
    uneven = Examples((("one", "is", "two"), ("two",)))  # a word counts the same in a short text
    expected = math.prod([*first, 0.5, 0.6]) ** (-1 / 6)
    assert by_hand(uneven).eval().evaluate("test")["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_who_knows_nothing_is_as_perplexed_as_there_are_words() -> None:
    task = by_hand().eval()
    task.model.embedding.table.weight.data.zero_()
    assert task.evaluate("test")["perplexity"] == pytest.approx(7)


def test_a_perplexity_beyond_all_numbers_is_infinite() -> None:
    task = by_hand().eval()
    task.model.embedding.table.weight.data *= 1e4
    assert task.evaluate("test")["perplexity"] == math.inf


def test_a_step_by_hand() -> None:
    following = {**NEXT, START: {ONE: 0.5, TWO: 0.25, IS: 0.25}, IS: {ONE: 0.25, TWO: 0.5, IS: 0.125, END: 0.125}}
    result = by_hand(following=following)(0)
    shares = [*(0.5, 0.8, 0.5, 0.6), *(0.25, 0.4, 0.25, 0.2), *(0.25, 0.125, 0.125)]
    assert result.loss.item() == pytest.approx(-math.log(math.prod(shares)) / 11, rel=1e-5)
    # Likeliest: one; then is; two; the end. That is right of one is two in all four places, and of nothing else.
    assert result.metrics()["train/accuracy"] == pytest.approx(100 * 4 / 11)


# Questions and answers.


def test_wrong_answers_by_hand() -> None:
    task = by_hand(answer_after="is").eval()
    assert task.evaluate("test")["error"] == 50  # after "is" the likeliest is two, and after that the end
    mixed = Examples((("one", "is", "two"), ("one", "is", "two"), ("one",), ("two", "two"), ("two", "is", "one")))
    measured = by_hand(mixed, answer_after="is").eval().evaluate("test")  # what asks nothing does not count
    assert measured["error"] == pytest.approx(100 / 3)
    assert "error" not in by_hand().eval().evaluate("test")


def test_an_answer_must_end_where_the_right_one_does() -> None:
    endless = {**NEXT, TWO: {IS: 1.0}}
    assert by_hand(following=endless, answer_after="is").eval().evaluate("test")["error"] == 100
    short = {**NEXT, IS: {END: 1.0}}
    assert by_hand(following=short, answer_after="is").eval().evaluate("test")["error"] == 100
    nothing = Examples((("one", "is"),))
    assert (
        by_hand(nothing, following={**short, IS: {END: 0.9, TWO: 0.1}}, answer_after="is")
        .eval()
        .evaluate("test")["error"]
        == 0
    )


def test_only_the_first_such_word_ends_the_question() -> None:
    twice = Examples((("one", "is", "two", "is", "two"),))
    assert by_hand(twice, answer_after="is").eval().evaluate("test")["error"] == 100
    told = by_hand(twice, answer_after="is").eval().pictures("test")["answers.txt"]
    assert told == "one is two   (reference: two is two)\n"


def test_questions_of_any_length_are_answered() -> None:
    # Each row reads its own question: what comes after the last word of it is the likeliest.
    several = Examples((("two", "is", "one"), ("is", "two"), ("one", "one", "one", "is", "two"), ("one", "is", "two")))
    assert by_hand(several, answer_after="is").eval().evaluate("test")["error"] == 25


def test_an_answer_to_no_question_is_refused() -> None:
    with pytest.raises(InputError, match=r"No text of the corpus contains task\.answer_after='equals': set it to null"):
        by_hand(answer_after="equals").eval().evaluate("test")


# Pictures and samples.


def test_the_pictures_tell_samples_and_answers() -> None:
    task = by_hand(answer_after="is").eval()
    told = task.pictures("test")
    assert told["answers.txt"] == "one is two\ntwo is two   (reference: one)\n"
    lines = told["samples.txt"].splitlines()
    assert len(lines) == 12 and len(set(lines)) > 1
    for line in lines:
        words = [START, *task.vocabulary.encode(line.split()), END]
        assert all(after in NEXT[before] for before, after in pairwise(words))
    assert task.pictures("test") == told
    assert by_hand().eval().pictures("test").keys() == {"samples.txt"}


def test_questions_that_come_late_are_drawn_too() -> None:
    late = Examples((("one",),) * 24 + (("one", "is", "two"),))
    task = by_hand(late, answer_after="is").eval()
    assert task.evaluate("test")["error"] == 0
    assert "one is two" in task.pictures("test")["answers.txt"]


def test_samples_end_with_the_positions() -> None:
    encoder = partial(
        TransformerEncoder, size=8, num_heads=2, causal=True, positions=partial(LearnedPositions, max_length=4)
    )
    model = partial(LanguageModel, embedding=partial(TokenEmbedding, size=8), encoder=encoder)
    task = LanguageModelTask(Given(TRAIN, TEST), model, NoBaseline).eval()
    task.model.out.bias.data[END] = -50.0  # not learnt yet
    assert math.isfinite(task.evaluate("test")["perplexity"])  # the texts themselves are short enough
    task.pictures("test")


def test_a_sample_begins_with_its_prompt() -> None:
    model = restored(by_hand())
    assert model.sample(prompt="two is", temperature=0) == ["two is two"]
    assert model.sample(2, "strange", temperature=0) == ["strange two"] * 2  # as it was typed
    assert model.sample(prompt="one is", temperature=0, max_length=1) == ["one is two"]
    endless = restored(by_hand(following={**NEXT, TWO: {IS: 1.0}}))
    assert endless.sample(temperature=0, prompt="two", max_length=3) == ["two is two is"]
    assert len(endless.sample(prompt="two", top_k=1)[0].split()) == 1 + 60


def test_samples_follow_the_seed_and_the_options() -> None:
    model = restored(by_hand())
    texts = model.sample(2000, seed=1)
    torch.rand(5)
    assert model.sample(2000, seed=1) == texts
    assert model.sample(2000, seed=2) != texts
    assert sum(text == "one" for text in texts) / 2000 == pytest.approx(0.5 * 0.2, abs=0.02)
    after = [text.split()[1] for text in model.sample(2000, "is", max_length=1)]
    assert after.count("one") / 2000 == pytest.approx(0.25, abs=0.03)
    after = [text.split()[1] for text in model.sample(2000, "is", max_length=1, temperature=0.5)]
    assert after.count("one") / 2000 == pytest.approx(0.1, abs=0.02)  # as 1 to 9
    assert set(model.sample(200, "is", max_length=1, top_k=1)) == {"is two"}
    assert set(model.sample(200, "is", max_length=1, top_p=0.7)) == {"is two"}
    assert set(model.sample(200, "is", max_length=1, top_p=0.8)) == {"is one", "is two"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"count": 0}, "sample needs a count and a max_length of at least 1, got 0 and 60"),
        ({"max_length": 0}, "sample needs a count and a max_length of at least 1, got 1 and 0"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"top_p": 0.0}, "top_p must be"),
    ],
)
def test_wrong_options_of_a_sample_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        restored(by_hand()).sample(**options)


def repeated(count: int, seed: int) -> Examples:
    """The answer is the word at the start."""
    chance, texts = random.Random(seed), []
    for _ in range(count):
        first, *between = (chance.choice("abcd") for _ in range(chance.randint(2, 3)))
        texts.append((first, *between, "?", first))
    return Examples(tuple(texts))


def test_an_answer_is_remembered_over_what_is_in_between() -> None:
    def error(encoder: Any) -> float:
        model = partial(LanguageModel, embedding=partial(TokenEmbedding, size=16), encoder=encoder)
        task = LanguageModelTask(Given(repeated(256, 0), repeated(64, 1)), model, NoBaseline, answer_after="?", seed=1)
        optimizer = torch.optim.Adam(task.parameters(), 0.05)
        for step in range(150):
            loss = task(step).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return task.eval().evaluate("test")["error"]

    assert error(partial(RecurrentEncoder, cell="gru", size=24)) < 5
    assert error(encoders.IdentityEncoder) > 50
