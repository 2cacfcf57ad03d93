"""The records of a run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from ram.tasks import Animation, Embedding
from ram.training.tracker import Tracker

FRAMES = tuple(np.full((6, 8, 3), shade, np.uint8) for shade in (0, 120, 255))


def test_the_events_hold_scalars_text_pictures_and_hparams(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.scalars({"loss/total": 0.5}, 3)
    tracker.text("config", "seed: 0\nlr: 1")
    tracker.pictures({"still.png": FRAMES[1], "moving.gif": Animation(FRAMES, 2.0)}, 3, "test")
    tracker.finish(
        {"seed": 0, "sizes": [1, 2], "none": None}, {"test/error": 1.5, "steps": 3, "best_step": 2, "commit": "abc"}
    )
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("loss/total")[0].value == 0.5
    assert events.Scalars("test/error")[0].step == 3
    assert b"seed: 0" in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    assert set(events.Tags()["images"]) == {"test/still.png", "test/moving.gif"}
    assert events.Images("test/moving.gif")[0].encoded_image_string.startswith(b"GIF89a")
    assert "hparams" in events.summary_metadata["_hparams_/experiment"].plugin_data.plugin_name
    assert len(list(tmp_path.glob("events*"))) == 1


def test_the_files_hold_metrics_and_pictures(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.save_pictures({"still.png": FRAMES[1], "moving.gif": Animation(FRAMES, 2.0)})
    tracker.finish({}, {"test/error": 1.5, "steps": 3})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"test/error": 1.5, "steps": 3}
    with Image.open(tmp_path / "moving.gif") as moving:
        assert moving.n_frames == 3
    with Image.open(tmp_path / "still.png") as still:
        assert still.size == (8, 6)


def test_a_resumed_run_keeps_its_earlier_embeddings(tmp_path: Path) -> None:
    words = Embedding(torch.arange(6.0).view(3, 2), {"word": ["a", "b", "c"], "class": ["x", "y", "x"]})
    for start in (0, 10):
        tracker = Tracker(tmp_path, start)
        tracker.pictures({"words": words}, start + 5, "validation")
        tracker.pictures({"words": words}, start + 10, "validation")
        tracker.close()
    config = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig())
    assert [each.tensor_name.split(":")[1] for each in config.embeddings] == ["00005", "00010", "00015", "00020"]
    for each in config.embeddings:
        assert (tmp_path / each.tensor_path).read_text().split() == ["0.0", "1.0", "2.0", "3.0", "4.0", "5.0"]
        assert (tmp_path / each.metadata_path).read_text() == "word\tclass\na\tx\nb\ty\nc\tx\n"


def test_a_failing_event_file_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(tmp_path)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(tracker._writer, "add_scalar", fail)
    with pytest.warns(UserWarning, match="No space left") as warned:
        tracker.scalars({"a": 1.0, "b": 2.0}, 0)
        tracker.scalars({"a": 1.0}, 1)
    assert len(warned) == 1
    tracker.finish({}, {"test/error": 1.0, "steps": 1})
    assert (tmp_path / "metrics.json").exists()
