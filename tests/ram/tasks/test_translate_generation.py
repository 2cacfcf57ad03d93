"""Translation tasks: generation, the positions of a model, and copying."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from envs import InputError
from ram.attention.positions import LearnedPositions
from ram.corpora import Examples, parallel_files
from ram.corpora.vocabulary import END, UNKNOWN
from ram.sequence import interfaces
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import ModelOutput
from ram.sequence.transformer import TransformerEncoder
from ram.tasks.translate import copied_share
from tests.ram.tasks.text_corpora import InMemoryCorpus, parallel
from tests.ram.tasks.translation_models import (
    ANIMALS,
    MODELS,
    NAMES,
    SENTENCES,
    RepeatingDecoder,
    bilstm,
    build_task,
    generate_texts,
    luong,
    repeating_task,
    restore,
    transformer,
)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "no_attention"])
def test_generation_keeps_the_order_and_does_not_depend_on_other_texts(name: str) -> None:
    texts = ["der hund rennt", "eine", "hunde schläft", "katze", "der hund rennt schläft eine", "rennt hunde", "der"]
    task = build_task(ANIMALS, seed=4, **MODELS[name]).eval()
    for value in task.parameters():
        value.data *= 3  # the texts get different hypotheses
    generated = generate_texts(task, *texts, beam_size=3, n_best=2)
    assert len({best for best, _ in generated}) > 3
    assert [generate_texts(task, text, beam_size=3, n_best=2)[0] for text in texts] == generated
    assert generate_texts(task, *texts[::-1], beam_size=3, n_best=2) == generated[::-1]


def test_generation_covers_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.inference.translation.EVALUATION_BATCH_SIZE", 2)
    texts = ["no", "two", "cat", "dog", "a cat", "yes", "on the mat"]
    assert generate_texts(repeating_task(SENTENCES), *texts) == [[text] for text in texts]


SHORT = partial(
    TransformerEncoder, size=8, num_heads=2, num_layers=1, positions=partial(LearnedPositions, max_length=3)
)


def test_sources_longer_than_the_positions_are_refused_in_training_and_inference() -> None:
    parts = {"encoder": SHORT, "decoder": luong}
    fits = parallel("a b c: a", "b: b")
    for split in ("train", "validation", "test"):
        long = {split: parallel("b: b", "a b c a: a")}
        message = rf"^A text in the {split} split has 4 tokens, but the model has 3 positions: .*\(a b c a "
        with pytest.raises(InputError, match=message):
            build_task(InMemoryCorpus(**({"train": fits, "validation": fits, "test": fits} | long)), **parts)
    task = build_task(fits, **parts).eval()
    message = r"^A text to translate has 4 tokens, but the model has 3 positions: .* \(c b a b \.\.\.\)\.$"
    with pytest.raises(InputError, match=message):
        generate_texts(task, "a", "c b a b", "b")
    with pytest.raises(InputError, match=message):
        restore(task, **parts).translate(["a", "c b a b"])


def test_targets_longer_than_the_positions_are_refused() -> None:
    decoder = partial(transformer, positions=partial(LearnedPositions, max_length=3))
    parts = {"encoder": bilstm, "decoder": decoder}
    fits = parallel("a: b b", "b: b")  # three with the start symbol
    build_task(fits, **parts)(0)
    message = r"^A text to generate in the train split has 4 tokens, but the model has 3 positions"
    with pytest.raises(InputError, match=message):
        build_task(parallel("a: b b b", "b: b"), **parts)


def test_lengths_are_counted_in_subwords_and_the_error_names_the_line(tmp_path: Path) -> None:
    """The text with the most words does not have the most subwords."""
    (tmp_path / "a").write_text("a a\na a a a\nzyxwvut zyxwvu\n" * 4)
    (tmp_path / "b").write_text("b\nb\nb\n" * 4)
    files = [str(tmp_path / name) for name in ("a", "b")]
    test = parallel_files.ParallelFiles(*files).load("test")
    corpus = parallel_files.ParallelFiles(*files, *files, *files)
    long = partial(
        TransformerEncoder, size=8, num_heads=2, num_layers=1, positions=partial(LearnedPositions, max_length=6)
    )
    with pytest.raises(InputError, match=r"^A text in .*/a, line 3, has \d+ tokens, but the model has 6 positions"):
        build_task(corpus, encoder=long, decoder=luong, subwords=20, shared_vocabulary=True)
    assert test.lines is not None and all(" line " in line for line in test.lines)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_targets_of_other_splits_longer_than_the_positions_are_refused(split: str) -> None:
    decoder = partial(transformer, positions=partial(LearnedPositions, max_length=3))
    fits = parallel("a: b b", "b: b")
    corpus = InMemoryCorpus(**({"train": fits, "validation": fits, "test": fits} | {split: parallel("a: b b b")}))
    with pytest.raises(InputError, match=f"in the {split} split"):
        build_task(corpus, encoder=bilstm, decoder=decoder)


@pytest.mark.parametrize("kind", ["transformer", "causal"])
def test_pictures_include_texts_that_end_at_the_last_position(kind: str) -> None:
    corpus = parallel("a b: a b", "b: b")
    positions = partial(LearnedPositions, max_length=8)
    if kind == "transformer":
        parts = {"encoder": bilstm, "decoder": partial(transformer, positions=positions)}
        task = build_task(corpus, **parts).eval()
        end = task.model.out.bias
    else:
        parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
        task = build_task(corpus, **parts).eval()
        end = task.model.model.out.bias
    end.data[END] = -50  # never generated
    assert math.isfinite(task.evaluate("test")["perplexity"])  # the texts fit
    assert "translations.txt" in task.pictures("test")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_pairs_longer_than_the_positions_of_a_decoder_only_model_are_refused(split: str) -> None:
    """The pair that fits has five words and two start symbols; the other has one word more."""
    positions = partial(LearnedPositions, max_length=7)
    parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
    fits, long = parallel("a b a: b a", "a: b"), parallel("a b a: b a b", "a: b")
    task = build_task(fits, **parts)
    assert math.isfinite(task(0).loss.item()) and math.isfinite(task.eval().evaluate("test")["perplexity"])
    message = rf"^A text to generate in the {split} split has 8 tokens, but the model has 7 positions"
    with pytest.raises(InputError, match=message):
        build_task(InMemoryCorpus(**({"train": fits, "validation": fits, "test": fits} | {split: long})), **parts)


def test_pairs_that_fit_the_positions_of_a_decoder_only_model_fit_in_one_batch() -> None:
    """Each pair has five words and two start symbols; the longest source and the longest target have eight words."""
    positions = partial(LearnedPositions, max_length=7)
    parts = MODELS["causal"] | {"encoder": partial(MODELS["causal"]["encoder"], positions=positions)}
    long, short = "a b a b: a", "a: b a b a"
    for corpus in (parallel(long), parallel(short), parallel(long, short)):
        assert math.isfinite(build_task(corpus, **parts)(0).loss.item())


# Copying.


def test_copying_generates_unknown_words_and_marks_them() -> None:
    task = repeating_task(NAMES, copy=True)
    assert generate_texts(task, "my name is zorblo", "i am gnu gnat") == [["my name is zorblo"], ["i am gnu gnat"]]
    assert task.evaluate("test")["exact"] == pytest.approx(100 * 2 / 3)
    assert task.pictures("test")["translations.txt"] == (
        "source      my name is zorblo\nreference   my name is zorblo\nprediction  my name is [zorblo]\n\n"
        "source      am gnu\nreference   am gnu\nprediction  am [gnu]\n\n"
        "source      hello\nreference   gnu\nprediction  hello\n"
    )
    model = restore(
        task,
        NAMES,
        encoder=interfaces.IdentityEncoder,
        decoder=RepeatingDecoder,
        copy=True,
        embedding=partial(TokenEmbedding, size=12),
    )
    assert model.translate(["my name is gnu gnat"]) == ["my name is gnu gnat"]
    assert model.sample(["my name is gnu gnat", "am gnu"], seed=3) == ["my name is gnu gnat", "am gnu"]


def test_copied_share_matches_manual_values() -> None:
    """First 0.4 * 0.25 of 0.5; second not in the source; third, twice in the source, copied entirely."""
    weights = torch.tensor([[[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.2, 0.0, 0.3]]])
    probabilities = torch.tensor([[[0.0, 0.5, 0.5], [0.0, 0.2, 0.8], [0.0, 0.1, 0.9]]])
    output = ModelOutput(
        probabilities.log(), torch.zeros(1, 3, 1), weights=weights, copied=torch.tensor([[0.4, 0.4, 0.1]])
    )
    copied = copied_share(output, torch.tensor([[1, 2, 1]]), torch.tensor([[1, 0, 1]]))
    torch.testing.assert_close(copied, torch.tensor([[0.2, 0.0, 1.0]]))


def test_predicting_the_unknown_word_is_not_correct() -> None:
    task = repeating_task(NAMES)  # generates <unknown> for names, as in the targets
    examples = Examples((("am", "gnu"),), (("am", "gnu"),))
    task._splits["test"] = examples
    assert task.make_batch(examples).targets.tolist() == [[task.vocabularies.target.encode(["am"])[0], UNKNOWN, END]]
    assert task.evaluate("test")["accuracy"] == pytest.approx(100 * 2 / 3)


def test_without_copying_unknown_words_are_not_generated() -> None:
    task = repeating_task(NAMES)
    assert "zorblo" not in generate_texts(task, "my name is zorblo")[0][0]
    assert task.evaluate("test")["exact"] == 0
    assert "[" not in task.pictures("test")["translations.txt"]


def test_copied_subwords_mark_whole_words() -> None:
    corpus = parallel("aa bb: aa bb", "bb aa: bb aa")
    parts = {
        "encoder": interfaces.IdentityEncoder,
        "decoder": RepeatingDecoder,
        "copy": True,
        "embedding": partial(TokenEmbedding, size=7),
    }
    task = build_task(corpus, subwords=7, shared_vocabulary=True, **parts).eval()
    subwords = task.vocabularies.target.ids_to_tokens(range(7))
    assert sorted(subwords[4:]) == ["_", "a", "b"]  # three per word
    for module in (task.model.embedding.table, task.model.out):
        module.weight.data = torch.eye(7)
    task.model.out.weight.data *= 50
    task.model.out.bias.data.zero_()
    task.model.gate.weight.data.zero_()
    task.model.gate.weight.data[0, subwords.index("b")] = -100  # copies b only
    task.model.gate.bias.data.fill_(50)
    lines = task.pictures("test")["translations.txt"].splitlines()
    assert lines[2] == "prediction  aa [bb]" and lines[6] == "prediction  [bb] aa"


def test_copying_subwords_needs_a_shared_vocabulary() -> None:
    message = r"^task\.model\.copy=true with task\.subwords needs task\.shared_vocabulary=true\.$"
    with pytest.raises(InputError, match=message):
        build_task(ANIMALS, subwords=24, **MODELS["copy"])
    build_task(ANIMALS, subwords=30, shared_vocabulary=True, **MODELS["copy"])(0)
