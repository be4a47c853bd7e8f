"""A disk whose fsync takes until a test lets it end, or fails."""

import threading
from pathlib import Path

import pytest

from acp_bridge.core.journal import file
from acp_bridge.core.journal.errors import JournalError


class SlowDisk:
    """Put its `sync` in the place of `acp_bridge.core.journal.file.sync_file`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.goes_on = threading.Event()

    def sync(self, _descriptor: int) -> None:
        """Wait in the journal's thread until the disk goes on; 10 seconds at most."""
        self.reached.set()
        assert self.goes_on.wait(timeout=10)


class FailingDisk(SlowDisk):
    """A disk whose fsync fails when a test lets it end."""

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        no_sync(descriptor)


def no_sync(_descriptor: int) -> None:
    """Fail at once, as the fsync of a broken disk does."""
    raise OSError(5, "no disk")


def break_disk(patch: pytest.MonkeyPatch) -> None:
    """Let the disk sync nothing until `patch` is undone: no fsync, no checkpoint that mends one."""

    def no_checkpoint(_path: Path) -> bool:
        raise JournalError("no disk")

    patch.setattr(file, "sync_file", no_sync)
    patch.setattr(file, "_checkpoint", no_checkpoint)
