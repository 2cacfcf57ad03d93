"""The tracker writes texts and embeddings to TensorBoard and the run folder."""

from pathlib import Path

import pytest
import torch
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from ram.tasks import Embedding
from ram.training.tracker import Tracker

TEXT = "one is two\n  *two* <b>is</b> one   (reference: two)\n"
VECTORS = torch.tensor([[1.0, -2.5], [0.25, 3.0], [0.0, 1e-3]])
WORDS = Embedding(VECTORS, {"word": ("good", "…", "l'été"), "class": ["plus", "minus", "minus"]})


def projector(folder: Path) -> dict[str, tuple[list[list[float]], list[list[str]]]]:
    """Returns vectors and metadata of every embedding in the projector by name."""
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    embeddings = {}
    for entry in config.embeddings:
        tables = [
            [line.split("\t") for line in (folder / path).read_text(encoding="utf-8").splitlines()]
            for path in (entry.tensor_path, entry.metadata_path)
        ]
        embeddings[entry.tensor_name] = [[float(number) for number in row] for row in tables[0]], tables[1]
    return embeddings


def test_texts_are_logged_literally(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.pictures({"answers.txt": TEXT}, 7, "validation")
    tracker.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Tensors("validation/answers.txt/text_summary")
    assert event.step == 7
    # Four spaces make a line of Markdown literal.
    expected = "    one is two\n      *two* <b>is</b> one   (reference: two)"
    assert event.tensor_proto.string_val[0].decode() == expected
    assert events.Tags()["images"] == []


def test_projector_shows_vectors_with_their_metadata(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.pictures({"words": WORDS}, 7, "validation")
    tracker.pictures({"words": Embedding(VECTORS[:2], {"word": ["a", "b"]})}, 9, "test")
    tracker.close()
    embeddings = projector(tmp_path)
    assert embeddings.keys() == {"validation/words:00007", "test/words:00009"}
    vectors, metadata = embeddings["validation/words:00007"]
    assert vectors == [pytest.approx(row) for row in VECTORS.tolist()]
    assert metadata == [["word", "class"], ["good", "plus"], ["…", "minus"], ["l'été", "minus"]]
    assert embeddings["test/words:00009"] == (VECTORS[:2].tolist(), [["word"], ["a"], ["b"]])


def test_embeddings_of_several_steps_are_kept(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    for step in (4, 8):
        tracker.pictures({"words": Embedding(step * VECTORS, WORDS.metadata)}, step, "validation")
    tracker.close()
    embeddings = projector(tmp_path)
    assert [vectors[0] for vectors, _ in embeddings.values()] == [[4, -10], [8, -20]]


def test_texts_are_written_to_files_but_embeddings_are_not(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    before = set(tmp_path.iterdir())
    tracker.save_pictures({"tags.txt": "dogs/N run/V…\n", "words": WORDS})
    tracker.close()
    assert set(tmp_path.iterdir()) - before == {tmp_path / "tags.txt"}
    assert (tmp_path / "tags.txt").read_bytes() == "dogs/N run/V…\n".encode()


def test_failing_embeddings_warn_once_and_training_continues(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    (tmp_path / "00007").write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="can no longer be written") as warned:
        tracker.pictures({"words": WORDS, "answers.txt": TEXT}, 7, "validation")
    assert len(warned) == 1
    tracker.finish({}, {"test/error": 1.0, "steps": 1})
    assert (tmp_path / "metrics.json").exists()
