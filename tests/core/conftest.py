"""What the tests of core share."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.in_memory import MEMORY

if MEMORY:

    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        """A folder in memory: hundreds of journals are made here, and few tests are about the disk.

        A test for which the disk matters takes `on_disk`.
        """
        with TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


@pytest.fixture
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the disk, where a new file may get the inode of a removed one."""
    return tmp_path_factory.mktemp("disk")
