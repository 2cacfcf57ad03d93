"""What every test may rely on."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """The networks of the tests are small: two threads would only wait for one another."""
    torch.set_num_threads(1)


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT
