"""Fixtures of all tests."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Uses one thread, because the networks of the tests are too small to gain from more."""
    torch.set_num_threads(1)


@pytest.fixture
def root() -> Path:
    """The folder of the repository."""
    return ROOT
