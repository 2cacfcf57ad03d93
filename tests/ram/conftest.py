"""Fixtures that run the commands as a user does."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; what a command adds to ``sys.path`` is removed after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a command, given its module and its arguments."""

    def command(module: ModuleType, *arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
        module.main()

    return command


@pytest.fixture
def refusal(command: Callable[..., None]) -> Callable[..., str]:
    """Runs a command that must fail, and returns its error message of one line."""

    def refusal(module: ModuleType, *arguments: str) -> str:
        with pytest.raises(SystemExit) as refused:
            command(module, *arguments)
        message = str(refused.value.code)
        assert message.startswith("Error: ")
        assert "\n" not in message
        return message

    return refusal
