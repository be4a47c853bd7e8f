"""What the tests of sessions share."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if the system has one: hundreds of sessions are made here, and no test
    is about the disk."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(prefix="acp-bridge-", dir=MEMORY) as folder:
        yield Path(folder)
