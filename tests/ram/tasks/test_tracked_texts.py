"""What TensorBoard and the run folder are told of texts and vectors."""

from pathlib import Path

import pytest
import torch
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from ram.tasks import Embedding
from ram.training.tracker import Tracker

TEXT = "one is two\n  *two* <b>is</b> one   (wrong: two)\n"
VECTORS = torch.tensor([[1.0, -2.5], [0.25, 3.0], [0.0, 1e-3]])
WORDS = Embedding(VECTORS, {"word": ("good", "…", "l'été"), "class": ["plus", "minus", "minus"]})


def projector(folder: Path) -> dict[str, tuple[list[list[float]], list[list[str]]]]:
    """Vectors and notes of every embedding that the projector offers, by name."""
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    offered = {}
    for each in config.embeddings:
        tables = [
            [line.split("\t") for line in (folder / path).read_text(encoding="utf-8").splitlines()]
            for path in (each.tensor_path, each.metadata_path)
        ]
        offered[each.tensor_name] = [[float(number) for number in row] for row in tables[0]], tables[1]
    return offered


def test_a_text_is_shown_as_it_is(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.pictures({"answers.txt": TEXT}, 7, "validation")
    tracker.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Tensors("validation/answers.txt/text_summary")
    assert event.step == 7
    # Four spaces make a line of Markdown literal.
    expected = "    one is two\n      *two* <b>is</b> one   (wrong: two)"
    assert event.tensor_proto.string_val[0].decode() == expected
    assert events.Tags()["images"] == []


def test_the_projector_shows_vectors_with_their_notes(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.pictures({"words": WORDS}, 7, "validation")
    tracker.pictures({"words": Embedding(VECTORS[:2], {"word": ["a", "b"]})}, 9, "test")
    tracker.close()
    offered = projector(tmp_path)
    assert offered.keys() == {"validation/words:00007", "test/words:00009"}
    vectors, notes = offered["validation/words:00007"]
    assert vectors == [pytest.approx(row) for row in VECTORS.tolist()]
    assert notes == [["word", "class"], ["good", "plus"], ["…", "minus"], ["l'été", "minus"]]
    assert offered["test/words:00009"] == (VECTORS[:2].tolist(), [["word"], ["a"], ["b"]])


def test_the_same_vectors_are_followed_over_training(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    for step in (4, 8):
        tracker.pictures({"words": Embedding(step * VECTORS, WORDS.notes)}, step, "validation")
    tracker.close()
    offered = projector(tmp_path)
    assert [vectors[0] for vectors, _ in offered.values()] == [[4, -10], [8, -20]]


def test_texts_are_written_to_files_and_vectors_are_not(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    before = set(tmp_path.iterdir())
    tracker.save_pictures({"tags.txt": "dogs/N run/V…\n", "words": WORDS})
    tracker.close()
    assert set(tmp_path.iterdir()) - before == {tmp_path / "tags.txt"}
    assert (tmp_path / "tags.txt").read_bytes() == "dogs/N run/V…\n".encode()


def test_vectors_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    (tmp_path / "00007").write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="can no longer be written") as told:
        tracker.pictures({"words": WORDS, "answers.txt": TEXT}, 7, "validation")
    assert len(told) == 1
    tracker.finish({}, {"test/error": 1.0, "steps": 1})
    assert (tmp_path / "metrics.json").exists()
