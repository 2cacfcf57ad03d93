"""Checkpoints are written atomically, and damaged ones are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from envs import InputError
from ram.training import checkpoint


def _state() -> dict[str, object]:
    weights = {"weight": torch.arange(6.0).view(2, 3)}
    return {"task": weights, "average": {}, "optimizer": {"step": 3}, "progress": {"step": 3, "best": 0.5}}


def test_a_saved_state_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new" / "last.pt"
    checkpoint.save(path, _state())
    state = checkpoint.load(path)
    assert torch.equal(state["task"]["weight"], torch.arange(6.0).view(2, 3))
    assert state["progress"] == {"step": 3, "best": 0.5}
    assert [each.name for each in path.parent.iterdir()] == ["last.pt"]


def test_a_crash_while_saving_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, _state())
    before = path.read_bytes()

    def crash(state: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", crash)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, _state())
    assert path.read_bytes() == before


def test_a_flipped_byte_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, _state())
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            state = checkpoint.load(path)
        except InputError:
            refused += 1
            continue
        # The byte is in the padding of the archive: the content is the same.
        assert torch.equal(state["task"]["weight"], torch.arange(6.0).view(2, 3))
        assert state["progress"] == {"step": 3, "best": 0.5}
    assert refused > 50


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, share: float) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, _state())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"last\.pt is damaged"):
        checkpoint.load(path)


def test_a_missing_or_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no checkpoint .*last\.pt"):
        checkpoint.load(tmp_path / "last.pt")
    torch.save({"model": torch.zeros(1)}, tmp_path / "foreign.pt")
    with pytest.raises(InputError, match=r"foreign\.pt"):
        checkpoint.load(tmp_path / "foreign.pt")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    with pytest.raises(InputError, match=r"text\.pt"):
        checkpoint.load(tmp_path / "text.pt")


def test_the_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    other = torch.nn.Linear(3, 4).state_dict()
    with pytest.raises(InputError, match="does not fit"):
        checkpoint.load_state(torch.nn.Linear(3, 5), dict(other), tmp_path / "last.pt")


def test_weights_are_saved_as_safetensors(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 3)
    checkpoint.save_weights(tmp_path / "best.safetensors", module)
    tensors = load_file(tmp_path / "best.safetensors")
    assert torch.equal(tensors["weight"], module.weight)
