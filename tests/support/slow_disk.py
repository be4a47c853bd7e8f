"""A disk whose fsync takes until a test lets it end, or fails."""

import threading


class SlowDisk:
    """Put its `sync` in the place of `acp_bridge.journal.file.sync_file`."""

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
