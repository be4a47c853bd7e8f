"""What tests of the server share."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder that is not made yet."""
    return tmp_path / "home"
