"""The command that predicts with a trained model."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ram
from envs.images.glyphs import Glyphs
from ram import evaluate, predict, train

CAPTIONS = [
    *("experiment=scenes", "corpus.num_train=16", "image_encoder.widths=[4,8,8]", "image_encoder.encoder.size=8"),
    *("decoder.size=8", "task.model.embedding.size=8", "trainer.max_steps=1"),
]
TEXTS = ["corpus.size=64", "encoder.size=8", "trainer.max_steps=1"]


@pytest.fixture(autouse=True)
def _few_examples(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ram.corpora.scenes._HELD_OUT", 8)


def _table(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _save(path: str, image: torch.Tensor) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.numpy()).save(path)


def test_a_published_agent_classifies_a_folder_of_images(
    command: Callable[..., None], refusal: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    digits = Glyphs(num_test=3).load("test").images
    for number, image in enumerate(digits[:, 0]):
        _save(f"images/{number}/digit.png", image)
    Path("images/notes.txt").write_text("not an image")
    command(predict, "run=glyphs", "images=images", "output=tables/a.csv", "figures=figures")
    rows, expected = _table("tables/a.csv"), ram.load("glyphs").predict(digits)
    assert [row["file"] for row in rows] == [str(Path(f"{number}/digit.png")) for number in range(3)]
    assert tuple(row["label"] for row in rows) == expected.label
    by_class = torch.tensor([[float(row[f"p({name})"]) for name in "0123456789"] for row in rows])
    torch.testing.assert_close(by_class, expected.probability, atol=1e-4, rtol=0)
    assert float(rows[0]["probability"]) == by_class[0].max()
    locations = [[[float(row[f"{axis}{look}"]) for axis in "xy"] for look in range(1, 7)] for row in rows]
    torch.testing.assert_close(torch.tensor(locations), expected.location, atol=1e-3, rtol=0)
    assert "3 predictions: tables/a.csv, figures/" in capsys.readouterr().out
    with Image.open("figures/2/digit.png.png") as figure:
        assert figure.size[0] > 200
    again = ["run=glyphs", "images=images", "output=a.csv"]
    assert "is in the folder of the images" in refusal(predict, *again, "figures=images/0")
    assert "output=tables is a folder: name a file" in refusal(predict, *again[:2], "output=tables")
    assert "figures=tables/a.csv cannot be written" in refusal(predict, *again, "figures=tables/a.csv")
    assert "name output=FILE.csv" in refusal(predict, "run=glyphs", "images=images")
    assert "predicts for images: give images=PATH" in refusal(
        predict, "run=glyphs", "texts=images/notes.txt", "output=a.csv"
    )
    Path("none").mkdir()
    assert "images=none has no image files" in refusal(predict, "run=glyphs", "images=none", "output=a.csv")


def test_images_of_any_size_are_resized_for_whole_image_networks(command: Callable[..., None]) -> None:
    small = ["images=glyphs", "images.num_train=32", "images.num_validation=8", "images.num_test=8"]
    options = [
        "experiment=whole_image",
        "~augmentation@images.augmentation",
        "scenes=none",
        "image_encoder.widths=[4,8]",
    ]
    command(
        train, *options, *small, "pooling=fixed", "task.batch_size=16", "trainer.max_steps=1", "hydra.run.dir=runs/a"
    )
    _save("wide.png", torch.randint(0, 256, (20, 90, 3), dtype=torch.uint8))
    command(predict, "run=runs/a", "images=wide.png", "figures=figures")
    (row,) = _table("runs/a/predictions_wide.csv")
    assert row["file"] == "wide.png" and row["label"] in "0123456789"
    assert Path("figures/wide.png.png").is_file()


def test_an_image_is_described_and_drawn(
    command: Callable[..., None], refusal: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    command(train, *CAPTIONS, "hydra.run.dir=runs/a")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save("b.png")
    capsys.readouterr()
    command(predict, "run=runs/a", "images=b.png", "figures=figures")
    image = np.asarray(Image.open("b.png"))[None, None]
    (caption,) = ram.load("runs/a").caption(torch.from_numpy(image.copy()))
    assert _table("runs/a/predictions_b.csv") == [{"file": "b.png", "caption": caption}]
    assert f"b.png  {caption}" in capsys.readouterr().out
    with Image.open("figures/b.png.png") as figure:
        assert figure.size[0] > 300
    assert "nothing.png cannot be read as an image" in refusal(predict, "run=runs/a", "images=nothing.png")
    for missing in ([], ["images="], ["images=b.png", "texts=c.txt"]):
        assert "Give a run, and either images or texts" in refusal(predict, "run=runs/a", *missing)
    assert "no option but run, images" in refusal(predict, "run=runs/a", "images=b.png", "beam_size=2")


@pytest.mark.parametrize(
    ("experiment", "options", "columns"),
    [
        ("negation", TEXTS, ["label", "probability", "p(negative)", "p(positive)"]),
        ("reversal", [*TEXTS, "decoder.size=8", "task.model.embedding.size=8"], ["translation"]),
    ],
)
def test_the_lines_of_a_file_are_predicted(
    experiment: str, options: list[str], columns: list[str], command: Callable[..., None], refusal: Callable[..., str]
) -> None:
    command(train, f"experiment={experiment}", *options, "hydra.run.dir=runs/a")
    Path("lines.txt").write_text("a b c\n\nb a\n")
    command(predict, "run=runs/a", "texts=lines.txt")
    rows = _table("runs/a/predictions_lines.csv")
    assert list(rows[0]) == ["text", *columns] and [row["text"] for row in rows] == ["a b c", "", "b a"]
    assert not any(rows[1].values()) and rows[2][columns[0]]
    assert repr(ram.load("runs/a")).startswith(("TextClassifier(", "TextTranslator("))
    assert ram.load("runs/a").tabulate(["b a"])[0][columns[0]] == rows[2][columns[0]]
    Path("empty.txt").write_text("\n \n")
    assert "texts=empty.txt has no line with a word" in refusal(predict, "run=runs/a", "texts=empty.txt")
    assert "predicts for texts: give texts=FILE" in refusal(predict, "run=runs/a", "images=lines.txt")


def test_help_explains_the_arguments(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command(predict, "--help")
    assert capsys.readouterr().out.startswith("usage: python -m ram.predict run=DIR images=PATH|texts=FILE")


def test_beam_sizes_are_compared_on_the_validation_split(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(train, *CAPTIONS, "hydra.run.dir=runs/a")
    capsys.readouterr()
    command(evaluate, "run=runs/a", "beam_sizes=1,2")
    head, _, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.startswith("| beam | bleu_1 |") and "| cider |" in head and head.endswith("| correct | seconds |")
    assert [row.split("|")[1].strip() for row in rows] == ["1", "2"]
    with Image.open("runs/a/beams.png") as figure:
        assert figure.size[0] > 300
