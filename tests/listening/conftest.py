"""What tests with sockets share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, as a user's is; those of pytest are too long for sockets."""
    folder = tempfile.mkdtemp(prefix="short-")
    yield Path(folder)
    shutil.rmtree(folder)
