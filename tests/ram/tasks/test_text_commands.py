"""Tasks on texts by the commands: the files of a run, resuming, restoring and error messages."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ram
from envs import InputError
from ram import evaluate, train
from ram.inference.text import TextClassifier, TextGenerator, TextTagger
from ram.inference.translation import TextTranslator
from ram.tasks.classify_text import ClassifyTextTask
from ram.tasks.translate import TranslateTask

SMALL = ["task.batch_size=16", "task.model.embedding.size=8", "encoder.size=8", "trainer.log_every=1"]
LINES = "praise\tgood film\nblame\tbad film\npraise\tfine plot\nblame\tdull plot\n" * 8
GERMAN = "der hund rennt\nEine Katze, müde\nhunde\nder kleine hund\n" * 10
ENGLISH = "the dog runs\nA cat, tired\ndogs\nthe small dog\n" * 10
TAGS = """
from dataclasses import dataclass

from ram.corpora import Examples


@dataclass(frozen=True)
class TaggedWords:
    root: str = ""
    targets: str = "tags"

    def load(self, split):
        return Examples((("two", "dogs", "run"), ("dogs", "sleep")) * 8, (("Aa", "aa", "aa."), ("Aa", "aa.")) * 8)

    def tokenize(self, text):
        return tuple(text.split())
"""


@pytest.fixture(autouse=True)
def _corpora(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the files of small corpora."""
    Path("texts.tsv").write_text(LINES)
    Path("pairs.de").write_text(GERMAN, encoding="utf-8")
    Path("pairs.en").write_text(ENGLISH, encoding="utf-8")
    Path("tagged_words.py").write_text(TAGS)
    monkeypatch.delitem(sys.modules, "tagged_words", raising=False)  # imported by an earlier test


@pytest.fixture
def train_run(command: Callable[..., None]) -> Callable[..., Path]:
    """Trains a small model in the folder ``run``, which is returned."""

    def train_run(*arguments: str, run: str = "runs/a") -> Path:
        command(train, *SMALL, *arguments, f"hydra.run.dir={run}")
        return Path(run)

    return train_run


def _metrics(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.json").read_text())


def _events(run: Path) -> EventAccumulator:
    events = EventAccumulator(str(run))
    events.Reload()
    return events


def _interrupted(forward: Callable[..., object], interrupted_step: int) -> Callable[..., object]:
    """Returns a forward method that interrupts the process at a step."""

    def interrupted(self: object, step: int) -> object:
        if step == interrupted_step:
            os.kill(os.getpid(), 2)
        return forward(self, step)

    return interrupted


def _assert_same_run(one: Path, other: Path) -> None:
    states = [torch.load(run / "checkpoints/last.pt") for run in (one, other)]
    for part in ("task", "average"):
        first, second = (state[part] for state in states)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first if name != "_extra_state")
    metrics = [{name: value for name, value in _metrics(run).items() if "/" in name} for run in (one, other)]
    assert metrics[0] == metrics[1]


FILE = ["experiment=negation", "corpus=labelled_file", "corpus.path=texts.tsv"]
PAIRS = [
    "~experiment",
    "~experiment",
    "task=translate",
    "corpus=parallel_files",
    "corpus.source=pairs.de",
    "corpus.target=pairs.en",
]
SUBWORDS = ["task.subwords=30", "task.shared_vocabulary=true", "task.model.copy=true"]
TRANSFORMER = ["decoder=transformer", "decoder.num_heads=2", "decoder.num_layers=1"]


def test_classifier_writes_its_files_and_is_restored_without_its_corpus(
    command: Callable[..., None],
    refusal: Callable[..., str],
    train_run: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pooling = ["pooling=fixed", "pooling.num_queries=2"]
    run = train_run(*FILE, *pooling, "trainer.max_epochs=2", "trainer.picture_every=1")
    metrics = _metrics(run)
    assert metrics.keys() >= {"test/error", "test/loss", "validation/error", "parameters", "texts_per_second"}
    trained = load_file(run / "checkpoints/best.safetensors")
    assert metrics["parameters"] == sum(each.numel() for name, each in trained.items() if name.startswith("model."))
    drawn = ("attention.png", "words.png", "weights_pooling.attention.png")
    for name in (*drawn, "confusion.png"):
        with Image.open(run / name) as picture:
            assert picture.mode == "RGB"
    events = _events(run)
    logged = {f"{split}/{name}" for split in ("validation", "test") for name in drawn} | {"test/confusion.png"}
    assert set(events.Tags()["images"]) == logged
    assert {"loss/answer", "train/accuracy", "validation/error", "validation/loss"} <= set(events.Tags()["scalars"])
    folders = {path.parent.name for path in run.rglob("metadata.tsv")}
    assert len(folders) == 2 and all("words" in name for name in folders)

    capsys.readouterr()
    command(evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}

    Path("texts.tsv").unlink()
    model = ram.load(run)
    assert isinstance(model, TextClassifier)
    prediction = model.predict(["Good FILM!", "only unknown words"])
    assert prediction.tokens == (("good", "film", "!"), ("only", "unknown", "words"))
    assert set(prediction.label) <= {"praise", "blame"}
    torch.testing.assert_close(prediction.probability.sum(-1), torch.ones(2))
    assert prediction.weights is not None
    assert [tuple(each.shape) for each in prediction.weights] == [(2, 3), (2, 3)]
    with pytest.raises(InputError, match="Text 0 has no words"):
        model.predict([""])
    assert "texts.tsv cannot be read" in refusal(evaluate, f"run={run}")


def test_tagger_is_trained_on_a_custom_corpus_and_restored(train_run: Callable[..., Path]) -> None:
    run = train_run("experiment=tags", "corpus._target_=tagged_words.TaggedWords", "trainer.max_epochs=1")
    assert _metrics(run).keys() >= {"test/error", "test/f1", "validation/error"}
    lines = (run / "tags.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 12 and lines[0].startswith("two/")
    logged = _events(run).Tensors("test/tags.txt/text_summary")[0].tensor_proto.string_val[0].decode()
    assert logged == "\n".join(f"    {line}" for line in lines)
    model = ram.load(run)
    assert isinstance(model, TextTagger)
    (tags,) = model.predict(["dogs bark"])
    assert [word for word, _ in tags] == ["dogs", "bark"]
    assert {tag for _, tag in tags} <= {"Aa", "aa", "aa."}


def test_language_model_writes_samples_and_answers_and_is_restored(train_run: Callable[..., Path]) -> None:
    options = ["corpus.size=64", "corpus.max_operands=2", "encoder.num_layers=1", "trainer.max_steps=2"]
    run = train_run("experiment=arithmetic", *options)
    metrics = _metrics(run)
    assert metrics["test/perplexity"] > 1
    assert 0 <= metrics["test/error"] <= 100
    assert len((run / "samples.txt").read_text(encoding="utf-8").splitlines()) == 12
    answers = (run / "answers.txt").read_text(encoding="utf-8").splitlines()
    assert all(" equals " in line for line in answers)
    model = ram.load(run)
    assert isinstance(model, TextGenerator)
    texts = model.sample(3, "Two plus", temperature=2.0, max_length=5, seed=1)
    assert len(texts) == 3
    assert all(text.startswith("two plus") and len(text.split()) <= 7 for text in texts)
    assert texts == model.sample(3, "Two plus", temperature=2.0, max_length=5, seed=1)


@pytest.mark.parametrize("options", [[], [*SUBWORDS, *TRANSFORMER]], ids=["words", "subwords"])
def test_translator_writes_its_files_and_is_restored_without_its_corpus(
    command: Callable[..., None],
    refusal: Callable[..., str],
    train_run: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    run = train_run(*PAIRS, "decoder.size=8", *options, "trainer.max_epochs=1", "trainer.picture_every=1")
    metrics = _metrics(run)
    metric_names = {f"test/{name}" for name in ("perplexity", "accuracy", "exact", "bleu", "chrf")}
    assert metric_names | {"validation/perplexity", "parameters", "texts_per_second"} <= metrics.keys()
    drawn = ("alignment_1.png", "alignment_2.png", "alignment_3.png", "lengths.png")
    for name in drawn:
        with Image.open(run / name) as picture:
            assert picture.mode == "RGB"
    lines = (run / "translations.txt").read_text(encoding="utf-8").splitlines()
    texts = [line.removeprefix("source      ") for line in lines[::4]]
    references = [line.removeprefix("reference   ") for line in lines[1::4]]
    targets = dict(zip(GERMAN.lower().replace(",", " ,").splitlines(), ENGLISH.lower().splitlines(), strict=True))
    assert len(texts) == 4 and references == [targets[text] for text in texts]
    events = _events(run)
    assert set(events.Tags()["images"]) == {f"{split}/{name}" for split in ("validation", "test") for name in drawn}
    assert {"loss/answer", "train/accuracy", "validation/exact", "validation/bleu"} <= set(events.Tags()["scalars"])

    capsys.readouterr()
    command(evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}

    Path("pairs.de").unlink()
    model = ram.load(run)
    assert isinstance(model, TextTranslator)
    texts = ["Der Hund, rennt!", "katze"]
    assert model.translate(texts) == [model.translate([text])[0] for text in texts]
    assert len(set(model.n_best(["hunde"], 3)[0])) == 3
    with pytest.raises(InputError, match="Text 0 has no words"):
        model.translate([""])
    assert "pairs.de cannot be read" in refusal(evaluate, f"run={run}")


def test_decoder_only_model_is_trained_and_restored(train_run: Callable[..., Path]) -> None:
    options = ["corpus.size=32", "corpus.max_length=3", "task.source_weight=0.5", "trainer.max_steps=1"]
    run = train_run("~experiment", "~experiment", "task=decoder_only", *options)
    assert _metrics(run)["test/perplexity"] > 1
    assert "loss/source" in _events(run).Tags()["scalars"]
    assert not (run / "alignment_1.png").exists()
    (translation,) = ram.load(run).translate(["abc"])
    assert set(translation) <= set("abcdefghijklmnopqrstuvwxyz")


def test_changed_vocabularies_of_a_translator_are_refused(
    command: Callable[..., None], refusal: Callable[..., str], train_run: Callable[..., Path]
) -> None:
    run = train_run(*PAIRS, "decoder.size=8", "trainer.max_epochs=1", "trainer.picture_every=0")
    for file, text, changed in [("pairs.de", GERMAN, "kater"), ("pairs.en", ENGLISH, "tomcat")]:
        Path(file).write_text(text.replace("hund", changed).replace("dog", changed), encoding="utf-8")
        assert "best.pt does not fit" in refusal(evaluate, f"run={run}")
        assert "last.pt does not fit" in refusal(train, f"resume={run}", "trainer.max_epochs=2")
        Path(file).write_text(text, encoding="utf-8")
    command(train, f"resume={run}", "trainer.max_epochs=2")


def test_interrupted_translator_equals_an_uninterrupted_one(
    command: Callable[..., None], train_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = [
        "select@decoder.context.select=hard",
        "decoder.size=8",
        "decoder.dropout=0.2",
        "task.scheduled_sampling=1.0",
    ]
    random += [
        "task.model.embedding.word_dropout=0.2",
        "task.subwords=24",
        "task.label_smoothing=0.1",
        "task.batch_size=8",
    ]
    whole = train_run(*PAIRS, *random, "trainer.max_epochs=3", "trainer.picture_every=0", run="runs/whole")
    with monkeypatch.context() as patch:
        patch.setattr(TranslateTask, "forward", _interrupted(TranslateTask.forward, 5))
        with pytest.raises(SystemExit, match="Interrupted after step 6"):
            train_run(*PAIRS, *random, "trainer.max_epochs=3", "trainer.picture_every=0", run="runs/interrupted")
    command(train, "resume=runs/interrupted")
    _assert_same_run(whole, Path("runs/interrupted"))


def test_changed_vocabulary_of_a_classifier_is_refused(
    command: Callable[..., None], refusal: Callable[..., str], train_run: Callable[..., Path]
) -> None:
    run = train_run(*FILE, "trainer.max_epochs=1")
    for changed in (LINES.replace("fine", "nice"), LINES + "praise\tan unknown word\n" * 9):
        Path("texts.tsv").write_text(changed)
        differs = "does not fit: the words of the corpus differ from those of training"
        assert f"best.pt {differs}" in refusal(evaluate, f"run={run}")
        assert f"last.pt {differs}" in refusal(train, f"resume={run}", "trainer.max_epochs=2")
    Path("texts.tsv").write_text(LINES)
    command(train, f"resume={run}", "trainer.max_epochs=2")


def test_interrupted_classifier_equals_an_uninterrupted_one(
    command: Callable[..., None], train_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = ["pooling=contextual", "select@pooling.select=hard", "select@encoder.select=hard", "encoder=transformer"]
    hard += [
        "encoder.num_heads=2",
        "encoder.num_layers=1",
        "task.model.embedding.word_dropout=0.2",
        "task.batch_size=8",
    ]
    whole = train_run(*FILE, *hard, "trainer.max_epochs=3", run="runs/whole")
    with monkeypatch.context() as patch:
        patch.setattr(ClassifyTextTask, "forward", _interrupted(ClassifyTextTask.forward, 4))
        with pytest.raises(SystemExit, match="Interrupted after step 5"):
            train_run(*FILE, *hard, "trainer.max_epochs=3", run="runs/interrupted")
    command(train, "resume=runs/interrupted")
    _assert_same_run(whole, Path("runs/interrupted"))


def test_resumed_run_keeps_the_texts_it_wrote(command: Callable[..., None], train_run: Callable[..., Path]) -> None:
    tags = ["experiment=tags", "corpus._target_=tagged_words.TaggedWords"]
    run = train_run(*tags, "trainer.max_epochs=1")
    first = (run / "tags.txt").read_text(encoding="utf-8")
    command(train, f"resume={run}", "trainer.max_epochs=2")
    assert (run / "tags.step1.txt").read_text(encoding="utf-8") == first


def test_language_model_with_tied_embeddings_is_trained(train_run: Callable[..., Path]) -> None:
    options = [
        "corpus.size=16",
        "corpus.max_operands=2",
        "encoder=lstm",
        "task.model.tie_embeddings=true",
        "trainer.max_steps=1",
    ]
    run = train_run("~experiment", "~experiment", "task=language_model", *options)
    assert "test/perplexity" in _metrics(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["experiment=negation", "task.min_count=0"], "task.min_count must be at least 1"),
        (["experiment=negation", "task.model.embedding.dropout=1.0"], "task.model.embedding.dropout must be in [0, 1)"),
        (["experiment=negation", "+task.answer_after=is"], "task.answer_after is not an option of"),
        (["experiment=negation", "encoder.cell=elman"], "encoder.cell must be one of rnn, gru, lstm"),
        (["experiment=negation", "corpus=arithmetic"], "task=classify_text needs a corpus with one label per text"),
        (["experiment=tags", "corpus=negation"], "task=tag needs a corpus with one label per word"),
        (["experiment=arithmetic", "encoder.causal=false"], "needs a causal encoder"),
        (
            ["experiment=arithmetic", "task.model.tie_embeddings=true", "encoder.size=4"],
            "task.model.tie_embeddings=true needs",
        ),
        (["experiment=arithmetic", "task.answer_after=makes"], "task.answer_after='makes'"),
        (
            ["~experiment", "~experiment", "task=translate", "corpus=negation"],
            "task=translate needs a corpus of pairs of texts",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "corpus.max_length=0"],
            "corpus.max_length must be at least 1, got 0",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.scheduled_sampling=2"],
            "task.scheduled_sampling must be in [0, 1]",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.search.max_length=0"],
            "task.search.max_length must be at least 1",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.monitor=bleu", "task.bleu=false"],
            "task.monitor must be exact, perplexity, or bleu",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.subwords=100000"],
            "task.subwords=100000 is too large for the corpus",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.subwords=40", "task.model.copy=true"],
            "task.model.copy=true with task.subwords needs",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "decoder=lstm", "task.model.copy=true"],
            "task.model.copy=true needs a decoder with attention",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "decoder.bridge=state"],
            "decoder.bridge=state needs decoder.size (128)",
        ),
        (
            ["~experiment", "~experiment", "task=translate", "task.model.tie_embeddings=true"],
            "task.model.tie_embeddings=true needs task.model.embedding.size (8)",
        ),
        (
            ["~experiment", "~experiment", "task=decoder_only", "task.shared_vocabulary=false"],
            "needs one vocabulary: set task.shared_vocabulary=true",
        ),
        (["~experiment", "~experiment", "task=decoder_only", "encoder.bidirectional=true"], "needs a causal encoder"),
    ],
)
def test_user_errors_end_with_one_sentence(refusal: Callable[..., str], arguments: list[str], message: str) -> None:
    small = ["corpus.size=16", "trainer.max_steps=1"] if "experiment=tags" not in arguments else ["trainer.max_steps=1"]
    assert message in refusal(train, *SMALL, *small, *arguments, "hydra.run.dir=runs/a")
