"""Texts by the commands, as a user types them, and what a run leaves behind."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ram
from envs import InputError
from ram import evaluate, train
from ram.tasks.classify_text import ClassifyTextTask, TextClassifier
from ram.tasks.language_model import TextGenerator
from ram.tasks.tag import TextTagger
from ram.tasks.translate import TextTranslator, TranslateTask

SMALL = ["task.batch_size=16", "task.model.embedding.size=8", "encoder.size=8", "trainer.log_every=1"]
LINES = "praise\tgood film\nblame\tbad film\npraise\tfine plot\nblame\tdull plot\n" * 8
GERMAN = "der hund rennt\nEine Katze, müde\nhunde\nder kleine hund\n" * 10
ENGLISH = "the dog runs\nA cat, tired\ndogs\nthe small dog\n" * 10
TAGS = """
from dataclasses import dataclass

from ram.corpora import Examples


@dataclass(frozen=True)
class Source:
    root: str = ""
    ask: str = "tags"

    def load(self, split):
        return Examples((("two", "dogs", "run"), ("dogs", "sleep")) * 8, (("Aa", "aa", "aa."), ("Aa", "aa.")) * 8)

    def tokenize(self, text):
        return tuple(text.split())
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("texts.tsv").write_text(LINES)
    Path("pairs.de").write_text(GERMAN, encoding="utf-8")
    Path("pairs.en").write_text(ENGLISH, encoding="utf-8")
    Path("tagged_words.py").write_text(TAGS)
    monkeypatch.delitem(sys.modules, "tagged_words", raising=False)  # of an earlier test


def _command(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])  # type: ignore[attr-defined]
    module.main()  # type: ignore[attr-defined]


def _train(monkeypatch: pytest.MonkeyPatch, *arguments: str, run: str = "runs/a") -> Path:
    _command(monkeypatch, train, *SMALL, *arguments, f"hydra.run.dir={run}")
    return Path(run)


def _refusal(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> str:
    """The one sentence with which a command ends."""
    with pytest.raises(SystemExit) as refused:
        _command(monkeypatch, module, *arguments)
    told = str(refused.value.code)
    assert told.startswith("Error: ")
    assert "\n" not in told
    return told


def _metrics(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.json").read_text())


def _events(run: Path) -> EventAccumulator:
    events = EventAccumulator(str(run))
    events.Reload()
    return events


FILE = ["experiment=negation", "corpus=labelled_file", "corpus.path=texts.tsv"]
PAIRS = ["task=translate", "corpus=parallel_files", "corpus.source=pairs.de", "corpus.target=pairs.en"]
PIECES = ["task.subwords=30", "task.shared_vocabulary=true", "task.model.copy=true"]
TRANSFORMER = ["decoder=transformer", "decoder.num_heads=2", "decoder.num_layers=1"]


def test_a_classifier_leaves_everything_and_is_used_without_its_corpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pooling = ["pooling=fixed", "reader.num_queries=2"]
    run = _train(monkeypatch, *FILE, *pooling, "trainer.max_epochs=2", "trainer.picture_every=1")
    metrics = _metrics(run)
    assert metrics.keys() >= {"test/error", "test/loss", "validation/error", "parameters", "texts_per_second"}
    trained = load_file(run / "checkpoints/best.safetensors")
    assert metrics["parameters"] == sum(each.numel() for name, each in trained.items() if name.startswith("model."))
    drawn = ("attention.png", "words.png", "weights_reader.attention.png")
    for name in drawn:
        with Image.open(run / name) as picture:
            assert picture.mode == "RGB"
    events = _events(run)
    assert set(events.Tags()["images"]) == {f"{split}/{name}" for split in ("validation", "test") for name in drawn}
    assert {"loss/answer", "train/accuracy", "validation/error", "validation/loss"} <= set(events.Tags()["scalars"])
    folders = {path.parent.name for path in run.rglob("metadata.tsv")}
    assert len(folders) == 2 and all("words" in name for name in folders)

    capsys.readouterr()
    _command(monkeypatch, evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}

    Path("texts.tsv").unlink()
    model = ram.load(run)
    assert isinstance(model, TextClassifier)
    prediction = model.predict(["Good FILM!", "nothing it knows"])
    assert prediction.words == (("good", "film", "!"), ("nothing", "it", "knows"))
    assert set(prediction.label) <= {"praise", "blame"}
    torch.testing.assert_close(prediction.probability.sum(-1), torch.ones(2))
    assert prediction.weights is not None
    assert [tuple(each.shape) for each in prediction.weights] == [(2, 3), (2, 3)]
    with pytest.raises(InputError, match="Text 0 has no words"):
        model.predict([""])
    assert "texts.tsv cannot be read" in _refusal(monkeypatch, evaluate, f"run={run}")


def test_a_tagger_is_trained_on_a_users_own_corpus_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, "experiment=tags", "corpus._target_=tagged_words.Source", "trainer.max_epochs=1")
    assert _metrics(run).keys() >= {"test/error", "test/f1", "validation/error"}
    lines = (run / "tags.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 12 and lines[0].startswith("two/")
    told = _events(run).Tensors("test/tags.txt/text_summary")[0].tensor_proto.string_val[0].decode()
    assert told == "\n".join(f"    {line}" for line in lines)
    model = ram.load(run)
    assert isinstance(model, TextTagger)
    (tags,) = model.predict(["dogs bark"])
    assert [word for word, _ in tags] == ["dogs", "bark"]
    assert {tag for _, tag in tags} <= {"Aa", "aa", "aa."}


def test_a_language_model_answers_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["corpus.size=64", "corpus.max_operands=2", "encoder.num_layers=1", "trainer.max_steps=2"]
    run = _train(monkeypatch, "experiment=arithmetic", *options)
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


@pytest.mark.parametrize("options", [[], [*PIECES, *TRANSFORMER]], ids=["words", "pieces"])
def test_a_translator_leaves_everything_and_is_used_without_its_corpus(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _train(monkeypatch, *PAIRS, "decoder.size=8", *options, "trainer.max_epochs=1", "trainer.picture_every=1")
    metrics = _metrics(run)
    measured = {f"test/{name}" for name in ("perplexity", "accuracy", "exact", "bleu", "chrf")}
    assert measured | {"validation/perplexity", "parameters", "texts_per_second"} <= metrics.keys()
    drawn = ("alignment_1.png", "alignment_2.png", "alignment_3.png", "lengths.png")
    for name in drawn:
        with Image.open(run / name) as picture:
            assert picture.mode == "RGB"
    lines = (run / "translations.txt").read_text(encoding="utf-8").splitlines()
    texts = [line.removeprefix("source  ") for line in lines[::4]]
    right = [line.removeprefix("right   ") for line in lines[1::4]]
    both = dict(zip(GERMAN.lower().replace(",", " ,").splitlines(), ENGLISH.lower().splitlines(), strict=True))
    assert len(texts) == 4 and right == [both[text] for text in texts]
    events = _events(run)
    assert set(events.Tags()["images"]) == {f"{split}/{name}" for split in ("validation", "test") for name in drawn}
    assert {"loss/answer", "train/accuracy", "validation/exact", "validation/bleu"} <= set(events.Tags()["scalars"])

    capsys.readouterr()
    _command(monkeypatch, evaluate, f"run={run}")
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {name: f"{value:.2f}" for name, value in metrics.items() if "/" in name}

    Path("pairs.de").unlink()
    model = ram.load(run)
    assert isinstance(model, TextTranslator)
    said = model.translate(["Der Hund, rennt!", "katze"])
    assert len(said) == 2 and said == [model.translate([text])[0] for text in ("Der Hund, rennt!", "katze")]
    several = model.n_best(["hunde"], 3)[0]
    assert len(set(several)) == 3
    with pytest.raises(InputError, match="Text 0 has no words"):
        model.translate([""])
    assert "pairs.de cannot be read" in _refusal(monkeypatch, evaluate, f"run={run}")


def test_a_language_model_that_goes_on_is_trained_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["corpus.size=32", "corpus.max_length=3", "task.source_weight=0.5", "trainer.max_steps=1"]
    run = _train(monkeypatch, "task=decoder_only", *options)
    assert _metrics(run)["test/perplexity"] > 1
    assert "loss/source" in _events(run).Tags()["scalars"]
    assert not (run / "alignment_1.png").exists()
    (said,) = ram.load(run).translate(["abc"])
    assert set(said) <= set("abcdefghijklmnopqrstuvwxyz")


def test_other_words_than_those_of_a_translator_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, *PAIRS, "decoder.size=8", "trainer.max_epochs=1", "trainer.picture_every=0")
    for file, text, changed in [("pairs.de", GERMAN, "kater"), ("pairs.en", ENGLISH, "tomcat")]:
        Path(file).write_text(text.replace("hund", changed).replace("dog", changed), encoding="utf-8")
        assert "best.pt does not fit" in _refusal(monkeypatch, evaluate, f"run={run}")
        assert "last.pt does not fit" in _refusal(monkeypatch, train, f"resume={run}", "trainer.max_epochs=2")
        Path(file).write_text(text, encoding="utf-8")
    _command(monkeypatch, train, f"resume={run}", "trainer.max_epochs=2")


def test_an_interrupted_translator_ends_like_an_uninterrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    random = ["attention@decoder.context=hard", "decoder.size=8", "decoder.dropout=0.2", "task.scheduled_sampling=1.0"]
    random += [
        "task.model.embedding.word_dropout=0.2",
        "task.subwords=24",
        "task.label_smoothing=0.1",
        "task.batch_size=8",
    ]
    whole = _train(monkeypatch, *PAIRS, *random, "trainer.max_epochs=3", "trainer.picture_every=0", run="runs/whole")
    forward = TranslateTask.forward

    def interrupted(self: TranslateTask, at: int) -> object:
        if at == 5:
            os.kill(os.getpid(), 2)
        return forward(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(TranslateTask, "forward", interrupted)
        with pytest.raises(SystemExit, match="Interrupted after step 6"):
            _train(monkeypatch, *PAIRS, *random, "trainer.max_epochs=3", "trainer.picture_every=0", run="runs/cut")
    _command(monkeypatch, train, "resume=runs/cut")
    ends = [torch.load(run / "checkpoints/last.pt") for run in (whole, Path("runs/cut"))]
    for part in ("task", "average"):
        first, second = (end[part] for end in ends)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first if name != "_extra_state")
    names = [name for name in _metrics(whole) if "/" in name]
    assert [_metrics(whole)[name] for name in names] == [_metrics(Path("runs/cut"))[name] for name in names]


def test_a_vocabulary_that_does_not_fit_the_checkpoint_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _train(monkeypatch, *FILE, "trainer.max_epochs=1")
    for changed in (LINES.replace("fine", "nice"), LINES + "praise\tan unheard of word\n" * 9):
        Path("texts.tsv").write_text(changed)
        differs = "does not fit: the words of the corpus are not those it was trained on"
        assert f"best.pt {differs}" in _refusal(monkeypatch, evaluate, f"run={run}")
        assert f"last.pt {differs}" in _refusal(monkeypatch, train, f"resume={run}", "trainer.max_epochs=2")
    Path("texts.tsv").write_text(LINES)
    _command(monkeypatch, train, f"resume={run}", "trainer.max_epochs=2")


def test_an_interrupted_run_ends_like_an_uninterrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = ["pooling=contextual", "attention@pooling=hard", "attention@encoder=hard", "encoder=transformer"]
    hard += [
        "encoder.num_heads=2",
        "encoder.num_layers=1",
        "task.model.embedding.word_dropout=0.2",
        "task.batch_size=8",
    ]
    whole = _train(monkeypatch, *FILE, *hard, "trainer.max_epochs=3", run="runs/whole")
    forward = ClassifyTextTask.forward

    def interrupted(self: ClassifyTextTask, at: int) -> object:
        if at == 4:
            os.kill(os.getpid(), 2)
        return forward(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(ClassifyTextTask, "forward", interrupted)
        with pytest.raises(SystemExit, match="Interrupted after step 5"):
            _train(monkeypatch, *FILE, *hard, "trainer.max_epochs=3", run="runs/cut")
    _command(monkeypatch, train, "resume=runs/cut")
    ends = [torch.load(run / "checkpoints/last.pt") for run in (whole, Path("runs/cut"))]
    for part in ("task", "average"):
        first, second = (end[part] for end in ends)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first if name != "_extra_state")
    names = [name for name in _metrics(whole) if "/" in name]
    assert [_metrics(whole)[name] for name in names] == [_metrics(Path("runs/cut"))[name] for name in names]


def test_a_run_that_goes_on_keeps_the_texts_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = ["experiment=tags", "corpus._target_=tagged_words.Source"]
    run = _train(monkeypatch, *tags, "trainer.max_epochs=1")
    first = (run / "tags.txt").read_text(encoding="utf-8")
    _command(monkeypatch, train, f"resume={run}", "trainer.max_epochs=2")
    assert (run / "tags.step1.txt").read_text(encoding="utf-8") == first


def test_a_tied_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    options = [
        "corpus.size=16",
        "corpus.max_operands=2",
        "encoder=lstm",
        "task.model.tie_embeddings=true",
        "trainer.max_steps=1",
    ]
    run = _train(monkeypatch, "task=language_model", *options)
    assert "test/perplexity" in _metrics(run)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["experiment=negation", "task.min_count=0"], "task.min_count must be at least 1"),
        (["experiment=negation", "task.model.embedding.dropout=1.0"], "task.model.embedding.dropout must be in [0, 1)"),
        (["experiment=negation", "+task.answer_after=is"], "task.answer_after is no option of"),
        (["experiment=negation", "encoder.cell=elman"], "encoder.cell must be one of rnn, gru, lstm"),
        (["experiment=negation", "corpus=arithmetic"], "task=classify_text needs a corpus with one label a text"),
        (["experiment=tags", "corpus=negation"], "task=tag needs a corpus with one label a word"),
        (["experiment=arithmetic", "encoder.causal=false"], "must not see what comes next"),
        (
            ["experiment=arithmetic", "task.model.tie_embeddings=true", "encoder.size=4"],
            "task.model.tie_embeddings=true needs",
        ),
        (["experiment=arithmetic", "task.answer_after=makes"], "task.answer_after='makes'"),
        (["task=translate", "corpus=negation"], "task=translate needs a corpus of pairs of texts"),
        (["task=translate", "corpus.max_length=0"], "corpus.max_length must be at least 1, got 0"),
        (["task=translate", "task.scheduled_sampling=2"], "task.scheduled_sampling must be in [0, 1]"),
        (["task=translate", "task.search.max_length=0"], "task.search.max_length must be at least 1"),
        (["task=translate", "task.monitor=bleu", "task.bleu=false"], "task.monitor must be exact, perplexity, or bleu"),
        (["task=translate", "task.subwords=100000"], "task.subwords=100000 cannot be found in the corpus"),
        (["task=translate", "task.subwords=40", "task.model.copy=true"], "task.model.copy=true of task.subwords needs"),
        (
            ["task=translate", "decoder=lstm", "task.model.copy=true"],
            "task.model.copy=true needs a decoder that weighs",
        ),
        (["task=translate", "decoder.bridge=state"], "decoder.bridge=state needs decoder.size (128)"),
        (
            ["task=translate", "task.model.tie_embeddings=true"],
            "task.model.tie_embeddings=true needs task.model.embedding.size (8)",
        ),
        (
            ["task=decoder_only", "task.shared_vocabulary=false"],
            "needs one vocabulary: set task.shared_vocabulary=true",
        ),
        (["task=decoder_only", "encoder.bidirectional=true"], "must not see what comes next"),
    ],
)
def test_a_users_mistake_is_one_sentence(monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str) -> None:
    few = ["corpus.size=16", "trainer.max_steps=1"] if "experiment=tags" not in arguments else ["trainer.max_steps=1"]
    assert told in _refusal(monkeypatch, train, *SMALL, *few, *arguments, "hydra.run.dir=runs/a")
